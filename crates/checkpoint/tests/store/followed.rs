//! Tests that a deposed leader, which does not know of its successor, removes no file that the
//! successor needs.

use std::collections::BTreeSet;
use std::sync::Arc;

use ardea_checkpoint::store::*;

use crate::site::*;

fn open(folder: &MemoryStore) -> CheckpointStore {
    CheckpointStore::open(Arc::new(folder.clone()), JOB, small()).expect("opened")
}

/// Commits a checkpoint with one more key.
fn add(store: &CheckpointStore, base: Option<CheckpointId>, id: CheckpointId, model: &mut Model) {
    let key = ("s", some_partition(1), vec![id.epoch.0 as u8]);
    model.insert(key.clone(), vec![7; 30]);
    let of = snapshot_of(id, 0, 1);
    let snapshot = match base {
        None => write_full(store, of, model),
        Some(since) => write_increment(store, of, since, model, &BTreeSet::from([key])),
    };
    let commit = commit(id, base, vec![snapshot.expect("written")]);
    store.commit(&commit).expect("committed");
}

/// Commits `count` checkpoints in the first generation. Returns the newest one, if any.
fn add_all(store: &CheckpointStore, count: u64, model: &mut Model) -> Option<CheckpointId> {
    let mut base = None;
    for epoch in 1..=count {
        add(store, base, id(1, epoch), model);
        base = Some(id(1, epoch));
    }
    base
}

/// Runs a compaction to its end, calling `meanwhile` between steps.
fn fold(store: &CheckpointStore, meanwhile: impl Fn()) {
    let mut fold = store.begin_compaction().expect("there are layers enough");
    while fold.step(50).expect("folded") == CompactionProgress::More {
        meanwhile();
    }
}

/// Makes checkpoints with a first store. A second store takes over in the generation `next` and
/// runs a compaction. Then the first store sweeps files before `floor`.
fn overtake(next: u64, floor: CheckpointId) {
    let folder = MemoryStore::new();
    let (first, mut model) = (open(&folder), Model::new());
    let base = add_all(&first, 5, &mut model);
    let second = open(&folder);
    second.begin_generation(next);
    fold(&second, || drop(first.sweep(floor).expect("swept")));
    first.abandon_compactions();
    first.sweep(floor).expect("swept");
    add(&second, base, id(next, 6), &mut model);
    let latest = second.latest().expect("whole").expect("there");
    assert!(latest.report().vertices[0].layers < 6, "it was folded");
    latest.verify().expect("whole");
    assert_eq!(read(&latest, 2).expect("whole"), model);
    // Later operations of the first store do no harm either.
    first.collect().expect("collected");
    first.sweep(floor).expect("swept");
    latest.verify().expect("whole");
}

#[test]
fn who_clears_away_behind_its_newest_checkpoint_leaves_what_another_has_folded_of_it() {
    overtake(1, id(1, 6));
}

#[test]
fn who_has_ended_leaves_what_the_next_generation_has_folded() {
    overtake(2, CheckpointId::start_of(2));
}

#[test]
fn who_has_been_followed_collects_nothing_that_the_one_who_goes_on_holds() {
    let folder = MemoryStore::new();
    let (first, mut model) = (open(&folder), Model::new());
    add(&first, None, id(1, 1), &mut model);
    let mut base = id(1, 1);
    let second = open(&folder);
    second.begin_generation(2);
    let mut held = None;
    for epoch in 2..=7 {
        add(&second, Some(base), id(2, epoch), &mut model);
        base = id(2, epoch);
        if epoch == 3 {
            held = Some((second.checkpoint(base).expect("it is there"), model.clone()));
        }
        second.collect().expect("collected");
    }
    first.sweep(CheckpointId::start_of(2)).expect("swept");
    first.collect().expect("collected");
    let (held, model_then) = held.expect("epoch 3 was made");
    held.verify().expect("whole");
    assert_eq!(read(&held, 2).expect("whole"), model_then);
    for checkpoint in second.checkpoints() {
        second
            .checkpoint(checkpoint)
            .expect("there")
            .verify()
            .expect("whole");
    }
}

#[test]
fn what_is_folded_while_the_newest_checkpoint_cannot_be_read_stays_until_it_can() {
    let folder = MemoryStore::new();
    let (first, mut model) = (open(&folder), Model::new());
    let base = add_all(&first, 6, &mut model);
    let newest = FileName::new("checkpoint-1-6.manifest").expect("a name");
    let bytes = folder.read(&newest).expect("read").expect("there");
    replace(&folder, &newest, Some(b"nobody can read this"));
    let second = open(&folder);
    second.begin_generation(1);
    fold(&second, || ());
    replace(&folder, &newest, Some(&bytes));
    first.sweep(id(1, 7)).expect("swept");
    add(&second, base, id(1, 7), &mut model);
    let latest = second.latest().expect("whole").expect("there");
    assert!(latest.report().vertices[0].layers < 7, "it was folded");
    assert_eq!(read(&latest, 2).expect("whole"), model);
}

#[test]
fn what_somebody_has_folded_who_is_gone_goes_with_a_sweep_behind_the_next_checkpoint() {
    let folder = MemoryStore::new();
    let (first, mut model) = (open(&folder), Model::new());
    let base = add_all(&first, 5, &mut model);
    fold(&first, || ());
    drop(first);
    let second = open(&folder);
    add(&second, base, id(1, 6), &mut model);
    second.collect().expect("collected");
    second.sweep(id(1, 7)).expect("swept");
    assert_nothing_is_left(&folder);
}
