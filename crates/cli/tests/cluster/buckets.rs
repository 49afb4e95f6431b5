//! Jobs whose checkpoints are in a real object store, which may go away and come back.

use std::fs;
use std::io::Write;

use ardea_metastore::conformance::{Server, Skipped};

use crate::arena::Arena;
use crate::processes::kill;
use crate::survives::{ENDLESS, EXACTLY_ONCE, GuaranteedJob};

/// Adds the store's credentials to the environment.
fn with_credentials(arena: Arena) -> Arena {
    arena
        .with_variable("AWS_ACCESS_KEY_ID", "ardea")
        .with_variable("AWS_SECRET_ACCESS_KEY", "ardea-secret")
}

/// Starts a store; returns `None` and prints a notice if there can't be one.
fn store() -> Option<Server> {
    match Server::start("minio.sh") {
        Ok(server) => Some(server),
        Err(Skipped(why)) => {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED a cluster's checkpoints in a bucket: {why}"
            );
            None
        }
    }
}

pub fn a_job_with_its_checkpoints_in_a_bucket_goes_on_whatever_is_killed_and_away() {
    let Some(store) = store() else {
        return;
    };
    let endpoint = format!("endpoint=http://{}", store.address());
    let options = format!(
        "--set job.containers=3 --set checkpoints.folder=s3://states/jobs?{endpoint} {EXACTLY_ONCE} --set checkpoints.timeout=2s"
    );
    let arena = with_credentials(Arena::new());
    let job = GuaranteedJob::submitted_to(arena, ENDLESS, 1_000, &options);
    let arena = &job.arena;
    job.until_more();
    job.kill_worker(1, kill);
    let saved = format!("s3://states/saved?{endpoint}");
    arena.succeed(&format!("savepoint tally --to {saved}"));
    arena.succeed(&format!("savepoint inspect {saved} --check"));

    // Without the store no epoch is committed and nothing published; afterwards all of it is.
    store.kill();
    arena.until("it is told that epochs are aborted", || {
        let described = arena.succeed("describe tally");
        described.contains("trouble")
    });
    store.restart();
    job.until_more();

    // A restart waits until the checkpoint can be read.
    store.kill();
    arena
        .workers("tally")
        .into_iter()
        .for_each(|(_, pid)| kill(pid));
    arena.until("it waits for the store", || {
        let listed = arena.json("list");
        let reason = listed[0]["reason"].as_str().unwrap_or_default();
        // If a checkpoint was being written, its outcome is determined first.
        ["can't be read at the moment", "does not answer"]
            .iter()
            .any(|why| reason.contains(why))
    });
    store.restart();
    job.until_more();

    arena.succeed("checkpoints tally --check");
    job.stop();
    // The checkpoints can be read without the cluster.
    let kept = fs::read_dir(store.folder().join("data/states/jobs")).unwrap();
    let name = kept.flatten().next().unwrap().file_name();
    let left = format!("s3://states/jobs/{}?{endpoint}", name.display());
    arena.succeed(&format!("checkpoints {left} --check"));
    arena.succeed(&format!("savepoint {left} --to last"));
}

pub fn a_program_is_followed_from_one_place_of_checkpoints_to_another() {
    let Some(store) = store() else {
        return;
    };
    let bucket = |bucket: &str| {
        let endpoint = format!("endpoint=http://{}", store.address());
        format!("--set checkpoints.folder=s3://{bucket}/jobs?{endpoint}")
    };
    let both = format!("{} --set checkpoints.memory=on", bucket("states"));
    let arena = with_credentials(Arena::new());
    let promises = |place: &str| format!("--set job.containers=3 {EXACTLY_ONCE} {place}");
    let job = GuaranteedJob::submitted_to(arena, ENDLESS, 1_000, &promises(&both));
    let arena = &job.arena;
    job.until_more();
    job.kill_worker(1, kill);
    let arguments = format!(
        "tally {} {ENDLESS} 1000",
        arena.path().join("out").display()
    );
    let submission = || arena.json("describe tally")["submission"].clone();
    for place in [
        "--set checkpoints.folder=kept",
        &bucket("states"),
        "",
        &both,
    ] {
        let upgraded = arena.try_upgrade(&promises(place), &arguments);
        assert!(upgraded.status.success(), "{place}: {upgraded:?}");
        job.until_more();
    }
    // The refusal comes before anything stops.
    let before = submission();
    let refused = arena.try_upgrade(&promises(&bucket("nowhere")), &arguments);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{refused:?}");
    assert!(told.contains("nowhere"), "{told}");
    assert_eq!(submission(), before);
    job.until_more();
    job.stop();
}

pub fn a_job_whose_bucket_can_not_be_used_is_refused_with_the_reason() {
    let Some(store) = store() else {
        return;
    };
    let arena = Arena::new()
        .with_variable("AWS_ACCESS_KEY_ID", "ardea")
        .with_variable("AWS_SECRET_ACCESS_KEY", "a-wrong-secret");
    arena.succeed("cluster start --workers 1");
    let out = arena.path().display().to_string();
    let bucket = format!("s3://states/jobs?endpoint=http://{}", store.address());
    let options = format!("{EXACTLY_ONCE} --set checkpoints.folder={bucket}");
    let submit = |options: &str| {
        let refused = arena.try_numbers(options, &format!("tally {out} 10 10"));
        assert!(!refused.status.success(), "{refused:?}");
        String::from_utf8_lossy(&refused.stderr).into_owned()
    };
    let told = submit(&options);
    assert!(told.contains("AWS_SECRET_ACCESS_KEY"), "{told}");
    assert!(!told.contains("a-wrong-secret"), "{told}");
    let nowhere = "--set checkpoints.folder=s3://?endpoint=http://localhost";
    let told = submit(&format!("{EXACTLY_ONCE} {nowhere}"));
    assert!(told.contains("s3://BUCKET"), "{told}");
    assert!(arena.json("list").as_array().unwrap().is_empty());
}
