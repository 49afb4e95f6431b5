//! Of two that make snapshots of a job one goes on, and the other has not heard of it yet: it takes nothing from the one that goes on.

use std::collections::BTreeSet;
use std::sync::Arc;

use ardea_checkpoint::store::*;

use crate::site::*;

fn open(folder: &MemoryFolder) -> SnapshotStore {
    SnapshotStore::open(Arc::new(folder.clone()), JOB, small()).expect("opened")
}

/// Writes one more key, and makes a snapshot of that.
fn add(store: &SnapshotStore, base: Option<SnapshotId>, id: SnapshotId, model: &mut Model) {
    let key = ("s", some_partition(1), vec![id.epoch.0 as u8]);
    model.insert(key.clone(), vec![7; 30]);
    let of = cut_of(id, 0, 1);
    let cut = match base {
        None => write_full(store, of, model),
        Some(since) => write_increment(store, of, since, model, &BTreeSet::from([key])),
    };
    let commit = commit(id, base, vec![cut.expect("written")]);
    store.commit(&commit).expect("committed");
}

/// Makes so many snapshots, one after the other, in the first generation; the newest.
fn add_all(store: &SnapshotStore, count: u64, model: &mut Model) -> Option<SnapshotId> {
    let mut base = None;
    for epoch in 1..=count {
        add(store, base, id(1, epoch), model);
        base = Some(id(1, epoch));
    }
    base
}

/// Folds all that is to be folded now, while `meanwhile` happens.
fn fold(store: &SnapshotStore, meanwhile: impl Fn()) {
    let mut fold = store.fold().expect("there are layers enough");
    while fold.step(50).expect("folded") == FoldProgress::More {
        meanwhile();
    }
}

/// One makes snapshots and is followed by another in the generation `next`, which folds; then the first sweeps before this snapshot.
fn overtake(next: u64, floor: SnapshotId) {
    let folder = MemoryFolder::new();
    let (first, mut model) = (open(&folder), Model::new());
    let base = add_all(&first, 5, &mut model);
    let second = open(&folder);
    second.begin_generation(next);
    fold(&second, || drop(first.sweep(floor).expect("swept")));
    first.forget_folded();
    first.sweep(floor).expect("swept");
    add(&second, base, id(next, 6), &mut model);
    let latest = second.latest().expect("whole").expect("there");
    assert!(latest.report().vertices[0].layers < 6, "it was folded");
    latest.verify().expect("whole");
    assert_eq!(read(&latest, 2).expect("whole"), model);
    // Nor by what it is told to do next.
    first.collect().expect("collected");
    first.sweep(floor).expect("swept");
    latest.verify().expect("whole");
}

#[test]
fn who_clears_away_behind_its_newest_snapshot_leaves_what_another_has_folded_of_it() {
    overtake(1, id(1, 6));
}

#[test]
fn who_has_ended_leaves_what_the_next_generation_has_folded() {
    overtake(2, SnapshotId::start_of(2));
}

#[test]
fn who_has_been_followed_collects_nothing_that_the_one_who_goes_on_holds() {
    let folder = MemoryFolder::new();
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
            held = Some((second.snapshot(base).expect("it is there"), model.clone()));
        }
        second.collect().expect("collected");
    }
    first.sweep(SnapshotId::start_of(2)).expect("swept");
    first.collect().expect("collected");
    let (held, model_then) = held.expect("epoch 3 was made");
    held.verify().expect("whole");
    assert_eq!(read(&held, 2).expect("whole"), model_then);
    for snapshot in second.snapshots() {
        second
            .snapshot(snapshot)
            .expect("there")
            .verify()
            .expect("whole");
    }
}

#[test]
fn what_is_folded_while_the_newest_snapshot_cannot_be_read_stays_until_it_can() {
    let folder = MemoryFolder::new();
    let (first, mut model) = (open(&folder), Model::new());
    let base = add_all(&first, 6, &mut model);
    let newest = FileName::new("snapshot-1-6.manifest").expect("a name");
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
fn what_somebody_has_folded_who_is_gone_goes_with_a_sweep_behind_the_next_snapshot() {
    let folder = MemoryFolder::new();
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
