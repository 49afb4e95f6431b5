//! Savepoints of generated checkpoints: written, checked, and copied to another job.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use ardea_checkpoint::savepoint::{
    JobStateSchema, Savepoint, SavepointManifest, SavepointOf, copy,
};
use ardea_checkpoint::store::{
    Checkpoint, CheckpointId, CheckpointStore, Commit, FileName, FileState, MemoryStore,
    ObjectStore, PartitionRange, SnapshotKind, SnapshotOwner, StateHandle, StoreConfig,
};
use ardea_core::{Epoch, ErrorCode, PartitionId, Schema, StateForm, StateShape, Timestamp};
use bytes::Bytes;

const KEYS: u64 = 500;

fn id(epoch: u64) -> CheckpointId {
    CheckpointId::new(3, Epoch(epoch))
}

fn partition(key: u64) -> PartitionId {
    PartitionId::of_canonical(&key.to_le_bytes())
}

/// Writes the snapshot of one instance of the vertex `counts`, with some of its keys.
fn snapshot(store: &CheckpointStore, epoch: u64, instance: u32, kind: SnapshotKind) -> StateHandle {
    let of = SnapshotOwner {
        checkpoint: id(epoch),
        vertex: "counts".into(),
        instance,
        instances: 2,
    };
    let own = PartitionRange::of_instance(instance, 2);
    let mut writer = store.writer(of, kind).unwrap();
    for key in (0..KEYS).filter(|key| own.contains(partition(*key))) {
        let (bytes, at) = (key.to_le_bytes(), Some(partition(key)));
        match (epoch, key % 5) {
            (1, _) => writer.set("keys", at, &bytes, &[1]).unwrap(),
            (_, 0) => writer.remove("keys", at, &bytes).unwrap(),
            (_, 1) => writer.set("keys", at, &bytes, b"changed").unwrap(),
            _ => {}
        }
    }
    let name = [b'i', instance as u8];
    writer.set("offset", None, &name, &[epoch as u8]).unwrap();
    writer.finish().unwrap()
}

/// Creates a checkpoint with the state of two epochs; the second wrote increments.
fn checkpoint() -> Checkpoint {
    let folder = Arc::new(MemoryStore::new());
    let store = CheckpointStore::open(folder, "accounts", StoreConfig::default()).unwrap();
    for epoch in [1, 2] {
        let snapshots = (0..2).map(|instance| {
            let kind = match epoch {
                1 => SnapshotKind::Full {
                    partitions: PartitionRange::of_instance(instance, 2),
                },
                _ => SnapshotKind::Increment { since: id(1) },
            };
            snapshot(&store, epoch, instance, kind)
        });
        let commit = Commit {
            id: id(epoch),
            base: (epoch > 1).then(|| id(1)),
            at: Timestamp::from_secs(1_000),
            snapshots: snapshots.collect(),
        };
        store.commit(&commit).unwrap();
    }
    store.checkpoint(id(2)).unwrap()
}

fn states() -> JobStateSchema {
    let keys = StateShape::of_values("keys", Some(Schema::U64), Schema::Bytes);
    JobStateSchema::default().with("counts", [keys])
}

fn saved(threads: usize) -> (Arc<MemoryStore>, Savepoint) {
    let (folder, states) = (Arc::new(MemoryStore::new()), states());
    let of = SavepointOf {
        checkpoint: &checkpoint(),
        states: &states,
        threads,
    };
    let savepoint = Savepoint::write(Arc::clone(&folder) as Arc<dyn ObjectStore>, of).unwrap();
    (folder, savepoint)
}

/// Returns the values of all entries of a state, by key.
fn entries(checkpoint: &Checkpoint, vertex: &str, state: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let partitioned = checkpoint.entries(vertex, state, PartitionRange::ALL);
    let mut all = BTreeMap::new();
    for mut entries in [partitioned, checkpoint.unpartitioned(vertex, state)] {
        while let Some(entry) = entries.next_entry().unwrap() {
            all.insert(entry.key.to_vec(), entry.value.to_vec());
        }
    }
    all
}

#[test]
fn a_savepoint_has_all_state_without_increments_and_says_what_it_is() {
    for threads in [1, 4] {
        let (folder, written) = saved(threads);
        let opened = Savepoint::open(folder).unwrap();
        assert_eq!(opened.manifest(), written.manifest());
        for state in ["keys", "offset"] {
            let carried = entries(opened.checkpoint(), "counts", state);
            assert_eq!(carried, entries(&checkpoint(), "counts", state));
        }
        let report = opened.checkpoint().report();
        assert_eq!(
            (report.vertices[0].layers, report.vertices[0].increments),
            (1, 0)
        );
        let vertex = &opened.manifest().vertices["counts"];
        assert_eq!(vertex.instances, 2);
        let keys = &vertex.states["keys"];
        assert!(matches!(keys.form, StateForm::Values { .. }));
        assert_eq!(keys.count.entries, KEYS - KEYS / 5);
        assert!(keys.count.partitions > 100);
        let offset = &vertex.states["offset"];
        assert_eq!((&offset.form, offset.count.entries), (&StateForm::Own, 2));
        let checked = opened.check().unwrap();
        assert_eq!(checked.entries, keys.count.entries + 2);
        // The counts are independent of the layout in files.
        assert_eq!(saved(2).1.manifest().vertices, opened.manifest().vertices);
        assert_ne!(saved(2).1.manifest().id, opened.manifest().id);
    }
}

#[test]
fn a_folder_with_something_in_it_is_refused() {
    let (folder, savepoint) = saved(1);
    let states = states();
    let of = SavepointOf {
        checkpoint: savepoint.checkpoint(),
        states: &states,
        threads: 1,
    };
    let error = Savepoint::write(folder, of).unwrap_err();
    assert_eq!(error.code(), ErrorCode::WrongState);
}

#[test]
fn without_its_manifest_it_is_none_and_a_later_version_is_told_as_such() {
    let (folder, _) = saved(1);
    let name = SavepointManifest::file().unwrap();
    let file = folder.read(&name).unwrap().unwrap();
    let gone = [(name.clone(), FileState::Whole)];
    folder.remove(&gone).unwrap();
    let error = Savepoint::open(Arc::clone(&folder) as Arc<dyn ObjectStore>).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoSuchCheckpoint);
    let head = b"ardea savepoint 1";
    assert!(file.starts_with(head));
    let later = [b"ardea savepoint 2", &file[head.len()..]].concat();
    folder.write(&name, &later).unwrap();
    let error = Savepoint::open(folder).unwrap_err();
    assert_eq!(error.code(), ErrorCode::VersionMismatch);
}

#[test]
fn whatever_is_damaged_or_gone_is_found_with_the_file_named() {
    let (folder, _) = saved(1);
    let files: Vec<(FileName, Bytes)> = folder
        .list()
        .unwrap()
        .into_iter()
        .map(|listed| {
            let file = folder.read(&listed.name).unwrap().unwrap();
            (listed.name, file)
        })
        .collect();
    assert!(files.len() >= 3);
    for (damaged, file) in &files {
        let step = file.len() / 20 + 1;
        for at in (0..file.len()).step_by(step).map(Some).chain([None]) {
            let copy = Arc::new(MemoryStore::new());
            for (name, file) in files.iter().filter(|(name, _)| name != damaged) {
                copy.write(name, file).unwrap();
            }
            if let Some(at) = at {
                let mut bytes = file.to_vec();
                bytes[at] ^= 4;
                copy.write(damaged, &bytes).unwrap();
            }
            let checked = Savepoint::open(copy).and_then(|savepoint| savepoint.check());
            let error = checked.unwrap_err();
            let is_named = error.to_string().contains(damaged.as_str());
            // Without a manifest, the savepoint or the checkpoint does not exist.
            assert!(is_named || at.is_none(), "{damaged} at {at:?}: {error}");
        }
    }
}

#[test]
fn states_and_vertices_are_left_behind_and_added_where_it_is_brought() {
    let (_, savepoint) = saved(1);
    let folder = Arc::new(MemoryStore::new());
    let store = CheckpointStore::open(folder, "other", StoreConfig::default()).unwrap();
    let at = CheckpointId::new(9, Epoch(2));
    let wanted = |vertex: &str, state: Option<&str>| vertex == "counts" && state != Some("offset");
    let added = BTreeMap::from([("tops".to_string(), 3)]);
    let copied = copy(savepoint.checkpoint(), &store, at, &wanted, &added, 2).unwrap();
    let brought = store.checkpoint(at).unwrap();
    assert_eq!(brought.job(), "other");
    assert_eq!(brought.instances("tops"), Some(3));
    assert!(brought.states("tops").is_empty());
    assert_eq!(brought.states("counts"), ["keys"]);
    let keys = entries(&brought, "counts", "keys");
    assert_eq!(keys, entries(savepoint.checkpoint(), "counts", "keys"));
    let before = &savepoint.manifest().vertices["counts"].states["keys"].count;
    assert_eq!(&copied.states["counts"]["keys"], before);
}
