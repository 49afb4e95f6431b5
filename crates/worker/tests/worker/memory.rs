//! A checkpoint backend in memory, shared by all containers of a job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use ardea_checkpoint::local::{AttemptCheckpoints, AttemptContext, WorkerCheckpointBackend};
use ardea_coordination::control::{EpochKind, ExecutionAttempt, ParticipantEvent, SnapshotAck};
use ardea_core::{
    Epoch, Error, ErrorCode, Guarantee, PartitionId, Result, SnapshotRequest, StateChunk,
    StateEntry, Waker,
};
use ardea_engine::{
    InstanceName, RestoreReader, RestoreSource, SnapshotAbort, SnapshotIo, SnapshotRead,
    SnapshotReport, SnapshotSink,
};

/// Vertex and instance.
type Which = (String, u32);

/// State, partition, key, value.
pub type Entry = (String, Option<u32>, Vec<u8>, Option<Vec<u8>>);

/// The snapshots of the instances for an epoch.
type Saved = BTreeMap<Which, Vec<Entry>>;

/// The snapshot store of a job.
#[derive(Default)]
pub struct Memory {
    /// The snapshots of all workers, by attempt and epoch.
    saved: Mutex<BTreeMap<(u64, Epoch), Saved>>,
    /// The error of all reads, if any.
    pub unreadable: Mutex<Option<ErrorCode>>,
    late: Mutex<Late>,
}

/// A vertex whose state is delayed, and the callbacks that wait for it.
#[derive(Default)]
struct Late {
    vertex: Option<&'static str>,
    waiting: Vec<Box<dyn FnOnce() + Send>>,
}

impl Memory {
    /// Delays the state of this vertex.
    pub fn hold_back(&self, vertex: &'static str) {
        self.late.lock().unwrap().vertex = Some(vertex);
    }

    /// Ends the delay.
    pub fn let_come(&self) {
        let late = std::mem::take(&mut *self.late.lock().unwrap());
        late.waiting.into_iter().for_each(|then| then());
    }

    /// Runs the callback, or queues it while the state of one of these vertices is delayed. Returns
    /// true if it was run.
    fn when_it_may(&self, of: &[&str], then: impl FnOnce() + Send + 'static) -> bool {
        let mut late = self.late.lock().unwrap();
        let is_late = late.vertex.is_some_and(|vertex| of.contains(&vertex));
        match is_late {
            true => late.waiting.push(Box::new(then)),
            false => then(),
        }
        !is_late
    }

    /// Returns the snapshot of a vertex at an epoch.
    pub fn value(&self, life: u64, epoch: Epoch, vertex: &str) -> Vec<Entry> {
        let saved = self.saved.lock().unwrap();
        let snapshot = &saved[&(life, epoch)];
        let own = snapshot.iter().filter(|((of, _), _)| of == vertex);
        own.flat_map(|(_, entries)| entries.clone()).collect()
    }
}

/// The backend of one worker.
pub struct InMemory(pub Arc<Memory>);

impl WorkerCheckpointBackend for InMemory {
    fn guarantee(&self) -> Guarantee {
        Guarantee::ExactlyOnce
    }

    fn begin(&self, here: AttemptContext) -> Result<Box<dyn AttemptCheckpoints>> {
        let state = match here.attempt.from {
            Some(epoch) => {
                if let Some(code) = *self.0.unreadable.lock().unwrap() {
                    return Err(Error::new(code, "it can't be read"));
                }
                let saved = self.0.saved.lock().unwrap();
                let checkpoint = saved.get(&(here.attempt.taken_in.0, epoch));
                Some(checkpoint.cloned().expect("it was committed"))
            }
            None => None,
        };
        let vertices = here.instances.iter().map(|id| id.vertex.as_str());
        let vertices: Vec<&str> = vertices.filter(|_| state.is_some()).collect();
        let restored = Arc::clone(&here.restored);
        self.0.when_it_may(&vertices, move || restored());
        let expected = here.instances.iter();
        let expected = expected.map(|id| (id.vertex.as_str().to_string(), id.index));
        let desk = Desk {
            memory: Arc::clone(&self.0),
            life: here.attempt,
            expected: expected.collect(),
            open: Mutex::default(),
            tell: here.tell,
        };
        Ok(Box::new(Here {
            life: here.attempt,
            desk: Arc::new(desk),
            state,
        }))
    }
}

struct Here {
    life: ExecutionAttempt,
    desk: Arc<Desk>,
    state: Option<Saved>,
}

impl AttemptCheckpoints for Here {
    fn snapshots(&self) -> SnapshotIo {
        let source = self.state.clone().map(|state| {
            let epoch = self.life.from.expect("it has state from there");
            let memory = Arc::clone(&self.desk.memory);
            Arc::new(Source {
                epoch,
                state,
                memory,
            }) as Arc<dyn RestoreSource>
        });
        SnapshotIo {
            sink: Some(Arc::<Desk>::clone(&self.desk)),
            source,
            ..SnapshotIo::default()
        }
    }

    fn ends(&mut self, _: Epoch, _: EpochKind) {}

    fn committed(&mut self, epoch: Epoch) {
        let mut open = self.desk.open.lock().unwrap();
        open.telling = Some(epoch);
        self.desk.look_at_hearers(&mut open);
    }

    fn aborted(&mut self, _: Epoch) {}
}

/// Takes full snapshots of the instances of one worker in one attempt.
struct Desk {
    memory: Arc<Memory>,
    life: ExecutionAttempt,
    expected: BTreeSet<Which>,
    open: Mutex<Open>,
    tell: Arc<dyn Fn(ParticipantEvent) + Send + Sync>,
}

#[derive(Default)]
struct Open {
    begun: BTreeMap<Which, Vec<Entry>>,
    snapshots: BTreeMap<Epoch, Saved>,
    ended: Saved,
    last_snapshot: Option<Epoch>,
    telling: Option<Epoch>,
    heard: BTreeMap<Which, Epoch>,
    left: BTreeSet<Which>,
}

fn which(of: &InstanceName) -> Which {
    (of.vertex.to_string(), of.instance.index)
}

fn owned(entry: StateEntry<'_>) -> Entry {
    let partition = entry.partition.map(PartitionId::index);
    let value = entry.value.map(<[u8]>::to_vec);
    (
        entry.state.to_string(),
        partition,
        entry.key.to_vec(),
        value,
    )
}

impl Desk {
    /// Saves complete snapshots and reports them.
    fn settle(&self, open: &mut Open) {
        let epochs: Vec<Epoch> = open.snapshots.keys().copied().collect();
        for epoch in epochs {
            let mut snapshot = open.ended.clone();
            snapshot.extend(open.snapshots[&epoch].clone());
            if !snapshot.keys().eq(&self.expected) {
                continue;
            }
            open.snapshots.remove(&epoch);
            open.last_snapshot = open.last_snapshot.max(Some(epoch));
            let receipt = self.save(epoch, snapshot);
            (self.tell)(ParticipantEvent::Saved(epoch, receipt));
        }
        if open.ended.keys().eq(&self.expected) {
            // The snapshot must be found under any epoch with which it may be committed.
            let after = open.last_snapshot;
            let first = after.max(self.life.from).map_or(1, |epoch| epoch.0 + 1);
            let last = (first..first + 1_000).map(Epoch);
            let receipts = last.map(|epoch| self.save(epoch, open.ended.clone()));
            let receipt = receipts.last().expect("there are some");
            (self.tell)(ParticipantEvent::Ended { after, receipt });
        }
    }

    /// Reports the commit once all instances have processed it.
    fn look_at_hearers(&self, open: &mut Open) {
        let Some(epoch) = open.telling else { return };
        let has_heard =
            |which: &Which| open.left.contains(which) || open.heard.get(which) >= Some(&epoch);
        if self.expected.iter().all(has_heard) {
            open.telling = None;
            (self.tell)(ParticipantEvent::Visible(epoch));
        }
    }

    fn save(&self, epoch: Epoch, snapshot: Saved) -> SnapshotAck {
        let mut saved = self.memory.saved.lock().unwrap();
        let bytes = snapshot.len() as u64;
        let place = saved.entry((self.life.generation.0, epoch)).or_default();
        place.extend(snapshot);
        SnapshotAck {
            since: None,
            place: Vec::new(),
            bytes,
        }
    }
}

impl SnapshotSink for Desk {
    fn commit_processed(&self, of: &InstanceName, epoch: Epoch) {
        let mut open = self.open.lock().unwrap();
        open.heard.insert(which(of), epoch);
        self.look_at_hearers(&mut open);
    }

    fn instance_ended(&self, of: &InstanceName) {
        let mut open = self.open.lock().unwrap();
        open.left.insert(which(of));
        self.look_at_hearers(&mut open);
    }

    fn wants_all(&self, _: &InstanceName, _: Epoch) -> bool {
        true
    }

    fn buffer(&self, _: &InstanceName, _: &Waker) -> Option<StateChunk> {
        Some(StateChunk::default())
    }

    fn take(&self, of: &InstanceName, _: SnapshotRequest, entries: StateChunk) {
        let mut open = self.open.lock().unwrap();
        let begun = open.begun.entry(which(of)).or_default();
        begun.extend(entries.entries().map(owned));
    }

    fn finish(&self, of: &InstanceName, report: SnapshotReport, entries: StateChunk) {
        let mut open = self.open.lock().unwrap();
        let mut all = open.begun.remove(&which(of)).unwrap_or_default();
        all.extend(entries.entries().map(owned));
        match report.snapshot.is_last {
            true => open.ended.insert(which(of), all),
            false => {
                let snapshot = open.snapshots.entry(report.snapshot.epoch).or_default();
                snapshot.insert(which(of), all)
            }
        };
        self.settle(&mut open);
    }

    fn abort(&self, of: &InstanceName, snapshot: SnapshotRequest, why: SnapshotAbort) {
        self.open.lock().unwrap().begun.remove(&which(of));
        if let SnapshotAbort::Failed(error) = why {
            let failed = ParticipantEvent::CannotSave(snapshot.epoch, error.to_string());
            (self.tell)(failed);
        }
    }
}

struct Source {
    epoch: Epoch,
    state: Saved,
    memory: Arc<Memory>,
}

impl RestoreSource for Source {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn open(&self, of: &InstanceName) -> Result<Box<dyn RestoreReader>> {
        let own = self.state.iter();
        let own = own.filter(|((vertex, _), _)| **vertex == *of.vertex);
        let entries = own.flat_map(|(_, entries)| entries.clone());
        Ok(Box::new(Reader {
            vertex: of.vertex.to_string(),
            entries: entries.collect(),
            memory: Arc::clone(&self.memory),
        }))
    }
}

struct Reader {
    vertex: String,
    entries: Vec<Entry>,
    memory: Arc<Memory>,
}

impl RestoreReader for Reader {
    fn read(&mut self, into: &mut StateChunk, waker: &Waker) -> Result<SnapshotRead> {
        let waker = waker.clone();
        if !self
            .memory
            .when_it_may(&[&self.vertex], move || waker.wake())
        {
            return Ok(SnapshotRead::Pending);
        }
        if self.entries.is_empty() {
            return Ok(SnapshotRead::End);
        }
        for (state, partition, key, value) in self.entries.drain(..) {
            into.push(StateEntry {
                state: &state,
                partition: partition.and_then(PartitionId::from_index),
                key: &key,
                value: value.as_deref(),
            })?;
        }
        Ok(SnapshotRead::Entries)
    }
}
