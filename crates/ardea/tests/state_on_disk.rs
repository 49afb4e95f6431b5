//! Jobs whose state is mostly on disk give the same results as in memory, and survive failures.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ardea::prelude::*;
use ardea::recovery::FaultTolerantJob;

const KEYS: u64 = 10_000;
const RECORDS: u64 = 60_000;

/// Returns pairs of key and second, in order of time. Nearly every key recurs, after gaps of all
/// lengths.
fn records() -> Vec<(u64, i64)> {
    let key = |n: u64| {
        let mixed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
    };
    let records = (0..RECORDS).map(|n| (key(n) % KEYS, n as i64 / 10));
    records.collect()
}

/// Returns a configuration with room in memory for some hundreds of keys.
fn on_disk(folder: &Path) -> NodeConfig {
    NodeConfig {
        pin: false,
        state: StateBackendConfig::Disk {
            folder: folder.join("state"),
            memory: 128 << 10,
        },
        ..NodeConfig::with_threads(2)
    }
}

fn in_memory() -> NodeConfig {
    NodeConfig {
        pin: false,
        ..NodeConfig::with_threads(2)
    }
}

/// The results: the keys that were silent and for how long, those that came first after a long
/// time, and the number of consecutive records of each.
type JobResults = (Vec<(u64, i64)>, Vec<(u64, i64)>, Vec<(u64, u64)>);

fn told(config: NodeConfig) -> JobResults {
    let p = Pipeline::new("everything of keys");
    let timed = || {
        p.read_from(collections::items(records()))
            .with_timestamps(
                |(_, second)| Timestamp::from_secs(*second),
                WatermarkPolicy::in_order(),
            )
            .key_by(|(key, _)| *key)
    };
    let silence = Duration::from_secs(700);
    let silent = timed()
        .process_with_ttl(
            "silent",
            Duration::from_secs(2_000),
            || Timestamp::MIN,
            move |last, _key, _record, time, context| {
                if time < *last + silence {
                    context.clear_event_timer(*last + silence);
                }
                context.set_event_timer(time + silence);
                *last = time;
            },
            |_last, key, time, context| context.emit((*key, time.as_millis() / 1000)),
        )
        .collect();
    let first = timed().distinct_within("first", silence).collect();
    let often = timed()
        .rolling_with_ttl("often", silence, count())
        .collect();
    p.run_with(config).unwrap();
    (
        silent.take_sorted(),
        first.take_sorted(),
        often.take_sorted(),
    )
}

#[test]
fn results_are_those_of_the_same_job_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let expected = told(in_memory());
    assert!(expected.0.len() > 10_000 && expected.1.len() > 10_000);
    let told = told(on_disk(folder.path()));
    assert_eq!(told.0, expected.0);
    assert_eq!(told.1, expected.1);
    assert_eq!(told.2, expected.2);
}

#[test]
fn a_job_that_fails_goes_on_with_what_was_on_disk_and_in_memory_when_its_epoch_ended() {
    let folder = tempfile::tempdir().unwrap();
    let seen = Arc::new(AtomicU64::new(0));
    let p = Pipeline::new("counts on disk");
    let passing = Arc::clone(&seen);
    let counts = p
        .read_from(collections::items(records()))
        .map(move |record| {
            // Fails once, when much of the state is on disk.
            let number = passing.fetch_add(1, Ordering::SeqCst);
            assert!(number != RECORDS * 3 / 4, "a mishap");
            record
        })
        .key_by(|(key, _)| *key)
        .rolling("counts", count())
        .collect();
    let survival = FaultTolerance::in_folder(folder.path().join("checkpoints"))
        .guarantee(Guarantee::ExactlyOnce)
        .every(Duration::from_millis(20))
        .pause(Duration::ZERO);
    let node = Node::start(on_disk(folder.path())).unwrap();
    let survived = FaultTolerantJob::open(&p, &node, &survival)
        .unwrap()
        .run()
        .unwrap();
    assert_eq!(survived.end, JobEnd::Completed);
    assert!(survived.figures.recoveries >= 1, "{:?}", survived.figures);
    // Results from before the failure may be repeated, so the greatest count of each key is the
    // result.
    let mut greatest = HashMap::<u64, u64>::new();
    for (key, count) in counts.take() {
        let known = greatest.entry(key).or_default();
        *known = count.max(*known);
    }
    let mut expected = HashMap::<u64, u64>::new();
    for (key, _) in records() {
        *expected.entry(key).or_default() += 1;
    }
    assert!(greatest == expected, "the counts differ");
    drop(node);
    let left = std::fs::read_dir(folder.path().join("state")).unwrap();
    let parts = left.filter(|entry| entry.as_ref().unwrap().path().is_dir());
    assert_eq!(parts.count(), 0, "nothing is left on disk");
}
