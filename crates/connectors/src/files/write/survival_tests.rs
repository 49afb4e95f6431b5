//! Tests of the file sink in jobs with state. The sink fails and is restored; each record is
//! visible once.

use std::fs;
use std::path::Path;

use ardea_core::{Epoch, ErrorCode, InstanceContext, SnapshotRequest, StateChunk};
use proptest::prelude::*;

use super::*;
use crate::files;
use crate::testing::{Driven, Fed, error_contains, stateful_context};

#[test]
fn rows_of_other_columns_do_not_go_under_the_header_of_a_file_that_goes_on() {
    #[derive(serde::Serialize)]
    struct Old {
        n: u32,
    }
    #[derive(serde::Serialize)]
    struct New {
        n: u32,
        more: u32,
    }
    for compression in [Compression::None, Compression::Gzip] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.csv");
        let mut old = Fed::new(files::write_csv::<Old>(&path), stateful_context(0, 1)).unwrap();
        old.feed([Old { n: 1 }]).unwrap();
        let snapshot = old.snapshot(SnapshotRequest::full(Epoch(1))).unwrap();
        drop(old);
        let mut new = Fed::new(files::write_csv::<New>(&path), stateful_context(0, 1)).unwrap();
        new.give_back(Epoch(1), &snapshot).unwrap();
        new.feed([New { n: 2, more: 3 }]).unwrap();
        let letters = new.context.dead_letters.sample();
        assert_eq!(letters.len(), 1, "{compression:?}");
        assert!(letters[0].reason.contains("header"), "{letters:?}");
    }
}

/// An event of a sink.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Some records arrive; contains their number.
    Records(u64),
    /// An epoch ends, with the contained outcome of its snapshot.
    Epoch(Fate),
    /// The sink fails, and another one is restored.
    Death,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Committed,
    /// The epoch is committed, but the sink is not notified.
    CommittedUnheard,
    Aborted,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let fate = prop_oneof![
        3 => Just(Fate::Committed),
        1 => Just(Fate::CommittedUnheard),
        1 => Just(Fate::Aborted)
    ];
    let event = prop_oneof![
        3 => (0u64..6).prop_map(Event::Records),
        3 => fate.prop_map(Event::Epoch),
        1 => Just(Event::Death)
    ];
    prop::collection::vec(event, 0..40)
}

/// Returns all visible numbers, file by file.
fn seen(folder: &Path) -> Vec<u64> {
    match Driven::<u64>::new(files::json_lines(folder), crate::testing::context("s")) {
        Ok(mut driven) => driven
            .run()
            .unwrap()
            .values()
            .into_iter()
            .copied()
            .collect(),
        // There is no file yet.
        Err(_) => Vec::new(),
    }
}

/// A sink with its committed snapshot.
struct SinkUnderTest<S> {
    make: S,
    sink: Option<Fed<u64>>,
    epoch: Epoch,
    /// The next number.
    next: u64,
    committed: Option<(Epoch, StateChunk, u64)>,
}

impl<S: Fn() -> Sink<u64>> SinkUnderTest<S> {
    fn new(make: S) -> Self {
        let sink = Fed::new(make(), stateful_context(0, 1)).unwrap();
        SinkUnderTest {
            make,
            sink: Some(sink),
            epoch: Epoch(0),
            next: 0,
            committed: None,
        }
    }

    fn sink(&mut self) -> &mut Fed<u64> {
        self.sink.as_mut().unwrap()
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Records(count) => {
                let records = self.next..self.next + count;
                self.next += count;
                self.sink().feed(records).unwrap();
            }
            Event::Epoch(fate) => {
                self.epoch = self.epoch.next();
                let epoch = self.epoch;
                let snapshot = self.sink().snapshot(SnapshotRequest::full(epoch)).unwrap();
                if !matches!(fate, Fate::Aborted) {
                    self.committed = Some((epoch, snapshot, self.next));
                }
                if matches!(fate, Fate::Committed) {
                    self.sink().commit(epoch).unwrap();
                }
            }
            Event::Death => {
                self.sink = None;
                let mut sink = Fed::new((self.make)(), stateful_context(0, 1)).unwrap();
                self.next = 0;
                if let Some((epoch, snapshot, next)) = &self.committed {
                    sink.give_back(*epoch, snapshot).unwrap();
                    self.next = *next;
                }
                self.sink = Some(sink);
            }
        }
    }

    /// Ends the input and commits the last epoch.
    fn end(&mut self) {
        self.sink().finish().unwrap();
        self.epoch = self.epoch.next();
        let last = SnapshotRequest {
            is_last: true,
            ..SnapshotRequest::full(self.epoch)
        };
        let (epoch, next) = (self.epoch, self.next);
        let snapshot = self.sink().snapshot(last).unwrap();
        self.committed = Some((epoch, snapshot, next));
    }
}

fn try_all(make: impl Fn(&Path) -> Sink<u64>, events: &[Event], sees_epochs: bool) {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("out");
    let mut tried = SinkUnderTest::new(|| make(&folder));
    for event in events {
        tried.happen(*event);
        let committed = tried.committed.as_ref().map_or(0, |(.., next)| *next);
        let seen = seen(&folder);
        let count = seen.len() as u64;
        assert!(seen.into_iter().eq(0..count), "each once, in order");
        assert!(count <= committed, "{count} of {committed}");
        let all_are_seen = matches!(event, Event::Epoch(Fate::Committed) | Event::Death);
        if sees_epochs && all_are_seen {
            assert_eq!(count, committed);
        }
    }
    tried.end();
    // The sink fails once before and once after it is notified of the last commit.
    tried.happen(Event::Death);
    assert!(!tried.sink().awaits_commit());
    assert!(seen(&folder).into_iter().eq(0..tried.next), "all, once");
    tried.sink().finish().unwrap();
    tried.end();
    let epoch = tried.epoch;
    tried.sink().commit(epoch).unwrap();
    tried.happen(Event::Death);
    assert!(seen(&folder).into_iter().eq(0..tried.next), "still so");
    // There is no folder without a record.
    for entry in fs::read_dir(&folder).into_iter().flatten() {
        let name = entry.unwrap().file_name();
        let is_part = name.to_string_lossy().ends_with(".part");
        // Parts of an attempt that failed before its first commit are unknown later.
        assert!(!is_part || events.iter().any(|event| matches!(event, Event::Death)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_record_is_seen_once_in_one_file(events in events(), packing in 0usize..3) {
        let name = ["out.jsonl", "out.jsonl.gz", "out.jsonl.zst"][packing];
        try_all(|folder| write_json_lines(folder.join(name)).build(), &events, false);
    }

    #[test]
    fn each_record_is_seen_once_in_many_files(events in events(), packing in 0usize..3) {
        let name = ["out.jsonl", "out.jsonl.gz", "out.jsonl.zst"][packing];
        let sink = |folder: &Path| write_json_lines(folder.join(name)).rotate_bytes(6).build();
        try_all(sink, &events, false);
    }

    #[test]
    fn what_belongs_to_an_epoch_is_seen_when_that_is_committed(events in events()) {
        let sink = |folder: &Path| write_json_lines(folder.join("o.jsonl")).rotate_with_epochs().build();
        try_all(sink, &events, true);
    }

    #[test]
    fn each_record_is_seen_once_in_files_that_end_with_some_epochs(events in events(), packing in 0usize..3) {
        let name = ["out.jsonl", "out.jsonl.gz", "out.jsonl.zst"][packing];
        let sink = |folder: &Path| write_json_lines(folder.join(name)).rotate_min_bytes(20).build();
        try_all(sink, &events, false);
    }

    #[test]
    fn other_numbers_of_instances_go_on_and_each_record_is_seen_once(
        counts in prop::collection::vec(1u32..4, 1..5), rotates in any::<bool>(), is_told in any::<bool>()
    ) {
        let dir = tempfile::tempdir().unwrap();
        let sink = || {
            let sink = write_json_lines(dir.path().join("out.jsonl"));
            let sink = if rotates { sink.rotate_bytes(6) } else { sink };
            sink.build()
        };
        let (mut next, mut epoch, mut kept) = (0u64, Epoch(0), Vec::<StateChunk>::new());
        for (part, count) in counts.iter().enumerate() {
            let is_last = part + 1 == counts.len();
            let before = kept.iter().fold(StateChunk::default(), |mut all, some| {
                some.entries().for_each(|entry| all.push(entry).unwrap());
                all
            });
            kept.clear();
            let mut sinks: Vec<Fed<u64>> = (0..*count).map(|index| {
                let mut fed = Fed::new(sink(), stateful_context(index, *count)).unwrap();
                if part > 0 {
                    fed.give_back(epoch, &before).unwrap();
                }
                fed
            }).collect();
            epoch = epoch.next();
            for sink in &mut sinks {
                sink.feed(next..next + 5).unwrap();
                next += 5;
                if is_last {
                    sink.finish().unwrap();
                }
                kept.push(sink.snapshot(SnapshotRequest { is_last, ..SnapshotRequest::full(epoch) }).unwrap());
                // Records after the snapshot do not count, unless it is the last one.
                if !is_last {
                    sink.feed([999]).unwrap();
                }
            }
            if is_told || is_last {
                sinks.iter_mut().for_each(|sink| sink.commit(epoch).unwrap());
            }
        }
        let mut all = seen(dir.path());
        all.sort_unstable();
        prop_assert!(all.into_iter().eq(0..next));
    }
}

#[test]
fn a_header_comes_once_a_file_also_when_the_file_is_gone_on_with() {
    #[derive(serde::Serialize)]
    struct Row {
        number: u64,
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.csv");
    let sink = || write_csv::<Row>(&path).build();
    let mut before = Fed::new(sink(), stateful_context(0, 1)).unwrap();
    before.feed([Row { number: 1 }]).unwrap();
    let snapshot = before.snapshot(SnapshotRequest::full(Epoch(1))).unwrap();
    before.feed([Row { number: 2 }]).unwrap();
    drop(before);
    let mut after = Fed::new(sink(), stateful_context(0, 1)).unwrap();
    after.give_back(Epoch(1), &snapshot).unwrap();
    after.feed([Row { number: 3 }]).unwrap().finish().unwrap();
    let last = SnapshotRequest {
        is_last: true,
        ..SnapshotRequest::full(Epoch(2))
    };
    after.snapshot(last).unwrap();
    assert!(after.awaits_commit() && !path.exists());
    after.commit(Epoch(2)).unwrap();
    assert!(!after.awaits_commit());
    assert_eq!(fs::read_to_string(&path).unwrap(), "number\n1\n3\n");
}

#[test]
fn what_a_drained_job_writes_when_it_goes_on_replaces_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.txt");
    let mut tried = SinkUnderTest::new(|| write_lines(&path).build());
    tried.happen(Event::Records(2));
    tried.end();
    tried.happen(Event::Death);
    tried.happen(Event::Records(2));
    tried.end();
    tried.happen(Event::Death);
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!(read("out.txt"), "0\n1\n");
    assert_eq!(read("out-r1.txt"), "2\n3\n");
}

#[test]
fn no_records_make_an_empty_file_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.txt");
    let mut tried = SinkUnderTest::new(|| write_lines(&path).build());
    tried.end();
    tried.happen(Event::Death);
    assert_eq!(fs::read(&path).unwrap(), b"");
    tried.end();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// Returns the snapshot of a sink that stopped before its first commit.
fn left_unfinished(path: &Path) -> StateChunk {
    let mut sink = Fed::new(write_lines(path).build(), stateful_context(0, 1)).unwrap();
    sink.feed([0, 1]).unwrap();
    sink.snapshot(SnapshotRequest::full(Epoch(1))).unwrap()
}

#[test]
fn output_that_is_gone_or_too_short_is_not_passed_over() {
    for (content, why) in [(None, "is gone"), (Some("0\n"), "has 2 bytes")] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.txt");
        let snapshot = left_unfinished(&path);
        let part = dir.path().join("out.txt.part");
        match content {
            Some(content) => fs::write(&part, content).unwrap(),
            None => fs::remove_file(&part).unwrap(),
        }
        let mut after: Fed<u64> =
            Fed::new(write_lines(&path).build(), stateful_context(0, 1)).unwrap();
        let error = after.give_back(Epoch(1), &snapshot).unwrap_err();
        assert_eq!(error.code(), ErrorCode::WriteFailed);
        assert!(error_contains(&error, &["out.txt.part", why]), "{error}");
    }
}

#[test]
fn what_an_earlier_life_still_holds_is_told_as_that() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.txt");
    let snapshot = left_unfinished(&path);
    let part = dir.path().join("out.txt.part");
    // Like a process that hangs and could not be killed.
    let held = fs::File::options().write(true).open(part).unwrap();
    held.lock().unwrap();
    let mut after: Fed<u64> = Fed::new(write_lines(&path).build(), stateful_context(0, 1)).unwrap();
    let error = after.give_back(Epoch(1), &snapshot).unwrap_err();
    assert_eq!(error.code(), ErrorCode::StateInUse);
    assert!(
        error_contains(&error, &["out.txt.part", "still held"]),
        "{error}"
    );
    drop((after, held));
    let mut after: Fed<u64> = Fed::new(write_lines(&path).build(), stateful_context(0, 1)).unwrap();
    after.give_back(Epoch(1), &snapshot).unwrap();
}

/// Returns the snapshot as another host would have taken it. `other` is the attribute of the folder
/// that differs: inode number or creation time.
fn made_elsewhere(snapshot: &StateChunk, other: Option<&str>) -> StateChunk {
    let mut moved = StateChunk::default();
    for entry in snapshot {
        let mut value: serde_json::Value = serde_json::from_slice(entry.value.unwrap()).unwrap();
        value["place"]["host"] = "elsewhere".into();
        if let Some(other) = other {
            value["place"][other] = 0.into();
        }
        let value = serde_json::to_vec(&value).unwrap();
        let entry = ardea_core::StateEntry {
            value: Some(&value),
            ..entry
        };
        moved.push(entry).unwrap();
    }
    moved
}

#[test]
fn output_that_was_left_on_a_machine_that_is_gone_does_not_count_as_published() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.txt");
    let sink = || write_lines(&path).rotate_with_epochs().build();
    let mut before: Fed<u64> = Fed::new(sink(), stateful_context(0, 1)).unwrap();
    before.feed([1, 2]).unwrap();
    let snapshot = before.snapshot(SnapshotRequest::full(Epoch(1))).unwrap();
    let go_on = |snapshot: &StateChunk| {
        let mut after: Fed<u64> = Fed::new(sink(), stateful_context(0, 1)).unwrap();
        after.give_back(Epoch(1), snapshot)
    };
    before.commit(Epoch(1)).unwrap();
    drop(before);
    let published = dir.path().join("out-000000.txt");
    assert_eq!(fs::read_to_string(&published).unwrap(), "1\n2\n");
    // The folder is visible here, so both hosts share it.
    go_on(&made_elsewhere(&snapshot, Some("folder"))).unwrap();
    // The published file was removed since.
    fs::remove_file(&published).unwrap();
    go_on(&snapshot).unwrap();
    go_on(&made_elsewhere(&snapshot, None)).unwrap();
    let mut others = vec!["folder"];
    // On machines cloned from one image, folders have equal numbers. Not every file system reports
    // creation times.
    if fs::metadata(dir.path()).unwrap().created().is_ok() {
        others.push("made");
    }
    for other in others {
        let error = go_on(&made_elsewhere(&snapshot, Some(other))).unwrap_err();
        assert_eq!(error.code(), ErrorCode::WriteFailed);
        assert!(
            error_contains(&error, &["out-000000.txt", "left on elsewhere", "4 bytes"]),
            "{error}"
        );
    }
}

#[test]
fn a_file_goes_on_over_epochs_until_it_is_large_or_old_enough() {
    let dir = tempfile::tempdir().unwrap();
    let hand = ardea_core::ManualClock::new();
    let context = || InstanceContext {
        clock: hand.clock(),
        ..stateful_context(0, 1)
    };
    let minute = Duration::from_secs(60);
    let sink = || {
        write_lines(dir.path().join("out"))
            .rotate_min_bytes(6)
            .rotate_min_age(minute)
    };
    let files = || {
        let names = fs::read_dir(dir.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().path());
        let mut whole: Vec<_> = names.filter(|path| path.extension().is_none()).collect();
        whole.sort();
        let read = |path: &std::path::PathBuf| fs::read_to_string(path).unwrap();
        whole.iter().map(read).collect::<Vec<_>>()
    };
    let mut epoch = Epoch(0);
    let mut end_epoch = |sink: &mut Fed<u64>| {
        epoch = epoch.next();
        let snapshot = sink.snapshot(SnapshotRequest::full(epoch)).unwrap();
        sink.commit(epoch).unwrap();
        (epoch, snapshot)
    };
    let mut before: Fed<u64> = Fed::new(sink(), context()).unwrap();
    before.feed([1]).unwrap();
    end_epoch(&mut before);
    before.feed([22]).unwrap();
    let (at, snapshot) = end_epoch(&mut before);
    assert!(files().is_empty(), "five bytes are too few");
    drop(before);
    let mut after: Fed<u64> = Fed::new(sink(), context()).unwrap();
    after.give_back(at, &snapshot).unwrap();
    after.feed([3]).unwrap();
    end_epoch(&mut after);
    assert_eq!(files(), ["1\n22\n3\n"], "what it had counts");
    after.feed([4]).unwrap();
    hand.advance(minute - Duration::from_secs(1));
    end_epoch(&mut after);
    assert_eq!(files().len(), 1);
    // The file ends without further records.
    hand.advance(Duration::from_secs(1));
    end_epoch(&mut after);
    assert_eq!(files()[1..], ["4\n"]);
    after.feed([5]).unwrap().finish().unwrap();
    end_epoch(&mut after);
    assert_eq!(
        files()[2..],
        ["5\n"],
        "the end of the input waits for no minimum"
    );
}

#[test]
fn a_file_that_goes_on_has_the_age_that_it_had() {
    let minute = Duration::from_secs(60);
    for ends_with_epoch in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let hand = ardea_core::ManualClock::new();
        let start = || -> Fed<u64> {
            let sink = write_lines(dir.path().join("out"));
            let sink = match ends_with_epoch {
                true => sink.rotate_min_age(minute),
                false => sink.rotate_after(minute),
            };
            let clock = hand.clock();
            let context = InstanceContext {
                clock,
                ..stateful_context(0, 1)
            };
            Fed::new(sink, context).unwrap()
        };
        let mut before = start();
        before.feed([1]).unwrap();
        hand.advance(minute - Duration::from_secs(20));
        let snapshot = before.snapshot(SnapshotRequest::full(Epoch(1))).unwrap();
        drop(before);
        let mut after = start();
        after.give_back(Epoch(1), &snapshot).unwrap();
        hand.advance(Duration::from_secs(20));
        after.wake().unwrap();
        let _ = after.snapshot(SnapshotRequest::full(Epoch(2))).unwrap();
        assert!(after.awaits_commit(), "it is whole: {ends_with_epoch}");
    }
}

#[test]
fn a_folder_whose_file_system_has_no_files_is_refused_before_anything_is_written() {
    // The folder can be read, but no file can be created there.
    let error = Fed::<u64>::new(
        write_lines("/proc/ardea.txt").build(),
        stateful_context(0, 1),
    );
    assert_eq!(error.err().unwrap().code(), ErrorCode::WriteFailed);
}

#[test]
fn nothing_of_others_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let sink = || write_lines(at("out")).rotate_bytes(2).build();
    let mut before = Fed::new(sink(), stateful_context(0, 1)).unwrap();
    let snapshot = before.snapshot(SnapshotRequest::full(Epoch(1))).unwrap();
    before.feed([1]).unwrap().feed([222]).unwrap();
    let theirs = [
        "out-000009.part",
        "out-000009.0123456789abcdef.part",
        "out",
        "notes.part",
    ];
    for name in theirs {
        fs::write(at(name), "theirs").unwrap();
    }
    drop(before);
    let mut after: Fed<u64> = Fed::new(sink(), stateful_context(0, 1)).unwrap();
    after.give_back(Epoch(1), &snapshot).unwrap();
    let mut left: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    let mut expected = theirs.map(String::from);
    expected.sort();
    assert_eq!(left, expected);
}

#[test]
fn a_device_remembers_nothing() {
    let mut sink: Fed<u64> =
        Fed::new(write_lines("/dev/null").build(), stateful_context(0, 1)).unwrap();
    sink.feed([1]).unwrap();
    assert!(
        sink.snapshot(SnapshotRequest::full(Epoch(1)))
            .unwrap()
            .is_empty()
    );
    let delivery = |path: &str| write_lines::<u64>(path).build().into_parts().1.delivery();
    assert_eq!(delivery("/dev/null"), Some(Delivery::AtLeastOnce));
    assert_eq!(delivery("out"), Some(Delivery::ExactlyOnce));
}
