//! Connection worker: a thread that sends queued commands, reads the responses and reconnects.

use std::io::Write;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ardea_core::{Error, ErrorCode};
use redis::RedisError;
use redis::cluster_routing::Slot;

use crate::redis::answers::is_final;
use crate::redis::attempt::{Attempt, LeftOut, attempt, has_been};
use crate::redis::batch::Batch;
use crate::redis::connected::{Connected, Connector, Failure};
use crate::redis::keys::first_key;
use crate::redis::nodes::NodeName;
use crate::redis::sentinels::Confirmation;
use crate::redis::transactions::Transaction;
use crate::redis::worker_handle::{Refused, WorkerQueue};

/// Reconnect delay.
const AGAIN: Duration = Duration::from_millis(200);

/// Warning about an executed transaction whose response was lost.
const RESPONSE_LOST: &str =
    "the response to a transaction was lost; refused commands in it are in no dead letter";

/// Current work of the worker, repeated until its outcome is known.
#[derive(Default)]
struct Work {
    /// True if only a connection is requested.
    is_connecting: bool,
    batch: Batch,
    transaction: Option<Transaction>,
    left_out: LeftOut,
    /// Commands of the transaction refused during execution.
    refused: Vec<Refused>,
    /// True if the transaction was sent and its response is missing.
    lacks_answer: bool,
    /// Primary named by the sentinels when commands were last sent.
    primary: Option<NodeName>,
}

impl Work {
    fn is_nothing(&self) -> bool {
        !self.is_connecting && self.batch.commands.is_empty() && self.transaction.is_none()
    }

    fn clear(&mut self) {
        self.is_connecting = false;
        self.batch.clear();
        self.transaction = None;
        self.left_out.clear();
        self.refused.clear();
        self.lacks_answer = false;
    }

    fn take_refused(&mut self) -> Vec<Refused> {
        let mut refused = std::mem::take(&mut self.refused);
        refused.extend(std::mem::take(&mut self.left_out).into_values());
        refused.append(&mut self.batch.refused);
        refused
    }

    /// Sets the primary to which commands are sent. If it has changed, discards the responses of
    /// the previous server.
    fn note_primary(&mut self, primary: Option<NodeName>) {
        if self.primary != primary {
            self.primary = primary;
            self.batch.forget_answers();
        }
    }
}

/// State of the connection worker, which runs until its queue is closed.
pub(crate) struct ConnectionWorker {
    connector: Connector,
    desk: Arc<WorkerQueue>,
    connected: Option<Connected>,
    is_away: bool,
}

impl ConnectionWorker {
    pub(crate) fn new(connector: Connector, desk: Arc<WorkerQueue>) -> Self {
        ConnectionWorker {
            connector,
            desk,
            connected: None,
            is_away: false,
        }
    }

    pub(crate) fn run(mut self) {
        let mut work = Work::default();
        while self.get(&mut work) {
            match self.go_on(&mut work) {
                Ok(()) => {
                    self.note_there();
                    self.put(&mut work);
                }
                Err(Failure::Final(error)) => return self.fail(error),
                Err(Failure::Away(error)) if is_final(&error) => {
                    let what = format!(
                        "the Redis server {} refuses the login",
                        self.connector.name()
                    );
                    let error = Error::new(ErrorCode::Network, what)
                        .because(error)
                        .permanent()
                        .hint("check the user, the password and the certificates of the address");
                    return self.fail(error);
                }
                Err(Failure::Away(error)) => self.rest(&error),
            }
        }
    }

    fn fail(&self, error: Error) {
        self.desk.lock().failed = Some(error);
        self.desk.changed.notify_all();
        self.desk.waker.wake();
    }

    /// Takes queued work if `work` is empty, and waits for it; returns false on shutdown.
    fn get(&self, work: &mut Work) -> bool {
        let mut state = self.desk.lock();
        while work.is_nothing() && !state.is_over {
            work.is_connecting = std::mem::take(&mut state.wants_connection);
            if !work.is_connecting {
                work.transaction = state.transactions.pop_front();
            }
            if !work.is_connecting && work.transaction.is_none() {
                std::mem::swap(&mut work.batch.commands, &mut state.waiting);
            }
            state.is_busy = !work.is_nothing();
            if !state.is_busy {
                let changed = &self.desk.changed;
                state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        let is_over = state.is_over;
        // Wakes threads that wait for space.
        self.desk.changed.notify_all();
        !is_over
    }

    /// Completes the current work.
    fn put(&self, work: &mut Work) {
        let was_transaction = work.transaction.is_some();
        let refused = work.take_refused();
        work.clear();
        let mut state = self.desk.lock();
        state.refused.extend(refused);
        state.is_busy = false;
        let wakes = was_transaction && state.transactions.is_empty();
        drop(state);
        self.desk.changed.notify_all();
        if wakes {
            self.desk.waker.wake();
        }
    }

    /// Executes the current work.
    fn go_on(&mut self, work: &mut Work) -> Result<(), Failure> {
        let connected = match &mut self.connected {
            Some(connected) => connected,
            none => {
                let is_restored = self.desk.lock().is_restored;
                let (connected, warnings) = self.connector.connect(is_restored)?;
                for warning in warnings {
                    say(self.connector.name(), &warning);
                }
                work.note_primary(self.connector.primary());
                none.insert(connected)
            }
        };
        if work.is_connecting {
            return Ok(());
        }
        match connected {
            _ if work.transaction.is_some() => {
                transact(connected, work)?;
                if std::mem::take(&mut work.lacks_answer) {
                    say(self.connector.name(), RESPONSE_LOST);
                }
            }
            Connected::One(connection) => work.batch.send(connection)?,
            Connected::Cluster(nodes) => work.batch.send_to_nodes(nodes)?,
        }
        loop {
            match self.connector.confirm(connected)? {
                Confirmation::Pending if !self.desk.lock().is_over => {}
                Confirmation::Pending | Confirmation::Confirmed => return Ok(()),
                Confirmation::Missing(count) => {
                    let what = format!("{count} of its replicas do not acknowledge commands");
                    say(self.connector.name(), &what);
                    return Ok(());
                }
            }
        }
    }

    fn note_there(&mut self) {
        if self.is_away {
            self.is_away = false;
            say(self.connector.name(), "it answers again");
        }
    }

    /// Drops the connection and waits before the next attempt.
    fn rest(&mut self, error: &RedisError) {
        self.connected = None;
        self.connector.note(error);
        if !self.is_away {
            self.is_away = true;
            let what = format!("it is unavailable ({error}); waiting until it answers");
            say(self.connector.name(), &what);
        }
        let state = self.desk.lock();
        if !state.is_over {
            drop(self.desk.wait(state, AGAIN));
        }
    }
}

/// Executes a transaction, unless its marker shows that it has been executed. After an error the
/// outcome is unknown, and the transaction is retried.
fn transact(connected: &mut Connected, work: &mut Work) -> Result<(), RedisError> {
    let Some(transaction) = &work.transaction else {
        return Ok(());
    };
    if let (Connected::Cluster(_), true) = (&*connected, work.left_out.is_empty()) {
        work.left_out = strangers(transaction);
    }
    let connection = connected.of_key(&transaction.marker)?;
    while !has_been(connection, transaction)? {
        work.lacks_answer = true;
        let attempted = attempt(connection, transaction, &work.left_out)?;
        work.lacks_answer = false;
        match attempted {
            Attempt::CarriedOut(on_the_way) => {
                work.refused = on_the_way;
                break;
            }
            Attempt::Overtaken => {}
            Attempt::NotTaken(more) => work.left_out.extend(more),
        }
    }
    Ok(())
}

/// Returns the commands whose key is in another cluster slot than the marker, as refused.
fn strangers(transaction: &Transaction) -> LeftOut {
    let own = Slot::for_key(&transaction.marker);
    let parts = transaction.parts.iter();
    let commands = parts.flat_map(|part| part.each().zip(part.records().iter().copied()));
    let mut strangers = LeftOut::new();
    for (number, (command, record)) in commands.enumerate() {
        if let Some(key) = first_key(command)
            && Slot::for_key(key) != own
        {
            let key = String::from_utf8_lossy(key);
            let reason = format!("the key {key} does not have the hash tag of the sink");
            strangers.insert(number, Refused { record, reason });
        }
    }
    strangers
}

fn say(server: &str, what: &str) {
    // A closed standard error cannot be reported anywhere.
    let _ = writeln!(std::io::stderr().lock(), "ardea: redis {server}: {what}");
}
