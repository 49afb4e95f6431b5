//! Tests of refused commits, whose snapshots do not fit together, and of folders of other jobs.

use std::sync::Arc;

use ardea_checkpoint::store::*;
use ardea_core::{ErrorCode, PartitionId};

use crate::site::*;

/// Creates a store with one checkpoint of two instances.
fn store() -> (MemoryStore, CheckpointStore, Model) {
    let folder = MemoryStore::new();
    let store = CheckpointStore::open(Arc::new(folder.clone()), JOB, small()).expect("opened");
    let model = Model::from([
        (("s", some_partition(1), vec![1]), vec![1]),
        (("s", some_partition(9), vec![2]), vec![2]),
        (("t", KeySlot::Instance(1), vec![3]), vec![3]),
    ]);
    let first = id(1, 1);
    let snapshots = full_snapshots(&store, first, 2, &model);
    store
        .commit(&commit(first, None, snapshots))
        .expect("committed");
    (folder, store, model)
}

fn full_snapshots(
    store: &CheckpointStore,
    id: CheckpointId,
    instances: u32,
    model: &Model,
) -> Vec<StateHandle> {
    (0..instances)
        .map(|instance| {
            write_full(store, snapshot_of(id, instance, instances), model).expect("written")
        })
        .collect()
}

fn increment(store: &CheckpointStore, of: SnapshotOwner, since: CheckpointId) -> StateHandle {
    let writer = store
        .writer(of, SnapshotKind::Increment { since })
        .expect("begun");
    writer.finish().expect("written")
}

/// Checks that a commit is refused with this message, and changes nothing.
fn assert_refused(store: &CheckpointStore, commit: &Commit, words: &str) {
    let before = store.checkpoints();
    let error = store.commit(commit).expect_err("refused");
    assert_eq!(error.code(), ErrorCode::CheckpointRefused, "{error}");
    assert!(error.to_string().contains(words), "{error}");
    assert_eq!(store.checkpoints(), before);
}

#[test]
fn a_snapshot_that_is_missing_or_there_twice_is_refused() {
    let (_, store, model) = store();
    let (first, second) = (id(1, 1), id(1, 2));
    let snapshots = full_snapshots(&store, second, 2, &model);
    let with = |snapshots: &[&StateHandle]| {
        let snapshots = snapshots
            .iter()
            .map(|snapshot| (*snapshot).clone())
            .collect();
        commit(second, Some(first), snapshots)
    };
    assert_refused(&store, &with(&[&snapshots[0]]), "1 snapshots of 2");
    assert_refused(&store, &with(&[&snapshots[1]]), "instance 1 where one of 0");
    assert_refused(
        &store,
        &with(&[&snapshots[0], &snapshots[0]]),
        "instance 0 where one of 1",
    );
    assert_refused(&store, &with(&[]), "none of vertex \"counts\"");
    store
        .commit(&with(&[&snapshots[1], &snapshots[0]]))
        .expect("in any order");
}

#[test]
fn an_increment_of_another_base_is_refused() {
    let (_, store, _) = store();
    let (first, second) = (id(1, 1), id(1, 2));
    let snapshots = |since| {
        let snapshot = |instance| increment(&store, snapshot_of(second, instance, 2), since);
        vec![snapshot(0), snapshot(1)]
    };
    assert_refused(
        &store,
        &commit(second, Some(first), snapshots(id(1, 0))),
        "based on checkpoint 0",
    );
    assert_refused(
        &store,
        &commit(second, None, snapshots(first)),
        "based on checkpoint 1",
    );
    let error = store
        .commit(&commit(second, Some(id(1, 0)), snapshots(id(1, 0))))
        .expect_err("none");
    assert_eq!(error.code(), ErrorCode::NoSuchCheckpoint);
    store
        .commit(&commit(second, Some(first), snapshots(first)))
        .expect("committed");
}

#[test]
fn a_snapshot_for_another_checkpoint_is_refused() {
    let (_, store, model) = store();
    let snapshots = full_snapshots(&store, id(1, 2), 2, &model);
    assert_refused(
        &store,
        &commit(id(1, 3), Some(id(1, 1)), snapshots),
        "for checkpoint 2",
    );
}

#[test]
fn a_checkpoint_before_the_newest_is_refused_and_so_is_another_of_the_same_name() {
    let (_, store, model) = store();
    for at in [id(1, 1), id(1, 0), id(0, 9)] {
        let snapshots = full_snapshots(&store, at, 2, &model);
        let words = if at == id(1, 1) {
            "of other snapshots"
        } else {
            "there is checkpoint 1"
        };
        assert_refused(&store, &commit(at, None, snapshots), words);
    }
}

#[test]
fn partitions_have_one_owner() {
    let (_, store, _) = store();
    let second = id(1, 2);
    let snapshots = |ends: [(u32, u32); 2]| -> Vec<_> {
        let snapshot = |(instance, (first, end)): (usize, (u32, u32))| {
            let partitions = PartitionRange::new(first, end).expect("a range");
            let of = snapshot_of(second, instance as u32, 2);
            let writer = store
                .writer(of, SnapshotKind::Full { partitions })
                .expect("begun");
            writer.finish().expect("written")
        };
        ends.into_iter().enumerate().map(snapshot).collect()
    };
    let base = Some(id(1, 1));
    assert_refused(
        &store,
        &commit(second, base, snapshots([(0, 513), (512, 1024)])),
        "partition 512",
    );
    let partitions = PartitionRange::of_instance(0, 2);
    let of = snapshot_of(second, 0, 2);
    let mut writer = store
        .writer(of, SnapshotKind::Full { partitions })
        .expect("begun");
    let error = writer
        .set("s", PartitionId::from_index(512), b"k", b"v")
        .expect_err("not its own");
    assert_eq!(error.code(), ErrorCode::Internal);
    store
        .commit(&commit(second, base, snapshots([(0, 512), (512, 1024)])))
        .expect("committed");
}

#[test]
fn increments_of_another_number_of_instances_are_refused_if_entries_without_a_partition_are_there()
{
    let (_, store, model) = store();
    let (first, second) = (id(1, 1), id(1, 2));
    let snapshots = vec![increment(&store, snapshot_of(second, 0, 1), first)];
    assert_refused(
        &store,
        &commit(second, Some(first), snapshots),
        "there were 2 instances, now there are 1",
    );
    let snapshots = full_snapshots(&store, second, 1, &model);
    store
        .commit(&commit(second, Some(first), snapshots))
        .expect("all of it");
    let latest = store.latest().expect("whole").expect("there");
    let mut expected = model;
    expected.retain(|(_, place, _), _| !matches!(place, KeySlot::Instance(1)));
    assert_eq!(
        read(&latest, 1).expect("read"),
        expected,
        "there is no second instance any more"
    );
}

#[test]
fn a_folder_of_another_job_is_refused() {
    let (folder, store, _) = store();
    let error =
        CheckpointStore::open(Arc::new(folder.clone()), "other", small()).expect_err("another's");
    assert_eq!(error.code(), ErrorCode::WrongCluster);
    drop(store);
    let error = Checkpoint::open(Arc::new(folder), "other", id(1, 1)).expect_err("another's");
    assert_eq!(error.code(), ErrorCode::WrongCluster);
}

#[test]
fn a_receipt_travels_and_one_of_another_version_is_told() {
    let (_, store, model) = store();
    let receipt = write_full(&store, snapshot_of(id(1, 2), 0, 2), &model).expect("written");
    let bytes = receipt.to_bytes().expect("written");
    assert_eq!(StateHandle::from_bytes(&bytes).expect("read"), receipt);
    assert_eq!((receipt.entries(), receipt.of().instance), (1, 0));
    let text = String::from_utf8(bytes).expect("JSON");
    let later = text.replace("\"version\":1", "\"version\":2");
    let error = StateHandle::from_bytes(later.as_bytes()).expect_err("unknown");
    assert_eq!(error.code(), ErrorCode::VersionMismatch);
    let error = StateHandle::from_bytes(b"{").expect_err("no receipt");
    assert_eq!(error.code(), ErrorCode::BadMessage);
}

#[test]
fn a_report_tells_sizes_and_who_handed_over_what() {
    let (folder, store, model) = store();
    let (first, second) = (id(1, 1), id(1, 2));
    let full = write_full(&store, snapshot_of(second, 0, 2), &model).expect("written");
    let unchanged = StateHandle::unchanged(snapshot_of(second, 1, 2));
    let report = store
        .commit(&commit(second, Some(first), vec![full, unchanged]))
        .expect("committed");
    let vertex = &report.vertices[0];
    assert_eq!(
        (vertex.full, vertex.increments, vertex.unchanged),
        (1, 0, 1)
    );
    assert_eq!((vertex.entries, vertex.blocks, vertex.instances), (1, 1, 2));
    assert_eq!(vertex.layers, 2);
    assert!(vertex.state_bytes > vertex.bytes && vertex.bytes > 0);
    let checkpoint = Checkpoint::open(Arc::new(folder), JOB, second).expect("opened");
    assert_eq!(checkpoint.report(), report);
    assert_eq!(checkpoint.states(VERTEX), ["s", "t"]);
    assert_eq!(checkpoint.vertices().collect::<Vec<_>>(), [VERTEX]);
    assert_eq!(read(&checkpoint, 2).expect("read"), model);
}

#[test]
fn what_another_master_has_committed_meanwhile_stays_and_is_told() {
    let (folder, store, model) = store();
    let open = || CheckpointStore::open(Arc::new(folder.clone()), JOB, small()).expect("opened");
    let (other, third) = (open(), open());
    let (first, second) = (id(1, 1), id(1, 2));
    let snapshots = full_snapshots(&other, second, 2, &model);
    other
        .commit(&commit(second, Some(first), snapshots.clone()))
        .expect("committed");
    let of_others = full_snapshots(&store, second, 2, &model);
    let error = store
        .commit(&commit(second, Some(first), of_others))
        .expect_err("taken");
    assert_eq!(error.code(), ErrorCode::CheckpointRefused);
    assert_eq!(store.checkpoints(), [first, second]);
    store
        .commit(&commit(second, Some(first), snapshots))
        .expect("the same snapshots");
    for store in [store, third] {
        store.sweep(id(1, 3)).expect("swept");
        let found = other.newest_whole().checkpoint.expect("whole");
        assert_eq!(found.id(), second);
    }
}

#[test]
fn a_snapshot_that_was_written_for_an_epoch_that_was_aborted_counts_in_a_later_one() {
    let (_, store, mut model) = store();
    let (first, aborted, next) = (id(1, 1), id(1, 2), id(1, 3));
    // An instance ends with this final snapshot, and the epoch is aborted.
    model.insert(("s", some_partition(1), vec![1]), vec![7]);
    let since = SnapshotKind::Increment { since: first };
    let mut writer = store
        .writer(snapshot_of(aborted, 0, 2), since)
        .expect("begun");
    let KeySlot::Partition(partition) = some_partition(1) else {
        panic!("it has none");
    };
    writer
        .set("s", Some(partition), &[1], &[7])
        .expect("written");
    let last = writer.finish().expect("written");
    let other = increment(&store, snapshot_of(next, 1, 2), first);
    let as_it_was = commit(next, Some(first), vec![last.clone(), other.clone()]);
    assert_refused(&store, &as_it_was, "is for checkpoint 2");
    let carried = last.carried_to(next, Some(first));
    store
        .commit(&commit(next, Some(first), vec![carried, other]))
        .expect("committed");
    let checkpoint = store.checkpoint(next).expect("there");
    checkpoint.verify().expect("whole");
    assert_eq!(read(&checkpoint, 1).expect("read"), model);
    // A later sweep does not remove the final snapshot.
    store.sweep(id(1, 4)).expect("swept");
    checkpoint.verify().expect("whole");
}
