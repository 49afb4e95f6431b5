//! Keeps cuts in memory, makes snapshots of them, and hands these out again.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use ardea_core::{
    Cut, Epoch, Instance, PARTITION_COUNT, PartitionId, Result, StateChunk, StateEntry, Waker,
};
use ardea_engine::{
    CutEnd, CutRead, CutReader, CutReport, CutSink, CutSource, InstanceName, JobHandle,
};

/// An entry: its state, its partition, its key, and its value.
type Owned = (String, Option<u32>, Vec<u8>, Option<Vec<u8>>);

/// Where a value belongs: its vertex, state, partition and key.
type Place = (String, String, Option<u32>, Vec<u8>);

fn owned(entry: StateEntry<'_>) -> Owned {
    (
        entry.state.to_string(),
        entry.partition.map(PartitionId::index),
        entry.key.to_vec(),
        entry.value.map(<[u8]>::to_vec),
    )
}

/// A cut that has come whole.
#[derive(Clone)]
pub struct Whole {
    pub of: InstanceName,
    pub report: CutReport,
    pub entries: Vec<Owned>,
}

impl Whole {
    /// The entries of the processor itself.
    pub fn own(&self) -> Vec<&Owned> {
        let entries = self.entries.iter();
        entries.filter(|entry| !entry.0.starts_with('@')).collect()
    }
}

/// Takes the cuts of a job.
#[derive(Default)]
pub struct Keeper(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    has_no_room: bool,
    wants_all: bool,
    waiting: Vec<Waker>,
    begun: HashMap<InstanceName, Vec<Owned>>,
    whole: Vec<Whole>,
    given_up: Vec<(InstanceName, Cut, CutEnd)>,
    heard: Vec<(InstanceName, Epoch)>,
    left: Vec<InstanceName>,
}

impl Keeper {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap()
    }

    /// From now on takes nothing, or something again.
    pub fn room(&self, has_room: bool) {
        let mut kept = self.lock();
        kept.has_no_room = !has_room;
        kept.waiting.drain(..).for_each(|waker| waker.wake());
    }

    /// From now on wants all state in each cut.
    pub fn want_all(&self) {
        self.lock().wants_all = true;
    }

    /// The cut of an instance that is in the snapshot of an epoch.
    pub fn cut(&self, vertex: &str, index: u32, epoch: Epoch) -> Option<Whole> {
        let kept = self.lock();
        let found = kept.whole.iter().find(|whole| {
            let cut = whole.report.cut;
            let counts = cut.epoch == epoch || cut.is_last && cut.epoch < epoch;
            &*whole.of.vertex == vertex && whole.of.instance.index == index && counts
        });
        found.cloned()
    }

    /// What has been given up.
    pub fn given_up(&self) -> Vec<(InstanceName, Cut, CutEnd)> {
        self.lock().given_up.clone()
    }

    /// Who has heard of which commit, and who has left.
    pub fn heard(&self) -> (Vec<(InstanceName, Epoch)>, Vec<InstanceName>) {
        let kept = self.lock();
        (kept.heard.clone(), kept.left.clone())
    }

    /// The state at the end of an epoch, once all instances of these vertices have handed theirs over.
    pub fn snapshot(
        &self,
        before: Option<&Snapshot>,
        epoch: Epoch,
        vertices: &[(&str, u32)],
    ) -> Option<Snapshot> {
        let instances = vertices
            .iter()
            .flat_map(|(vertex, count)| (0..*count).map(move |index| (*vertex, index)));
        let cuts: Option<Vec<Whole>> = instances
            .map(|(vertex, index)| self.cut(vertex, index, epoch))
            .collect();
        let mut entries = before.map(|s| s.entries.clone()).unwrap_or_default();
        for Whole {
            of,
            report,
            entries: new,
        } in cuts?
        {
            if let Some(since) = report.cut.since {
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
        Some(Snapshot { epoch, entries })
    }
}

impl CutSink for Keeper {
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

    fn take(&self, of: &InstanceName, _: Cut, entries: StateChunk) {
        let mut kept = self.lock();
        let begun = kept.begun.entry(of.clone()).or_default();
        begun.extend(entries.entries().map(owned));
    }

    fn finish(&self, of: &InstanceName, report: CutReport, entries: StateChunk) {
        let mut kept = self.lock();
        let mut all = kept.begun.remove(of).unwrap_or_default();
        all.extend(entries.entries().map(owned));
        assert_eq!(report.entries, all.len() as u64);
        let mut keys: Vec<_> = all.iter().map(|(s, p, k, _)| (s, p, k)).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), all.len(), "a key is written once in a cut");
        kept.whole.push(Whole {
            of: of.clone(),
            report,
            entries: all,
        });
    }

    fn give_up(&self, of: &InstanceName, cut: Cut, why: CutEnd) {
        let mut kept = self.lock();
        kept.begun.remove(of);
        kept.given_up.push((of.clone(), cut, why));
    }

    fn heard(&self, of: &InstanceName, epoch: Epoch) {
        self.lock().heard.push((of.clone(), epoch));
    }

    fn left(&self, of: &InstanceName) {
        self.lock().left.push(of.clone());
    }
}

/// The state of a job at the end of an epoch.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub epoch: Epoch,
    entries: BTreeMap<Place, Vec<u8>>,
}

impl Snapshot {
    /// One without anything.
    pub fn empty(epoch: Epoch) -> Self {
        Snapshot {
            epoch,
            entries: BTreeMap::new(),
        }
    }

    /// The same with an entry more.
    pub fn with(mut self, vertex: &str, state: &str, key: &[u8], value: &[u8]) -> Self {
        let place = (vertex.to_string(), state.to_string(), None, key.to_vec());
        self.entries.insert(place, value.to_vec());
        self
    }
}

impl CutSource for Snapshot {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn open(&self, of: &InstanceName) -> Result<Box<dyn CutReader>> {
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

/// A snapshot of which one partition does not come back before it may.
pub struct Held {
    pub snapshot: Arc<Snapshot>,
    pub partition: PartitionId,
    pub may_come: Arc<AtomicBool>,
}

impl CutSource for Held {
    fn epoch(&self) -> Epoch {
        self.snapshot.epoch
    }

    fn open(&self, of: &InstanceName) -> Result<Box<dyn CutReader>> {
        Ok(Box::new(HeldReader {
            reader: self.snapshot.open(of)?,
            partition: self.partition,
            may_come: Arc::clone(&self.may_come),
            is_next: false,
        }))
    }
}

struct HeldReader {
    reader: Box<dyn CutReader>,
    partition: PartitionId,
    may_come: Arc<AtomicBool>,
    is_next: bool,
}

impl CutReader for HeldReader {
    fn read(&mut self, into: &mut StateChunk, waker: &Waker) -> Result<CutRead> {
        if self.is_next {
            if !self.may_come.load(Ordering::SeqCst) {
                waker.wake();
                return Ok(CutRead::NotYet);
            }
            self.is_next = false;
            return Ok(CutRead::Partition(self.partition));
        }
        let read = self.reader.read(into, waker)?;
        if read == CutRead::Partition(self.partition) {
            self.is_next = true;
            return Ok(CutRead::NotYet);
        }
        Ok(read)
    }

    fn entries_by_partition(&self) -> Option<u64> {
        self.reader.entries_by_partition()
    }

    fn go_by_partition(&mut self) {
        self.reader.go_by_partition();
    }

    fn hurry(&mut self, partitions: &[PartitionId]) {
        self.reader.hurry(partitions);
    }
}

/// Hands entries out seven at a time, and says that there are none yet before each time; or partition by partition, and says so now and
/// then.
struct Reader {
    left: Vec<Owned>,
    says_not_yet: bool,
    of: Instance,
    by_partition: Option<ByPartition>,
}

/// What is left of a reader that gives partitions.
#[derive(Default)]
struct ByPartition {
    next: VecDeque<Next>,
    left: BTreeMap<u32, Vec<Owned>>,
    /// Those that come next, and then all others, the last first.
    hurried: VecDeque<u32>,
    calls: u32,
}

enum Next {
    Entries(Vec<Owned>),
    Mark(CutRead),
}

impl ByPartition {
    fn read(&mut self, into: &mut StateChunk, waker: &Waker) -> Result<CutRead> {
        self.calls += 1;
        if self.calls.is_multiple_of(16) {
            waker.wake();
            return Ok(CutRead::NotYet);
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
                return Ok(CutRead::End);
            };
            let partition = PartitionId::from_index(index).unwrap();
            self.next = [
                Next::Entries(entries),
                Next::Mark(CutRead::Partition(partition)),
            ]
            .into();
        }
        match self.next.pop_front() {
            Some(Next::Entries(entries)) => {
                push_all(entries, into)?;
                Ok(CutRead::Entries)
            }
            Some(Next::Mark(mark)) => Ok(mark),
            None => Ok(CutRead::NotYet),
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

impl CutReader for Reader {
    fn read(&mut self, into: &mut StateChunk, waker: &Waker) -> Result<CutRead> {
        if let Some(by_partition) = &mut self.by_partition {
            return by_partition.read(into, waker);
        }
        self.says_not_yet = !self.says_not_yet;
        if !self.says_not_yet {
            waker.wake();
            return Ok(CutRead::NotYet);
        }
        if self.left.is_empty() {
            return Ok(CutRead::End);
        }
        let rest = self.left.split_off(self.left.len().min(7));
        push_all(std::mem::replace(&mut self.left, rest), into)?;
        Ok(CutRead::Entries)
    }

    fn entries_by_partition(&self) -> Option<u64> {
        Some(self.left.len() as u64)
    }

    fn go_by_partition(&mut self) {
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
            next: [Next::Entries(base), Next::Mark(CutRead::Base)].into(),
            left,
            ..ByPartition::default()
        });
    }

    fn hurry(&mut self, partitions: &[PartitionId]) {
        if let Some(by_partition) = &mut self.by_partition {
            let indexes = partitions.iter().map(|it| it.index());
            by_partition.hurried.extend(indexes);
        }
    }
}

/// Ends an epoch, commits it and tells so, as soon as all cuts are there.
pub fn commit(
    job: &JobHandle,
    keeper: &Keeper,
    before: Option<&Snapshot>,
    epoch: u64,
    vertices: &[(&str, u32)],
) -> Arc<Snapshot> {
    let epoch = Epoch(epoch);
    job.end_epochs(epoch);
    let mut snapshot = None;
    crate::processors::until("all cuts are there", || {
        snapshot = keeper.snapshot(before, epoch, vertices);
        snapshot.is_some()
    });
    job.epoch_committed(epoch);
    Arc::new(snapshot.unwrap())
}
