//! Stateful processors for tests: a source with positions, a step with a count per key, a
//! transactional sink.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ardea_core::{
    Checkpointed, Dag, Edge, Epoch, Inbox, Instance, InstanceContext, Key, Ordinal, Outbox,
    PartitionId, PartitionRestore, Processor, Progress, RestoredState, Result, Routing,
    SnapshotRequest, SnapshotWriter, Timestamp, Watermark,
};

use crate::processors::{emit, room, vertex};

/// Number of splits of the numbers, independent of the number of sources.
const SPLITS: u64 = 6;
/// Number of keys.
pub const KEYS: u64 = 40;

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

/// A source of the numbers below a limit that rises; ends at `end`.
pub struct Splits {
    limit: Arc<AtomicU64>,
    end: u64,
    instance: Instance,
    /// The next number, by split.
    next: BTreeMap<u64, u64>,
    frozen: VecDeque<(u64, u64)>,
}

impl Processor for Splits {
    fn init(&mut self, _: &InstanceContext) -> Result<()> {
        let own = (0..SPLITS).filter(|split| self.instance.owns(*split));
        self.next = own.map(|split| (split, split)).collect();
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let limit = self.limit.load(Ordering::SeqCst).min(self.end);
        let mut room = room(outbox)?.min(5);
        let mut made = false;
        for next in self.next.values_mut() {
            while *next < limit && room > 0 {
                emit(outbox, *next, Timestamp::from_micros(*next as i64))?;
                *next += SPLITS;
                room -= 1;
                made = true;
            }
        }
        if made && let Some(least) = self.next.values().min() {
            outbox.watermark(Watermark(Timestamp::from_micros(*least as i64)));
        }
        let done = self.next.values().all(|next| *next >= self.end);
        Ok(Progress { made, done })
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl Checkpointed for Splits {
    fn take_snapshot(&mut self, _: SnapshotRequest) -> Result<()> {
        self.frozen = self.next.iter().map(|(s, n)| (*s, *n)).collect();
        Ok(())
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        for (split, next) in self.frozen.drain(..) {
            writer.set("next", None, &split.to_le_bytes(), &next.to_le_bytes())?;
        }
        Ok(Progress::DONE)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            let split = number(entry.key);
            if self.instance.owns(split) {
                self.next.insert(split, number(entry.value));
            }
        }
        Ok(())
    }
}

/// Counts the numbers per key; emits key and count together.
#[derive(Default)]
pub struct Counts {
    counts: BTreeMap<u64, u64>,
    /// Changed keys, by the first epoch whose snapshot contains the change.
    changed: BTreeMap<u64, Epoch>,
    epoch: Epoch,
    frozen: VecDeque<(u64, u64)>,
    watermark: Option<Watermark>,
    /// The restored partitions, during a lazy restore.
    back: Option<BTreeSet<PartitionId>>,
    wanted: Vec<PartitionId>,
    /// Values set aside because their partition is not restored, up to a maximum; others stay in
    /// the inbox.
    aside: VecDeque<(u64, Timestamp)>,
    /// The watermarks received at the start.
    pub told: Arc<Mutex<Vec<Timestamp>>>,
    /// Number of restored entries.
    pub restored: Arc<AtomicU64>,
    /// True for a lazy restore; `early` counts the records processed before it was complete.
    pub is_early: bool,
    pub early: Arc<AtomicU64>,
}

/// Maximum number of values set aside.
const MOST_ASIDE: usize = 20;

impl Counts {
    fn count(&mut self, (value, time): (u64, Timestamp), outbox: &mut Outbox) -> Result<()> {
        let key = value % KEYS;
        let count = self.counts.entry(key).or_default();
        *count += 1;
        emit(outbox, key << 32 | *count, time)?;
        self.changed.insert(key, self.epoch.next());
        if self.back.is_some() {
            self.early.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Returns true if a value has to wait: its partition is not restored, or earlier values of its
    /// partition wait.
    fn waits(&mut self, value: u64) -> bool {
        let partition = PartitionId::of(&(value % KEYS));
        let is_back = self
            .back
            .as_ref()
            .is_none_or(|back| back.contains(&partition));
        if !is_back {
            self.wanted.push(partition);
        }
        let mut aside = self.aside.iter();
        !is_back || aside.any(|(waiting, _)| PartitionId::of(&(waiting % KEYS)) == partition)
    }
}

impl Processor for Counts {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let room = room(outbox)?.min(MOST_ASIDE - self.aside.len());
        for record in inbox.rows::<u64>()?.drain_front(room) {
            match self.waits(record.0) {
                true => self.aside.push_back(record),
                false => self.count(record, outbox)?,
            }
        }
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        if self.watermark.is_none() {
            self.told.lock().unwrap().push(watermark.0);
        }
        // Repeated when all state is restored.
        assert!(Some(watermark) > self.watermark || self.is_early);
        self.watermark = Some(watermark);
        if self.back.is_none() {
            outbox.watermark(watermark);
        }
        Ok(Progress::DONE)
    }

    fn on_epoch(&mut self, _: Epoch, _: &mut Outbox) -> Result<Progress> {
        assert!(
            self.back.is_none() && self.aside.is_empty(),
            "no epoch ends before all is back"
        );
        Ok(Progress::DONE)
    }

    fn on_edge_done(&mut self, _: Ordinal, _: &mut Outbox) -> Result<Progress> {
        assert_eq!(self.back, None, "no input ends before all is back");
        Ok(Progress::DONE)
    }

    fn catch_up(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let mut room = room(outbox)?;
        let (back, waiting) = (self.back.clone().unwrap_or_default(), self.aside.len());
        for record in std::mem::take(&mut self.aside) {
            match room > 0 && back.contains(&PartitionId::of(&(record.0 % KEYS))) {
                true => {
                    self.count(record, outbox)?;
                    room -= 1;
                }
                false => self.aside.push_back(record),
            }
        }
        let made = self.aside.len() < waiting;
        Ok(Progress {
            made,
            done: room > 0,
        })
    }

    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl Checkpointed for Counts {
    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.epoch = snapshot.epoch;
        let all: BTreeSet<u64> = match snapshot.is_full() {
            true => self.counts.keys().copied().collect(),
            false => self.changed.keys().copied().collect(),
        };
        self.frozen = all.iter().map(|key| (*key, self.counts[key])).collect();
        Ok(())
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        // One entry per call, so that records are processed in between.
        if let Some((key, count)) = self.frozen.pop_front() {
            let partition = Some(PartitionId::of(&key));
            let write = |out: &mut Vec<u8>| {
                key.write_to(out);
                Ok(())
            };
            writer.write("count", partition, write, |out| {
                out.extend_from_slice(&count.to_le_bytes());
                Ok(())
            })?;
        }
        Ok(Progress::done_if(self.frozen.is_empty()))
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.changed.retain(|_, first| *first > epoch);
        Ok(Progress::DONE)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            assert_eq!(entry.state, "count");
            let back = self.back.as_ref();
            assert!(!back.is_some_and(|back| back.contains(&entry.partition.unwrap())));
            self.restored.fetch_add(1, Ordering::SeqCst);
            let before = self.counts.insert(number(entry.key), number(entry.value));
            assert_eq!(before, None, "each key comes once");
        }
        Ok(())
    }

    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        self.epoch = epoch;
        self.back = None;
        Ok(Progress::DONE)
    }

    fn take_over_state(&mut self, memory: Box<dyn Any + Send>) -> bool {
        let Ok(before) = memory.downcast::<Self>() else {
            return false;
        };
        let before = *before;
        self.counts = before.counts;
        self.changed = before.changed;
        self.epoch = before.epoch;
        true
    }

    fn partitioned_restore(&mut self) -> Option<&mut dyn PartitionRestore> {
        Some(self)
    }
}

impl PartitionRestore for Counts {
    fn enable_lazy_restore(&mut self, _: u64) -> bool {
        self.back = self.is_early.then(BTreeSet::new);
        self.is_early
    }

    fn on_partition_restored(&mut self, partition: PartitionId) -> Result<()> {
        let is_new = self.back.as_mut().unwrap().insert(partition);
        assert!(is_new, "each partition comes back once");
        Ok(())
    }

    fn take_requested_partitions(&mut self, wanted: &mut Vec<PartitionId>) {
        wanted.append(&mut self.wanted);
    }
}

/// The output of a transactional sink by instance and epoch, so that publishing is idempotent.
#[derive(Clone, Default)]
pub struct PublishedRecords(Arc<Mutex<ByTransaction>>);

/// Values by instance and epoch.
type ByTransaction = BTreeMap<(u32, u64), Vec<u64>>;

impl PublishedRecords {
    /// Returns all values, sorted.
    pub fn values(&self) -> Vec<u64> {
        let shown = self.0.lock().unwrap();
        let mut values: Vec<u64> = shown.values().flatten().copied().collect();
        values.sort_unstable();
        values
    }
}

/// A transactional sink: publishes its records when the epoch is committed.
pub struct TransactionalSink {
    pub shown: PublishedRecords,
    pub instance: Instance,
    pub read: Vec<u64>,
    /// The records of each epoch that is not known to be committed.
    pub prepared: BTreeMap<u64, Vec<u64>>,
    pub frozen: Option<Vec<u8>>,
}

impl TransactionalSink {
    pub fn new(shown: &PublishedRecords, instance: Instance) -> Self {
        TransactionalSink {
            shown: shown.clone(),
            instance,
            read: Vec::new(),
            prepared: BTreeMap::new(),
            frozen: None,
        }
    }

    fn show(&mut self, index: u32, epoch: u64, values: Vec<u64>) {
        let mut shown = self.shown.0.lock().unwrap();
        let before = shown.insert((index, epoch), values.clone());
        assert!(before.is_none_or(|before| before == values));
    }
}

impl Processor for TransactionalSink {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let values = inbox.rows::<u64>()?.drain_front(usize::MAX);
        self.read.extend(values.map(|(value, _)| value));
        Ok(())
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl Checkpointed for TransactionalSink {
    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        let read = std::mem::take(&mut self.read);
        self.prepared.insert(snapshot.epoch.0, read);
        let mut bytes = Vec::new();
        for (epoch, values) in &self.prepared {
            bytes.extend_from_slice(&epoch.to_le_bytes());
            bytes.extend_from_slice(&(values.len() as u64).to_le_bytes());
            values
                .iter()
                .for_each(|v| bytes.extend_from_slice(&v.to_le_bytes()));
        }
        self.frozen = Some(bytes);
        Ok(())
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        if let Some(bytes) = self.frozen.take() {
            writer.set("prepared", None, &self.instance.index.to_le_bytes(), &bytes)?;
        }
        Ok(Progress::DONE)
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        let later = self.prepared.split_off(&epoch.next().0);
        for (epoch, values) in std::mem::replace(&mut self.prepared, later) {
            self.show(self.instance.index, epoch, values);
        }
        Ok(Progress::DONE)
    }

    fn awaits_commit(&self) -> bool {
        true
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            let index = u32::from_le_bytes(entry.key.try_into().unwrap());
            if !self.instance.owns(index.into()) {
                continue;
            }
            // The epoch is committed, but the instance may have ended before it published it.
            let mut numbers = entry.value.chunks(8).map(number);
            while let Some(epoch) = numbers.next() {
                let count = numbers.next().unwrap();
                let values = numbers.by_ref().take(count as usize).collect();
                self.show(index, epoch, values);
            }
        }
        Ok(())
    }
}

/// The parameters and results of [`line`].
pub struct Line {
    pub limit: Arc<AtomicU64>,
    pub end: u64,
    pub shown: PublishedRecords,
    pub told: Arc<Mutex<Vec<Timestamp>>>,
    /// Number of restored counts.
    pub restored: Arc<AtomicU64>,
    /// True for a lazy restore; `early` counts the numbers processed before it was complete.
    pub is_early: bool,
    pub early: Arc<AtomicU64>,
}

impl Line {
    pub fn new(end: u64) -> Self {
        Line {
            limit: Arc::default(),
            end,
            shown: PublishedRecords::default(),
            told: Arc::default(),
            restored: Arc::default(),
            is_early: false,
            early: Arc::default(),
        }
    }

    /// numbers ──keyed──▶ counts ──▶ ledger
    pub fn dag(&self, instances: [u32; 3], last: Routing) -> Dag {
        let (limit, end) = (Arc::clone(&self.limit), self.end);
        let mut dag = Dag::new();
        let numbers = dag.vertex(vertex("numbers", instances[0], move |instance| Splits {
            limit: Arc::clone(&limit),
            end,
            instance,
            next: BTreeMap::new(),
            frozen: VecDeque::new(),
        }));
        let (told, restored) = (Arc::clone(&self.told), Arc::clone(&self.restored));
        let (is_early, early) = (self.is_early, Arc::clone(&self.early));
        let counts = dag.vertex(vertex("counts", instances[1], move |_| Counts {
            told: Arc::clone(&told),
            restored: Arc::clone(&restored),
            is_early,
            early: Arc::clone(&early),
            ..Counts::default()
        }));
        let shown = self.shown.clone();
        let ledger = dag.vertex(vertex("ledger", instances[2], move |instance| {
            TransactionalSink::new(&shown, instance)
        }));
        let by_key = Routing::keyed(|n: &u64| n % KEYS);
        dag.edge(Edge::between(numbers, counts).routing(by_key));
        dag.edge(Edge::between(counts, ledger).routing(last));
        dag
    }

    /// Returns the expected output after all numbers have been counted once.
    pub fn expected(&self) -> Vec<u64> {
        let mut counts = BTreeMap::<u64, u64>::new();
        let mut all: Vec<u64> = (0..self.end)
            .map(|n| {
                let count = counts.entry(n % KEYS).or_default();
                *count += 1;
                (n % KEYS) << 32 | *count
            })
            .collect();
        all.sort_unstable();
        all
    }
}
