//! Writer of one instance's snapshots.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex};

use crate::store::{
    BlockWriter, CheckpointId, PartitionRange, SnapshotKind, SnapshotOwner, StateHandle,
};
use ardea_core::{Error, Result, SnapshotRequest, StateChunk};
use ardea_engine::{InstanceName, SnapshotAbort, SnapshotReport};

use super::write_budget::WriteBudget;
use super::{AttemptShared, SnapshotEvent, lock};

/// A task of an [`InstanceWriter`].
#[derive(Debug)]
pub(crate) enum Task {
    /// Write these entries of a snapshot.
    Take(SnapshotRequest, StateChunk),
    /// Write the last entries of a snapshot, and make it durable.
    Finish(SnapshotReport, StateChunk),
    /// Abandon an incomplete snapshot.
    GiveUp(SnapshotRequest, SnapshotAbort),
}

/// Writer of one instance's snapshots. At most one thread at a time processes its tasks.
pub(crate) struct InstanceWriter {
    of: InstanceName,
    attempt: Arc<AttemptShared>,
    room: Arc<WriteBudget>,
    inbox: Mutex<Inbox>,
    /// The snapshot being written. Locked by the thread that processes the tasks.
    work: Mutex<Option<Writing>>,
}

#[derive(Default)]
struct Inbox {
    tasks: VecDeque<Task>,
    /// True if a thread processes the tasks, or is scheduled to.
    is_taken: bool,
}

/// A snapshot being written.
struct Writing {
    snapshot: SnapshotRequest,
    /// The block writer; `None` before the first entry, and after a reported failure.
    writer: Option<BlockWriter>,
    /// By state name, the checkpoint before which the instance's entries are outdated.
    outdated: BTreeMap<String, CheckpointId>,
    has_failed: bool,
}

impl InstanceWriter {
    pub(crate) fn new(of: InstanceName, life: Arc<AttemptShared>, room: Arc<WriteBudget>) -> Self {
        InstanceWriter {
            of,
            attempt: life,
            room,
            inbox: Mutex::default(),
            work: Mutex::default(),
        }
    }

    /// Queues a task. Returns true if the caller must schedule the writer on a thread.
    pub(super) fn put(&self, task: Task) -> bool {
        let mut inbox = lock(&self.inbox);
        inbox.tasks.push_back(task);
        !mem::replace(&mut inbox.is_taken, true)
    }

    /// Processes the queued tasks. Returns true if more tasks were queued meanwhile, so that the
    /// caller must schedule the writer again.
    pub(super) fn work(&self) -> bool {
        let tasks = mem::take(&mut lock(&self.inbox).tasks);
        let mut writing = lock(&self.work);
        for task in tasks {
            self.carry_out(task, &mut writing);
        }
        drop(writing);
        let mut inbox = lock(&self.inbox);
        inbox.is_taken = !inbox.tasks.is_empty();
        inbox.is_taken
    }

    fn carry_out(&self, task: Task, writing: &mut Option<Writing>) {
        match task {
            Task::Take(snapshot, chunk) => {
                self.write(snapshot, &chunk, writing);
                self.room.empty(chunk);
            }
            Task::Finish(report, chunk) => {
                let is_whole = self.write(report.snapshot, &chunk, writing);
                self.room.empty(chunk);
                if let Some(done) = writing.take().filter(|_| is_whole) {
                    self.finish(done, report);
                }
            }
            Task::GiveUp(snapshot, why) => {
                *writing = None;
                let why = match why {
                    SnapshotAbort::Failed(error) => Some(error),
                    SnapshotAbort::Superseded => None,
                };
                self.attempt.tell(SnapshotEvent::Aborted(snapshot, why));
            }
        }
    }

    /// Writes entries of a snapshot. Returns false if this write or an earlier one of the snapshot
    /// has failed.
    fn write(
        &self,
        snapshot: SnapshotRequest,
        chunk: &StateChunk,
        writing: &mut Option<Writing>,
    ) -> bool {
        if self.attempt.is_over() {
            return false;
        }
        let writing = match writing {
            Some(writing) if writing.snapshot == snapshot => writing,
            _ => writing.insert(Writing {
                snapshot,
                writer: None,
                outdated: BTreeMap::new(),
                has_failed: false,
            }),
        };
        if writing.has_failed {
            return false;
        }
        let written = self.write_entries(writing, chunk);
        if let Err(error) = written {
            self.failed(snapshot, error);
            writing.writer = None;
            writing.has_failed = true;
        }
        !writing.has_failed
    }

    fn write_entries(&self, writing: &mut Writing, chunk: &StateChunk) -> Result<()> {
        for (state, before) in chunk.outdated() {
            let before = CheckpointId::new(self.attempt.place.generation, before);
            writing.outdated.insert(state.to_string(), before);
        }
        if chunk.is_empty() {
            return Ok(());
        }
        let writer = match &mut writing.writer {
            Some(writer) => writer,
            none => none.insert(self.writer(writing.snapshot)?),
        };
        for entry in chunk {
            match entry.value {
                Some(value) => writer.set(entry.state, entry.partition, entry.key, value)?,
                None => writer.remove(entry.state, entry.partition, entry.key)?,
            }
        }
        Ok(())
    }

    fn finish(&self, writing: Writing, report: SnapshotReport) {
        match self.receipt(writing) {
            Ok(receipt) => {
                let of = self.of.clone();
                self.attempt
                    .tell(SnapshotEvent::Saved(of, report, Box::new(receipt)));
            }
            Err(error) => self.failed(report.snapshot, error),
        }
    }

    fn receipt(&self, writing: Writing) -> Result<StateHandle> {
        let receipt = match writing.writer {
            Some(writer) => writer.finish(),
            // No entry has changed since the base.
            None if !writing.snapshot.is_full() => {
                Ok(StateHandle::unchanged(self.snapshot_of(writing.snapshot)))
            }
            None => self.writer(writing.snapshot)?.finish(),
        };
        Ok(receipt?.outdating(writing.outdated))
    }

    fn failed(&self, snapshot: SnapshotRequest, error: Error) {
        let error = error.in_vertex(&self.of.vertex, self.of.instance.index);
        self.attempt
            .tell(SnapshotEvent::Aborted(snapshot, Some(error)));
    }

    fn snapshot_of(&self, snapshot: SnapshotRequest) -> SnapshotOwner {
        SnapshotOwner {
            checkpoint: CheckpointId::new(self.attempt.place.generation, snapshot.epoch),
            vertex: self.of.vertex.to_string(),
            instance: self.of.instance.index,
            instances: self.of.instance.parallelism,
        }
    }

    fn writer(&self, snapshot: SnapshotRequest) -> Result<BlockWriter> {
        let instance = self.of.instance;
        let kind = match snapshot.since {
            None => SnapshotKind::Full {
                partitions: PartitionRange::of_instance(instance.index, instance.parallelism),
            },
            // The actual base is set when the snapshot becomes part of a checkpoint.
            Some(since) => SnapshotKind::Increment {
                since: CheckpointId::new(self.attempt.place.generation, since),
            },
        };
        self.attempt.place.writer(self.snapshot_of(snapshot), kind)
    }
}
