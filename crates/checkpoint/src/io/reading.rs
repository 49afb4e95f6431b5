//! Gives instances back what they remembered: reads and unpacks on threads of its own, several parts of each vertex at a time.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::store::{PartitionRange, Snapshot};
use ardea_core::{Epoch, Error, ErrorCode, PartitionId, Result, StateChunk, Waker};
use ardea_engine::{CutRead, CutReader, CutSource, InstanceName, stand_back};

use part::{Brings, Part, Subject, partitions};
use plan::Plan;

mod part;
mod plan;

/// How many chunks wait for an instance at most, for each part that is read at the same time.
const MOST_WAITING: usize = 4;

/// The state of a job at the end of one epoch, for a life that begins with it.
pub struct StateReading {
    epoch: Epoch,
    pool: Arc<Pool>,
    /// How many threads read.
    threads: u32,
    /// How many instances of each vertex are in this process.
    here: BTreeMap<String, u32>,
}

/// What can be read on, and the threads that do so; the threads end when there is nothing left to read and nobody can ask for more.
struct Pool {
    state: Mutex<PoolState>,
    changed: Condvar,
    /// Called once, when all instances have all.
    when_read: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct PoolState {
    /// What is read. Let go of when all instances have all: the life may go on for long, and the snapshot not count any more.
    snapshot: Option<Snapshot>,
    ready: VecDeque<(Arc<Shelf>, Work)>,
    is_over: bool,
    /// Readers that have not come to their end, and whether more may be opened.
    unread: usize,
    is_complete: bool,
}

/// What a thread is to do next for an instance.
enum Work {
    /// Read on.
    Part(Part),
    /// Begin with the partitions that are next.
    Next,
}

/// What was read for one instance, and not taken yet.
struct Shelf {
    of: Subject,
    /// How many parts are read at the same time.
    share: u32,
    state: Mutex<ShelfState>,
}

#[derive(Default)]
struct ShelfState {
    /// In the order in which it was read, with the numbers of the parts that it is of.
    full: VecDeque<(u64, Read)>,
    empty: Vec<StateChunk>,
    /// Parts that wait for room.
    parked: Vec<Part>,
    /// Parts that are not at their end, parked or not; by partition, those that are begun one after the other count as one.
    open: usize,
    /// By partition: which are next.
    plan: Option<Plan>,
    /// How many parts have been begun so.
    begun: u64,
    /// How many chunks of parts of one number wait at most.
    most_waiting: usize,
    failed: Option<Error>,
    waker: Option<Waker>,
}

/// Something that was read.
enum Read {
    Entries(StateChunk),
    Base,
    Partitions(PartitionRange),
}

impl ShelfState {
    /// What is to be taken next: of the part that was begun first, as somebody may wait for that.
    fn take(&mut self) -> Option<Read> {
        let numbers = self.full.iter().map(|(number, _)| *number).enumerate();
        let (at, _) = numbers.min_by_key(|(_, number)| *number)?;
        self.full.remove(at).map(|(_, read)| read)
    }

    /// Whether another chunk of this part has to wait until one is taken.
    fn is_full_for(&self, part: &Part) -> bool {
        let of_it = |(number, read): &&(u64, Read)| {
            *number == part.number && matches!(read, Read::Entries(_))
        };
        self.full.iter().filter(of_it).count() >= self.most_waiting
    }
}

/// What failed to be read of a snapshot, as [`SnapshotsAway`](ErrorCode::SnapshotsAway): its place is away or refuses, which says nothing
/// against the snapshot, nor against the job. Any other error stays what it is.
pub fn waited_for(error: Error) -> Error {
    if error.code() != ErrorCode::ReadFailed {
        return error;
    }
    let what = "what the job remembers can't be read at the moment";
    let next = error
        .what_next()
        .unwrap_or("see to where its snapshots are kept");
    let hint = format!("{next}; the job goes on by itself when they can be read");
    Error::new(ErrorCode::SnapshotsAway, what)
        .because(error.without_hint())
        .hint(hint)
}

impl StateReading {
    /// Of this snapshot, with so many threads. `here` says how many instances of each vertex are in this process, which share the
    /// threads; where it doesn't, all of them are. `when_read` is called when all that have been opened by the time of
    /// [`all_are_open`](Self::all_are_open) have all; from then on the snapshot is not held any more.
    ///
    /// # Errors
    /// `LimitReached` if the system refuses a thread.
    pub fn start(
        snapshot: Snapshot,
        threads: usize,
        here: BTreeMap<String, u32>,
        when_read: impl Fn() + Send + Sync + 'static,
    ) -> Result<Arc<Self>> {
        let epoch = snapshot.id().epoch;
        let state = PoolState {
            snapshot: Some(snapshot.read_in_pieces()),
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
                    // Records flow while partitions are read.
                    stand_back();
                    work.work();
                });
            if let Err(error) = spawned {
                pool.end();
                return Err(
                    Error::new(ErrorCode::LimitReached, "no thread to read snapshots")
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

    /// No further instance will be opened.
    pub fn all_are_open(&self) {
        self.pool.lock().is_complete = true;
        self.pool.look_for_the_end();
    }
}

/// In how many parts the state of each of so many instances is read, so that all threads have something to do.
fn share(threads: u32, instances: u32) -> u32 {
    threads.div_ceil(instances.max(1))
}

impl Drop for StateReading {
    fn drop(&mut self) {
        self.pool.end();
    }
}

impl CutSource for StateReading {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn open(&self, of: &InstanceName) -> Result<Box<dyn CutReader>> {
        let here = self.here.get(&*of.vertex).copied();
        let mut pool = self.pool.lock();
        let Some(snapshot) = &pool.snapshot else {
            let what = "state is asked for behind the end of reading it";
            return Err(Error::new(ErrorCode::Internal, what));
        };
        let shelf = Shelf {
            of: Subject::new(snapshot, &of.vertex, of.instance),
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

/// Reads the state of one instance.
struct Reader {
    shelf: Arc<Shelf>,
    pool: Arc<Pool>,
    threads: usize,
    /// Partitions of which all has been taken.
    back: VecDeque<PartitionId>,
    has_begun: bool,
    has_ended: bool,
}

impl CutReader for Reader {
    fn read(&mut self, into: &mut StateChunk, waker: &Waker) -> Result<CutRead> {
        if !self.has_begun {
            let parts = self.shelf.of.whole(self.shelf.share);
            self.begin(parts, None);
        }
        if let Some(partition) = self.back.pop_front() {
            return Ok(CutRead::Partition(partition));
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
                return Ok(CutRead::Entries);
            }
            Some(Read::Base) => return Ok(CutRead::Base),
            Some(Read::Partitions(range)) => {
                drop(shelf);
                self.back.extend(partitions(range));
                return self.read(into, waker);
            }
            None => {}
        }
        if shelf.open > 0 {
            shelf.waker = Some(waker.clone());
            return Ok(CutRead::NotYet);
        }
        drop(shelf);
        self.end();
        Ok(CutRead::End)
    }

    fn entries_by_partition(&self) -> Option<u64> {
        let of = &self.shelf.of;
        let entries = of.snapshot.extent(&of.vertex, of.own).entries;
        Some(entries).filter(|entries| *entries > 0)
    }

    fn go_by_partition(&mut self) {
        let of = &self.shelf.of;
        let extent = of.snapshot.extent(&of.vertex, of.own);
        let (base, plan) = (of.base(), Plan::new(of.own, extent));
        self.begin(vec![base], Some(plan));
    }

    fn hurry(&mut self, partitions: &[PartitionId]) {
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
            self.pool.look_for_the_end();
        }
    }
}

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, ShelfState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, error: Error) {
        let mut shelf = self.lock();
        shelf.failed.get_or_insert(error);
        shelf.parked.clear();
        wake(shelf);
    }

    /// The partitions that are next; none if all have been begun.
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

    /// Reads one chunk of a part; what is to be done next, if that can be done at once.
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
                self.fail(waited_for(error));
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
            Brings::Nothing => {
                state.open -= 1;
                Vec::new()
            }
            Brings::Base => {
                state.full.push_back((part.number, Read::Base));
                state.open += self.share as usize - 1;
                (0..self.share).map(|_| Work::Next).collect()
            }
            Brings::Partitions(range) => {
                let read = Read::Partitions(range);
                state.full.push_back((part.number, read));
                vec![Work::Next]
            }
        };
        wake(state);
        next
    }
}

/// Wakes the instance, if it waits.
fn wake(mut shelf: MutexGuard<'_, ShelfState>) {
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
        state.snapshot = None;
        drop(state);
        self.changed.notify_all();
    }

    fn look_for_the_end(&self) {
        let mut state = self.lock();
        if state.is_complete && state.unread == 0 && !state.is_over {
            state.is_over = true;
            state.snapshot = None;
            drop(state);
            self.changed.notify_all();
            (self.when_read)();
        }
    }

    fn go_on(&self, shelf: &Arc<Shelf>, works: impl Iterator<Item = Work>) {
        let mut works = works.map(|work| (Arc::clone(shelf), work)).peekable();
        if works.peek().is_none() {
            return;
        }
        self.lock().ready.extend(works);
        self.changed.notify_all();
    }

    fn next(&self) -> Option<(Arc<Shelf>, Work)> {
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
        // One of eight instances is here, all of eight are, or none.
        assert_eq!([1, 8, 0].map(|here| share(4, here)), [4, 1, 4]);
        assert_eq!(share(4, 3) * 3, 6);
    }
}
