//! Queue between the sink's processor and its connection worker.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Waker};

use crate::redis::checks::SinkGuarantee;
use crate::redis::commands::Commands;
use crate::redis::connected::Connector;
use crate::redis::connection_worker::ConnectionWorker;
use crate::redis::place::Address;
use crate::redis::transactions::Transaction;

/// Size of queued commands in bytes at which the sink waits.
const FULL: usize = 256 << 10;

/// A command refused by the server.
pub(crate) struct Refused {
    /// Position of the record.
    pub record: u64,
    pub reason: String,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) waiting: Commands,
    pub(crate) transactions: VecDeque<Transaction>,
    /// True if the worker is to open a connection and check the server.
    pub(crate) wants_connection: bool,
    /// True if the instance was restored from a checkpoint.
    pub(crate) is_restored: bool,
    /// True while the worker sends commands or waits for responses.
    pub(crate) is_busy: bool,
    pub(crate) refused: Vec<Refused>,
    pub(crate) failed: Option<Error>,
    pub(crate) is_over: bool,
}

impl State {
    fn is_done(&self) -> bool {
        self.waiting.is_empty()
            && self.transactions.is_empty()
            && !self.wants_connection
            && !self.is_busy
    }
}

/// Shared state of the connection worker and its handle.
pub(crate) struct WorkerQueue {
    state: Mutex<State>,
    pub(crate) changed: Condvar,
    /// Waker of the instance, called when transactions have been executed.
    pub(crate) waker: Waker,
}

impl WorkerQueue {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits up to `timeout` for a change.
    pub(crate) fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        timeout: Duration,
    ) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, timeout);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Handle of the connection worker, which runs until the handle is dropped.
pub(crate) struct WorkerHandle {
    queue: Arc<WorkerQueue>,
}

impl WorkerHandle {
    /// Starts the worker for an instance woken by `waker`.
    ///
    /// # Errors
    /// Errors of parsing the address; `LimitReached` if no thread can be started.
    pub fn open(address: &Address, promise: SinkGuarantee, waker: Waker) -> Result<WorkerHandle> {
        let connector = Connector::new(address.server()?, promise);
        let desk = Arc::new(WorkerQueue {
            state: Mutex::default(),
            changed: Condvar::new(),
            waker,
        });
        let talker = ConnectionWorker::new(connector, Arc::clone(&desk));
        std::thread::Builder::new()
            .name("redis-writer".to_string())
            .spawn(move || talker.run())
            .map_err(|error| {
                Error::new(ErrorCode::LimitReached, "no thread could be started").because(error)
            })?;
        Ok(WorkerHandle { queue: desk })
    }

    /// Waits up to `timeout` for space in the queue; returns true if the queue has space.
    pub fn has_room(&self, timeout: Duration) -> Result<bool> {
        let mut state = self.queue.lock();
        if state.waiting.len() >= FULL && state.failed.is_none() {
            state = self.queue.wait(state, timeout);
        }
        match state.failed.take() {
            Some(error) => Err(error),
            None => Ok(state.waiting.len() < FULL),
        }
    }

    /// Requests a connection before commands are sent.
    pub fn connect(&self) {
        self.queue.lock().wants_connection = true;
        self.queue.changed.notify_all();
    }

    /// Records that the instance was restored from a checkpoint.
    pub fn note_restored(&self) {
        self.queue.lock().is_restored = true;
    }

    /// Appends commands to the queue.
    pub fn enqueue(&self, commands: &mut Commands) {
        self.queue.lock().waiting.take_from(commands);
        self.queue.changed.notify_all();
    }

    /// Appends a transaction to the queue.
    pub fn execute(&self, transaction: Transaction) {
        self.queue.lock().transactions.push_back(transaction);
        self.queue.changed.notify_all();
    }

    /// Waits up to `timeout` for all responses; returns false on timeout.
    pub fn is_done(&self, timeout: Duration) -> Result<bool> {
        let mut state = self.queue.lock();
        if !state.is_done() && state.failed.is_none() {
            state = self.queue.wait(state, timeout);
        }
        match state.failed.take() {
            Some(error) => Err(error),
            None => Ok(state.is_done()),
        }
    }

    /// Returns the commands refused since the last call.
    pub fn take_refused(&self) -> Vec<Refused> {
        std::mem::take(&mut self.queue.lock().refused)
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.queue.lock().is_over = true;
        self.queue.changed.notify_all();
    }
}
