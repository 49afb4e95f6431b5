//! Tests of replicas that write one file. The replicas overtake each other and fail at any moment;
//! each result is written once.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use ardea_core::{
    Chunk, Epoch, Error, ErrorCode, Guarantee, Inbox, InstanceContext, Ordinal, Outbox, Processor,
    RestoredState, Result, Rows, SnapshotRequest, SnapshotWriter, StateChunk, Timestamp, Watermark,
};
use proptest::prelude::*;

use super::*;
use crate::testing::{context, error_contains, eventually, stateful_context};

fn sink(path: &Path) -> Sink<u64> {
    write_lines(path).slice(Duration::from_micros(10)).build()
}

/// A running attempt of a replica.
struct Attempt {
    processor: Box<dyn Processor>,
    context: InstanceContext,
    outbox: Outbox,
}

impl Attempt {
    fn begin(path: &Path) -> Result<Attempt> {
        Attempt::with(path, stateful_context(0, 1))
    }

    fn with(path: &Path, context: InstanceContext) -> Result<Attempt> {
        let (_, supplier, ..) = sink(path).into_parts();
        let mut processor = supplier.supply(context.instance)?;
        if let Err(error) = processor.init(&context) {
            processor.close();
            return Err(error);
        }
        Ok(Attempt {
            processor,
            context,
            outbox: Outbox::new(0, 64),
        })
    }

    fn feed(&mut self, records: &[(i64, u64)]) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let timed = |(time, record): &(i64, u64)| (*record, Timestamp::from_micros(*time));
        let rows: Rows<u64> = records.iter().map(timed).collect();
        let mut inbox = Inbox::default();
        inbox.fill(Chunk::new(rows));
        self.processor
            .process(Ordinal::FIRST, &mut inbox, &mut self.outbox)?;
        assert!(inbox.is_empty());
        Ok(())
    }

    fn time(&mut self, watermark: Watermark) -> Result<()> {
        while !self
            .processor
            .on_watermark(watermark, &mut self.outbox)?
            .done
        {}
        Ok(())
    }

    fn at(&mut self, time: i64) -> Result<()> {
        self.time(Watermark(Timestamp::from_micros(time)))
    }

    fn end(&mut self) -> Result<()> {
        self.time(Watermark::END)?;
        while !self.processor.complete(&mut self.outbox)?.done {}
        Ok(())
    }

    fn snapshot(&mut self, epoch: u64) -> StateChunk {
        self.processor
            .state()
            .take_snapshot(SnapshotRequest::full(Epoch(epoch)))
            .unwrap();
        let mut chunk = StateChunk::default();
        eventually("the snapshot is written", || {
            let mut writer = SnapshotWriter::new(&mut chunk, 1 << 20);
            self.processor
                .state()
                .write_snapshot(&mut writer)
                .unwrap()
                .done
        });
        chunk
    }

    fn restore_snapshot(&mut self, epoch: u64, chunk: &StateChunk) -> Result<()> {
        let (mut position, instance) = (0, self.context.instance);
        while position < chunk.byte_len() {
            let mut state = RestoredState::new(chunk, &mut position, instance, 1);
            self.processor.state().restore(&mut state)?;
        }
        while !self.processor.state().on_restored(Epoch(epoch))?.done {}
        Ok(())
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.processor.close();
    }
}

/// The next event of a replica.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Reads this many records and advances the watermark.
    Reads(usize),
    /// Ends an epoch, which is committed.
    Commits,
    /// Fails and is restored from its last commit.
    Fails,
    /// Fails and restarts without state.
    Restarts,
}

fn events(copies: usize) -> impl Strategy<Value = Vec<(usize, Event)>> {
    let event = prop_oneof![
        6 => (1usize..12).prop_map(Event::Reads),
        2 => Just(Event::Commits),
        1 => Just(Event::Fails),
        1 => Just(Event::Restarts),
    ];
    prop::collection::vec((0..copies, event), 0..60)
}

/// A replica under test: its current attempt, and the number of records that it has read.
struct ReplicaUnderTest<'a> {
    path: &'a Path,
    records: &'a [(i64, u64)],
    life: Option<Attempt>,
    read: usize,
    epoch: u64,
    committed: Option<(u64, StateChunk, usize)>,
}

impl<'a> ReplicaUnderTest<'a> {
    fn new(path: &'a Path, records: &'a [(i64, u64)]) -> Self {
        ReplicaUnderTest {
            path,
            records,
            life: Some(Attempt::begin(path).unwrap()),
            read: 0,
            epoch: 0,
            committed: None,
        }
    }

    fn life(&mut self) -> &mut Attempt {
        self.life.as_mut().unwrap()
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Reads(count) => {
                let until = self.records.len().min(self.read + count);
                let all = self.records;
                let records = &all[self.read..until];
                self.life().feed(records).unwrap();
                self.read = until;
                // Records are up to 15 µs out of order.
                if let Some((time, _)) = records.iter().max() {
                    self.life().at(time - 15).unwrap();
                }
            }
            Event::Commits => {
                self.epoch += 1;
                let epoch = self.epoch;
                let snapshot = self.life().snapshot(epoch);
                self.committed = Some((epoch, snapshot, self.read));
            }
            Event::Fails => {
                self.life = None;
                let mut life = Attempt::begin(self.path).unwrap();
                self.read = 0;
                if let Some((epoch, snapshot, read)) = &self.committed {
                    life.restore_snapshot(*epoch, snapshot).unwrap();
                    self.read = *read;
                }
                self.life = Some(life);
            }
            Event::Restarts => {
                self.committed = None;
                self.happen(Event::Fails);
            }
        }
    }
}

/// Returns numbered records, whose event times are at most 15 µs out of order, and the expected
/// content of the file.
fn input(seeds: &[(i64, i64)]) -> (Vec<(i64, u64)>, String) {
    let mut time = 0;
    let mut records = Vec::new();
    for (n, (step, back)) in (0..).zip(seeds) {
        time += step;
        records.push((time - back, n));
    }
    let mut sorted: Vec<_> = records.clone();
    sorted.sort_by_key(|(time, n)| (*time, n.to_string()));
    let lines = sorted.iter().map(|(_, n)| format!("{n}\n"));
    (records, lines.collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn each_result_is_there_once_and_in_order_whoever_dies_when(
        seeds in prop::collection::vec((0i64..9, 0i64..15), 0..80), events in events(3)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out/results.txt");
        let (records, expected) = input(&seeds);
        let mut copies: Vec<_> = (0..3).map(|_| ReplicaUnderTest::new(&path, &records)).collect();
        for (copy, event) in events {
            copies[copy].happen(event);
            let seen = fs::read_to_string(&path).unwrap();
            prop_assert!(expected.starts_with(&seen), "{seen:?} of {expected:?}");
        }
        for copy in &mut copies {
            let left = records.len() - copy.read;
            if left > 0 {
                copy.happen(Event::Reads(left));
            }
            copy.life().end().unwrap();
            prop_assert_eq!(&fs::read_to_string(&path).unwrap(), &expected);
        }
    }
}

/// Creates a file with one replica that has written some slices.
fn begun(path: &Path) -> Attempt {
    let mut life = Attempt::begin(path).unwrap();
    life.feed(&[(1, 1), (12, 2), (31, 3), (41, 4)]).unwrap();
    life.at(40).unwrap();
    assert_eq!(fs::read_to_string(path).unwrap(), "1\n2\n3\n");
    life
}

#[test]
fn a_copy_that_has_other_results_ends_and_says_where() {
    for (records, why) in [
        (
            &[(1, 1), (12, 7), (31, 3)][..],
            "the replicas have different results",
        ),
        (&[(1, 1), (31, 3)][..], "this one has none"),
        (
            &[(1, 1), (12, 2), (21, 9)][..],
            "only this replica has results",
        ),
        (
            &[(1, 1), (1, 1), (12, 2)][..],
            "from 1970-01-01T00:00:00Z to",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results");
        let mut first = begun(&path);
        let mut other = Attempt::begin(&path).unwrap();
        other.feed(records).unwrap();
        let error = other.at(40).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidJob);
        assert!(error_contains(&error, &["have diverged", why]), "{error}");
        drop(other);
        first.end().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n3\n4\n");
    }
}

#[test]
fn a_copy_that_ends_before_its_input_does_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results");
    let _first = begun(&path);
    let mut other = Attempt::begin(&path).unwrap();
    other.feed(&[(1, 1)]).unwrap();
    let error = other.end().unwrap_err();
    assert!(error_contains(&error, &["this one has none"]), "{error}");
}

#[test]
fn a_copy_that_drains_keeps_what_is_unfinished_to_itself() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results");
    let mut first = begun(&path);
    first.context.signals.drain();
    first.end().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n3\n");
    let mut other = Attempt::begin(&path).unwrap();
    other
        .feed(&[(1, 1), (12, 2), (31, 3), (41, 4), (42, 5)])
        .unwrap();
    other.end().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n3\n4\n5\n");
}

#[test]
fn what_came_late_is_set_aside_and_what_has_no_time_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results");
    let mut life = begun(&path);
    life.feed(&[(39, 9), (40, 8)]).unwrap();
    let letters = life.context.dead_letters.sample();
    assert_eq!(letters.len(), 1);
    assert!(letters[0].reason.contains("late"), "{}", letters[0].reason);
    life.end().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n3\n8\n4\n");
    let mut life = Attempt::begin(&path).unwrap();
    let error = life.feed(&[(i64::MIN, 1)]).unwrap_err();
    assert!(
        error_contains(&error, &["ARD-101", "no event time"]),
        "{error}"
    );
}

#[test]
fn what_a_dead_copy_wrote_of_a_slice_is_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results");
    let mut life = begun(&path);
    let data = File::options().write(true).open(&path).unwrap();
    data.write_all_at(b"4\nmore than there will be", 6).unwrap();
    // Fails in the middle of an entry.
    let ledger = path.with_file_name("results.replicas").join("ledger");
    let end = fs::metadata(&ledger).unwrap().len();
    let ledger = File::options().write(true).open(&ledger).unwrap();
    ledger.write_all_at(&[7; 11], end).unwrap();
    life.end().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n3\n4\n");
    let mut other = Attempt::begin(&path).unwrap();
    other.feed(&[(1, 1), (12, 2), (31, 3), (41, 4)]).unwrap();
    other.end().unwrap();
}

#[test]
fn an_end_that_the_disk_has_lost_is_written_again() {
    for kept in [5, 4, 3, 2, 0] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results");
        drop(begun(&path));
        // The file is truncated to `kept` bytes; the index is complete.
        let data = File::options().write(true).open(&path).unwrap();
        data.set_len(kept).unwrap();
        // If none of many slices is left, more than the end is damaged.
        if kept == 0 {
            let error = Attempt::begin(&path).err().unwrap();
            assert!(error_contains(&error, &["is damaged"]), "{error}");
            continue;
        }
        let mut life = Attempt::begin(&path).unwrap();
        life.feed(&[(1, 1), (12, 2), (31, 3), (41, 4)]).unwrap();
        life.end().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n3\n4\n");
    }
}

#[test]
fn what_the_disk_has_lost_in_the_middle_is_written_again_by_who_comes_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results");
    let mut life = begun(&path);
    let snapshot = life.snapshot(1);
    life.feed(&[(51, 5), (61, 6)]).unwrap();
    life.at(70).unwrap();
    drop(life);
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n3\n4\n5\n6\n");
    // Slices after the snapshot, of which only the last one is durable.
    let data = File::options().write(true).open(&path).unwrap();
    data.write_all_at(&[0; 4], 6).unwrap();
    let mut life = Attempt::begin(&path).unwrap();
    life.restore_snapshot(1, &snapshot).unwrap();
    life.feed(&[(51, 5), (61, 6)]).unwrap();
    life.end().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n3\n4\n5\n6\n");
}

#[test]
fn entries_that_the_disk_has_lost_in_the_middle_are_written_again_with_all_behind_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results");
    drop(begun(&path));
    let ledger = path.with_file_name("results.replicas").join("ledger");
    let ledger = File::options().write(true).open(&ledger).unwrap();
    // Overwrites the second entry, after the header and the first entry.
    ledger.write_all_at(&[0; 40], 80).unwrap();
    let mut life = Attempt::begin(&path).unwrap();
    life.feed(&[(1, 1), (12, 2), (31, 3), (41, 4)]).unwrap();
    life.end().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n3\n4\n");
}

#[test]
fn a_file_that_has_lost_what_a_checkpoint_knows_of_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results");
    let mut life = begun(&path);
    let snapshot = life.snapshot(1);
    drop(life);
    let data = File::options().write(true).open(&path).unwrap();
    data.set_len(4).unwrap();
    let mut life = Attempt::begin(&path).unwrap();
    let error = life.restore_snapshot(1, &snapshot).unwrap_err();
    assert_eq!(error.code(), ErrorCode::WriteFailed);
    assert!(error_contains(&error, &["fewer than 3 slices"]), "{error}");
}

#[test]
fn jobs_that_could_write_what_is_not_so_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results");
    let refused =
        |context: InstanceContext| -> Error { Attempt::with(&path, context).err().unwrap() };
    let error = refused(context("none"));
    assert!(
        error_contains(&error, &["ARD-101", "exactly-once"]),
        "{error}"
    );
    let error = refused(InstanceContext {
        guarantee: Guarantee::AtLeastOnce,
        ..stateful_context(0, 1)
    });
    assert!(
        error_contains(&error, &["ARD-101", "exactly-once"]),
        "{error}"
    );
    let error = refused(stateful_context(1, 2));
    assert!(error_contains(&error, &["several instances"]), "{error}");
    assert!(!path.exists(), "nothing was made");
}

#[test]
fn what_is_held_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let bounded = write_lines::<u64>(dir.path().join("results")).hold_at_most(10);
    let (_, supplier, ..) = bounded.build().into_parts();
    let context = stateful_context(0, 1);
    let mut processor = supplier.supply(context.instance).unwrap();
    processor.init(&context).unwrap();
    let mut life = Attempt {
        processor,
        context,
        outbox: Outbox::new(0, 64),
    };
    let records: Vec<_> = (0..5).map(|n| (n, n as u64)).collect();
    life.feed(&records).unwrap();
    let error = life.feed(&[(6, 6)]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LimitReached);
    assert!(
        error_contains(&error, &["the beginning", "12 bytes"]),
        "{error}"
    );
}

#[test]
fn a_file_of_others_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results");
    fs::write(&path, "theirs").unwrap();
    let error = Attempt::begin(&path).err().unwrap();
    assert!(
        error_contains(&error, &["ARD-101", "already exists"]),
        "{error}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
    let path = dir.path().join("ours");
    drop(begun(&path));
    let wider = write_lines::<u64>(&path).slice(Duration::from_micros(20));
    let (_, supplier, ..) = wider.build().into_parts();
    let context = stateful_context(0, 1);
    let mut processor = supplier.supply(context.instance).unwrap();
    let error = processor.init(&context).unwrap_err();
    processor.close();
    assert!(error_contains(&error, &["10µs", "20µs"]), "{error}");
}

#[test]
fn who_looks_sees_which_copies_live_and_how_far_behind_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results");
    assert_eq!(replicas(&path).unwrap_err().code(), ErrorCode::ReadFailed);
    let mut first = begun(&path);
    let mut second = Attempt::begin(&path).unwrap();
    second.feed(&[(1, 1), (12, 2)]).unwrap();
    second.at(20).unwrap();
    // Each reports its status periodically, and immediately at its end.
    let third = Attempt::begin(&path).unwrap();
    first.end().unwrap();
    let seen = replicas(&path).unwrap();
    let told = |twin: &ReplicaInfo| (twin.number, twin.is_alive, twin.first, twin.met);
    let told: Vec<_> = seen.iter().map(told).collect();
    assert_eq!(told[0], (1, true, 4, 0));
    assert_eq!((told[1].0, told[1].1), (2, true));
    assert_eq!(told[2], (3, true, 0, 0));
    assert_eq!(seen[0].behind, Duration::ZERO);
    assert_eq!(seen[0].process, std::process::id());
    drop((first, third));
    let seen = replicas(&path).unwrap();
    let alive: Vec<bool> = seen.iter().map(|twin| twin.is_alive).collect();
    assert_eq!(alive, [false, true, false]);
    // The replica's number is free for the next replica.
    let _again = Attempt::begin(&path).unwrap();
    assert!(replicas(&path).unwrap()[0].is_alive);
}
