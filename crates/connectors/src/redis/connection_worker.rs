//! Connection worker: a thread that sends queued commands, reads the responses and reconnects.

use std::time::Duration;

use ardea_core::{Error, ErrorCode, OutageReporter, Result, Waker};
use redis::RedisError;
use redis::cluster_routing::Slot;

use crate::blocking_worker::WorkerContext;
use crate::redis::answers::is_final;
use crate::redis::attempt::{Attempt, LeftOut, attempt, has_been};
use crate::redis::batch::Batch;
use crate::redis::checks::SinkGuarantee;
use crate::redis::commands::Commands;
use crate::redis::connected::{Connected, Connector, Failure};
use crate::redis::keys::first_key;
use crate::redis::nodes::NodeName;
use crate::redis::place::Address;
use crate::redis::sentinels::Confirmation;
use crate::redis::transactions::Transaction;
use crate::sink_worker::{Refused, SinkQueue, SinkWorker};

/// Reconnect delay.
const AGAIN: Duration = Duration::from_millis(200);

/// Warning about an executed transaction whose response was lost.
const RESPONSE_LOST: &str =
    "the response to a transaction was lost; refused commands in it are in no dead letter";

/// Command to the worker.
pub(crate) enum WorkerCommand {
    /// Connection, and check of the server.
    Connect,
    Execute(Transaction),
}

/// ConnectionState reported to the worker.
#[derive(Default)]
pub(crate) struct ConnectionState {
    /// True if the instance was restored from a checkpoint.
    pub is_restored: bool,
}

/// Handle of the connection worker.
pub(crate) type RedisWorker = SinkWorker<Commands, WorkerCommand, ConnectionState>;

/// Current work of the worker, repeated until its outcome is known.
#[derive(Default)]
struct Work {
    command: Option<WorkerCommand>,
    batch: Batch,
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
        self.command.is_none() && self.batch.commands.is_empty()
    }

    fn clear(&mut self) {
        self.command = None;
        self.batch.clear();
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
    queue: WorkerContext<SinkQueue<Commands, WorkerCommand, ConnectionState>>,
    connected: Option<Connected>,
    outage: OutageReporter,
}

impl ConnectionWorker {
    /// Starts the worker for an instance woken by `waker`.
    ///
    /// # Errors
    /// Errors of parsing the address; `LimitReached` if no thread can be started.
    pub fn start(address: &Address, promise: SinkGuarantee, waker: Waker) -> Result<RedisWorker> {
        let connector = Connector::new(address.server()?, promise);
        RedisWorker::start("redis-writer", waker, SinkQueue::default(), |queue| {
            let worker = ConnectionWorker {
                outage: OutageReporter::new(format!("redis {}", connector.name())),
                connector,
                queue,
                connected: None,
            };
            worker.run();
        })
    }

    fn run(mut self) {
        let mut work = Work::default();
        while self.get(&mut work) {
            match self.go_on(&mut work) {
                Ok(()) => {
                    self.outage.answers();
                    self.queue.finish(&mut work.take_refused());
                    work.clear();
                }
                Err(Failure::Final(error)) => return self.queue.fail(error),
                Err(Failure::Away(error)) if is_final(&error) => {
                    let what = format!(
                        "the Redis server {} refuses the login",
                        self.connector.name()
                    );
                    let error = Error::new(ErrorCode::Network, what)
                        .because(error)
                        .permanent()
                        .hint("check the user, the password and the certificates of the address");
                    return self.queue.fail(error);
                }
                Err(Failure::Away(error)) => self.rest(&error),
            }
        }
    }

    /// Waits for work if `work` is empty; returns false on shutdown.
    fn get(&self, work: &mut Work) -> bool {
        match work.is_nothing() {
            true => (self.queue).next_work(&mut work.command, &mut work.batch.commands),
            false => !self.queue.is_over(),
        }
    }

    /// Executes the current work.
    fn go_on(&mut self, work: &mut Work) -> Result<(), Failure> {
        let connected = match &mut self.connected {
            Some(connected) => connected,
            none => {
                let is_restored = self.queue.with(|queue| queue.facts.is_restored);
                let (connected, warnings) = self.connector.connect(is_restored)?;
                for warning in warnings {
                    self.outage.log_line(&warning);
                }
                work.note_primary(self.connector.primary());
                none.insert(connected)
            }
        };
        match (&work.command, &mut *connected) {
            (Some(WorkerCommand::Connect), _) => return Ok(()),
            (Some(WorkerCommand::Execute(_)), connected) => {
                transact(connected, work)?;
                if std::mem::take(&mut work.lacks_answer) {
                    self.outage.log_line(RESPONSE_LOST);
                }
            }
            (None, Connected::One(connection)) => work.batch.send(connection)?,
            (None, Connected::Cluster(nodes)) => work.batch.send_to_nodes(nodes)?,
        }
        loop {
            match self.connector.confirm(connected)? {
                Confirmation::Pending if !self.queue.is_over() => {}
                Confirmation::Pending | Confirmation::Confirmed => return Ok(()),
                Confirmation::Missing(count) => {
                    let what = format!("{count} of its replicas do not acknowledge commands");
                    self.outage.log_line(&what);
                    return Ok(());
                }
            }
        }
    }

    /// Drops the connection and waits before the next attempt.
    fn rest(&mut self, error: &RedisError) {
        self.connected = None;
        self.connector.note(error);
        self.outage.away(error);
        self.queue.rest(AGAIN, |_| false);
    }
}

/// Executes a transaction, unless its marker shows that it has been executed. After an error the
/// outcome is unknown, and the transaction is retried.
fn transact(connected: &mut Connected, work: &mut Work) -> Result<(), RedisError> {
    let Some(WorkerCommand::Execute(transaction)) = &work.command else {
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
            strangers.insert(number, Refused::new(record, reason));
        }
    }
    strangers
}
