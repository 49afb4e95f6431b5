//! Restore: reads and decompresses the state of instances on separate threads, several parts of
//! each vertex concurrently.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::store::{Checkpoint, PartitionRange};
use ardea_core::{Epoch, Error, ErrorCode, PartitionId, Result, StateChunk, Waker};
use ardea_engine::{InstanceName, RestoreReader, RestoreSource, SnapshotRead, lower_priority};

use part::{Part, PartContent, Subject, partitions};
use plan::Plan;

mod part;
mod plan;

/// The maximum number of chunks buffered for an instance, for each of its parts that are read
/// concurrently.
const MOST_WAITING: usize = 4;

/// Reader of a checkpoint's state, for all instances of a process in an attempt that is restored
/// from it.
pub struct StateReading {
    epoch: Epoch,
    pool: Arc<Pool>,
    /// The number of reader threads.
    threads: u32,
    /// The number of instances of each vertex in this process.
    here: BTreeMap<String, u32>,
}

/// The work queue and its threads. They end when all state is read and no further instance can be
/// opened.
struct Pool {
    state: Mutex<PoolState>,
    changed: Condvar,
    /// Called once, when all instances have read all state.
    when_read: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct PoolState {
    /// The checkpoint to read. Released when all instances have read their state, since the attempt
    /// may outlive it.
    checkpoint: Option<Checkpoint>,
    ready: VecDeque<(Arc<PartitionQueue>, Work)>,
    is_over: bool,
    /// The number of readers that are not at the end of their state.
    unread: usize,
    is_complete: bool,
}

/// The next work item of an instance.
enum Work {
    /// Read on in this part.
    Part(Part),
    /// Begin to read the next partitions.
    Next,
}

/// The queue of state that was read for one instance, and not yet consumed.
struct PartitionQueue {
    of: Subject,
    /// The number of parts that are read concurrently for the instance.
    share: u32,
    state: Mutex<PartitionQueueState>,
}

#[derive(Default)]
struct PartitionQueueState {
    /// The buffered chunks in the order in which they were read, each with the number of its part.
    full: VecDeque<(u64, Read)>,
    empty: Vec<StateChunk>,
    /// The parts that wait for buffer space.
    parked: Vec<Part>,
    /// The number of parts not read to their end, including parked ones. When reading by partition,
    /// the parts that follow each other count as one.
    open: usize,
    /// The order in which partitions are read, when reading by partition; otherwise `None`.
    plan: Option<Plan>,
    /// The number of parts begun so far, when reading by partition.
    begun: u64,
    /// The maximum number of chunks buffered per part number.
    most_waiting: usize,
    failed: Option<Error>,
    waker: Option<Waker>,
}

/// A unit of state that was read.
enum Read {
    Entries(StateChunk),
    Base,
    Partitions(PartitionRange),
}

impl PartitionQueueState {
    /// Returns the next unit, taken from the part that was begun first, since the instance may wait
    /// for that part.
    fn take(&mut self) -> Option<Read> {
        let numbers = self.full.iter().map(|(number, _)| *number).enumerate();
        let (at, _) = numbers.min_by_key(|(_, number)| *number)?;
        self.full.remove(at).map(|(_, read)| read)
    }

    /// Returns true if `part` has to wait until one of its chunks is consumed.
    fn is_full_for(&self, part: &Part) -> bool {
        let of_it = |(number, read): &&(u64, Read)| {
            *number == part.number && matches!(read, Read::Entries(_))
        };
        self.full.iter().filter(of_it).count() >= self.most_waiting
    }
}

/// Converts a read error to [`CheckpointStoreUnavailable`](ErrorCode::CheckpointStoreUnavailable),
/// which makes the job wait: the checkpoint may be valid, although its location cannot be read.
/// Other errors are returned unchanged.
pub fn as_unavailable(error: Error) -> Error {
    if error.code() != ErrorCode::ReadFailed {
        return error;
    }
    let what = "the job's checkpoint can't be read at the moment";
    let next = error
        .hint_text()
        .unwrap_or("check the location of its checkpoints");
    let hint = format!("{next}; the job goes on by itself when they can be read");
    Error::new(ErrorCode::CheckpointStoreUnavailable, what)
        .because(error.without_hint())
        .hint(hint)
}

impl StateReading {
    /// Starts reading a checkpoint on `threads` threads. `here` is the number of instances of each
    /// vertex in this process, which share the threads. For a vertex that is not in `here`, all
    /// instances are assumed to be in this process. When all instances opened before
    /// [`all_are_open`](Self::all_are_open) have read their state, `when_read` is called and the
    /// checkpoint is released.
    ///
    /// # Errors
    /// `LimitReached` if the system refuses a thread.
    pub fn start(
        checkpoint: Checkpoint,
        threads: usize,
        here: BTreeMap<String, u32>,
        when_read: impl Fn() + Send + Sync + 'static,
    ) -> Result<Arc<Self>> {
        let epoch = checkpoint.id().epoch;
        let state = PoolState {
            checkpoint: Some(checkpoint.read_in_pieces()),
            ..PoolState::default()
        };
        let pool = Arc::new(Pool {
            state: Mutex::new(state),
            changed: Condvar::new(),
            when_read: Box::new(when_read),
        });
        for number in 0..threads.max(1) {
            let work = Arc::clone(&pool);
            let spawned = thread::Builder::new()
                .name(format!("ardea-restore-{number}"))
                .spawn(move || {
                    // Instances process records while other partitions are still being read.
                    lower_priority();
                    work.work();
                });
            if let Err(error) = spawned {
                pool.end();
                return Err(
                    Error::new(ErrorCode::LimitReached, "no thread to read checkpoints")
                        .because(error)
                        .hint("raise the limit of threads (ulimit -u)"),
                );
            }
        }
        Ok(Arc::new(StateReading {
            epoch,
            pool,
            threads: u32::try_from(threads).unwrap_or(u32::MAX).max(1),
            here,
        }))
    }

    /// Declares that the state of no further instance will be opened.
    pub fn all_are_open(&self) {
        self.pool.lock().is_complete = true;
        self.pool.finish_if_complete();
    }
}

/// Returns the number of parts to read concurrently per instance, such that all threads have work.
fn share(threads: u32, instances: u32) -> u32 {
    threads.div_ceil(instances.max(1))
}

impl Drop for StateReading {
    fn drop(&mut self) {
        self.pool.end();
    }
}

impl RestoreSource for StateReading {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn open(&self, of: &InstanceName) -> Result<Box<dyn RestoreReader>> {
        let here = self.here.get(&*of.vertex).copied();
        let mut pool = self.pool.lock();
        let Some(checkpoint) = &pool.checkpoint else {
            let what = "state is requested after restore has ended";
            return Err(Error::new(ErrorCode::Internal, what));
        };
        let shelf = PartitionQueue {
            of: Subject::new(checkpoint, &of.vertex, of.instance),
            share: share(self.threads, here.unwrap_or(of.instance.parallelism)),
            state: Mutex::default(),
        };
        pool.unread += 1;
        drop(pool);
        Ok(Box::new(Reader {
            shelf: Arc::new(shelf),
            pool: Arc::clone(&self.pool),
            threads: self.threads as usize,
            back: VecDeque::new(),
            has_begun: false,
            has_ended: false,
        }))
    }
}

/// The reader of one instance's state.
struct Reader {
    shelf: Arc<PartitionQueue>,
    pool: Arc<Pool>,
    threads: usize,
    /// The partitions whose entries are all consumed, and that are not yet reported as restored.
    back: VecDeque<PartitionId>,
    has_begun: bool,
    has_ended: bool,
}

impl RestoreReader for Reader {
    fn read(&mut self, into: &mut StateChunk, waker: &Waker) -> Result<SnapshotRead> {
        if !self.has_begun {
            let parts = self.shelf.of.whole(self.shelf.share);
            self.begin(parts, None);
        }
        if let Some(partition) = self.back.pop_front() {
            return Ok(SnapshotRead::Partition(partition));
        }
        let mut shelf = self.shelf.lock();
        if let Some(error) = &shelf.failed {
            return Err(error.clone());
        }
        match shelf.take() {
            Some(Read::Entries(chunk)) => {
                shelf.empty.push(mem::replace(into, chunk));
                let parked = mem::take(&mut shelf.parked);
                drop(shelf);
                let parked = parked.into_iter().map(Work::Part);
                self.pool.go_on(&self.shelf, parked);
                return Ok(SnapshotRead::Entries);
            }
            Some(Read::Base) => return Ok(SnapshotRead::Base),
            Some(Read::Partitions(range)) => {
                drop(shelf);
                self.back.extend(partitions(range));
                return self.read(into, waker);
            }
            None => {}
        }
        if shelf.open > 0 {
            shelf.waker = Some(waker.clone());
            return Ok(SnapshotRead::Pending);
        }
        drop(shelf);
        self.end();
        Ok(SnapshotRead::End)
    }

    fn entries_by_partition(&self) -> Option<u64> {
        let of = &self.shelf.of;
        let entries = of.checkpoint.extent(&of.vertex, of.own).entries;
        Some(entries).filter(|entries| *entries > 0)
    }

    fn read_by_partition(&mut self) {
        let of = &self.shelf.of;
        let extent = of.checkpoint.extent(&of.vertex, of.own);
        let (base, plan) = (of.base(), Plan::new(of.own, extent));
        self.begin(vec![base], Some(plan));
    }

    fn prioritize(&mut self, partitions: &[PartitionId]) {
        if let Some(plan) = &mut self.shelf.lock().plan {
            plan.hurry(partitions);
        }
    }
}

impl Reader {
    fn begin(&mut self, parts: Vec<Part>, plan: Option<Plan>) {
        self.has_begun = true;
        let mut shelf = self.shelf.lock();
        shelf.open = parts.len();
        let at_once = match plan {
            Some(_) => 1,
            None => parts.len().min(self.threads),
        };
        shelf.most_waiting = MOST_WAITING * at_once.max(1);
        shelf.plan = plan;
        drop(shelf);
        self.pool
            .go_on(&self.shelf, parts.into_iter().map(Work::Part));
    }

    fn end(&mut self) {
        if !mem::replace(&mut self.has_ended, true) {
            self.pool.lock().unread -= 1;
            self.pool.finish_if_complete();
        }
    }
}

impl PartitionQueue {
    fn lock(&self) -> MutexGuard<'_, PartitionQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, error: Error) {
        let mut shelf = self.lock();
        shelf.failed.get_or_insert(error);
        shelf.parked.clear();
        wake(shelf);
    }

    /// Begins the part with the next partitions; `None` if all partitions have been begun.
    fn next_part(&self) -> Option<Part> {
        let mut state = self.lock();
        let has_failed = state.failed.is_some();
        let plan = state.plan.as_mut().filter(|_| !has_failed);
        let range = plan.and_then(Plan::next);
        match range {
            Some(range) => {
                state.begun += 1;
                let number = state.begun;
                drop(state);
                Some(self.of.partitions(range, number))
            }
            None => {
                state.open -= 1;
                wake(state);
                None
            }
        }
    }

    /// Reads one chunk of `part`. Returns the work items that can be done next.
    fn step(&self, mut part: Part) -> Vec<Work> {
        let mut chunk = {
            let mut state = self.lock();
            if state.failed.is_some() {
                return Vec::new();
            }
            if state.is_full_for(&part) {
                state.parked.push(part);
                return Vec::new();
            }
            state.empty.pop().unwrap_or_default()
        };
        chunk.clear();
        let has_more = match part.fill(&mut chunk) {
            Ok(has_more) => has_more,
            Err(error) => {
                self.fail(as_unavailable(error));
                return Vec::new();
            }
        };
        let mut state = self.lock();
        match chunk.is_empty() {
            true => state.empty.push(chunk),
            false => state.full.push_back((part.number, Read::Entries(chunk))),
        }
        let next = match part.brings {
            _ if has_more => vec![Work::Part(part)],
            PartContent::Nothing => {
                state.open -= 1;
                Vec::new()
            }
            PartContent::Base => {
                state.full.push_back((part.number, Read::Base));
                state.open += self.share as usize - 1;
                (0..self.share).map(|_| Work::Next).collect()
            }
            PartContent::Partitions(range) => {
                let read = Read::Partitions(range);
                state.full.push_back((part.number, read));
                vec![Work::Next]
            }
        };
        wake(state);
        next
    }
}

/// Wakes the instance that reads this queue, if it waits.
fn wake(mut shelf: MutexGuard<'_, PartitionQueueState>) {
    let waker = shelf.waker.take();
    drop(shelf);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        state.ready.clear();
        state.checkpoint = None;
        drop(state);
        self.changed.notify_all();
    }

    fn finish_if_complete(&self) {
        let mut state = self.lock();
        if state.is_complete && state.unread == 0 && !state.is_over {
            state.is_over = true;
            state.checkpoint = None;
            drop(state);
            self.changed.notify_all();
            (self.when_read)();
        }
    }

    fn go_on(&self, shelf: &Arc<PartitionQueue>, works: impl Iterator<Item = Work>) {
        let mut works = works.map(|work| (Arc::clone(shelf), work)).peekable();
        if works.peek().is_none() {
            return;
        }
        self.lock().ready.extend(works);
        self.changed.notify_all();
    }

    fn next(&self) -> Option<(Arc<PartitionQueue>, Work)> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(next) = state.ready.pop_front() {
                return Some(next);
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self) {
        while let Some((shelf, work)) = self.next() {
            let part = match work {
                Work::Part(part) => Some(part),
                Work::Next => shelf.next_part(),
            };
            if let Some(part) = part {
                self.go_on(&shelf, shelf.step(part).into_iter());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_have_something_to_do_however_many_instances_are_elsewhere() {
        // For 1 and 8 local instances, and for an unknown number.
        assert_eq!([1, 8, 0].map(|here| share(4, here)), [4, 1, 4]);
        assert_eq!(share(4, 3) * 3, 6);
    }
}
