//! Carries a snapshot from one place to another.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::store::{
    Commit, CutKind, CutOf, CutReceipt, Entry, PartitionRange, Place, Snapshot, SnapshotId,
    SnapshotReport, SnapshotStore,
};
use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// What was carried of a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StateCount {
    /// Its entries.
    pub entries: u64,
    /// How many partitions have one; those without a partition are not counted.
    pub partitions: u32,
    /// All bytes of keys.
    pub key_bytes: u64,
    /// All bytes of values.
    pub value_bytes: u64,
    /// A checksum of all entries that is the same however they lie in files; see docs/savepoints.md.
    #[serde(with = "digits")]
    pub digest: u64,
}

impl StateCount {
    /// Counts an entry; `new_partition` if none of its partition was counted before.
    pub(crate) fn count(&mut self, entry: &Entry<'_>, new_partition: bool) {
        self.entries += 1;
        self.partitions += u32::from(new_partition);
        self.key_bytes += entry.key.len() as u64;
        self.value_bytes += entry.value.len() as u64;
        self.digest = self.digest.wrapping_add(digest(entry));
    }

    /// Counts what was counted elsewhere, of other partitions.
    fn add(&mut self, other: &StateCount) {
        self.entries += other.entries;
        self.partitions += other.partitions;
        self.key_bytes += other.key_bytes;
        self.value_bytes += other.value_bytes;
        self.digest = self.digest.wrapping_add(other.digest);
    }
}

/// The checksum of one entry: that of its value, begun with that of its key, begun with its partition, or 65,535.
fn digest(entry: &Entry<'_>) -> u64 {
    let place = match entry.place {
        Place::Partition(partition) => partition.index() as u16,
        Place::Instance(_) => u16::MAX,
    };
    let of_key = xxh3_64_with_seed(entry.key, xxh3_64(&place.to_le_bytes()));
    xxh3_64_with_seed(entry.value, of_key)
}

/// A checksum as 16 hexadecimal digits: not all languages read a number of 64 bits from JSON.
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

/// What was carried.
#[derive(Clone, Debug)]
pub struct Copied {
    /// The snapshot that was made.
    pub report: SnapshotReport,
    /// By vertex and state, what is in it.
    pub states: BTreeMap<String, BTreeMap<String, StateCount>>,
}

/// Makes the snapshot `id` in the store `to`, of what is in `from`, as far as `wanted` says of vertex and state; with vertices that have
/// nothing yet and
/// that many instances. It holds all of it in one layer, whatever increments it lay in.
///
/// Reads and writes all of it, on up to `threads` threads, with a buffer for each. When this returns it is there. After an error files
/// may be left which
/// belong to no snapshot.
///
/// # Errors
/// What reading a snapshot and writing one returns.
pub fn copy(
    from: &Snapshot,
    to: &SnapshotStore,
    id: SnapshotId,
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
    let (cuts, states) = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    let report = to.commit(&Commit {
        id,
        base: None,
        at: from.at(),
        cuts,
    })?;
    Ok(Copied { report, states })
}

fn of(snapshot: SnapshotId, vertex: &str, (instance, instances): (u32, u32)) -> CutOf {
    CutOf {
        snapshot,
        vertex: vertex.to_string(),
        instance,
        instances,
    }
}

/// Runs it on this thread and others at the same time; without a thread the others do its work.
fn on_threads(threads: usize, work: &(dyn Fn() -> Result<()> + Sync)) -> Result<()> {
    thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads)
            .filter_map(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
            .collect();
        let mut result = work();
        for helper in helpers {
            let helped = helper.join().unwrap_or_else(|_| {
                let what = "a thread that copied a snapshot panicked";
                Err(Error::new(ErrorCode::Internal, what))
            });
            result = result.and(helped);
        }
        result
    })
}

/// Carries what an instance with these numbers would have. The first has all that has no partition.
fn carry_one(
    from: &Snapshot,
    to: &SnapshotStore,
    of: CutOf,
    wanted: &(dyn Fn(&str, Option<&str>) -> bool + Sync),
) -> Result<(CutReceipt, BTreeMap<String, StateCount>)> {
    let vertex = of.vertex.clone();
    let partitions = PartitionRange::of_instance(of.instance, of.instances);
    let is_first = of.instance == 0;
    let mut writer = to.writer(of, CutKind::Full { partitions })?;
    let mut counts = BTreeMap::new();
    for state in from.states(&vertex) {
        if !wanted(&vertex, Some(state)) {
            continue;
        }
        let mut count = StateCount::default();
        let mut last = None;
        let mut entries = from.entries(&vertex, state, partitions);
        while let Some(entry) = entries.next_entry()? {
            let Place::Partition(partition) = entry.place else {
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
    // All changes are single steps.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
