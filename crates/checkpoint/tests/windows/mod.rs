//! A job whose output reveals lost or duplicated records: numbers from a file are counted by key
//! and window, and written to files that appear when their epoch is committed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use ardea_core::{
    Checkpointed, Clock, Dag, Edge, Epoch, Inbox, Instance, InstanceContext, Key, Ordinal, Outbox,
    Parallelism, PartitionId, Processor, Progress, RestoredState, Result, Routing, SnapshotRequest,
    SnapshotWriter, SourceControl, Timestamp, Vertex, Watermark,
};
use ardea_engine::{Job, Parallelisms, Program};

/// The number of splits of the input file, independent of the number of source instances.
const SPLITS: u64 = 6;
const KEYS: u64 = 40;
/// The length of a window, in numbers.
const WINDOW: u64 = 500;

/// The job, with its files and parameters.
#[derive(Clone)]
pub struct Windows {
    pub name: String,
    /// The input file with one number per line, from 0 on.
    pub input: PathBuf,
    pub output: PathBuf,
    /// The parallelism of sources, counters and sinks.
    pub instances: [u32; 3],
    /// The time for which a source waits after every few numbers.
    pub pace: Duration,
    /// The number at which sources pause, until a test raises it.
    pub limit: Arc<AtomicU64>,
    /// A countdown after which counters panic.
    pub mishap: Arc<AtomicI64>,
    /// The name of the vertex that counts.
    pub counts: String,
}

impl Windows {
    /// Creates the job with files in `folder`, and an input file of `numbers` numbers.
    pub fn within(folder: &Path, numbers: u64) -> Self {
        let input = folder.join("numbers.txt");
        let lines: Vec<String> = (0..numbers).map(|number| number.to_string()).collect();
        fs::write(&input, lines.join("\n")).unwrap();
        Windows::again(folder)
    }

    /// Creates the job with the existing files in `folder`.
    pub fn again(folder: &Path) -> Self {
        let output = folder.join("out");
        fs::create_dir_all(&output).unwrap();
        Windows {
            name: "windows".into(),
            input: folder.join("numbers.txt"),
            output,
            instances: [2, 2, 2],
            pace: Duration::from_micros(200),
            limit: Arc::new(AtomicU64::new(u64::MAX)),
            mishap: Arc::new(AtomicI64::new(i64::MAX)),
            counts: "counts".into(),
        }
    }

    /// Returns the published values, sorted.
    pub fn published(&self) -> Vec<u64> {
        let mut all = Vec::new();
        for file in fs::read_dir(&self.output).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "txt") {
                let text = fs::read_to_string(path).unwrap();
                all.extend(text.lines().map(|line| line.parse::<u64>().unwrap()));
            }
        }
        all.sort_unstable();
        all
    }

    /// Returns the expected output for `numbers` numbers.
    pub fn expected(numbers: u64) -> Vec<u64> {
        let mut counts = BTreeMap::<(u64, u64), u64>::new();
        for number in 0..numbers {
            *counts.entry((number % KEYS, number / WINDOW)).or_default() += 1;
        }
        let mut all: Vec<u64> = counts.iter().map(|(at, count)| told(*at, *count)).collect();
        all.sort_unstable();
        all
    }
}

fn told((key, window): (u64, u64), count: u64) -> u64 {
    key << 48 | window << 16 | count
}

fn vertex<P: Processor + 'static>(
    name: &str,
    instances: u32,
    make: impl Fn(Instance) -> P + Send + Sync + 'static,
) -> Vertex {
    let supply = move |instance| -> Result<Box<dyn Processor>> { Ok(Box::new(make(instance))) };
    let count = NonZeroU32::new(instances).unwrap();
    Vertex::new(name, Arc::new(supply)).parallelism(Parallelism::Exactly(count))
}

impl Job for Windows {
    fn name(&self) -> &str {
        &self.name
    }

    fn program(&self, _: &Parallelisms) -> Result<Program> {
        Ok(Program {
            dag: self.graph(NonZeroU32::MIN)?,
            side_channels: Vec::new(),
            may_lose_instances: false,
        })
    }

    fn graph(&self, _: NonZeroU32) -> Result<Dag> {
        let mut dag = Dag::new();
        let (input, pace, limit) = (self.input.clone(), self.pace, Arc::clone(&self.limit));
        let numbers = dag.vertex(vertex("numbers", self.instances[0], move |instance| {
            Numbers {
                input: input.clone(),
                pace,
                limit: Arc::clone(&limit),
                instance,
                clock: Clock::system(),
                due: Duration::ZERO,
                numbers: Vec::new(),
                next: BTreeMap::new(),
                frozen: VecDeque::new(),
            }
        }));
        let mishap = Arc::clone(&self.mishap);
        let counts = dag.vertex(vertex(&self.counts, self.instances[1], move |_| Counts {
            mishap: Arc::clone(&mishap),
            open: BTreeMap::new(),
            changed: BTreeMap::new(),
            epoch: Epoch(0),
            frozen: VecDeque::new(),
        }));
        let output = self.output.clone();
        let files = dag.vertex(vertex("files", self.instances[2], move |instance| Files {
            output: output.clone(),
            instance,
            read: Vec::new(),
            prepared: BTreeMap::new(),
            frozen: None,
        }));
        dag.edge(Edge::between(numbers, counts).routing(Routing::keyed(|n: &u64| n % KEYS)));
        dag.edge(Edge::between(counts, files).routing(Routing::RoundRobin));
        Ok(dag)
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

/// The source of numbers.
struct Numbers {
    input: PathBuf,
    pace: Duration,
    limit: Arc<AtomicU64>,
    instance: Instance,
    clock: Clock,
    /// The time at which the source emits the next numbers.
    due: Duration,
    numbers: Vec<u64>,
    /// The next line to read, by split.
    next: BTreeMap<u64, u64>,
    frozen: VecDeque<(u64, u64)>,
}

impl Processor for Numbers {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.clock = context.clock.clone();
        let text = fs::read_to_string(&self.input).unwrap();
        self.numbers = text.lines().map(|line| line.parse().unwrap()).collect();
        let own = (0..SPLITS).filter(|split| self.instance.owns(*split));
        self.next = own.map(|split| (split, split)).collect();
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.clock.now() < self.due {
            outbox.wake_at(self.due);
            return Ok(Progress::NONE);
        }
        self.due = self.clock.now() + self.pace;
        let mut lane = outbox.lane::<u64>(Ordinal(0))?;
        let mut room = lane.room().min(8);
        let mut made = false;
        let limit = self.limit.load(Ordering::SeqCst);
        for next in self.next.values_mut() {
            while room > 0
                && *next < limit
                && let Some(number) = self.numbers.get(*next as usize)
            {
                lane.push(*number, Timestamp::from_micros(*number as i64));
                *next += SPLITS;
                room -= 1;
                made = true;
            }
        }
        // All lower numbers have been emitted.
        if let Some(least) = self.next.values().min().filter(|_| made) {
            outbox.watermark(Watermark(Timestamp::from_micros(*least as i64)));
        }
        let end = self.numbers.len() as u64;
        let done = self.next.values().all(|next| *next >= end);
        if !made && !done {
            outbox.wake_at(self.due);
        }
        Ok(Progress { made, done })
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }
}

impl Checkpointed for Numbers {
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

impl SourceControl for Numbers {
    fn is_at_end(&self) -> bool {
        let end = self.numbers.len() as u64;
        self.next.values().all(|next| *next >= end)
    }
}

/// A key and a window.
type At = (u64, u64);

/// Counts by key and window, and emits a count when its window is closed.
struct Counts {
    mishap: Arc<AtomicI64>,
    open: BTreeMap<At, u64>,
    /// The changed counts, by the first epoch whose snapshot includes the change.
    changed: BTreeMap<At, Epoch>,
    epoch: Epoch,
    frozen: VecDeque<(At, Option<u64>)>,
}

impl Counts {
    fn change(&mut self, at: At) {
        self.changed.insert(at, self.epoch.next());
    }
}

impl Processor for Counts {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let rows: Vec<u64> = inbox
            .rows::<u64>()?
            .drain_front(usize::MAX)
            .map(|(number, _)| number)
            .collect();
        for number in rows {
            if self.mishap.fetch_sub(1, Ordering::SeqCst) == 0 {
                panic!("a mishap at {number}");
            }
            let at = (number % KEYS, number / WINDOW);
            *self.open.entry(at).or_default() += 1;
            self.change(at);
        }
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        let micros = watermark.0.as_micros();
        let is_closed = |(_, window): &At| ((window + 1) * WINDOW) as i64 <= micros;
        let closed: Vec<At> = self.open.keys().copied().filter(is_closed).collect();
        for at in closed {
            let mut lane = outbox.lane::<u64>(Ordinal(0))?;
            if lane.room() == 0 {
                return Ok(Progress::MADE);
            }
            if let Some(count) = self.open.remove(&at) {
                lane.push(told(at, count), watermark.0);
                self.change(at);
            }
        }
        outbox.watermark(watermark);
        Ok(Progress::DONE)
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl Checkpointed for Counts {
    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        self.epoch = snapshot.epoch;
        let all: BTreeSet<At> = match snapshot.is_full() {
            true => self.open.keys().copied().collect(),
            false => self.changed.keys().copied().collect(),
        };
        let entry = |at: At| (at, self.open.get(&at).copied());
        self.frozen = all.into_iter().map(entry).collect();
        Ok(())
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        while writer.has_room() {
            let Some((at, count)) = self.frozen.pop_front() else {
                return Ok(Progress::DONE);
            };
            let partition = Some(PartitionId::of(&at.0));
            let mut key = Vec::new();
            at.0.write_to(&mut key);
            key.clear();
            key.extend_from_slice(&at.0.to_le_bytes());
            key.extend_from_slice(&at.1.to_le_bytes());
            match count {
                Some(count) => writer.set("open", partition, &key, &count.to_le_bytes())?,
                None => writer.remove("open", partition, &key)?,
            }
        }
        Ok(Progress::MADE)
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.changed.retain(|_, first| *first > epoch);
        Ok(Progress::DONE)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            let at = (number(&entry.key[..8]), number(&entry.key[8..]));
            let before = self.open.insert(at, number(entry.value));
            assert_eq!(before, None, "each key comes once");
        }
        Ok(())
    }

    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        self.epoch = epoch;
        Ok(Progress::DONE)
    }
}

/// Publishes the values read in an epoch when it is committed: one file per epoch.
struct Files {
    output: PathBuf,
    instance: Instance,
    read: Vec<u64>,
    prepared: BTreeMap<u64, Vec<u64>>,
    frozen: Option<Vec<u8>>,
}

impl Files {
    fn publish(&self, index: u32, epoch: u64, values: &[u64]) {
        if values.is_empty() {
            return;
        }
        let lines: Vec<String> = values.iter().map(u64::to_string).collect();
        let path = self.output.join(format!("{index}-{epoch}.txt"));
        let begun = self
            .output
            .join(format!("{index}-{epoch}.begun-{}", std::process::id()));
        let text = lines.join("\n");
        if let Ok(there) = fs::read_to_string(&path) {
            assert_eq!(
                there, text,
                "an epoch is published again with other contents"
            );
        }
        fs::write(&begun, text).unwrap();
        fs::rename(begun, path).unwrap();
    }
}

impl Processor for Files {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let values = inbox.rows::<u64>()?.drain_front(usize::MAX);
        self.read.extend(values.map(|(value, _)| value));
        Ok(())
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl Checkpointed for Files {
    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        let read = std::mem::take(&mut self.read);
        self.prepared.insert(snapshot.epoch.0, read);
        let mut bytes = Vec::new();
        for (epoch, values) in &self.prepared {
            bytes.extend_from_slice(&epoch.to_le_bytes());
            bytes.extend_from_slice(&(values.len() as u64).to_le_bytes());
            let values = values.iter();
            values.for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
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
            self.publish(self.instance.index, epoch, &values);
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
            // The epoch is committed, but its sink may have failed before it published the output.
            let mut numbers = entry.value.chunks(8).map(number);
            while let Some(epoch) = numbers.next() {
                let count = numbers.next().unwrap();
                let values: Vec<u64> = numbers.by_ref().take(count as usize).collect();
                self.publish(index, epoch, &values);
            }
        }
        Ok(())
    }
}
