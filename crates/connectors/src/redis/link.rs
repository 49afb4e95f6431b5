//! What is to be sent to a server, handed over to the thread that does.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Waker};

use crate::redis::checks::Promise;
use crate::redis::commands::Commands;
use crate::redis::connected::Connector;
use crate::redis::place::Address;
use crate::redis::talker::Talker;
use crate::redis::transactions::Transaction;

/// With so many bytes waiting, whoever brings more has to wait.
const FULL: usize = 256 << 10;

/// A command that the server refused.
pub(crate) struct Refused {
    /// The record's position.
    pub record: u64,
    pub reason: String,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) waiting: Commands,
    pub(crate) transactions: VecDeque<Transaction>,
    /// A connection is to be made, and the server to be checked.
    pub(crate) wants_connection: bool,
    /// The instance goes on from a snapshot.
    pub(crate) is_restored: bool,
    /// The thread is sending, or waiting for answers.
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

/// Where the thread and who has work for it meet.
pub(crate) struct Desk {
    state: Mutex<State>,
    pub(crate) changed: Condvar,
    /// Of the instance: it hears when transactions have been carried out.
    pub(crate) waker: Waker,
}

impl Desk {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, at most `timeout`.
    pub(crate) fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        timeout: Duration,
    ) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, timeout);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A connection to a server, on a thread of its own, until this is dropped.
pub(crate) struct Link {
    desk: Arc<Desk>,
}

impl Link {
    /// Starts the thread, for an instance that is woken by `waker`.
    ///
    /// # Errors
    /// Those of the address; `LimitReached` if there is no thread.
    pub fn open(address: &Address, promise: Promise, waker: Waker) -> Result<Link> {
        let connector = Connector::new(address.server()?, promise);
        let desk = Arc::new(Desk {
            state: Mutex::default(),
            changed: Condvar::new(),
            waker,
        });
        let talker = Talker::new(connector, Arc::clone(&desk));
        std::thread::Builder::new()
            .name("redis-writer".to_string())
            .spawn(move || talker.run())
            .map_err(|error| {
                Error::new(ErrorCode::LimitReached, "no thread could be started").because(error)
            })?;
        Ok(Link { desk })
    }

    /// Whether more may be brought; waited for, at most `timeout`.
    pub fn has_room(&self, timeout: Duration) -> Result<bool> {
        let mut state = self.desk.lock();
        if state.waiting.len() >= FULL && state.failed.is_none() {
            state = self.desk.wait(state, timeout);
        }
        match state.failed.take() {
            Some(error) => Err(error),
            None => Ok(state.waiting.len() < FULL),
        }
    }

    /// Has a connection made before anything is sent.
    pub fn connect(&self) {
        self.desk.lock().wants_connection = true;
        self.desk.changed.notify_all();
    }

    /// Notes that the instance goes on from a snapshot.
    pub fn note_restored(&self) {
        self.desk.lock().is_restored = true;
    }

    /// Brings commands, to be sent behind those that wait.
    pub fn bring(&self, commands: &mut Commands) {
        self.desk.lock().waiting.take_from(commands);
        self.desk.changed.notify_all();
    }

    /// Brings commands that are to be carried out together, behind those before.
    pub fn carry_out(&self, transaction: Transaction) {
        self.desk.lock().transactions.push_back(transaction);
        self.desk.changed.notify_all();
    }

    /// Whether all commands have been answered; waited for, at most `timeout`.
    pub fn is_done(&self, timeout: Duration) -> Result<bool> {
        let mut state = self.desk.lock();
        if !state.is_done() && state.failed.is_none() {
            state = self.desk.wait(state, timeout);
        }
        match state.failed.take() {
            Some(error) => Err(error),
            None => Ok(state.is_done()),
        }
    }

    /// What has been refused since the last call.
    pub fn take_refused(&self) -> Vec<Refused> {
        std::mem::take(&mut self.desk.lock().refused)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.desk.lock().is_over = true;
        self.desk.changed.notify_all();
    }
}
