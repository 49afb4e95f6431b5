//! Helpers shared by the tests: a plain map as the model of a vertex' state, and its snapshots.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ardea_checkpoint::store::*;
use ardea_core::{Epoch, PARTITION_COUNT, PartitionId, Result, Timestamp};

/// The name of all jobs of these tests.
pub const JOB: &str = "job";
/// The name of the only vertex of these jobs.
pub const VERTEX: &str = "counts";

/// The state name, the slot of the entry, and its key.
pub type Key = (&'static str, KeySlot, Vec<u8>);

/// The state of a vertex.
pub type Model = BTreeMap<Key, Vec<u8>>;

/// Returns settings with small blocks, so that even small state has many blocks.
pub fn small() -> StoreConfig {
    StoreConfig {
        keep: 2,
        most_layers: 4,
        blocks: BlockConfig {
            block_bytes: 200,
            buffer_bytes: 600,
        },
    }
}

pub fn id(generation: u64, epoch: u64) -> CheckpointId {
    CheckpointId::new(generation, Epoch(epoch))
}

pub fn partition(index: u32) -> KeySlot {
    KeySlot::Partition(PartitionId::from_index(index).expect("a partition"))
}

/// Returns the instance that owns a slot.
pub fn owner(place: KeySlot, instances: u32) -> u32 {
    match place {
        KeySlot::Partition(partition) => partition.owner(instances),
        KeySlot::Instance(instance) => instance,
    }
}

fn partition_of(place: KeySlot) -> Option<PartitionId> {
    match place {
        KeySlot::Partition(partition) => Some(partition),
        KeySlot::Instance(_) => None,
    }
}

pub fn snapshot_of(checkpoint: CheckpointId, instance: u32, instances: u32) -> SnapshotOwner {
    SnapshotOwner {
        checkpoint,
        vertex: VERTEX.to_string(),
        instance,
        instances,
    }
}

/// Writes a full snapshot of the instance `of`, with its entries of `model`.
pub fn write_full(
    store: &CheckpointStore,
    of: SnapshotOwner,
    model: &Model,
) -> Result<StateHandle> {
    let partitions = PartitionRange::of_instance(of.instance, of.instances);
    let (instance, instances) = (of.instance, of.instances);
    let mut writer = store.writer(of, SnapshotKind::Full { partitions })?;
    let own = |place: KeySlot| owner(place, instances) == instance;
    // The entries are written in reverse order, since a writer takes them in any order.
    for ((state, place, key), value) in model.iter().rev().filter(|((_, place, _), _)| own(*place))
    {
        writer.set(state, partition_of(*place), key, value)?;
    }
    writer.finish()
}

/// Writes an increment of the instance `of`, with its `changed` keys since the checkpoint `since`.
pub fn write_increment(
    store: &CheckpointStore,
    of: SnapshotOwner,
    since: CheckpointId,
    model: &Model,
    changed: &BTreeSet<Key>,
) -> Result<StateHandle> {
    let (instance, instances) = (of.instance, of.instances);
    let mut writer = store.writer(of, SnapshotKind::Increment { since })?;
    let own = |place: KeySlot| owner(place, instances) == instance;
    for changed in changed.iter().filter(|(_, place, _)| own(*place)) {
        let (state, place, key) = changed;
        match model.get(changed) {
            Some(value) => {
                // Of two entries with the same key, the last one is valid.
                writer.remove(state, partition_of(*place), key)?;
                writer.set(state, partition_of(*place), key, value)?;
            }
            None => writer.remove(state, partition_of(*place), key)?,
        }
    }
    writer.finish()
}

pub fn commit(id: CheckpointId, base: Option<CheckpointId>, snapshots: Vec<StateHandle>) -> Commit {
    Commit {
        id,
        base,
        at: Timestamp::from_secs(5),
        snapshots,
    }
}

/// Reads all entries of a checkpoint, as this number of `readers` would, among which the partitions
/// are divided.
pub fn read(checkpoint: &Checkpoint, readers: u32) -> Result<Model> {
    let mut model = Model::new();
    for state in ["s", "t"] {
        for reader in 0..readers {
            let range = PartitionRange::of_instance(reader, readers);
            read_into(state, checkpoint.entries(VERTEX, state, range), &mut model)?;
        }
        read_into(state, checkpoint.unpartitioned(VERTEX, state), &mut model)?;
    }
    Ok(model)
}

fn read_into(state: &'static str, mut entries: Entries, model: &mut Model) -> Result<()> {
    let mut last = None;
    while let Some(entry) = entries.next_entry()? {
        let key = (entry.place, entry.key.to_vec());
        assert!(last.is_none_or(|last| last < key), "in order, each once");
        model.insert((state, key.0, key.1.clone()), entry.value.to_vec());
        last = Some(key);
    }
    Ok(())
}

/// Returns the complete files of a folder, sorted.
pub fn files(folder: &dyn ObjectStore) -> Vec<FileName> {
    let listed = folder.list().expect("listed");
    let mut names: Vec<_> = listed
        .into_iter()
        .filter(|listed| listed.state == FileState::Whole)
        .map(|listed| listed.name)
        .collect();
    names.sort();
    names
}

/// Returns a copy of the folder's files in memory.
pub fn copy_of(folder: &dyn ObjectStore) -> MemoryStore {
    let copy = MemoryStore::new();
    for name in files(folder) {
        let bytes = folder.read(&name).expect("read").expect("it is there");
        copy.write(&name, &bytes).expect("written");
    }
    copy
}

/// Replaces a file with other bytes, or removes it.
pub fn replace(folder: &dyn ObjectStore, name: &FileName, bytes: Option<&[u8]>) {
    let whole = (name.clone(), FileState::Whole);
    folder.remove(&[whole]).expect("removed");
    if let Some(bytes) = bytes {
        folder.write(name, bytes).expect("written");
    }
}

/// Checks that all checkpoints are intact, and that every file is a manifest, or a block that some
/// checkpoint requires.
pub fn assert_nothing_is_left(folder: &dyn ObjectStore) {
    let copy = copy_of(folder);
    let open = || CheckpointStore::open(Arc::new(copy.clone()), JOB, small()).expect("opened");
    let is_whole = || {
        let store = open();
        let checkpoints = store.checkpoints();
        checkpoints
            .iter()
            .all(|id| store.checkpoint(*id).expect("there").verify().is_ok())
    };
    assert_eq!(open().damaged().len(), 0);
    assert!(is_whole());
    for name in files(&copy) {
        if name.as_str().starts_with("checkpoint-") {
            continue;
        }
        let bytes = copy.read(&name).expect("read").expect("it is there");
        replace(&copy, &name, None);
        assert!(!is_whole(), "{name} belongs to no checkpoint");
        replace(&copy, &name, Some(&bytes));
    }
}

/// Returns the partition with the sequence number `number`, from several that are spread over the
/// whole range.
pub fn some_partition(number: u32) -> KeySlot {
    partition(number * 97 % PARTITION_COUNT)
}
