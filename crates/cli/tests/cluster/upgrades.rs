//! Savepoints of jobs on clusters, and upgrades.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Output;

use crate::arena::Arena;
use crate::processes::kill;
use crate::survives::{ENDLESS, EXACTLY_ONCE, GuaranteedJob, in_memory, promises};
use crate::tally::Tally;

fn arguments(job: &GuaranteedJob, how: &str) -> String {
    let out = job.out.0.display();
    format!("tally {out} {ENDLESS} 2000 {how}")
}

fn upgrade(job: &GuaranteedJob, options: &str, how: &str) -> Output {
    let options = promises(&format!("{EXACTLY_ONCE} {options}"));
    job.arena.try_upgrade(&options, &arguments(job, how))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the running submission, and the stage of its upgrade.
fn seen(job: &GuaranteedJob) -> Option<(String, String)> {
    let told = job.arena.look("tally")?;
    let submission = told["submission"].as_str()?.to_string();
    let stage = told["upgrade"]["stage"].as_str().unwrap_or_default();
    Some((submission, stage.to_string()))
}

fn submission(job: &GuaranteedJob) -> String {
    seen(job).expect("somebody leads it").0
}

pub fn one_program_follows_another_and_what_is_published_is_the_same() {
    let job = GuaranteedJob::exactly_once(ENDLESS, 1_000);
    job.until_more();
    let mut before = submission(&job);
    for _ in 0..2 {
        let upgraded = upgrade(&job, "", "");
        assert!(upgraded.status.success(), "{upgraded:?}");
        let now = seen(&job).unwrap();
        assert!(now.0 != before && now.1 == "upgraded", "{now:?}");
        before = now.0;
        job.until_more();
    }
    // No setting is repeated: the job retains its settings.
    let settings = || {
        let mut settings = job.arena.json("describe tally")["settings"].clone();
        // Removes the setting with the place of this submission's initial state.
        settings.as_object_mut().unwrap().remove("recovery.from");
        settings
    };
    let kept = settings();
    assert_eq!(kept["guarantee"], "exactly-once");
    let upgraded = job.arena.try_upgrade("", &arguments(&job, ""));
    assert!(upgraded.status.success(), "{upgraded:?}");
    assert_eq!(settings(), kept);
    let told = String::from_utf8_lossy(&upgraded.stdout);
    assert!(told.contains("guarantee=exactly-once"), "{told}");
    job.until_more();
    let told = job.arena.succeed("describe tally");
    assert!(told.contains("it was upgraded from"), "{told}");
    let listed = job.arena.json("list --all");
    let past = listed["past"].as_array().unwrap();
    assert_eq!(past.len(), 3);
    assert!(past.iter().all(|it| it["ending"] == "followed"), "{listed}");
    job.stop();
}

pub fn a_program_that_does_not_come_up_gives_way_to_the_one_before() {
    let job = GuaranteedJob::exactly_once(ENDLESS, 1_000);
    job.until_more();
    let before = submission(&job);
    let options = "--set recovery.attempts=1 --set checkpoints.every=2s";
    let failed = upgrade(&job, options, "fails");
    assert!(!failed.status.success(), "{failed:?}");
    let told = said(&failed);
    assert!(told.contains("the old one runs again"), "{told}");
    // The next leader reports it as soon as it has read the metadata store.
    job.arena.until("it is told", || {
        seen(&job).is_some_and(|(now, stage)| now != before && stage == "rolled_back")
    });
    let listed = job.arena.json("list --all");
    let past = listed["past"].as_array().unwrap();
    let mut endings: Vec<&str> = past.iter().filter_map(|it| it["ending"].as_str()).collect();
    endings.sort_unstable();
    assert_eq!(endings, ["followed", "rolled_back"], "{listed}");
    job.until_more();
    job.stop();
}

/// Removes the blocks to which the manifests in a folder refer.
fn lose_blocks(folder: &Path) {
    let files = fs::read_dir(folder).unwrap().flatten();
    let blocks = files.filter(|file| file.file_name().to_string_lossy().starts_with("block-"));
    let lost = blocks.filter(|file| fs::remove_file(file.path()).is_ok());
    assert!(lost.count() > 0);
}

pub fn a_program_whose_state_is_damaged_does_not_come_up_and_says_why() {
    let job = GuaranteedJob::exactly_once(ENDLESS, 1_000);
    let arena = &job.arena;
    job.until_more();
    arena.succeed("savepoint tally --to saved");
    arena.succeed("kill tally --yes");
    lose_blocks(&arena.path().join("saved"));
    let begins = promises(&format!("{EXACTLY_ONCE} --set recovery.from=saved"));
    let failed = arena.try_numbers(&begins, &arguments(&job, ""));
    assert!(!failed.status.success(), "{failed:?}");
    assert!(said(&failed).contains("ARD-6"), "{failed:?}");
    assert_eq!(arena.phase("tally").as_deref(), Some("impossible"));
    let reason = arena.json("list")[0]["reason"].to_string();
    assert!(reason.contains("block-"), "{reason}");
    arena.succeed("kill tally --yes");
}

pub fn an_upgrade_from_a_damaged_checkpoint_ends_with_the_reason() {
    // Only requested epochs end: a later one may be complete again.
    let rarely = "--set guarantee=exactly-once --set checkpoints.every=1h";
    let job = GuaranteedJob::begun(ENDLESS, 1_000, rarely);
    job.arena.succeed("savepoint tally --to saved");
    lose_blocks(&job.folder());
    let failed = upgrade(&job, "", "");
    assert!(!failed.status.success(), "{failed:?}");
    assert!(said(&failed).contains("block-"), "{failed:?}");
    job.arena.succeed("kill tally --yes");
}

pub fn state_in_the_memory_of_hosts_is_gone_on_from_and_saved_as_well() {
    let job = GuaranteedJob::submitted(ENDLESS, 1_000, &in_memory(EXACTLY_ONCE));
    let arena = &job.arena;
    job.until_more();
    let upgrade = |options: &str, how: &str| {
        let options = in_memory(&format!("{EXACTLY_ONCE} {options}"));
        arena.try_upgrade(&options, &arguments(&job, how))
    };
    let before = submission(&job);
    let upgraded = upgrade("", "");
    assert!(upgraded.status.success(), "{upgraded:?}");
    let now = seen(&job).unwrap();
    assert!(now.0 != before && now.1 == "upgraded", "{now:?}");
    job.until_more();
    let failed = upgrade(
        "--set recovery.attempts=1 --set checkpoints.every=2s",
        "fails",
    );
    assert!(
        said(&failed).contains("the old one runs again"),
        "{failed:?}"
    );
    job.until_more();
    arena.succeed("savepoint tally --to saved");
    let told = arena.succeed("savepoint inspect saved --check");
    assert!(told.contains("whole: "), "{told}");
    assert!(!arena.path().join("kept").exists());
    job.stop();
}

pub fn an_upgrade_goes_on_though_its_command_and_its_master_are_killed() {
    let job = GuaranteedJob::exactly_once(ENDLESS, 1_000);
    let arena = &job.arena;
    job.until_more();
    let before = submission(&job);
    let begun = upgrade(&job, "--detach", "");
    assert!(begun.status.success(), "{begun:?}");
    kill(arena.host(&job.leader()));
    arena.until("the new program", || {
        seen(&job).is_some_and(|(now, stage)| now != before && stage == "upgraded")
    });
    job.until_more();
    job.stop();
}

pub fn what_can_not_go_on_is_refused_before_anything_stops() {
    let job = GuaranteedJob::exactly_once(ENDLESS, 1_000);
    let arena = &job.arena;
    job.until_more();
    let before = submission(&job);
    let refused = upgrade(&job, "", "text");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(said(&refused).contains("counts/keys"), "{refused:?}");
    let program = arena.program();
    let compared = arena.fail(&format!("diff tally {program} {}", arguments(&job, "text")));
    let topology = arena.fail("diff tally word-count.yaml");
    assert!(topology.contains("is a topology"), "{topology}");
    assert!(compared.contains("counts/keys"), "{compared}");
    let same = arena.succeed(&format!("diff tally {program} {}", arguments(&job, "")));
    assert!(same.contains("keep"), "{same}");
    assert_eq!(seen(&job), Some((before, String::new())));
    job.until_more();
    job.stop();
}

/// Returns the least published count of each key; fails if a later one is missing.
fn firsts(out: &Path) -> BTreeMap<u64, u64> {
    let mut firsts = BTreeMap::new();
    let mut last = BTreeMap::new();
    for (key, count) in Tally(out.to_path_buf()).lines() {
        firsts.entry(key).or_insert(count);
        if let Some(before) = last.insert(key, count) {
            assert_eq!(count, before + 1, "of key {key}");
        }
    }
    firsts
}

/// Checks that the folder of a job that its cluster has forgotten can be inspected, compared and
/// saved.
fn assert_left(arena: &Arena, folder: &Path) {
    let folder = folder.display();
    let looked = arena.json(&format!("checkpoints {folder} --check"));
    assert!(
        looked["checkpoints"]
            .as_array()
            .is_some_and(|it| !it.is_empty()),
        "{looked}"
    );
    arena.succeed(&format!("savepoint {folder} --to left"));
    let told = arena.succeed("savepoint inspect left --check");
    assert!(
        told.contains("whole: ") && told.contains("counts/keys"),
        "{told}"
    );
    let row = told.lines().find(|row| row.contains("counts/keys"));
    assert!(row.is_some_and(|row| row.contains("u64")), "{told}");
}

pub fn a_savepoint_of_a_job_on_a_cluster_begins_another_there() {
    let job = GuaranteedJob::exactly_once(ENDLESS, 1_000);
    let arena = &job.arena;
    job.until_more();
    let saved = arena.json("savepoint tally --to saved");
    let epoch = saved["savepoint"]["checkpoint"][1].as_u64();
    assert!(epoch > Some(0), "{saved}");
    let told = arena.succeed("savepoint inspect saved --check");
    assert!(
        told.contains("whole: ") && told.contains("counts/keys"),
        "{told}"
    );
    let again = arena.fail("savepoint tally --to saved");
    assert!(again.contains("already"), "{again}");
    // The job has continued meanwhile, and nothing is retained for the savepoint any more.
    job.until_more();
    job.stop();

    let other = arena.path().join("other");
    std::fs::create_dir_all(&other).unwrap();
    // The sink's state belongs to the folder in its name.
    let sink = format!("write {}", job.out.0.join("tally.txt").display());
    arena.write("ardea.toml", &format!("[recovery]\ndrop = \"{sink}\"\n"));
    let options = promises(&format!("{EXACTLY_ONCE} --set recovery.from=saved"));
    let arguments = format!("tally {} {ENDLESS} 1000", other.display());
    arena.submit_numbers(&options, &arguments);
    arena.until("results", || Tally(other.clone()).lines().len() > 1_000);
    let id = submission(&job);
    arena.succeed("kill tally --yes");
    assert_left(
        arena,
        &arena.path().join("kept").join(format!("tally-{id}")),
    );
    let firsts = firsts(&other);
    assert!(firsts.values().all(|first| *first > 1), "{firsts:?}");

    // The folder can be compared with a program like any savepoint.
    let program = arena.program();
    let same = arena.succeed(&format!("diff saved {program} {arguments}"));
    assert!(same.contains("keep"), "{same}");
    let lost = arena.try_numbers(
        &promises(&format!("{EXACTLY_ONCE} --set recovery.from=nowhere")),
        &arguments,
    );
    assert!(!lost.status.success(), "{lost:?}");
    assert!(said(&lost).contains("nowhere"), "{lost:?}");
}
