//! The cuts of one instance, on their way into blocks.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex};

use crate::store::{BlockWriter, CutKind, CutOf, CutReceipt, PartitionRange, SnapshotId};
use ardea_core::{Cut, Error, Result, StateChunk};
use ardea_engine::{CutEnd, CutReport, InstanceName};

use super::room::Room;
use super::{CutNews, LifeShared, lock};

/// What is to be done for an instance.
#[derive(Debug)]
pub(crate) enum Task {
    /// Write these entries of a cut.
    Take(Cut, StateChunk),
    /// Write the last entries of a cut, and bring all to safety.
    Finish(CutReport, StateChunk),
    /// The rest of a cut will not come.
    GiveUp(Cut, CutEnd),
}

/// The cuts of one instance; at most one thread works at a desk.
pub(crate) struct Desk {
    of: InstanceName,
    life: Arc<LifeShared>,
    room: Arc<Room>,
    inbox: Mutex<Inbox>,
    /// Held by who works.
    work: Mutex<Option<Writing>>,
}

#[derive(Default)]
struct Inbox {
    tasks: VecDeque<Task>,
    /// Somebody works, or is about to.
    is_taken: bool,
}

/// A cut that is being written.
struct Writing {
    cut: Cut,
    /// None without any entry yet, or if writing has failed, which has been told.
    writer: Option<BlockWriter>,
    /// States of which nothing counts that is older than a snapshot.
    outdated: BTreeMap<String, SnapshotId>,
    has_failed: bool,
}

impl Desk {
    pub(crate) fn new(of: InstanceName, life: Arc<LifeShared>, room: Arc<Room>) -> Self {
        Desk {
            of,
            life,
            room,
            inbox: Mutex::default(),
            work: Mutex::default(),
        }
    }

    /// Leaves a task; true if somebody has to be sent to work at it.
    pub(super) fn put(&self, task: Task) -> bool {
        let mut inbox = lock(&self.inbox);
        inbox.tasks.push_back(task);
        !mem::replace(&mut inbox.is_taken, true)
    }

    /// Does what is there; true if more has come meanwhile, and somebody has to come again.
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
            Task::Take(cut, chunk) => {
                self.write(cut, &chunk, writing);
                self.room.empty(chunk);
            }
            Task::Finish(report, chunk) => {
                let is_whole = self.write(report.cut, &chunk, writing);
                self.room.empty(chunk);
                if let Some(done) = writing.take().filter(|_| is_whole) {
                    self.finish(done, report);
                }
            }
            Task::GiveUp(cut, why) => {
                *writing = None;
                let why = match why {
                    CutEnd::Failed(error) => Some(error),
                    CutEnd::Superseded => None,
                };
                self.life.tell(CutNews::GaveUp(cut, why));
            }
        }
    }

    /// Writes entries of a cut; false if that has failed, now or before.
    fn write(&self, cut: Cut, chunk: &StateChunk, writing: &mut Option<Writing>) -> bool {
        if self.life.is_over() {
            return false;
        }
        let writing = match writing {
            Some(writing) if writing.cut == cut => writing,
            _ => writing.insert(Writing {
                cut,
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
            self.failed(cut, error);
            writing.writer = None;
            writing.has_failed = true;
        }
        !writing.has_failed
    }

    fn write_entries(&self, writing: &mut Writing, chunk: &StateChunk) -> Result<()> {
        for (state, before) in chunk.outdated() {
            let before = SnapshotId::new(self.life.place.generation, before);
            writing.outdated.insert(state.to_string(), before);
        }
        if chunk.is_empty() {
            return Ok(());
        }
        let writer = match &mut writing.writer {
            Some(writer) => writer,
            none => none.insert(self.writer(writing.cut)?),
        };
        for entry in chunk {
            match entry.value {
                Some(value) => writer.set(entry.state, entry.partition, entry.key, value)?,
                None => writer.remove(entry.state, entry.partition, entry.key)?,
            }
        }
        Ok(())
    }

    fn finish(&self, writing: Writing, report: CutReport) {
        match self.receipt(writing) {
            Ok(receipt) => {
                let of = self.of.clone();
                self.life
                    .tell(CutNews::Saved(of, report, Box::new(receipt)));
            }
            Err(error) => self.failed(report.cut, error),
        }
    }

    fn receipt(&self, writing: Writing) -> Result<CutReceipt> {
        let receipt = match writing.writer {
            Some(writer) => writer.finish(),
            // Nothing has changed.
            None if !writing.cut.is_full() => Ok(CutReceipt::unchanged(self.cut_of(writing.cut))),
            None => self.writer(writing.cut)?.finish(),
        };
        Ok(receipt?.outdating(writing.outdated))
    }

    fn failed(&self, cut: Cut, error: Error) {
        let error = error.in_vertex(&self.of.vertex, self.of.instance.index);
        self.life.tell(CutNews::GaveUp(cut, Some(error)));
    }

    fn cut_of(&self, cut: Cut) -> CutOf {
        CutOf {
            snapshot: SnapshotId::new(self.life.place.generation, cut.epoch),
            vertex: self.of.vertex.to_string(),
            instance: self.of.instance.index,
            instances: self.of.instance.parallelism,
        }
    }

    fn writer(&self, cut: Cut) -> Result<BlockWriter> {
        let instance = self.of.instance;
        let kind = match cut.since {
            None => CutKind::Full {
                partitions: PartitionRange::of_instance(instance.index, instance.parallelism),
            },
            // What it is based on is said when it becomes part of a snapshot.
            Some(since) => CutKind::Increment {
                since: SnapshotId::new(self.life.place.generation, since),
            },
        };
        self.life.place.writer(self.cut_of(cut), kind)
    }
}
