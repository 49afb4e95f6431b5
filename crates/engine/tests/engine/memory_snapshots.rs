//! A snapshot sink in memory that builds checkpoints and restores from them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use ardea_core::{
    Epoch, Instance, PARTITION_COUNT, PartitionId, Result, SnapshotRequest, StateChunk, StateEntry,
    Waker,
};
use ardea_engine::{
    InstanceName, JobHandle, RestoreReader, RestoreSource, SnapshotAbort, SnapshotRead,
    SnapshotReport, SnapshotSink,
};

/// An owned entry: state, partition, key and value.
type Owned = (String, Option<u32>, Vec<u8>, Option<Vec<u8>>);

/// The identity of a value: vertex, state, partition and key.
type Place = (String, String, Option<u32>, Vec<u8>);

fn owned(entry: StateEntry<'_>) -> Owned {
    (
        entry.state.to_string(),
        entry.partition.map(PartitionId::index),
        entry.key.to_vec(),
        entry.value.map(<[u8]>::to_vec),
    )
}

/// A complete snapshot.
#[derive(Clone)]
pub struct CompleteSnapshot {
    pub of: InstanceName,
    pub report: SnapshotReport,
    pub entries: Vec<Owned>,
}

impl CompleteSnapshot {
    /// Returns the entries of the processor, without those of the runtime.
    pub fn own(&self) -> Vec<&Owned> {
        let entries = self.entries.iter();
        entries.filter(|entry| !entry.0.starts_with('@')).collect()
    }
}

/// A snapshot sink in memory.
#[derive(Default)]
pub struct MemorySnapshotSink(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    has_no_room: bool,
    wants_all: bool,
    waiting: Vec<Waker>,
    begun: HashMap<InstanceName, Vec<Owned>>,
    whole: Vec<CompleteSnapshot>,
    aborted: Vec<(InstanceName, SnapshotRequest, SnapshotAbort)>,
    heard: Vec<(InstanceName, Epoch)>,
    left: Vec<InstanceName>,
}

impl MemorySnapshotSink {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap()
    }

    /// Sets whether the sink accepts snapshots.
    pub fn room(&self, has_room: bool) {
        let mut kept = self.lock();
        kept.has_no_room = !has_room;
        kept.waiting.drain(..).for_each(|waker| waker.wake());
    }

    /// Requests full snapshots from now on.
    pub fn want_all(&self) {
        self.lock().wants_all = true;
    }

    /// Returns the snapshot of an instance in the checkpoint of an epoch.
    pub fn snapshot(&self, vertex: &str, index: u32, epoch: Epoch) -> Option<CompleteSnapshot> {
        let kept = self.lock();
        let found = kept.whole.iter().find(|whole| {
            let snapshot = whole.report.snapshot;
            let counts = snapshot.epoch == epoch || snapshot.is_last && snapshot.epoch < epoch;
            &*whole.of.vertex == vertex && whole.of.instance.index == index && counts
        });
        found.cloned()
    }

    /// Returns the cancelled snapshots.
    pub fn aborted(&self) -> Vec<(InstanceName, SnapshotRequest, SnapshotAbort)> {
        self.lock().aborted.clone()
    }

    /// Returns the processed commits by instance, and the instances that have ended.
    pub fn heard(&self) -> (Vec<(InstanceName, Epoch)>, Vec<InstanceName>) {
        let kept = self.lock();
        (kept.heard.clone(), kept.left.clone())
    }

    /// Returns the state at the end of an epoch, once all instances of these vertices have
    /// delivered their snapshots.
    pub fn checkpoint(
        &self,
        before: Option<&Checkpoint>,
        epoch: Epoch,
        vertices: &[(&str, u32)],
    ) -> Option<Checkpoint> {
        let instances = vertices
            .iter()
            .flat_map(|(vertex, count)| (0..*count).map(move |index| (*vertex, index)));
        let snapshots: Option<Vec<CompleteSnapshot>> = instances
            .map(|(vertex, index)| self.snapshot(vertex, index, epoch))
            .collect();
        let mut entries = before.map(|s| s.entries.clone()).unwrap_or_default();
        for CompleteSnapshot {
            of,
            report,
            entries: new,
        } in snapshots?
        {
            if let Some(since) = report.snapshot.since {
                assert!(before.is_some_and(|before| since <= before.epoch));
            } else {
                entries.retain(|(vertex, _, partition, _), _| {
                    let partition = partition.and_then(PartitionId::from_index);
                    let own = partition.is_some_and(|partition| {
                        partition.owner(of.instance.parallelism) == of.instance.index
                    });
                    **vertex != *of.vertex || !own
                });
            }
            for (state, partition, key, value) in new {
                let place = (of.vertex.to_string(), state, partition, key);
                match value {
                    Some(value) => entries.insert(place, value),
                    None => entries.remove(&place),
                };
            }
        }
        Some(Checkpoint { epoch, entries })
    }
}

impl SnapshotSink for MemorySnapshotSink {
    fn wants_all(&self, _: &InstanceName, _: Epoch) -> bool {
        self.lock().wants_all
    }

    fn buffer(&self, _: &InstanceName, waker: &Waker) -> Option<StateChunk> {
        let mut kept = self.lock();
        if kept.has_no_room {
            kept.waiting.push(waker.clone());
            return None;
        }
        Some(StateChunk::default())
    }

    fn take(&self, of: &InstanceName, _: SnapshotRequest, entries: StateChunk) {
        let mut kept = self.lock();
        let begun = kept.begun.entry(of.clone()).or_default();
        begun.extend(entries.entries().map(owned));
    }

    fn finish(&self, of: &InstanceName, report: SnapshotReport, entries: StateChunk) {
        let mut kept = self.lock();
        let mut all = kept.begun.remove(of).unwrap_or_default();
        all.extend(entries.entries().map(owned));
        assert_eq!(report.entries, all.len() as u64);
        let mut keys: Vec<_> = all.iter().map(|(s, p, k, _)| (s, p, k)).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), all.len(), "a key is written once in a snapshot");
        kept.whole.push(CompleteSnapshot {
            of: of.clone(),
            report,
            entries: all,
        });
    }

    fn abort(&self, of: &InstanceName, snapshot: SnapshotRequest, why: SnapshotAbort) {
        let mut kept = self.lock();
        kept.begun.remove(of);
        kept.aborted.push((of.clone(), snapshot, why));
    }

    fn commit_processed(&self, of: &InstanceName, epoch: Epoch) {
        self.lock().heard.push((of.clone(), epoch));
    }

    fn instance_ended(&self, of: &InstanceName) {
        self.lock().left.push(of.clone());
    }
}

/// The state of a job at the end of an epoch.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    pub epoch: Epoch,
    entries: BTreeMap<Place, Vec<u8>>,
}

impl Checkpoint {
    /// Creates an empty checkpoint.
    pub fn empty(epoch: Epoch) -> Self {
        Checkpoint {
            epoch,
            entries: BTreeMap::new(),
        }
    }

    /// Adds an entry.
    pub fn with(mut self, vertex: &str, state: &str, key: &[u8], value: &[u8]) -> Self {
        let place = (vertex.to_string(), state.to_string(), None, key.to_vec());
        self.entries.insert(place, value.to_vec());
        self
    }
}

impl RestoreSource for Checkpoint {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn open(&self, of: &InstanceName) -> Result<Box<dyn RestoreReader>> {
        let own = |((vertex, ..), _): &(&Place, _)| **vertex == *of.vertex;
        let entries = self.entries.iter().filter(own);
        let copy = |(place, value): (&Place, &Vec<u8>)| {
            let (_, state, partition, key) = place.clone();
            (state, partition, key, Some(value.clone()))
        };
        Ok(Box::new(Reader {
            left: entries.map(copy).collect(),
            says_not_yet: true,
            of: of.instance,
            by_partition: None,
        }))
    }
}

/// A checkpoint of which one partition is held back until released.
pub struct Held {
    pub checkpoint: Arc<Checkpoint>,
    pub partition: PartitionId,
    pub may_come: Arc<AtomicBool>,
}

impl RestoreSource for Held {
    fn epoch(&self) -> Epoch {
        self.checkpoint.epoch
    }

    fn open(&self, of: &InstanceName) -> Result<Box<dyn RestoreReader>> {
        Ok(Box::new(HeldReader {
            reader: self.checkpoint.open(of)?,
            partition: self.partition,
            may_come: Arc::clone(&self.may_come),
            is_next: false,
        }))
    }
}

struct HeldReader {
    reader: Box<dyn RestoreReader>,
    partition: PartitionId,
    may_come: Arc<AtomicBool>,
    is_next: bool,
}

impl RestoreReader for HeldReader {
    fn read(&mut self, into: &mut StateChunk, waker: &Waker) -> Result<SnapshotRead> {
        if self.is_next {
            if !self.may_come.load(Ordering::SeqCst) {
                waker.wake();
                return Ok(SnapshotRead::Pending);
            }
            self.is_next = false;
            return Ok(SnapshotRead::Partition(self.partition));
        }
        let read = self.reader.read(into, waker)?;
        if read == SnapshotRead::Partition(self.partition) {
            self.is_next = true;
            return Ok(SnapshotRead::Pending);
        }
        Ok(read)
    }

    fn entries_by_partition(&self) -> Option<u64> {
        self.reader.entries_by_partition()
    }

    fn read_by_partition(&mut self) {
        self.reader.read_by_partition();
    }

    fn prioritize(&mut self, partitions: &[PartitionId]) {
        self.reader.prioritize(partitions);
    }
}

/// A reader that reads seven entries at a time, or by partition, with artificial "not yet" results.
struct Reader {
    left: Vec<Owned>,
    says_not_yet: bool,
    of: Instance,
    by_partition: Option<ByPartition>,
}

/// The remaining entries of a reader by partition.
#[derive(Default)]
struct ByPartition {
    next: VecDeque<Next>,
    left: BTreeMap<u32, Vec<Owned>>,
    /// Partitions requested with priority, in order; the others follow, the last first.
    hurried: VecDeque<u32>,
    calls: u32,
}

enum Next {
    Entries(Vec<Owned>),
    Mark(SnapshotRead),
}

impl ByPartition {
    fn read(&mut self, into: &mut StateChunk, waker: &Waker) -> Result<SnapshotRead> {
        self.calls += 1;
        if self.calls.is_multiple_of(16) {
            waker.wake();
            return Ok(SnapshotRead::Pending);
        }
        if self.next.is_empty() {
            let hurried = self.hurried.drain(..).collect::<Vec<_>>();
            let found = hurried
                .iter()
                .position(|index| self.left.contains_key(index));
            let next = found.and_then(|at| self.left.remove_entry(&hurried[at]));
            let later = found.map_or(hurried.len(), |at| at + 1);
            self.hurried.extend(&hurried[later..]);
            let Some((index, entries)) = next.or_else(|| self.left.pop_last()) else {
                return Ok(SnapshotRead::End);
            };
            let partition = PartitionId::from_index(index).unwrap();
            self.next = [
                Next::Entries(entries),
                Next::Mark(SnapshotRead::Partition(partition)),
            ]
            .into();
        }
        match self.next.pop_front() {
            Some(Next::Entries(entries)) => {
                push_all(entries, into)?;
                Ok(SnapshotRead::Entries)
            }
            Some(Next::Mark(mark)) => Ok(mark),
            None => Ok(SnapshotRead::Pending),
        }
    }
}

fn push_all(entries: Vec<Owned>, into: &mut StateChunk) -> Result<()> {
    for (state, partition, key, value) in entries {
        into.push(StateEntry {
            state: &state,
            partition: partition.and_then(PartitionId::from_index),
            key: &key,
            value: value.as_deref(),
        })?;
    }
    Ok(())
}

impl RestoreReader for Reader {
    fn read(&mut self, into: &mut StateChunk, waker: &Waker) -> Result<SnapshotRead> {
        if let Some(by_partition) = &mut self.by_partition {
            return by_partition.read(into, waker);
        }
        self.says_not_yet = !self.says_not_yet;
        if !self.says_not_yet {
            waker.wake();
            return Ok(SnapshotRead::Pending);
        }
        if self.left.is_empty() {
            return Ok(SnapshotRead::End);
        }
        let rest = self.left.split_off(self.left.len().min(7));
        push_all(std::mem::replace(&mut self.left, rest), into)?;
        Ok(SnapshotRead::Entries)
    }

    fn entries_by_partition(&self) -> Option<u64> {
        Some(self.left.len() as u64)
    }

    fn read_by_partition(&mut self) {
        let all = (0..PARTITION_COUNT).filter_map(PartitionId::from_index);
        let own = all.filter(|it| it.owner(self.of.parallelism) == self.of.index);
        let mut left: BTreeMap<u32, Vec<Owned>> = own.map(|it| (it.index(), vec![])).collect();
        let mut base = Vec::new();
        for entry in self.left.drain(..) {
            match entry.1 {
                None => base.push(entry),
                Some(index) => left.entry(index).or_default().extend([entry]),
            }
        }
        left.retain(|index, _| {
            PartitionId::from_index(*index)
                .is_some_and(|it| it.owner(self.of.parallelism) == self.of.index)
        });
        self.by_partition = Some(ByPartition {
            next: [Next::Entries(base), Next::Mark(SnapshotRead::Base)].into(),
            left,
            ..ByPartition::default()
        });
    }

    fn prioritize(&mut self, partitions: &[PartitionId]) {
        if let Some(by_partition) = &mut self.by_partition {
            let indexes = partitions.iter().map(|it| it.index());
            by_partition.hurried.extend(indexes);
        }
    }
}

/// Ends an epoch, and commits it as soon as all snapshots are complete.
pub fn commit(
    job: &JobHandle,
    keeper: &MemorySnapshotSink,
    before: Option<&Checkpoint>,
    epoch: u64,
    vertices: &[(&str, u32)],
) -> Arc<Checkpoint> {
    let epoch = Epoch(epoch);
    job.end_epochs(epoch);
    let mut checkpoint = None;
    crate::processors::until("all snapshots are there", || {
        checkpoint = keeper.checkpoint(before, epoch, vertices);
        checkpoint.is_some()
    });
    job.epoch_committed(epoch);
    Arc::new(checkpoint.unwrap())
}
