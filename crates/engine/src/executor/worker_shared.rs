//! The state of a worker thread that other threads see, and the handles that wake its tasklets.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;

use ardea_core::{Error, ErrorCode, Result};

use crate::executor::parker::ThreadNotifier;
use crate::executor::ready::MAX_TASKLETS;
use crate::tasklet::Tasklet;

/// The state of a worker thread that other threads see.
pub(crate) struct WorkerShared {
    pub(super) notifier: ThreadNotifier,
    pub(super) thread: OnceLock<Thread>,
    pub(super) arrivals: Mutex<Vec<(u32, Box<Tasklet>)>>,
    pub(super) has_arrivals: AtomicBool,
    slots: Mutex<Slots>,
    /// Requests the end of the thread when its tasklets have finished; a dedicated thread also ends
    /// with its only tasklet.
    pub(super) stop: AtomicBool,
}

/// The allocation of tasklet numbers.
#[derive(Debug, Default)]
struct Slots {
    free: Vec<u32>,
    next: u32,
    limit: u32,
}

impl WorkerShared {
    /// Creates a worker for up to `tasklets` tasklets.
    pub(crate) fn new(tasklets: usize) -> Arc<Self> {
        let tasklets = tasklets.min(MAX_TASKLETS);
        Arc::new(WorkerShared {
            notifier: ThreadNotifier::new(tasklets),
            thread: OnceLock::new(),
            arrivals: Mutex::default(),
            has_arrivals: AtomicBool::new(false),
            slots: Mutex::new(Slots {
                limit: tasklets as u32,
                ..Slots::default()
            }),
            stop: AtomicBool::new(false),
        })
    }

    /// Reserves a number for a new tasklet.
    pub(crate) fn reserve(self: &Arc<Self>) -> Result<TaskletWaker> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match slots.free.pop() {
            Some(number) => number,
            None if slots.next < slots.limit => {
                slots.next += 1;
                slots.next - 1
            }
            None => {
                return Err(Error::new(
                    ErrorCode::LimitReached,
                    format!("a thread holds {} tasklets already", slots.limit),
                )
                .hint("run fewer jobs on this node, or lower their parallelism"));
            }
        };
        Ok(TaskletWaker(Some((Arc::clone(self), number))))
    }

    /// Releases a number.
    pub(crate) fn release(&self, number: u32) {
        self.slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .free
            .push(number);
    }

    /// Passes a tasklet to the thread, which starts it at once.
    pub(crate) fn admit(&self, number: u32, tasklet: Box<Tasklet>) {
        self.arrivals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((number, tasklet));
        self.has_arrivals.store(true, Ordering::SeqCst);
        self.wake(number);
    }

    /// Requests that the thread ends when its tasklets have finished.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.unpark();
    }

    /// Returns the number of tasklets on the thread.
    pub(crate) fn load(&self) -> usize {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.next as usize - slots.free.len()
    }

    /// Takes the ready tasklets; for tests without a worker thread.
    #[cfg(all(test, loom))]
    pub(crate) fn take_ready(&self, taken: &mut Vec<u32>) {
        self.notifier.take(taken);
    }

    fn wake(&self, number: u32) {
        if self.notifier.notify(number) {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// A handle that wakes one tasklet, from any thread.
#[derive(Clone)]
pub(crate) struct TaskletWaker(Option<(Arc<WorkerShared>, u32)>);

impl TaskletWaker {
    /// Creates a waker without effect, for tests.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn none() -> Self {
        TaskletWaker(None)
    }

    #[inline]
    pub(crate) fn wake(&self) {
        if let Some((worker, number)) = &self.0 {
            worker.wake(*number);
        }
    }

    /// Wakes the tasklet for data, which may wait while the tasklet gathers records.
    #[inline]
    pub(crate) fn wake_for_data(&self) {
        if let Some((worker, number)) = &self.0
            && worker.notifier.notify_data(*number)
        {
            worker.unpark();
        }
    }

    /// Wakes the tasklet if it gathers records. One that begins to gather at the same time may not
    /// be woken, and then continues at its deadline.
    #[inline]
    pub(crate) fn end_gathering(&self) {
        if let Some((worker, number)) = &self.0
            && worker.notifier.is_deferred(*number)
        {
            worker.wake(*number);
        }
    }

    pub(crate) fn admit(&self, tasklet: Box<Tasklet>) {
        if let Some((worker, number)) = &self.0 {
            worker.admit(*number, tasklet);
        }
    }

    pub(crate) fn release(&self) {
        if let Some((worker, number)) = &self.0 {
            worker.release(*number);
        }
    }
}

impl fmt::Debug for TaskletWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "TaskletWaker({:?})",
            self.0.as_ref().map(|(_, number)| number)
        )
    }
}
