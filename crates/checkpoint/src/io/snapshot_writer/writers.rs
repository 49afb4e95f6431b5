//! The threads that write snapshots.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::lower_priority;

use super::instance_writer::InstanceWriter;
use super::lock;

/// A pool of threads that write snapshots, shared by all attempts of a job. Clones share the
/// threads, which end when the last clone is dropped.
#[derive(Clone)]
pub struct Writers {
    queue: Arc<Queue>,
    /// The threads, which are ended when the last clone is dropped.
    _threads: Arc<Threads>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Arc<InstanceWriter>>,
    is_over: bool,
}

struct Threads {
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Writers {
    /// Starts the threads, at least one.
    ///
    /// # Errors
    /// `LimitReached` if the system refuses a thread.
    pub fn start(threads: usize) -> Result<Self> {
        let queue = Arc::<Queue>::default();
        let owner = Threads {
            queue: Arc::clone(&queue),
            threads: Mutex::default(),
        };
        for number in 0..threads.max(1) {
            let queue = Arc::clone(&queue);
            let thread = thread::Builder::new()
                .name(format!("ardea-snapshots-{number}"))
                .spawn(move || {
                    lower_priority();
                    queue.work();
                })
                .map_err(|error| {
                    Error::new(ErrorCode::LimitReached, "no thread to write checkpoints")
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

    /// Schedules an instance writer on a thread.
    pub(super) fn wake(&self, desk: Arc<InstanceWriter>) {
        lock(&self.queue.state).ready.push_back(desk);
        self.queue.changed.notify_one();
    }
}

impl Queue {
    fn work(&self) {
        while let Some(desk) = self.next() {
            if desk.work() {
                // At the end of the queue: instances are served round-robin.
                lock(&self.state).ready.push_back(desk);
            }
        }
    }

    fn next(&self) -> Option<Arc<InstanceWriter>> {
        let mut state = lock(&self.state);
        loop {
            if state.is_over {
                return None;
            }
            if let Some(desk) = state.ready.pop_front() {
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
            // The last owner of the queued writers may be one of these threads.
            if thread.thread().id() != thread::current().id() {
                // A panicked thread has already reported it.
                drop(thread.join());
            }
        }
    }
}
