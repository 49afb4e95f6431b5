//! Tests of keyed states that are mostly on disk against plain maps, with snapshots.

use super::*;
use crate::STATE;
use crate::testing::MemoryDisk;
use ardea_core::{Epoch, SnapshotRequest};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// A number per key. The larger ones are also their due times.
type States = StateTable<u8, u32>;

fn states_on(disk: MemoryDisk, keeps_track: bool) -> States {
    let mut states = States::default();
    if keeps_track {
        states.keep_track();
    }
    states.generation = 1;
    states.cold = Some(Box::new(SpilledKeys::new(STATE, Box::new(disk))));
    states
}

fn write(chunk: &mut StateChunk, key: &u8, value: &u32) -> Result<()> {
    let put_key = |out: &mut Vec<u8>| {
        key.write_to(out);
        Ok(())
    };
    chunk.write(STATE, Some(PartitionId::of(key)), put_key, |out| {
        out.push(*key);
        out.extend_from_slice(&value.to_le_bytes());
        Ok(())
    })
}

fn freeze(chunk: &mut StateChunk, key: &u8, _: u32, value: &u32) -> Result<DueTimes> {
    write(chunk, key, value)?;
    Ok(DueTimes::of(
        (*value >= 1_000).then_some(i64::from(*value)),
        None,
        None,
    ))
}

fn thaw(_: u32, entry: &RestoredEntry<'_>) -> Result<u32> {
    Ok(u32::from_le_bytes(entry.value[1..].try_into().unwrap()))
}

fn slot_of(states: &mut States, key: u8, value: u32) -> u32 {
    states
        .slot_or_load(Cow::Owned(key), || value, thaw)
        .unwrap()
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Set(u8, u32),
    Remove(u8),
    Relieve,
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
        4 => Just(Step::Relieve),
        1 => any::<bool>().prop_map(Step::Take),
        5 => (1usize..100).prop_map(Step::Write),
        1 => Just(Step::Commit),
        1 => Just(Step::GiveUp),
    ];
    prop::collection::vec(step, 0..400)
}

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

fn entries_of(model: &BTreeMap<u8, u32>) -> Entries {
    let bytes = |(key, value): (&u8, &u32)| {
        let mut bytes = Vec::new();
        key.write_to(&mut bytes);
        (bytes, [&[*key][..], &value.to_le_bytes()[..]].concat())
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
    fn snapshots_are_whole_wherever_keys_lie(steps in steps()) {
        let mut states = states_on(MemoryDisk::default(), true);
        let mut model = BTreeMap::new();
        let (mut epoch, mut committed) = (Epoch(0), None::<(Epoch, Entries)>);
        let (mut under_way, mut whole) = (None::<UnderWay>, None::<(Epoch, Entries)>);
        for step in steps {
            match step {
                Step::Set(key, value) => {
                    let slot = slot_of(&mut states, key, value);
                    states.touch(slot, write);
                    *states.get_mut(slot).unwrap().1 = value;
                    model.insert(key, value);
                }
                Step::Remove(key) => {
                    if model.remove(&key).is_some() {
                        let slot = slot_of(&mut states, key, u32::MAX);
                        states.touch(slot, write);
                        states.remove(slot).unwrap();
                    }
                }
                Step::Relieve => states.spill(freeze).unwrap(),
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
                        .write_snapshot(&mut writer, |chunk, key, _, value| write(chunk, key, value))
                        .unwrap();
                    if !progress.done {
                        under_way = Some(at);
                        continue;
                    }
                    let base = committed.as_ref().filter(|_| !at.snapshot.is_full());
                    let mut entries = base.map(|(_, entries)| entries.clone()).unwrap_or_default();
                    let mut seen = BTreeSet::new();
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
        for (key, value) in model {
            let slot = slot_of(&mut states, key, u32::MAX);
            prop_assert_eq!(states.get(slot), Some(&value));
        }
    }

    #[test]
    fn what_is_due_comes_back_in_order_and_nothing_else(
        values in prop::collection::btree_map(any::<u8>(), 0u32..2_000, 0..60),
        until in 900i64..2_100,
        keeps_track in any::<bool>(),
    ) {
        let mut states = states_on(MemoryDisk::default(), keeps_track);
        for (key, value) in &values {
            slot_of(&mut states, *key, *value);
            states.spill(freeze).unwrap();
        }
        let in_memory: HashSet<u8> = (0..states.slots() as u32)
            .filter(|slot| states.get(*slot).is_some())
            .map(|slot| *states.index.key(slot))
            .collect();
        let key = |entry: &RestoredEntry<'_>| Ok(entry.value[0]);
        let mut due = Vec::new();
        loop {
            let slots = states.load_due((DueKind::Event, until, 3), key, thaw).unwrap();
            due.extend(slots.iter().map(|slot| *states.get(*slot).unwrap()));
            if slots.len() < 3 {
                break;
            }
        }
        let is_due = |(key, value): &(&u8, &u32)| {
            !in_memory.contains(*key) && **value >= 1_000 && i64::from(**value) <= until
        };
        let mut expected: Vec<u32> = values.iter().filter(is_due).map(|(_, value)| *value).collect();
        expected.sort_unstable();
        prop_assert_eq!(due, expected);
        prop_assert!(states.first_due(DueKind::Event).is_none_or(|first| first > until));
        prop_assert_eq!(states.len(), values.len());
    }
}

#[test]
fn what_changes_behind_a_snapshot_and_goes_to_disk_then_is_no_part_of_it() {
    let mut states = states_on(MemoryDisk::default(), true);
    let snapshot = |states: &mut States, snapshot: SnapshotRequest| {
        states.take_snapshot(snapshot).unwrap();
        let mut chunk = StateChunk::default();
        // Keys spilled in the meantime were not written in place.
        if !snapshot.is_full() {
            for key in 0..40 {
                let slot = slot_of(states, key, 0);
                states.touch(slot, write);
                match key % 2 {
                    0 => drop(states.remove(slot)),
                    _ => *states.get_mut(slot).unwrap().1 = 7,
                }
            }
            (0..10).for_each(|_| states.spill(freeze).unwrap());
        }
        let mut writer = SnapshotWriter::new(&mut chunk, usize::MAX);
        let put = |chunk: &mut StateChunk, key: &u8, _, value: &u32| write(chunk, key, value);
        while !states.write_snapshot(&mut writer, put).unwrap().done {}
        chunk.entries().count()
    };
    for key in 0..40 {
        slot_of(&mut states, key, 1);
    }
    assert_eq!(snapshot(&mut states, SnapshotRequest::full(Epoch(1))), 40);
    while !states.commit(Epoch(1)).unwrap().done {}
    assert_eq!(
        snapshot(&mut states, SnapshotRequest::changes(Epoch(2), Epoch(1))),
        0
    );
}

#[test]
fn few_keys_stay_in_memory_and_those_that_come_often_are_among_them() {
    let mut states = states_on(MemoryDisk::default(), false);
    for round in 0..1_000u32 {
        slot_of(&mut states, (round % 200) as u8 + 1, round);
        let often = slot_of(&mut states, 0, 7);
        states.touch(often, write);
        states.spill(freeze).unwrap();
        assert!(states.slots() <= 16, "{}", states.slots());
    }
    assert_eq!(states.len(), 201);
    assert!(states.find(&0).is_some());
}

#[test]
fn a_full_disk_is_an_error_and_loses_nothing() {
    let full = MemoryDisk {
        is_full: true,
        ..MemoryDisk::default()
    };
    let mut states = states_on(full, true);
    for key in 0..100 {
        slot_of(&mut states, key, key.into());
    }
    let error = states.spill(freeze).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DiskFull);
    assert!(
        states
            .take_snapshot(SnapshotRequest::full(Epoch(1)))
            .is_err()
    );
    for key in 0..100 {
        let slot = slot_of(&mut states, key, u32::MAX);
        assert_eq!(states.get(slot), Some(&u32::from(key)));
    }
}

#[test]
fn what_has_come_back_is_not_passed_by_again_however_much_is_due_at_the_same_time() {
    let disk = MemoryDisk::default();
    let looked_from = Arc::clone(&disk.looked_from);
    let mut states = states_on(disk, false);
    for key in 0..100 {
        slot_of(&mut states, key, 5_000);
        states.spill(freeze).unwrap();
    }
    let key = |entry: &RestoredEntry<'_>| Ok(entry.value[0]);
    let mut loads = 0;
    while !(states
        .load_due((DueKind::Event, 5_000, 10), key, thaw)
        .unwrap())
    .is_empty()
    {
        loads += 1;
    }
    assert!(loads >= 9, "{loads}");
    let looked_from = looked_from.lock().unwrap();
    assert!(looked_from.len() >= loads, "{looked_from:?}");
    assert!(looked_from.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn memory_is_not_filled_by_what_comes_back_from_a_checkpoint_before_its_size_is_known() {
    let large = [7; 10_000];
    let mut states = states_on(MemoryDisk::default(), true);
    let small = states.bytes_per_key();
    states.weigh(&RestoredEntry {
        state: STATE,
        partition: None,
        key: &[1],
        value: &large,
    });
    assert!(states.bytes_per_key() >= small + large.len());
}

#[test]
fn what_lies_on_disk_stays_there_when_another_instance_goes_on_with_it() {
    let mut context = InstanceContext::detached("counts");
    context.local = Some(Arc::new(MemoryDisk::default()));
    let mut states = States::default();
    for _ in 0..2 {
        states.attach(&context, true).unwrap();
        for key in 0..100 {
            let slot = slot_of(&mut states, key, key.into());
            assert_eq!(states.get(slot), Some(&u32::from(key)));
            states.spill(freeze).unwrap();
        }
        assert_eq!(states.len(), 100);
    }
}
