//! Maps of the cluster, written by jobs and read by users.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};

use serde_json::Value;

use crate::arena::Arena;
use crate::processes::kill;
use crate::survives::ENDLESS;
use crate::tally::KEYS;

/// Starts a job in two containers that writes its counts to the map `tally`.
fn counting() -> Arena {
    let arena = Arena::with_hosts(2);
    let arguments = format!("tally out {ENDLESS} 1000 map");
    arena.submit_numbers("--set job.containers=2", &arguments);
    arena.until("all keys have something", || entries(&arena) == KEYS);
    arena
}

/// Returns the number of entries of the map; 0 if no host answers.
fn entries(arena: &Arena) -> u64 {
    let listed = arena.run("map list --json");
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
    listed["maps"][0]["entries"].as_u64().unwrap_or(0)
}

/// Returns the count of a key; `None` if no host answers.
fn counted(arena: &Arena, key: u64) -> Option<u64> {
    let told = arena.run(&format!("map get tally {key}"));
    let told: Value = serde_json::from_slice(&told.stdout).ok()?;
    told["count"].as_u64()
}

fn until_more(arena: &Arena) {
    let mut before = None;
    arena.until("a count", || {
        before = counted(arena, 7);
        before.is_some()
    });
    arena.until("a greater count", || counted(arena, 7) > before);
}

/// Waits until all copies exist, so that either of the two hosts may be killed.
fn until_all_copies(arena: &Arena) {
    arena.until("all copies", || {
        let listed = arena.run("map list --json");
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
        listed["hosts"] == 2 && listed["unsettled_partitions"] == 0
    });
}

/// Returns all entries: keys with their counts.
fn all(arena: &Arena) -> Vec<(u64, u64)> {
    let found = arena.json("map scan tally");
    let entries = found["entries"].as_array().unwrap().iter();
    let entries = entries.map(|it| (it["key"].as_u64(), it["value"]["count"].as_u64()));
    entries
        .map(|(key, count)| (key.unwrap(), count.unwrap()))
        .collect()
}

pub fn a_map_that_a_job_writes_is_seen_from_outside_and_outlives_job_and_hosts() {
    let arena = counting();
    until_more(&arena);
    let listed = arena.succeed("map list");
    assert!(listed.contains("tally  u64   Counted"), "{listed}");
    assert!(
        listed.contains("stored by 2 hosts") && listed.contains("at most 1GiB per host"),
        "{listed}"
    );

    let mut watch = arena.begin_with_output("map watch tally --where parity=odd --prefix 1");
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let changes = lines.map(|line| -> Value { serde_json::from_str(&line.unwrap()).unwrap() });
    // A host without CPU for long is removed from the grid, and then a `missed` event may be sent.
    for change in changes.filter(|it| it["change"] != "missed").take(20) {
        assert_eq!(change["change"], "updated", "{change}");
        assert_eq!(change["value"]["parity"], "odd", "{change}");
        assert!(change["key"].to_string().starts_with('1'), "{change}");
    }
    watch.kill().unwrap();
    watch.wait().unwrap();

    // After the loss of either host, the job keeps writing, and no entry of the map is lost.
    for _ in 0..2 {
        until_all_copies(&arena);
        let before = all(&arena);
        kill(arena.hosts()[0].1);
        until_more(&arena);
        arena.succeed("cluster start --workers 2");
        until_more(&arena);
        let after = all(&arena);
        assert_eq!(after.len() as u64, KEYS);
        let is_more = |((_, before), (_, after)): (&(u64, u64), &(u64, u64))| after >= before;
        assert!(
            before.iter().zip(&after).all(is_more),
            "{before:?} {after:?}"
        );
    }
    arena.succeed("kill tally --yes");
    let before = all(&arena);
    assert_eq!(before.len() as u64, KEYS);
    until_all_copies(&arena);
    kill(arena.hosts()[0].1);
    arena.until("all of it", || counted(&arena, 0).is_some());
    assert_eq!(all(&arena), before);
}

pub fn a_map_is_changed_from_outside_and_done_away_with() {
    let arena = Arena::with_hosts(2);
    let none = arena.json("map list");
    assert_eq!(none["maps"].as_array().map(Vec::len), Some(0), "{none}");
    assert!(arena.fail("map get tally 7").contains("ARD-626"));
    arena.submit_numbers(
        "--set job.containers=2",
        &format!("tally out {ENDLESS} 1000 map"),
    );
    arena.until("all keys have something", || entries(&arena) == KEYS);
    arena.succeed("kill tally --yes");

    let keys = |line: &str| -> (Vec<u64>, bool) {
        let found = arena.json(line);
        let keys = found["entries"].as_array().unwrap().iter();
        let keys = keys.map(|it| it["key"].as_u64().unwrap()).collect();
        (keys, found["more"].as_bool().unwrap())
    };
    assert_eq!(
        keys("map scan tally --prefix 2"),
        (vec![2, 20, 21, 22], false)
    );
    let odd = keys("map scan tally --where parity=odd").0;
    assert_eq!(
        odd,
        (0..KEYS).filter(|key| key % 2 == 1).collect::<Vec<_>>()
    );
    let (some, more) = keys("map scan tally --limit 3");
    assert!(some.len() == 3 && more, "{some:?}");

    arena.succeed(r#"map put tally 100 {"parity":"none","count":5}"#);
    assert_eq!(
        arena.succeed("map get tally 100"),
        "{\"count\":5,\"parity\":\"none\"}\n"
    );
    let refused = arena.fail(r#"map put tally 100 {"count":5}"#);
    assert!(
        refused.contains("the field \"parity\" is missing"),
        "{refused}"
    );
    let refused = arena.fail("map get tally seven");
    assert!(refused.contains("\"seven\" is no u64"), "{refused}");
    arena.succeed("map remove tally 100");
    assert!(arena.fail("map get tally 100").contains("ARD-626"));
    assert_eq!(entries(&arena), KEYS);

    arena.succeed("map drop tally");
    assert!(arena.fail("map get tally 7").contains("ARD-626"));
    assert_eq!(entries(&arena), 0);
}

/// Returns the keys for which the follower has received and found the same count.
fn followed(arena: &Arena) -> BTreeMap<u64, u64> {
    let told = arena.run("map scan followed --json");
    let told: Value = serde_json::from_slice(&told.stdout).unwrap_or_default();
    let entries = told["entries"].as_array().into_iter().flatten();
    let agreed = entries.filter_map(|it| {
        let (told, found) = (&it["value"]["told"], &it["value"]["found"]);
        Some((
            it["key"].as_u64()?,
            told.as_u64().filter(|_| told == found)?,
        ))
    });
    agreed.collect()
}

pub fn a_job_that_follows_a_map_and_looks_up_in_it_knows_what_it_has_whichever_host_is_killed() {
    let arena = counting();
    arena.submit_numbers("", "tally out 0 1 follow");
    let told = |key: u64| {
        let told = arena.run(&format!("map get followed {key} --json"));
        let told: Value = serde_json::from_slice(&told.stdout).unwrap_or_default();
        told["value"]["told"].as_u64()
    };
    let until_more = || {
        let mut before = None;
        arena.until("something is told", || {
            before = told(7);
            before.is_some()
        });
        arena.until("more is told", || told(7) > before);
    };
    until_more();
    let workers = arena.workers("follower");
    // One of the two hosts sends the changes.
    let hosts = arena.hosts();
    assert_eq!(hosts.len(), 2, "{hosts:?}");
    for (name, _) in hosts {
        until_all_copies(&arena);
        kill(arena.host(&name));
        until_more();
        arena.succeed("cluster start --workers 2");
        until_more();
    }
    arena.succeed("kill tally --yes");
    until_all_copies(&arena);
    let wanted: BTreeMap<u64, u64> = all(&arena).into_iter().collect();
    assert_eq!(wanted.len() as u64, KEYS);
    let until_followed = |wanted: &BTreeMap<u64, u64>| {
        arena.until_none(|| {
            let followed = followed(&arena);
            (followed != *wanted).then(|| format!("{followed:?}, not {wanted:?}"))
        });
    };
    until_followed(&wanted);

    // Changes by users are followed as well.
    arena.succeed(r#"map put tally 100 {"parity":"none","count":5}"#);
    arena.succeed("map remove tally 7");
    let mut wanted = wanted;
    wanted.insert(100, 5);
    wanted.remove(&7);
    until_followed(&wanted);
    assert_eq!(arena.phase("follower").as_deref(), Some("running"));
    assert_eq!(arena.workers("follower"), workers);
}
