//! Hosts that are drained under running jobs.

use serde_json::Value;

use crate::arena::Arena;
use crate::deaths::NumbersJob;
use crate::processes::kill;
use crate::survives::{ENDLESS, EXACTLY_ONCE, GuaranteedJob};

const ON_HOSTS: &str = "--set cluster.scheduler=hosts";

/// Returns the status of the host `name`; `None` if no host answers, or `name` is not up.
fn host(arena: &Arena, name: &str) -> Option<Value> {
    let output = arena.run("cluster status --json");
    let told: Value = serde_json::from_slice(&output.stdout).ok()?;
    let mut hosts = told["hosts"].as_array()?.iter();
    hosts.find(|host| host["name"] == name).cloned()
}

/// Returns the containers on a host, and true if the host is drained.
fn standing(arena: &Arena, name: &str) -> Option<(Vec<u64>, bool)> {
    let host = host(arena, name)?;
    let containers = host["containers"].as_array()?.iter();
    let containers = containers.filter_map(|it| it["container"].as_u64());
    Some((containers.collect(), host["drained"].as_bool()?))
}

fn until_on(arena: &Arena, name: &str, is_so: impl Fn(&[u64], bool) -> bool) -> Vec<u64> {
    let mut seen = Vec::new();
    arena.until_none(|| {
        let standing = standing(arena, name);
        let (containers, drained) = standing.clone().unwrap_or_default();
        let holds = standing.is_some() && is_so(&containers, drained);
        seen = containers;
        (!holds).then(|| format!("not yet on {name}: {:?}", host(arena, name)))
    });
    seen
}

fn surviving() -> GuaranteedJob {
    let job = GuaranteedJob::begun(ENDLESS, 1_000, &format!("{EXACTLY_ONCE} {ON_HOSTS}"));
    job.until_more();
    job
}

pub fn a_host_is_drained_under_a_job_and_what_is_published_is_the_same() {
    let job = surviving();
    let arena = &job.arena;
    let there = until_on(arena, "host-2", |containers, _| !containers.is_empty());
    let before = arena.workers("tally");
    arena.succeed("cluster drain host-2");
    assert_eq!(standing(arena, "host-2"), Some((Vec::new(), true)));
    let now = arena.workers("tally");
    assert_eq!(now.len(), 3);
    // Containers on other hosts are unchanged.
    let stays = before.iter().filter(|(id, _)| !there.contains(id));
    assert!(stays.clone().count() > 0);
    assert!(
        stays.clone().all(|it| now.contains(it)),
        "{before:?} {now:?}"
    );
    assert!(!now.iter().any(|(id, _)| there.contains(id)), "{now:?}");
    let told = arena.succeed("describe tally --verbose");
    assert!(told.contains("host host-2 is drained"), "{told}");
    job.until_more();

    // The death of the drained host ends no container, and the host stays drained when it comes
    // back.
    kill(arena.host("host-2"));
    job.until_more();
    assert_eq!(arena.workers("tally"), now);
    arena.succeed("cluster start --workers 2");
    until_on(arena, "host-2", |containers, drained| {
        drained && containers.is_empty()
    });
    arena.succeed("rescale tally --workers 4");
    assert_eq!(standing(arena, "host-2"), Some((Vec::new(), true)));

    // No other host is left.
    let refused = arena.fail("cluster drain host-1");
    assert!(
        refused.contains("ARD-622") && refused.contains("all hosts are drained"),
        "{refused}"
    );
    arena.succeed("cluster undrain host-2");
    arena.succeed("cluster drain host-1");
    let all = until_on(arena, "host-2", |containers, drained| {
        !drained && containers.len() == 4
    });
    let now = arena.workers("tally");
    assert_eq!(now.iter().map(|(id, _)| *id).collect::<Vec<_>>(), all);
    job.until_more();
    job.stop();
}

pub fn a_drain_goes_on_though_its_command_and_the_leader_are_killed() {
    let job = surviving();
    let arena = &job.arena;
    let leader = job.leader();
    until_on(arena, "host-1", |containers, _| !containers.is_empty());
    until_on(arena, "host-2", |containers, _| !containers.is_empty());
    let other = if leader == "host-1" {
        "host-2"
    } else {
        "host-1"
    };
    let mut command = arena.begin(&format!("cluster drain {other}"));
    until_on(arena, other, |_, drained| drained);
    command.kill().unwrap();
    command.wait().unwrap();
    kill(arena.host(&leader));
    // The other host leads now, and no container can leave it while the first is away.
    arena.succeed("cluster start --workers 2");
    until_on(arena, other, |containers, drained| {
        drained && containers.is_empty()
    });
    assert_eq!(arena.workers("tally").len(), 3);
    job.until_more();
    job.stop();
}

pub fn a_host_that_dies_while_it_is_drained_is_left_all_the_same() {
    let job = surviving();
    let arena = &job.arena;
    let there = until_on(arena, "host-2", |containers, _| !containers.is_empty());
    let before = arena.workers("tally");
    let were_there = |it: &&(u64, i32)| there.contains(&it.0);
    let were_there: Vec<(u64, i32)> = before.iter().filter(were_there).copied().collect();
    let mut command = arena.begin("cluster drain host-2");
    until_on(arena, "host-2", |_, drained| drained);
    kill(arena.host("host-2"));
    // A container that had not been moved when its host died is recreated under its number.
    arena.until("nothing is left of what was there", || {
        let workers = arena.workers("tally");
        workers.len() == 3 && !workers.iter().any(|it| were_there.contains(it))
    });
    job.until_more();
    arena.succeed("cluster start --workers 2");
    until_on(arena, "host-2", |containers, drained| {
        drained && containers.is_empty()
    });
    assert!(command.wait().unwrap().success());
    job.stop();
}

pub fn a_drain_loses_no_number_of_a_job_without_a_guarantee() {
    let job = NumbersJob::begun_with(ON_HOSTS, 1_000);
    let arena = &job.arena;
    job.until_more();
    for (drained, undrained) in [("host-2", "host-1"), ("host-1", "host-2")] {
        arena.succeed(&format!("cluster undrain {undrained}"));
        arena.succeed(&format!("cluster drain {drained} --json"));
        assert_eq!(standing(arena, drained), Some((Vec::new(), true)));
        assert_eq!(arena.workers("numbers").len(), 3);
        job.until_more();
    }
    job.end();
}

pub fn a_drain_that_can_not_be_is_refused_with_the_reason_and_changes_nothing() {
    let arena = Arena::with_hosts(1);
    let refused = arena.fail("cluster drain host-9");
    assert!(refused.contains("did you mean host-1?"), "{refused}");
    let refused = arena.fail("cluster undrain host-9");
    assert!(refused.contains("there is no host \"host-9\""), "{refused}");
    arena.succeed("submit word-count.yaml");
    let refused = arena.fail("cluster drain host-1");
    assert!(
        refused.contains("word-count") && refused.contains("cluster.scheduler=hosts"),
        "{refused}"
    );
    assert_eq!(standing(&arena, "host-1").map(|it| it.1), Some(false));
    arena.succeed("kill word-count --yes");

    // A host without containers is drained at once, and then gets none.
    arena.succeed("cluster drain host-1");
    let status = arena.succeed("cluster status");
    assert!(status.contains("drained"), "{status}");
    let line = format!("submit word-count.yaml {ON_HOSTS} --detach");
    arena.succeed(&line);
    arena.until("told: that there is no room", || {
        let described = arena.run("describe word-count --verbose");
        String::from_utf8_lossy(&described.stdout).contains("all hosts are drained")
    });
    arena.succeed("cluster undrain host-1");
    arena.until_phase("word-count", "running");
    arena.succeed("kill word-count --yes");
}

pub fn an_update_without_room_is_told_and_taken_back_by_itself_or_by_the_numbers_before() {
    let arena = Arena::with_hosts(2);
    let mut total = 0;
    arena.until("both hosts are up", || {
        let host = host(&arena, "host-2");
        total = host.map_or(0, |host| {
            host["total"]["memory_bytes"].as_u64().unwrap_or(0)
        });
        total > 0
    });
    // Two instances per container, and three containers per host.
    let sizes = format!(
        "--set instance.memory={} --set container.memory={}",
        total / 8,
        total / 3
    );
    arena.succeed(&format!("submit word-count.yaml {ON_HOSTS} {sizes}"));
    let before = arena.workers("word-count");
    arena.succeed("update word-count counts=12 --detach");
    let reason = || {
        let told = arena.look("word-count")?;
        Some(told["reason"].as_str()?.to_string())
    };
    arena.until("it is told what it waits for", || {
        let told = reason().unwrap_or_default();
        told.contains("ARD-622") && told.contains("is cancelled")
    });
    let listed = arena.succeed("list");
    assert!(listed.contains("ARD-622"), "{listed}");
    arena.succeed("update word-count counts=2");
    let stays = || {
        let now = arena.workers("word-count");
        before.iter().all(|it| now.contains(it)) && now.len() == before.len()
    };
    arena.until("only what was there is there", stays);

    let told = arena.fail("update word-count counts=12");
    for part in ["ARD-622", "was rolled back", " room "] {
        assert!(told.contains(part), "{part}: {told}");
    }
    arena.until_phase("word-count", "running");
    arena.until("only what was there is there", stays);
    assert_eq!(reason(), None);
    let described = arena.succeed("describe word-count --verbose");
    assert!(
        described.contains("returns to its current plan"),
        "{described}"
    );
    arena.succeed("kill word-count --yes");
}

pub fn a_host_that_was_away_when_its_job_was_killed_ends_what_it_has_of_it() {
    let job = surviving();
    let arena = &job.arena;
    until_on(arena, "host-2", |containers, _| !containers.is_empty());
    kill(arena.host("host-2"));
    arena.succeed("kill tally --yes");
    arena.succeed("cluster start --workers 2");
    until_on(arena, "host-2", |containers, _| containers.is_empty());
    arena.succeed("cluster drain host-2");
}
