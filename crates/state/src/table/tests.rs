//! Tests of keyed states against plain maps, with snapshots.

use super::*;
use ardea_core::PartitionId;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};

proptest! {
    #[test]
    fn it_is_a_map_whose_slots_stay(steps in prop::collection::vec((0u8..12, any::<bool>()), 0..300)) {
        let mut states = StateTable::<u8, u32>::default();
        let mut model: HashMap<u8, (u32, u32)> = HashMap::new();
        for (turn, (key, remove)) in steps.into_iter().enumerate() {
            let turn = turn as u32;
            let slot = states.slot_or_insert(Cow::Owned(key), || turn);
            let known = *model.entry(key).or_insert((slot, turn));
            prop_assert_eq!(slot, known.0);
            prop_assert_eq!(states.get_mut(slot), Some((&key, &mut known.1.clone())));
            if remove {
                model.remove(&key);
                prop_assert_eq!(states.remove(slot), Some(known.1));
                prop_assert_eq!(states.get_mut(slot), None);
            }
            prop_assert_eq!(states.len(), model.len());
        }
    }
}

/// An operation on states with snapshots.
#[derive(Clone, Copy, Debug)]
enum Step {
    Set(u8, u32),
    Remove(u8),
    /// Starts a snapshot: a full one, or an increment.
    Take(bool),
    /// Writes up to this number of bytes of the snapshot.
    Write(usize),
    /// Commits the last complete snapshot.
    Commit,
    GiveUp,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0u8..30, any::<u32>()).prop_map(|(key, value)| Step::Set(key, value)),
        4 => (0u8..30).prop_map(Step::Remove),
        1 => any::<bool>().prop_map(Step::Take),
        5 => (1usize..100).prop_map(Step::Write),
        1 => Just(Step::Commit),
        1 => Just(Step::GiveUp),
    ];
    prop::collection::vec(step, 0..400)
}

fn entry(chunk: &mut StateChunk, key: &u8, value: &u32) -> Result<()> {
    let partition = Some(PartitionId::of(key));
    let write_key = |out: &mut Vec<u8>| {
        key.write_to(out);
        Ok(())
    };
    chunk.write(STATE, partition, write_key, |out| {
        out.extend_from_slice(&value.to_le_bytes());
        Ok(())
    })
}

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

fn entries_of(model: &BTreeMap<u8, u32>) -> Entries {
    let bytes = |(key, value): (&u8, &u32)| {
        let mut bytes = Vec::new();
        key.write_to(&mut bytes);
        (bytes, value.to_le_bytes().to_vec())
    };
    model.iter().map(bytes).collect()
}

/// The snapshot in progress, and the expected entries.
struct UnderWay {
    snapshot: SnapshotRequest,
    chunk: StateChunk,
    expected: Entries,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn a_snapshot_laid_over_the_last_committed_one_is_what_was_there_when_it_was_taken(steps in steps()) {
        let mut states = StateTable::<u8, u32>::default();
        states.keep_track();
        let mut model = BTreeMap::new();
        let (mut epoch, mut committed) = (Epoch(0), None::<(Epoch, Entries)>);
        let (mut under_way, mut whole) = (None::<UnderWay>, None::<(Epoch, Entries)>);
        for step in steps {
            match step {
                Step::Set(key, value) => {
                    let slot = states.slot_or_insert(Cow::Owned(key), || value);
                    states.touch(slot, entry);
                    *states.get_mut(slot).unwrap().1 = value;
                    model.insert(key, value);
                }
                Step::Remove(key) => {
                    if model.remove(&key).is_some() {
                        let slot = states.slot_or_insert(Cow::Owned(key), || unreachable!());
                        states.touch(slot, entry);
                        states.remove(slot).unwrap();
                    }
                }
                Step::Take(full) => {
                    epoch = epoch.next();
                    let since = committed.as_ref().map(|(epoch, _)| *epoch).filter(|_| !full);
                    let snapshot = SnapshotRequest { since, ..SnapshotRequest::full(epoch) };
                    states.take_snapshot(snapshot).unwrap();
                    let expected = entries_of(&model);
                    under_way = Some(UnderWay { snapshot, chunk: StateChunk::default(), expected });
                    whole = None;
                }
                Step::Write(room) => {
                    let Some(mut at) = under_way.take() else { continue };
                    let limit = at.chunk.byte_len() + room;
                    let mut writer = SnapshotWriter::new(&mut at.chunk, limit);
                    let progress = states
                        .write_snapshot(&mut writer, |chunk, key, _, value| entry(chunk, key, value))
                        .unwrap();
                    if !progress.done {
                        under_way = Some(at);
                        continue;
                    }
                    let base = committed.as_ref().filter(|_| !at.snapshot.is_full());
                    let mut entries = base.map(|(_, entries)| entries.clone()).unwrap_or_default();
                    let mut seen = std::collections::BTreeSet::new();
                    for entry in &at.chunk {
                        prop_assert!(seen.insert(entry.key.to_vec()), "a key comes once");
                        match entry.value {
                            Some(value) => entries.insert(entry.key.to_vec(), value.to_vec()),
                            None => entries.remove(entry.key),
                        };
                    }
                    prop_assert_eq!(&entries, &at.expected);
                    whole = Some((at.snapshot.epoch, entries));
                }
                Step::Commit => {
                    let Some(last) = whole.take() else { continue };
                    while !states.commit(last.0).unwrap().done {}
                    committed = Some(last);
                }
                Step::GiveUp => {
                    while !states.abort(epoch).done {}
                    (under_way, whole) = (None, None);
                }
            }
            prop_assert_eq!(states.len(), model.len());
        }
    }
}

#[test]
fn what_was_removed_is_free_when_that_is_committed_and_not_before() {
    let mut states = StateTable::<u64, u32>::default();
    states.keep_track();
    for round in 0..50 {
        for key in 0..10 {
            let slot = states.slot_or_insert(Cow::Owned(round * 10 + key), || 0);
            states.touch(slot, |_, _, _| Ok(()));
            states.remove(slot);
        }
        states
            .take_snapshot(SnapshotRequest::full(Epoch(round + 1)))
            .unwrap();
        while !states.commit(Epoch(round + 1)).unwrap().done {}
    }
    assert!(states.slots() <= 30, "{}", states.slots());
}

#[test]
fn changes_of_epochs_that_are_never_committed_take_no_more_room_than_the_keys() {
    let mut states = StateTable::<u64, u32>::default();
    states.keep_track();
    for round in 0..100 {
        for key in 0..100 {
            let slot = states.slot_or_insert(Cow::Owned(key), || 0);
            states.touch(slot, |_, _, _| Ok(()));
        }
        states
            .take_snapshot(SnapshotRequest::full(Epoch(round + 1)))
            .unwrap();
        while !states.abort(Epoch(round + 1)).done {}
    }
    let listed = states.tracking.as_ref().unwrap().changes.listed();
    assert!(listed <= 200, "{listed}");
}

/// Adds and removes ten keys at a time, a hundred times.
fn churn(
    states: &mut StateTable<u64, u32>,
    rounds: std::ops::Range<u64>,
    mut after: impl FnMut(&mut StateTable<u64, u32>, u64),
) {
    for round in rounds {
        let slots: Vec<u32> = (0..10)
            .map(|key| states.slot_or_insert(Cow::Owned(round * 10 + key), || 0))
            .collect();
        after(states, round);
        for slot in slots {
            states.touch(slot, |_, _, _| Ok(()));
            states.remove(slot);
        }
    }
}

#[test]
fn keys_between_two_snapshots_take_no_room() {
    let mut states = StateTable::<u64, u32>::default();
    states.keep_track();
    churn(&mut states, 0..1_000, |_, _| {});
    assert!(states.slots() <= 10, "{}", states.slots());
    // No snapshot contains any of the keys.
    states
        .take_snapshot(SnapshotRequest::full(Epoch(1)))
        .unwrap();
    let mut chunk = StateChunk::default();
    let mut writer = SnapshotWriter::new(&mut chunk, usize::MAX);
    assert!(
        states
            .write_snapshot(&mut writer, |_, _, _, _| unreachable!())
            .unwrap()
            .done
    );
}

#[test]
fn keys_only_in_aborted_snapshots_are_freed() {
    let mut states = StateTable::<u64, u32>::default();
    states.keep_track();
    churn(&mut states, 0..1_000, |states, round| {
        states
            .take_snapshot(SnapshotRequest::full(Epoch(round + 1)))
            .unwrap();
        // The previous epoch: there is always one whose outcome is unknown.
        while !states.abort(Epoch(round)).done {}
    });
    assert!(states.slots() <= 40, "{}", states.slots());
    let listed = states.tracking.as_ref().unwrap().changes.listed();
    assert!(listed <= 100, "{listed}");
}

#[test]
fn removed_keys_of_a_committed_snapshot_get_tombstones_despite_aborts() {
    let mut states = StateTable::<u8, u32>::default();
    states.keep_track();
    let slot = states.slot_or_insert(Cow::Owned(7), || 70);
    states
        .take_snapshot(SnapshotRequest::full(Epoch(1)))
        .unwrap();
    while !states.commit(Epoch(1)).unwrap().done {}
    states.touch(slot, entry);
    states.remove(slot);
    for epoch in 2..5 {
        states
            .take_snapshot(SnapshotRequest::changes(Epoch(epoch), Epoch(1)))
            .unwrap();
        let mut chunk = StateChunk::default();
        let mut writer = SnapshotWriter::new(&mut chunk, usize::MAX);
        while !states
            .write_snapshot(&mut writer, |chunk, key, _, value| entry(chunk, key, value))
            .unwrap()
            .done
        {}
        let removed: Vec<_> = chunk.entries().map(|entry| entry.value).collect();
        assert_eq!(removed, [None]);
        while !states.abort(Epoch(epoch)).done {}
    }
}
