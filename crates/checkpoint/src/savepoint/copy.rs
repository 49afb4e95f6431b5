//! Copying of a checkpoint to another store.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::store::{
    Checkpoint, CheckpointId, CheckpointReport, CheckpointStore, Commit, Entry, KeySlot,
    PartitionRange, SnapshotKind, SnapshotOwner, StateHandle,
};
use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Counts and checksum of the entries of a copied state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StateCount {
    /// The number of entries.
    pub entries: u64,
    /// The number of partitions with entries. Unpartitioned entries do not count as a partition.
    pub partitions: u32,
    /// The total bytes of all keys.
    pub key_bytes: u64,
    /// The total bytes of all values.
    pub value_bytes: u64,
    /// A checksum of all entries, independent of their order and layout; see
    /// docs/design/savepoints-and-upgrades.md.
    #[serde(with = "digits")]
    pub digest: u64,
}

impl StateCount {
    /// Adds an entry. `new_partition` is true for the first entry of a partition.
    pub(crate) fn count(&mut self, entry: &Entry<'_>, new_partition: bool) {
        self.entries += 1;
        self.partitions += u32::from(new_partition);
        self.key_bytes += entry.key.len() as u64;
        self.value_bytes += entry.value.len() as u64;
        self.digest = self.digest.wrapping_add(digest(entry));
    }

    /// Adds the counts `other` of other partitions of the same state.
    fn add(&mut self, other: &StateCount) {
        self.entries += other.entries;
        self.partitions += other.partitions;
        self.key_bytes += other.key_bytes;
        self.value_bytes += other.value_bytes;
        self.digest = self.digest.wrapping_add(other.digest);
    }
}

/// Returns the checksum of an entry: the checksum of the value, seeded with the checksum of the
/// key. The latter is seeded with the partition, or with 65,535 for an unpartitioned entry.
fn digest(entry: &Entry<'_>) -> u64 {
    let place = match entry.place {
        KeySlot::Partition(partition) => partition.index() as u16,
        KeySlot::Instance(_) => u16::MAX,
    };
    let of_key = xxh3_64_with_seed(entry.key, xxh3_64(&place.to_le_bytes()));
    xxh3_64_with_seed(entry.value, of_key)
}

/// Serialization of a checksum as 16 hexadecimal digits, since JSON numbers are not exact for 64
/// bits in all languages.
mod digits {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(digest: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{digest:016x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        u64::from_str_radix(&text, 16).map_err(|_| D::Error::custom("this is no checksum"))
    }
}

/// The result of a copy.
#[derive(Clone, Debug)]
pub struct Copied {
    /// The report of the new checkpoint.
    pub report: CheckpointReport,
    /// The counts of the copied states, by vertex and state name.
    pub states: BTreeMap<String, BTreeMap<String, StateCount>>,
}

/// Copies `from` to a new checkpoint `id` in the store `to`. `wanted` selects the vertices (`None`)
/// and states to copy. `added` are further vertices without state, with their parallelism. The copy
/// has a single layer.
///
/// Reads and writes all selected data, on up to `threads` threads with one buffer each. The new
/// checkpoint is durable when this function returns. After an error, unreferenced files may remain.
///
/// # Errors
/// Those of reading and writing a checkpoint.
pub fn copy(
    from: &Checkpoint,
    to: &CheckpointStore,
    id: CheckpointId,
    wanted: &(dyn Fn(&str, Option<&str>) -> bool + Sync),
    added: &BTreeMap<String, u32>,
    threads: usize,
) -> Result<Copied> {
    let mut work = Vec::new();
    for vertex in from.vertices().filter(|vertex| wanted(vertex, None)) {
        let instances = from.instances(vertex).unwrap_or(1).max(1);
        work.extend((0..instances).map(|instance| of(id, vertex, (instance, instances))));
    }
    for (vertex, instances) in added {
        let instances = (*instances).max(1);
        work.extend((0..instances).map(|instance| of(id, vertex, (instance, instances))));
    }
    work.reverse();
    let work = Mutex::new(work);
    let done = Mutex::new((Vec::new(), BTreeMap::new()));
    let carry = || -> Result<()> {
        loop {
            let next = lock(&work).pop();
            let Some(of) = next else { return Ok(()) };
            let vertex = of.vertex.clone();
            let carried = carry_one(from, to, of, wanted).inspect_err(|_| lock(&work).clear())?;
            let (receipt, counts) = carried;
            let (receipts, states) = &mut *lock(&done);
            receipts.push(receipt);
            let known: &mut BTreeMap<String, StateCount> = states.entry(vertex).or_default();
            for (state, count) in counts {
                known.entry(state).or_default().add(&count);
            }
        }
    };
    on_threads(threads, &carry)?;
    let (snapshots, states) = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    let report = to.commit(&Commit {
        id,
        base: None,
        at: from.at(),
        snapshots,
    })?;
    Ok(Copied { report, states })
}

fn of(checkpoint: CheckpointId, vertex: &str, (instance, instances): (u32, u32)) -> SnapshotOwner {
    SnapshotOwner {
        checkpoint,
        vertex: vertex.to_string(),
        instance,
        instances,
    }
}

/// Runs `work` on this thread and on additional ones, `threads` in total. If the system refuses a
/// thread, the others do its work.
fn on_threads(threads: usize, work: &(dyn Fn() -> Result<()> + Sync)) -> Result<()> {
    thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads)
            .filter_map(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
            .collect();
        let mut result = work();
        for helper in helpers {
            let helped = helper.join().unwrap_or_else(|_| {
                let what = "a thread that copied a checkpoint panicked";
                Err(Error::new(ErrorCode::Internal, what))
            });
            result = result.and(helped);
        }
        result
    })
}

/// Copies the state for the instance `of` of the new checkpoint. The first instance gets all
/// unpartitioned entries.
fn carry_one(
    from: &Checkpoint,
    to: &CheckpointStore,
    of: SnapshotOwner,
    wanted: &(dyn Fn(&str, Option<&str>) -> bool + Sync),
) -> Result<(StateHandle, BTreeMap<String, StateCount>)> {
    let vertex = of.vertex.clone();
    let partitions = PartitionRange::of_instance(of.instance, of.instances);
    let is_first = of.instance == 0;
    let mut writer = to.writer(of, SnapshotKind::Full { partitions })?;
    let mut counts = BTreeMap::new();
    for state in from.states(&vertex) {
        if !wanted(&vertex, Some(state)) {
            continue;
        }
        let mut count = StateCount::default();
        let mut last = None;
        let mut entries = from.entries(&vertex, state, partitions);
        while let Some(entry) = entries.next_entry()? {
            let KeySlot::Partition(partition) = entry.place else {
                continue;
            };
            count.count(&entry, last.replace(partition) != Some(partition));
            writer.set(state, Some(partition), entry.key, entry.value)?;
        }
        if is_first {
            let mut entries = from.unpartitioned(&vertex, state);
            while let Some(entry) = entries.next_entry()? {
                count.count(&entry, false);
                writer.set(state, None, entry.key, entry.value)?;
            }
        }
        counts.insert(state.to_string(), count);
    }
    Ok((writer.finish()?, counts))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Every change is a single step, so a poisoned lock is consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
