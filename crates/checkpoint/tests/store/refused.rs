//! Commits whose cuts do not make a snapshot together, and folders of other jobs.

use std::sync::Arc;

use ardea_checkpoint::store::*;
use ardea_core::{ErrorCode, PartitionId};

use crate::site::*;

/// A store with one snapshot of two instances.
fn store() -> (MemoryFolder, SnapshotStore, Model) {
    let folder = MemoryFolder::new();
    let store = SnapshotStore::open(Arc::new(folder.clone()), JOB, small()).expect("opened");
    let model = Model::from([
        (("s", some_partition(1), vec![1]), vec![1]),
        (("s", some_partition(9), vec![2]), vec![2]),
        (("t", Place::Instance(1), vec![3]), vec![3]),
    ]);
    let first = id(1, 1);
    let cuts = full_cuts(&store, first, 2, &model);
    store.commit(&commit(first, None, cuts)).expect("committed");
    (folder, store, model)
}

fn full_cuts(
    store: &SnapshotStore,
    id: SnapshotId,
    instances: u32,
    model: &Model,
) -> Vec<CutReceipt> {
    (0..instances)
        .map(|instance| write_full(store, cut_of(id, instance, instances), model).expect("written"))
        .collect()
}

fn increment(store: &SnapshotStore, of: CutOf, since: SnapshotId) -> CutReceipt {
    let writer = store
        .writer(of, CutKind::Increment { since })
        .expect("begun");
    writer.finish().expect("written")
}

/// Whether a commit is refused with these words, and changes nothing.
fn assert_refused(store: &SnapshotStore, commit: &Commit, words: &str) {
    let before = store.snapshots();
    let error = store.commit(commit).expect_err("refused");
    assert_eq!(error.code(), ErrorCode::SnapshotRefused, "{error}");
    assert!(error.to_string().contains(words), "{error}");
    assert_eq!(store.snapshots(), before);
}

#[test]
fn a_cut_that_is_missing_or_there_twice_is_refused() {
    let (_, store, model) = store();
    let (first, second) = (id(1, 1), id(1, 2));
    let cuts = full_cuts(&store, second, 2, &model);
    let with = |cuts: &[&CutReceipt]| {
        let cuts = cuts.iter().map(|cut| (*cut).clone()).collect();
        commit(second, Some(first), cuts)
    };
    assert_refused(&store, &with(&[&cuts[0]]), "1 cuts of 2");
    assert_refused(&store, &with(&[&cuts[1]]), "instance 1 where one of 0");
    assert_refused(
        &store,
        &with(&[&cuts[0], &cuts[0]]),
        "instance 0 where one of 1",
    );
    assert_refused(&store, &with(&[]), "none of vertex \"counts\"");
    store
        .commit(&with(&[&cuts[1], &cuts[0]]))
        .expect("in any order");
}

#[test]
fn an_increment_of_another_base_is_refused() {
    let (_, store, _) = store();
    let (first, second) = (id(1, 1), id(1, 2));
    let cuts = |since| {
        let cut = |instance| increment(&store, cut_of(second, instance, 2), since);
        vec![cut(0), cut(1)]
    };
    assert_refused(
        &store,
        &commit(second, Some(first), cuts(id(1, 0))),
        "based on snapshot 0",
    );
    assert_refused(
        &store,
        &commit(second, None, cuts(first)),
        "based on snapshot 1",
    );
    let error = store
        .commit(&commit(second, Some(id(1, 0)), cuts(id(1, 0))))
        .expect_err("none");
    assert_eq!(error.code(), ErrorCode::NoSuchSnapshot);
    store
        .commit(&commit(second, Some(first), cuts(first)))
        .expect("committed");
}

#[test]
fn a_cut_for_another_snapshot_is_refused() {
    let (_, store, model) = store();
    let cuts = full_cuts(&store, id(1, 2), 2, &model);
    assert_refused(
        &store,
        &commit(id(1, 3), Some(id(1, 1)), cuts),
        "for snapshot 2",
    );
}

#[test]
fn a_snapshot_before_the_newest_is_refused_and_so_is_another_of_the_same_name() {
    let (_, store, model) = store();
    for at in [id(1, 1), id(1, 0), id(0, 9)] {
        let cuts = full_cuts(&store, at, 2, &model);
        let words = if at == id(1, 1) {
            "of other cuts"
        } else {
            "there is snapshot 1"
        };
        assert_refused(&store, &commit(at, None, cuts), words);
    }
}

#[test]
fn partitions_have_one_owner() {
    let (_, store, _) = store();
    let second = id(1, 2);
    let cuts = |ends: [(u32, u32); 2]| -> Vec<_> {
        let cut = |(instance, (first, end)): (usize, (u32, u32))| {
            let partitions = PartitionRange::new(first, end).expect("a range");
            let of = cut_of(second, instance as u32, 2);
            let writer = store
                .writer(of, CutKind::Full { partitions })
                .expect("begun");
            writer.finish().expect("written")
        };
        ends.into_iter().enumerate().map(cut).collect()
    };
    let base = Some(id(1, 1));
    assert_refused(
        &store,
        &commit(second, base, cuts([(0, 513), (512, 1024)])),
        "partition 512",
    );
    let partitions = PartitionRange::of_instance(0, 2);
    let of = cut_of(second, 0, 2);
    let mut writer = store
        .writer(of, CutKind::Full { partitions })
        .expect("begun");
    let error = writer
        .set("s", PartitionId::from_index(512), b"k", b"v")
        .expect_err("not its own");
    assert_eq!(error.code(), ErrorCode::Internal);
    store
        .commit(&commit(second, base, cuts([(0, 512), (512, 1024)])))
        .expect("committed");
}

#[test]
fn increments_of_another_number_of_instances_are_refused_if_entries_without_a_partition_are_there()
{
    let (_, store, model) = store();
    let (first, second) = (id(1, 1), id(1, 2));
    let cuts = vec![increment(&store, cut_of(second, 0, 1), first)];
    assert_refused(
        &store,
        &commit(second, Some(first), cuts),
        "there were 2 instances, now there are 1",
    );
    let cuts = full_cuts(&store, second, 1, &model);
    store
        .commit(&commit(second, Some(first), cuts))
        .expect("all of it");
    let latest = store.latest().expect("whole").expect("there");
    let mut expected = model;
    expected.retain(|(_, place, _), _| !matches!(place, Place::Instance(1)));
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
        SnapshotStore::open(Arc::new(folder.clone()), "other", small()).expect_err("another's");
    assert_eq!(error.code(), ErrorCode::WrongCluster);
    drop(store);
    let error = Snapshot::open(Arc::new(folder), "other", id(1, 1)).expect_err("another's");
    assert_eq!(error.code(), ErrorCode::WrongCluster);
}

#[test]
fn a_receipt_travels_and_one_of_another_version_is_told() {
    let (_, store, model) = store();
    let receipt = write_full(&store, cut_of(id(1, 2), 0, 2), &model).expect("written");
    let bytes = receipt.to_bytes().expect("written");
    assert_eq!(CutReceipt::from_bytes(&bytes).expect("read"), receipt);
    assert_eq!((receipt.entries(), receipt.of().instance), (1, 0));
    let text = String::from_utf8(bytes).expect("JSON");
    let later = text.replace("\"version\":1", "\"version\":2");
    let error = CutReceipt::from_bytes(later.as_bytes()).expect_err("unknown");
    assert_eq!(error.code(), ErrorCode::VersionMismatch);
    let error = CutReceipt::from_bytes(b"{").expect_err("no receipt");
    assert_eq!(error.code(), ErrorCode::BadMessage);
}

#[test]
fn a_report_tells_sizes_and_who_handed_over_what() {
    let (folder, store, model) = store();
    let (first, second) = (id(1, 1), id(1, 2));
    let full = write_full(&store, cut_of(second, 0, 2), &model).expect("written");
    let unchanged = CutReceipt::unchanged(cut_of(second, 1, 2));
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
    let snapshot = Snapshot::open(Arc::new(folder), JOB, second).expect("opened");
    assert_eq!(snapshot.report(), report);
    assert_eq!(snapshot.states(VERTEX), ["s", "t"]);
    assert_eq!(snapshot.vertices().collect::<Vec<_>>(), [VERTEX]);
    assert_eq!(read(&snapshot, 2).expect("read"), model);
}

#[test]
fn what_another_master_has_committed_meanwhile_stays_and_is_told() {
    let (folder, store, model) = store();
    let open = || SnapshotStore::open(Arc::new(folder.clone()), JOB, small()).expect("opened");
    let (other, third) = (open(), open());
    let (first, second) = (id(1, 1), id(1, 2));
    let cuts = full_cuts(&other, second, 2, &model);
    other
        .commit(&commit(second, Some(first), cuts.clone()))
        .expect("committed");
    let of_others = full_cuts(&store, second, 2, &model);
    let error = store
        .commit(&commit(second, Some(first), of_others))
        .expect_err("taken");
    assert_eq!(error.code(), ErrorCode::SnapshotRefused);
    assert_eq!(store.snapshots(), [first, second]);
    store
        .commit(&commit(second, Some(first), cuts))
        .expect("the same cuts");
    for store in [store, third] {
        store.sweep(id(1, 3)).expect("swept");
        let found = other.newest_whole().snapshot.expect("whole");
        assert_eq!(found.id(), second);
    }
}

#[test]
fn a_cut_that_was_written_for_an_epoch_that_was_given_up_counts_in_a_later_one() {
    let (_, store, mut model) = store();
    let (first, given_up, next) = (id(1, 1), id(1, 2), id(1, 3));
    // An instance ends, and leaves this; the epoch is given up.
    model.insert(("s", some_partition(1), vec![1]), vec![7]);
    let since = CutKind::Increment { since: first };
    let mut writer = store.writer(cut_of(given_up, 0, 2), since).expect("begun");
    let Place::Partition(partition) = some_partition(1) else {
        panic!("it has none");
    };
    writer
        .set("s", Some(partition), &[1], &[7])
        .expect("written");
    let last = writer.finish().expect("written");
    let other = increment(&store, cut_of(next, 1, 2), first);
    let as_it_was = commit(next, Some(first), vec![last.clone(), other.clone()]);
    assert_refused(&store, &as_it_was, "is for snapshot 2");
    let carried = last.carried_to(next, Some(first));
    store
        .commit(&commit(next, Some(first), vec![carried, other]))
        .expect("committed");
    let snapshot = store.snapshot(next).expect("there");
    snapshot.verify().expect("whole");
    assert_eq!(read(&snapshot, 1).expect("read"), model);
    // What is swept later is not what counts.
    store.sweep(id(1, 4)).expect("swept");
    snapshot.verify().expect("whole");
}
