//! What the tests share: a plain map of what a vertex has, and how it is written and read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ardea_checkpoint::store::*;
use ardea_core::{Epoch, PARTITION_COUNT, PartitionId, Result, Timestamp};

/// The name of all jobs of these tests.
pub const JOB: &str = "job";
/// The name of the vertex.
pub const VERTEX: &str = "counts";

/// A state's name, where the entry belongs, and its key.
pub type Key = (&'static str, Place, Vec<u8>);

/// What a vertex has.
pub type Model = BTreeMap<Key, Vec<u8>>;

/// Small blocks, of which even a small state has many.
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

pub fn id(generation: u64, epoch: u64) -> SnapshotId {
    SnapshotId::new(generation, Epoch(epoch))
}

pub fn partition(index: u32) -> Place {
    Place::Partition(PartitionId::from_index(index).expect("a partition"))
}

/// The instance that an entry is of.
pub fn owner(place: Place, instances: u32) -> u32 {
    match place {
        Place::Partition(partition) => partition.owner(instances),
        Place::Instance(instance) => instance,
    }
}

fn partition_of(place: Place) -> Option<PartitionId> {
    match place {
        Place::Partition(partition) => Some(partition),
        Place::Instance(_) => None,
    }
}

pub fn cut_of(snapshot: SnapshotId, instance: u32, instances: u32) -> CutOf {
    CutOf {
        snapshot,
        vertex: VERTEX.to_string(),
        instance,
        instances,
    }
}

/// Writes all that one instance has.
pub fn write_full(store: &SnapshotStore, of: CutOf, model: &Model) -> Result<CutReceipt> {
    let partitions = PartitionRange::of_instance(of.instance, of.instances);
    let (instance, instances) = (of.instance, of.instances);
    let mut writer = store.writer(of, CutKind::Full { partitions })?;
    let own = |place: Place| owner(place, instances) == instance;
    // Backwards: a writer takes entries in any order.
    for ((state, place, key), value) in model.iter().rev().filter(|((_, place, _), _)| own(*place))
    {
        writer.set(state, partition_of(*place), key, value)?;
    }
    writer.finish()
}

/// Writes what has changed of what one instance has.
pub fn write_increment(
    store: &SnapshotStore,
    of: CutOf,
    since: SnapshotId,
    model: &Model,
    changed: &BTreeSet<Key>,
) -> Result<CutReceipt> {
    let (instance, instances) = (of.instance, of.instances);
    let mut writer = store.writer(of, CutKind::Increment { since })?;
    let own = |place: Place| owner(place, instances) == instance;
    for changed in changed.iter().filter(|(_, place, _)| own(*place)) {
        let (state, place, key) = changed;
        match model.get(changed) {
            Some(value) => {
                // Of two entries of a key the last one counts.
                writer.remove(state, partition_of(*place), key)?;
                writer.set(state, partition_of(*place), key, value)?;
            }
            None => writer.remove(state, partition_of(*place), key)?,
        }
    }
    writer.finish()
}

pub fn commit(id: SnapshotId, base: Option<SnapshotId>, cuts: Vec<CutReceipt>) -> Commit {
    Commit {
        id,
        base,
        at: Timestamp::from_secs(5),
        cuts,
    }
}

/// Reads all that a snapshot has, as many instances would that own the partitions among them.
pub fn read(snapshot: &Snapshot, readers: u32) -> Result<Model> {
    let mut model = Model::new();
    for state in ["s", "t"] {
        for reader in 0..readers {
            let range = PartitionRange::of_instance(reader, readers);
            read_into(state, snapshot.entries(VERTEX, state, range), &mut model)?;
        }
        read_into(state, snapshot.unpartitioned(VERTEX, state), &mut model)?;
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

/// The files of a folder that are whole, sorted.
pub fn files(folder: &dyn Folder) -> Vec<FileName> {
    let listed = folder.list().expect("listed");
    let mut names: Vec<_> = listed
        .into_iter()
        .filter(|listed| listed.state == FileState::Whole)
        .map(|listed| listed.name)
        .collect();
    names.sort();
    names
}

/// A copy in memory.
pub fn copy_of(folder: &dyn Folder) -> MemoryFolder {
    let copy = MemoryFolder::new();
    for name in files(folder) {
        let bytes = folder.read(&name).expect("read").expect("it is there");
        copy.write(&name, &bytes).expect("written");
    }
    copy
}

/// Puts other bytes in the place of a file, or nothing.
pub fn replace(folder: &dyn Folder, name: &FileName, bytes: Option<&[u8]>) {
    let whole = (name.clone(), FileState::Whole);
    folder.remove(&[whole]).expect("removed");
    if let Some(bytes) = bytes {
        folder.write(name, bytes).expect("written");
    }
}

/// Whether every file of a folder is a manifest, or a block without which some snapshot is not whole; and all snapshots are whole.
pub fn assert_nothing_is_left(folder: &dyn Folder) {
    let copy = copy_of(folder);
    let open = || SnapshotStore::open(Arc::new(copy.clone()), JOB, small()).expect("opened");
    let is_whole = || {
        let store = open();
        let snapshots = store.snapshots();
        snapshots
            .iter()
            .all(|id| store.snapshot(*id).expect("there").verify().is_ok())
    };
    assert_eq!(open().damaged().len(), 0);
    assert!(is_whole());
    for name in files(&copy) {
        if name.as_str().starts_with("snapshot-") {
            continue;
        }
        let bytes = copy.read(&name).expect("read").expect("it is there");
        replace(&copy, &name, None);
        assert!(!is_whole(), "{name} belongs to no snapshot");
        replace(&copy, &name, Some(&bytes));
    }
}

/// A partition that is one of some that are spread over all.
pub fn some_partition(number: u32) -> Place {
    partition(number * 97 % PARTITION_COUNT)
}
