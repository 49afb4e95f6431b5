//! The threads that write cuts.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::stand_back;

use super::desk::Desk;
use super::lock;

/// The threads that write cuts, for all lives of a job. Clones are the same threads, which end with the last one.
#[derive(Clone)]
pub struct Writers {
    queue: Arc<Queue>,
    /// Ends the threads when the last clone goes.
    _threads: Arc<Threads>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    desks: VecDeque<Arc<Desk>>,
    is_over: bool,
}

struct Threads {
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Writers {
    /// So many threads, at least one.
    ///
    /// # Errors
    /// `LimitReached` if the system refuses one.
    pub fn start(threads: usize) -> Result<Self> {
        let queue = Arc::<Queue>::default();
        let owner = Threads {
            queue: Arc::clone(&queue),
            threads: Mutex::default(),
        };
        for number in 0..threads.max(1) {
            let queue = Arc::clone(&queue);
            let thread = thread::Builder::new()
                .name(format!("ardea-cuts-{number}"))
                .spawn(move || {
                    stand_back();
                    queue.work();
                })
                .map_err(|error| {
                    Error::new(ErrorCode::LimitReached, "no thread to write snapshots")
                        .because(error)
                        .hint("raise the limit of threads (ulimit -u)")
                })?;
            lock(&owner.threads).push(thread);
        }
        Ok(Writers {
            queue,
            _threads: Arc::new(owner),
        })
    }

    /// Has somebody work at this desk.
    pub(super) fn wake(&self, desk: Arc<Desk>) {
        lock(&self.queue.state).desks.push_back(desk);
        self.queue.changed.notify_one();
    }
}

impl Queue {
    fn work(&self) {
        while let Some(desk) = self.next() {
            if desk.work() {
                // Others first.
                lock(&self.state).desks.push_back(desk);
            }
        }
    }

    fn next(&self) -> Option<Arc<Desk>> {
        let mut state = lock(&self.state);
        loop {
            if state.is_over {
                return None;
            }
            if let Some(desk) = state.desks.pop_front() {
                return Some(desk);
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        lock(&self.queue.state).is_over = true;
        self.queue.changed.notify_all();
        for thread in lock(&self.threads).drain(..) {
            // The last one to hold the job's desks may be one of these threads.
            if thread.thread().id() != thread::current().id() {
                // One that panicked has said so.
                drop(thread.join());
            }
        }
    }
}
