//! Tests of interval-join snapshots against the buffered records at the time of the snapshot.

use super::*;
use ardea_core::{
    Chunk, Error, ErrorCode, Guarantee, Instance, OutboxRuntime, RestoredState, Rows,
    SnapshotRequest, SnapshotWriter, StateChunk, StateEntry,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

type Record = (u8, i64);
type Entries = BTreeMap<(String, Vec<u8>), Vec<u8>>;

struct Plain;

impl StateCodec<u8> for Plain {
    fn put(&self, key: &u8, out: &mut Vec<u8>) -> Result<()> {
        out.push(*key);
        Ok(())
    }

    fn get(&self, bytes: &[u8]) -> Result<u8> {
        let key = bytes.first().copied();
        key.ok_or_else(|| Error::new(ErrorCode::BadRecord, "too short"))
    }
}

impl StateCodec<Record> for Plain {
    fn put(&self, (key, time): &Record, out: &mut Vec<u8>) -> Result<()> {
        out.push(*key);
        out.extend_from_slice(&time.to_le_bytes());
        Ok(())
    }

    fn get(&self, bytes: &[u8]) -> Result<Record> {
        let parts = bytes.split_first_chunk::<1>();
        let parts = parts.and_then(|([key], time)| Some((*key, time.try_into().ok()?)));
        let (key, time) = parts.ok_or_else(|| Error::new(ErrorCode::BadRecord, "too short"))?;
        Ok((key, i64::from_le_bytes(time)))
    }
}

fn key(record: &Record) -> u8 {
    record.0
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_secs(second)
}

type KeyOf = fn(&Record) -> u8;
type Pairs = fn(&Record, Option<&Record>) -> Option<Record>;
type Join = IntervalJoinP<Record, Record, u8, Record, KeyOf, KeyOf, Pairs>;

/// Creates a join whose state is checkpointed.
fn join() -> Join {
    let logic: IntervalJoinLogic<KeyOf, KeyOf, Pairs> = IntervalJoinLogic {
        left_key: key,
        right_key: key,
        join: |left, _| Some(*left),
    };
    let interval = JoinInterval::from_micros(-5_000_000, 5_000_000).unwrap();
    let mut join = IntervalJoinP::new(Arc::new(logic), interval).with_codecs(
        Arc::new(Plain),
        Arc::new(Plain),
        Arc::new(Plain),
    );
    let context = InstanceContext {
        guarantee: Guarantee::ExactlyOnce,
        ..InstanceContext::detached("join")
    };
    join.init(&context).unwrap();
    join
}

fn entries_of(chunk: &StateChunk) -> Entries {
    let entry = |entry: StateEntry<'_>| {
        let place = (entry.state.to_string(), entry.key.to_vec());
        (place, entry.value.unwrap().to_vec())
    };
    chunk.entries().map(entry).collect()
}

/// Returns all buffered records.
fn waiting(join: &mut Join) -> Entries {
    let mut chunk = StateChunk::default();
    join.state.left.write_all(&mut chunk).unwrap();
    join.state.right.write_all(&mut chunk).unwrap();
    entries_of(&chunk)
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A record of a side, and its distance behind the watermark.
    Read(Ordinal, u8, i64),
    Watermark(i64),
    /// Starts a snapshot: a full one, or an increment.
    Take(bool),
    /// Writes up to this number of bytes of the snapshot.
    Write(usize),
    /// Commits the last complete snapshot. The notification may be lost.
    Commit(bool),
    GiveUp,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let input = prop_oneof![Just(Ordinal::FIRST), Just(Ordinal::SECOND)];
    let step = prop_oneof![
        12 => (input, 0u8..4, 0i64..12).prop_map(|(input, key, time)| Step::Read(input, key, time)),
        4 => (0i64..5).prop_map(Step::Watermark),
        2 => any::<bool>().prop_map(Step::Take),
        8 => (1usize..150).prop_map(Step::Write),
        2 => any::<bool>().prop_map(Step::Commit),
        1 => Just(Step::GiveUp),
    ];
    prop::collection::vec(step, 0..300)
}

/// The snapshot in progress, and the expected entries.
struct UnderWay {
    snapshot: SnapshotRequest,
    chunk: StateChunk,
    expected: Entries,
}

impl UnderWay {
    /// Returns the committed entries with the snapshot applied.
    fn over(&self, committed: Option<&Entries>) -> Result<Entries, TestCaseError> {
        let base = committed.filter(|_| !self.snapshot.is_full());
        let mut entries = base.cloned().unwrap_or_default();
        let mut seen = std::collections::BTreeSet::new();
        for entry in &self.chunk {
            let place = (entry.state.to_string(), entry.key.to_vec());
            prop_assert!(seen.insert(place.clone()), "a record comes once");
            match entry.value {
                Some(value) => entries.insert(place, value.to_vec()),
                None => entries.remove(&place),
            };
        }
        Ok(entries)
    }
}

/// Restores the committed entries into other instances and checks that nothing is missing.
fn assert_comes_back(epoch: Epoch, entries: &Entries) -> Result<(), TestCaseError> {
    let mut chunk = StateChunk::default();
    for ((state, key), value) in entries {
        let value = Some(&value[..]);
        let partition = None;
        chunk
            .push(StateEntry {
                state,
                partition,
                key,
                value,
            })
            .unwrap();
    }
    let (mut other, mut position) = (join(), 0);
    while position < chunk.byte_len() {
        let mut state = RestoredState::new(&chunk, &mut position, Instance::ONLY, 7);
        other.state.restore(&mut state).unwrap();
    }
    assert!(other.state.on_restored(epoch).unwrap().done);
    prop_assert_eq!(&waiting(&mut other), entries);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn a_snapshot_laid_over_the_last_committed_one_is_what_waited_when_it_was_taken(steps in steps()) {
        let (mut join, mut outbox) = (join(), Outbox::new(1, 10_000));
        let (mut now, mut epoch) = (0, Epoch(0));
        let (mut committed, mut told) = (None::<(Epoch, Entries)>, None);
        let (mut under_way, mut whole) = (None::<UnderWay>, None::<(Epoch, Entries)>);
        for step in steps {
            match step {
                Step::Read(input, key, after) => {
                    let mut inbox = Inbox::default();
                    let record = ((key, now + after), at(now + after));
                    inbox.fill(Chunk::new(Rows::from_iter([record])));
                    join.process(input, &mut inbox, &mut outbox).unwrap();
                }
                Step::Watermark(after) => {
                    now += after;
                    while !join.on_watermark(Watermark(at(now)), &mut outbox).unwrap().done {}
                }
                Step::Take(full) => {
                    epoch = epoch.next();
                    let snapshot = SnapshotRequest { since: told.filter(|_| !full), ..SnapshotRequest::full(epoch) };
                    let expected = waiting(&mut join);
                    join.state.take_snapshot(snapshot).unwrap();
                    under_way = Some(UnderWay { snapshot, chunk: StateChunk::default(), expected });
                    whole = None;
                }
                Step::Write(room) => {
                    let Some(at) = &mut under_way else { continue };
                    let limit = at.chunk.byte_len() + room;
                    let progress = join.state.write_snapshot(&mut SnapshotWriter::new(&mut at.chunk, limit));
                    if progress.unwrap().done {
                        let entries = at.over(committed.as_ref().map(|(_, entries)| entries))?;
                        prop_assert_eq!(&entries, &at.expected);
                        whole = Some((at.snapshot.epoch, entries));
                        under_way = None;
                    }
                }
                Step::Commit(heard) => {
                    let Some(last) = whole.take() else { continue };
                    if heard {
                        assert!(join.state.on_checkpoint_committed(last.0).unwrap().done);
                        told = Some(last.0);
                    }
                    committed = Some(last);
                }
                Step::GiveUp => {
                    if under_way.take().is_some() || whole.take().is_some() {
                        assert!(join.state.on_checkpoint_aborted(epoch).unwrap().done);
                    }
                }
            }
            outbox.chunk_mut(0).clear();
            while outbox.take_marker(0).is_some() {}
        }
        if let Some((epoch, entries)) = &committed {
            assert_comes_back(*epoch, entries)?;
        }
    }
}
