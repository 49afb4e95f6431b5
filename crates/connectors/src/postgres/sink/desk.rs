//! What is to be done on a server, handed over to the thread that does it.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result, Waker};

use super::Plan;
use super::fence::Fence;
use super::own_tables::OwnTables;
use super::staging::{Estate, Owner};
use super::writer::Writer;
use crate::postgres::rows::Rows;

/// With so many bytes waiting, whoever brings more has to wait.
const FULL: usize = 1 << 20;

/// A row that the server refused.
pub(crate) struct Refused {
    /// The record's position.
    pub record: i64,
    pub reason: String,
    /// Whether it was a record of an earlier life.
    pub is_earlier: bool,
}

/// Something to do besides writing rows. All can be done again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Errand {
    /// Takes over from a dead life.
    Settle(Estate),
    /// Begins a life.
    Begin,
    /// Connects, which checks what the server can give, and waits until what earlier lives have
    /// under way is over.
    Connect,
    /// Shows the rows before this record.
    Publish { through: i64 },
}

#[derive(Default)]
pub(crate) struct State {
    pub waiting: Rows,
    pub errands: VecDeque<Errand>,
    /// The thread is writing rows.
    pub is_writing: bool,
    /// The thread is on an errand.
    pub is_out: bool,
    pub refused: Vec<Refused>,
    /// The tables that the life uses; known once it has begun.
    pub tables: Option<OwnTables>,
    /// The instance goes on from a snapshot.
    pub is_restored: bool,
    /// The number of the run from whose state the instance goes on.
    pub run: Option<i64>,
    pub failed: Option<Error>,
    pub is_over: bool,
}

/// Where the thread and who has work for it meet.
pub(crate) struct Desk {
    state: Mutex<State>,
    pub changed: Condvar,
    /// Of the instance: it hears when an errand is done.
    pub waker: Waker,
}

impl Desk {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, at most `timeout`.
    pub fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        timeout: Duration,
    ) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, timeout);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits so long, unless all is over.
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

/// A thread that writes, until this is dropped.
pub(crate) struct Link {
    desk: Arc<Desk>,
}

impl Link {
    /// For an instance that is woken by `waker`. If rows wait for their epochs, `owner` says whose they are; if they take each other's place
    /// over several lives, `fence` keeps those apart.
    pub fn open(
        plan: &Plan,
        owner: Option<Owner>,
        fence: Option<Fence>,
        waker: Waker,
    ) -> Result<Link> {
        let desk = Arc::new(Desk {
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
        Ok(Link { desk })
    }

    /// Whether more may be brought; waited for, at most `timeout`.
    pub fn has_room(&self, timeout: Duration) -> Result<bool> {
        self.until(timeout, |state| state.waiting.byte_len() < FULL)
    }

    /// Brings rows, to be written behind those that wait.
    pub fn bring(&self, rows: &mut Rows) {
        self.desk.lock().waiting.take_from(rows);
        self.desk.changed.notify_all();
    }

    /// Brings an errand, to be done behind those before, and before the rows that wait.
    pub fn send(&self, errand: Errand) {
        self.desk.lock().errands.push_back(errand);
        self.desk.changed.notify_all();
    }

    /// Whether all rows have been written and all errands done; waited for, at most `timeout`.
    pub fn is_done(&self, timeout: Duration) -> Result<bool> {
        self.until(timeout, |state| {
            state.waiting.is_empty() && !state.is_writing && !state.has_errands()
        })
    }

    /// Whether all errands have been done; waited for, at most `timeout`.
    pub fn has_run_errands(&self, timeout: Duration) -> Result<bool> {
        self.until(timeout, |state| !state.has_errands())
    }

    fn until(&self, timeout: Duration, is_so: impl Fn(&State) -> bool) -> Result<bool> {
        let until = Instant::now() + timeout;
        let mut state = self.desk.lock();
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            let left = until.saturating_duration_since(Instant::now());
            if is_so(&state) || left.is_zero() {
                return Ok(is_so(&state));
            }
            state = self.desk.wait(state, left);
        }
    }

    /// Notes that the instance goes on from a snapshot, of this run.
    pub fn note_restored(&self, run: Option<i64>) {
        let mut state = self.desk.lock();
        (state.is_restored, state.run) = (true, run);
    }

    /// Returns the tables that the life uses; known once it has begun.
    pub fn tables(&self) -> Option<OwnTables> {
        self.desk.lock().tables
    }

    /// What has been refused since the last call.
    pub fn take_refused(&self) -> Vec<Refused> {
        std::mem::take(&mut self.desk.lock().refused)
    }
}

impl State {
    fn has_errands(&self) -> bool {
        !self.errands.is_empty() || self.is_out
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.desk.lock().is_over = true;
        self.desk.changed.notify_all();
    }
}
