//! Gives instances back what they remembered: reads and unpacks on threads of its own, several parts of each vertex at a time.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use ardea_core::{Epoch, Error, ErrorCode, Instance, Result, StateChunk, StateEntry, Waker};
use ardea_engine::{CutRead, CutReader, CutSource, InstanceName};
use ardea_snapshot::{Entries, PartitionRange, Place, Snapshot};

/// How many bytes a chunk has, about, when it is handed over.
const CHUNK_BYTES: usize = 64 << 10;
/// How many chunks wait for an instance at most, for each part that is read at the same time.
const MOST_WAITING: usize = 4;

/// The state of a job at the end of one epoch, for a life that begins with it.
pub struct StateReading {
    snapshot: Snapshot,
    pool: Arc<Pool>,
    /// How many threads read.
    threads: u32,
    /// How many instances of each vertex are in this process.
    here: BTreeMap<String, u32>,
}

/// Parts that can be read on, and the threads that do so; the threads end when there is nothing left to read and nobody can ask for more.
struct Pool {
    state: Mutex<PoolState>,
    changed: Condvar,
    /// Called once, when all instances have all.
    when_read: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct PoolState {
    ready: VecDeque<(Arc<Shelf>, Part)>,
    is_over: bool,
    /// Readers that have not come to their end, and whether more may be opened.
    unread: usize,
    is_complete: bool,
}

/// A part of an instance's state that is being read.
struct Part {
    state: String,
    entries: Entries,
}

/// What was read for one instance, and not taken yet.
struct Shelf {
    state: Mutex<ShelfState>,
}

#[derive(Default)]
struct ShelfState {
    full: VecDeque<StateChunk>,
    empty: Vec<StateChunk>,
    /// Parts that wait for room.
    parked: Vec<Part>,
    /// Parts that are not at their end, parked or not.
    open: usize,
    most_waiting: usize,
    failed: Option<Error>,
    waker: Option<Waker>,
}

/// What failed to be read of a snapshot, as [`SnapshotsAway`](ErrorCode::SnapshotsAway): its place is away or refuses, which says nothing
/// against the snapshot, nor against the job. Any other error stays what it is.
pub fn waited_for(error: Error) -> Error {
    if error.code() != ErrorCode::ReadFailed {
        return error;
    }
    let what = "what the job remembers can't be read at the moment";
    Error::new(ErrorCode::SnapshotsAway, what)
        .because(error.without_hint())
        .hint(
            "see to where its snapshots are kept; the job goes on by itself when they can be read",
        )
}

impl StateReading {
    /// Of this snapshot, with so many threads. `here` says how many instances of each vertex are in this process, which share the
    /// threads; where it doesn't, all of them are. `when_read` is called when all that have been opened by the time of
    /// [`all_are_open`](Self::all_are_open) have all.
    ///
    /// # Errors
    /// `LimitReached` if the system refuses a thread.
    pub fn start(
        snapshot: Snapshot,
        threads: usize,
        here: BTreeMap<String, u32>,
        when_read: impl Fn() + Send + Sync + 'static,
    ) -> Result<Arc<Self>> {
        let pool = Arc::new(Pool {
            state: Mutex::default(),
            changed: Condvar::new(),
            when_read: Box::new(when_read),
        });
        for number in 0..threads.max(1) {
            let work = Arc::clone(&pool);
            let spawned = thread::Builder::new()
                .name(format!("ardea-restore-{number}"))
                .spawn(move || work.work());
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
            snapshot,
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

    fn parts(&self, vertex: &str, instance: Instance) -> Vec<Part> {
        let own = PartitionRange::of_instance(instance.index, instance.parallelism);
        let here = self.here.get(vertex).copied();
        let ranges = own.split(share(self.threads, here.unwrap_or(instance.parallelism)));
        let mut parts = Vec::new();
        for state in self.snapshot.states(vertex) {
            let mut add = |entries| {
                let state = state.to_string();
                parts.push(Part { state, entries });
            };
            add(self.snapshot.unpartitioned(vertex, state));
            for range in &ranges {
                add(self.snapshot.entries(vertex, state, *range));
            }
        }
        parts
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
        self.snapshot.id().epoch
    }

    fn open(&self, of: &InstanceName) -> Result<Box<dyn CutReader>> {
        let parts = self.parts(&of.vertex, of.instance);
        let state = ShelfState {
            open: parts.len(),
            most_waiting: MOST_WAITING * parts.len().min(self.threads as usize).max(1),
            ..ShelfState::default()
        };
        let shelf = Arc::new(Shelf {
            state: Mutex::new(state),
        });
        let mut pool = self.pool.lock();
        pool.unread += 1;
        let parts = parts.into_iter();
        pool.ready
            .extend(parts.map(|part| (Arc::clone(&shelf), part)));
        drop(pool);
        self.pool.changed.notify_all();
        Ok(Box::new(Reader {
            shelf,
            pool: Arc::clone(&self.pool),
            has_ended: false,
        }))
    }
}

/// Reads the state of one instance.
struct Reader {
    shelf: Arc<Shelf>,
    pool: Arc<Pool>,
    has_ended: bool,
}

impl CutReader for Reader {
    fn read(&mut self, into: &mut StateChunk, waker: &Waker) -> Result<CutRead> {
        let mut shelf = self.shelf.lock();
        if let Some(error) = &shelf.failed {
            return Err(error.clone());
        }
        if let Some(chunk) = shelf.full.pop_front() {
            shelf.empty.push(mem::replace(into, chunk));
            let parked = mem::take(&mut shelf.parked);
            drop(shelf);
            self.pool.go_on(&self.shelf, parked);
            return Ok(CutRead::Entries);
        }
        if shelf.open > 0 {
            shelf.waker = Some(waker.clone());
            return Ok(CutRead::NotYet);
        }
        drop(shelf);
        self.end();
        Ok(CutRead::End)
    }
}

impl Reader {
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
        drop(state);
        self.changed.notify_all();
    }

    fn look_for_the_end(&self) {
        let mut state = self.lock();
        if state.is_complete && state.unread == 0 && !state.is_over {
            state.is_over = true;
            drop(state);
            self.changed.notify_all();
            (self.when_read)();
        }
    }

    fn go_on(&self, shelf: &Arc<Shelf>, parts: Vec<Part>) {
        if parts.is_empty() {
            return;
        }
        let mut state = self.lock();
        let parts = parts.into_iter();
        state
            .ready
            .extend(parts.map(|part| (Arc::clone(shelf), part)));
        drop(state);
        self.changed.notify_all();
    }

    fn next(&self) -> Option<(Arc<Shelf>, Part)> {
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
        while let Some((shelf, part)) = self.next() {
            if let Some(part) = step(&shelf, part) {
                self.go_on(&shelf, vec![part]);
            }
        }
    }
}

/// Reads one chunk of a part; the part, if it can be read on at once.
fn step(shelf: &Shelf, mut part: Part) -> Option<Part> {
    let mut chunk = {
        let mut state = shelf.lock();
        if state.failed.is_some() {
            return None;
        }
        if state.full.len() >= state.most_waiting {
            state.parked.push(part);
            return None;
        }
        state.empty.pop().unwrap_or_default()
    };
    chunk.clear();
    let has_more = match fill(&mut chunk, &mut part) {
        Ok(has_more) => has_more,
        Err(error) => {
            shelf.fail(waited_for(error));
            return None;
        }
    };
    let mut state = shelf.lock();
    match chunk.is_empty() {
        true => state.empty.push(chunk),
        false => state.full.push_back(chunk),
    }
    state.open -= usize::from(!has_more);
    wake(state);
    has_more.then_some(part)
}

/// Puts the next entries of a part into a chunk; whether there are more.
fn fill(chunk: &mut StateChunk, part: &mut Part) -> Result<bool> {
    while chunk.byte_len() < CHUNK_BYTES {
        let Some(entry) = part.entries.next_entry()? else {
            return Ok(false);
        };
        let partition = match entry.place {
            Place::Partition(partition) => Some(partition),
            Place::Instance(_) => None,
        };
        chunk.push(StateEntry {
            state: &part.state,
            partition,
            key: entry.key,
            value: Some(entry.value),
        })?;
    }
    Ok(true)
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
