//! Queue between the sink's processor and its writer thread.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result, Waker};

use super::PostgresSinkConfig;
use super::fence::Fence;
use super::own_tables::OwnTables;
use super::staging::{Owner, PreviousAttempt};
use super::writer::Writer;
use crate::postgres::rows::Rows;

/// Size of queued rows in bytes at which the sink waits.
const FULL: usize = 1 << 20;

/// A row refused by the server.
pub(crate) struct Refused {
    /// Position of the record.
    pub record: i64,
    pub reason: String,
    /// True if the record belongs to an earlier attempt.
    pub is_earlier: bool,
}

/// An idempotent command to the writer thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum WriterCommand {
    /// Takeover from an earlier attempt.
    Settle(PreviousAttempt),
    /// Start of an attempt.
    Begin,
    /// Connection, check of the server, and fencing of earlier attempts.
    Connect,
    /// Publication of the rows of all records before `through`.
    Publish { through: i64 },
}

#[derive(Default)]
pub(crate) struct State {
    pub waiting: Rows,
    pub commands: VecDeque<WriterCommand>,
    /// True while the thread writes rows.
    pub is_writing: bool,
    /// True while the thread executes a command.
    pub is_out: bool,
    pub refused: Vec<Refused>,
    /// Tables of the attempt, once it has begun.
    pub tables: Option<OwnTables>,
    /// True if the instance was restored from a checkpoint.
    pub is_restored: bool,
    /// Number of the restored run.
    pub run: Option<i64>,
    pub failed: Option<Error>,
    pub is_over: bool,
}

/// Shared state of the writer thread and its handle.
pub(crate) struct WriterQueue {
    state: Mutex<State>,
    pub changed: Condvar,
    /// Waker of the instance, called when a command is done.
    pub waker: Waker,
}

impl WriterQueue {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits up to `timeout` for a change.
    pub fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        timeout: Duration,
    ) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, timeout);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits for `time`, or until shutdown.
    pub fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.lock();
        while !state.is_over {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.wait(state, left);
        }
    }
}

/// Handle of the writer thread, which runs until the handle is dropped.
pub(crate) struct WriterHandle {
    queue: Arc<WriterQueue>,
}

impl WriterHandle {
    /// Starts the writer thread for an instance woken by `waker`. `owner` is set if rows are staged
    /// until their epochs are committed; `fence` is set for upserts that must be ordered across
    /// attempts.
    pub fn open(
        plan: &PostgresSinkConfig,
        owner: Option<Owner>,
        fence: Option<Fence>,
        waker: Waker,
    ) -> Result<WriterHandle> {
        let desk = Arc::new(WriterQueue {
            state: Mutex::default(),
            changed: Condvar::new(),
            waker,
        });
        let writer = Writer::new(plan, owner, fence, Arc::clone(&desk))?;
        std::thread::Builder::new()
            .name("postgres-writer".to_string())
            .spawn(move || writer.run())
            .map_err(|error| {
                Error::new(ErrorCode::LimitReached, "no thread could be started").because(error)
            })?;
        Ok(WriterHandle { queue: desk })
    }

    /// Waits up to `timeout` for space in the queue; returns true if the queue has space.
    pub fn has_room(&self, timeout: Duration) -> Result<bool> {
        self.until(timeout, |state| state.waiting.byte_len() < FULL)
    }

    /// Appends rows to the queue.
    pub fn enqueue(&self, rows: &mut Rows) {
        self.queue.lock().waiting.take_from(rows);
        self.queue.changed.notify_all();
    }

    /// Sends a command, which is executed after earlier commands and before the queued rows.
    pub fn send(&self, errand: WriterCommand) {
        self.queue.lock().commands.push_back(errand);
        self.queue.changed.notify_all();
    }

    /// Waits up to `timeout` until all rows are written and all commands executed; returns false on
    /// timeout.
    pub fn is_done(&self, timeout: Duration) -> Result<bool> {
        self.until(timeout, |state| {
            state.waiting.is_empty() && !state.is_writing && !state.has_commands()
        })
    }

    /// Waits up to `timeout` until all commands are executed; returns false on timeout.
    pub fn has_run_commands(&self, timeout: Duration) -> Result<bool> {
        self.until(timeout, |state| !state.has_commands())
    }

    fn until(&self, timeout: Duration, is_so: impl Fn(&State) -> bool) -> Result<bool> {
        let until = Instant::now() + timeout;
        let mut state = self.queue.lock();
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            let left = until.saturating_duration_since(Instant::now());
            if is_so(&state) || left.is_zero() {
                return Ok(is_so(&state));
            }
            state = self.queue.wait(state, left);
        }
    }

    /// Records that the instance was restored from a checkpoint of this run.
    pub fn note_restored(&self, run: Option<i64>) {
        let mut state = self.queue.lock();
        (state.is_restored, state.run) = (true, run);
    }

    /// Returns the tables of the attempt, once it has begun.
    pub fn tables(&self) -> Option<OwnTables> {
        self.queue.lock().tables
    }

    /// Returns the rows refused since the last call.
    pub fn take_refused(&self) -> Vec<Refused> {
        std::mem::take(&mut self.queue.lock().refused)
    }
}

impl State {
    fn has_commands(&self) -> bool {
        !self.commands.is_empty() || self.is_out
    }
}

impl Drop for WriterHandle {
    fn drop(&mut self) {
        self.queue.lock().is_over = true;
        self.queue.changed.notify_all();
    }
}
