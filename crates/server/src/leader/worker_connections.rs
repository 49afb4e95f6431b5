//! The connections between a job's leader and its workers: which worker uses which connection, and
//! the messages to workers.
//!
//! A message to a worker is sent over the connection on which the worker's last message arrived.
//! The state machines tolerate lost messages, so a connection with a full queue is closed.

use std::collections::HashMap;
use std::time::Duration;

use ardea_coordination::control::{FromWorker, Order, PlanVersion, ToMaster, ToWorker, WorkerId};
use ardea_core::{Error, ErrorCode, Result};
use ardea_network::rpc::{Encoded, Receiver, RpcConnection, Sender};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::leader::JobMetrics;

/// Maximum number of messages queued for a connection.
const WAITING: usize = 1_024;

/// Timeout for sending a message, after which the connection is closed.
const LEAVES_WITHIN: Duration = Duration::from_secs(10);

/// The number of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LinkId(u64);

/// An event of a connection.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// A message of a worker.
    Received(LinkId, ToMaster),
    /// The connection has closed.
    Closed(LinkId),
}

/// The connections of a job's workers.
#[derive(Debug)]
pub(crate) struct WorkerConnections {
    events: mpsc::Sender<LinkEvent>,
    metrics: JobMetrics,
    links: HashMap<LinkId, Link>,
    /// The connection on which each worker's last message arrived.
    spoken: HashMap<WorkerId, LinkId>,
    count: u64,
    once: EncodedOnce,
}

#[derive(Debug)]
struct Link {
    queue: mpsc::Sender<Encoded>,
    reader: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl WorkerConnections {
    /// Creates an empty set of connections that sends its events to `events`.
    pub(crate) fn new(events: mpsc::Sender<LinkEvent>) -> Self {
        WorkerConnections {
            events,
            metrics: JobMetrics::new(),
            links: HashMap::new(),
            spoken: HashMap::new(),
            count: 0,
            once: EncodedOnce::default(),
        }
    }

    /// Adds a connection and starts its reader and writer.
    pub(crate) fn add(&mut self, courier: RpcConnection) {
        self.count += 1;
        let id = LinkId(self.count);
        let (sender, receiver) = courier.split();
        let (queue, queued) = mpsc::channel(WAITING);
        tokio::spawn(write(sender, queued));
        let reader = read(id, receiver, self.events.clone(), self.metrics.clone());
        let reader = tokio::spawn(reader).abort_handle();
        self.links.insert(id, Link { queue, reader });
    }

    /// Records that a worker has sent a message on a connection.
    pub(crate) fn record_sender(&mut self, id: LinkId, worker: WorkerId) {
        if self.links.contains_key(&id) {
            self.spoken.insert(worker, id);
        }
    }

    /// Closes a connection and returns the workers that used it.
    pub(crate) fn close(&mut self, id: LinkId) -> Vec<WorkerId> {
        self.links.remove(&id);
        let gone = self.spoken.extract_if(|_, link| *link == id);
        gone.map(|(worker, _)| worker).collect()
    }

    /// Discards the encoded messages and the metrics of an earlier leadership.
    pub(crate) fn reset(&mut self) {
        self.once = EncodedOnce::default();
        self.metrics.clear();
    }

    /// Returns the workers' metrics.
    pub(crate) fn metrics(&self) -> &JobMetrics {
        &self.metrics
    }

    /// Closes all connections after their queued messages have been sent.
    pub(crate) fn close_all(&mut self) {
        self.links.clear();
        self.spoken.clear();
    }

    /// Queues a message for a worker, on the connection of the worker's last message. If the queue
    /// is full, closes the connection and returns all workers that used it.
    pub(crate) fn send(&mut self, worker: WorkerId, message: &ToWorker) -> Result<Vec<WorkerId>> {
        let Some(id) = self.spoken.get(&worker).copied() else {
            return Ok(Vec::new());
        };
        let encoded = self.once.encode(message)?;
        let link = self.links.get(&id);
        let taken = link.is_some_and(|link| link.queue.try_send(encoded).is_ok());
        Ok(if taken { Vec::new() } else { self.close(id) })
    }
}

/// A cache of encoded messages, for messages that are the same for many workers.
#[derive(Debug, Default)]
struct EncodedOnce {
    /// The two newest plans.
    plans: Vec<(PlanVersion, Encoded)>,
    peers: Option<((Order, Order), Encoded)>,
}

impl EncodedOnce {
    fn encode(&mut self, message: &ToWorker) -> Result<Encoded> {
        match message {
            ToWorker::Plan { version, .. } => {
                if let Some((_, encoded)) = self.plans.iter().find(|(of, _)| of == version) {
                    return Ok(encoded.clone());
                }
                let encoded = Encoded::new(message)?;
                if self.plans.len() == 2 {
                    self.plans.remove(0);
                }
                self.plans.push((*version, encoded.clone()));
                Ok(encoded)
            }
            ToWorker::Peers { from, to, .. } => {
                let of = (*from, *to);
                if let Some((_, encoded)) = self.peers.as_ref().filter(|(known, _)| *known == of) {
                    return Ok(encoded.clone());
                }
                let encoded = Encoded::new(message)?;
                self.peers = Some((of, encoded.clone()));
                Ok(encoded)
            }
            _ => Encoded::new(message),
        }
    }
}

/// Sends queued messages until the queue or the connection closes.
async fn write(mut sender: Sender, mut queued: mpsc::Receiver<Encoded>) {
    while let Some(message) = queued.recv().await {
        let sent = tokio::time::timeout(LEAVES_WITHIN, sender.send_encoded(message)).await;
        if !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
    let _ = tokio::time::timeout(LEAVES_WITHIN, sender.finish()).await;
}

/// Forwards received messages until the connection closes or a message is invalid.
async fn read(
    id: LinkId,
    mut receiver: Receiver,
    events: mpsc::Sender<LinkEvent>,
    metrics: JobMetrics,
) {
    loop {
        match receiver.receive::<FromWorker>().await {
            Ok(Some(FromWorker::Control(message))) => {
                if events.send(LinkEvent::Received(id, message)).await.is_err() {
                    return;
                }
            }
            Ok(Some(FromWorker::Metrics(batch))) => metrics.take(&batch),
            Ok(None) | Err(_) => break,
        }
    }
    let _ = events.send(LinkEvent::Closed(id)).await;
}

/// Returns the error for a request that only the job's leader can execute.
pub(crate) fn not_leader(job: &str) -> Error {
    Error::new(
        ErrorCode::Superseded,
        format!("the contacted host no longer leads job {job}"),
    )
    .hint("another host takes over within seconds: check with `ardea describe` what was done, then try again")
}
