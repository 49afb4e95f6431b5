//! The connections of a job's workers: who speaks on which, and what is sent over it.
//!
//! A worker is spoken to over the connection on which it spoke last. What is said may be lost, and the machines know it; so a
//! connection that does not take what is sent is closed, and nobody waits for it.

use std::collections::HashMap;
use std::time::Duration;

use ardea_coordination::control::{FromWorker, Order, PlanVersion, ToMaster, ToWorker, WorkerId};
use ardea_core::{Error, ErrorCode, Result};
use ardea_network::rpc::{Courier, Encoded, Receiver, Sender};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::leader::JobMetrics;

/// How many messages may wait for a connection that is slow.
const WAITING: usize = 1_024;

/// How long a message may take to leave before the connection is given up.
const LEAVES_WITHIN: Duration = Duration::from_secs(10);

/// A connection's number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LinkId(u64);

/// What comes in over connections.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// A worker says this.
    Said(LinkId, ToMaster),
    /// The connection is gone.
    Gone(LinkId),
}

/// The connections of a job's workers.
#[derive(Debug)]
pub(crate) struct Links {
    events: mpsc::Sender<LinkEvent>,
    metrics: JobMetrics,
    links: HashMap<LinkId, Link>,
    /// On which connection each worker spoke last.
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

impl Links {
    /// None yet; what comes in goes there.
    pub(crate) fn new(events: mpsc::Sender<LinkEvent>) -> Self {
        Links {
            events,
            metrics: JobMetrics::new(),
            links: HashMap::new(),
            spoken: HashMap::new(),
            count: 0,
            once: EncodedOnce::default(),
        }
    }

    /// Somebody has connected.
    pub(crate) fn add(&mut self, courier: Courier) {
        self.count += 1;
        let id = LinkId(self.count);
        let (sender, receiver) = courier.split();
        let (queue, queued) = mpsc::channel(WAITING);
        tokio::spawn(write(sender, queued));
        let reader = read(id, receiver, self.events.clone(), self.metrics.clone());
        let reader = tokio::spawn(reader).abort_handle();
        self.links.insert(id, Link { queue, reader });
    }

    /// A worker has spoken over a connection.
    pub(crate) fn heard(&mut self, id: LinkId, worker: WorkerId) {
        if self.links.contains_key(&id) {
            self.spoken.insert(worker, id);
        }
    }

    /// Closes a connection; the workers that were spoken to over it.
    pub(crate) fn close(&mut self, id: LinkId) -> Vec<WorkerId> {
        self.links.remove(&id);
        let gone = self.spoken.extract_if(|_, link| *link == id);
        gone.map(|(worker, _)| worker).collect()
    }

    /// Another master speaks from now on: nothing that was encoded or measured before is its own.
    pub(crate) fn begin_anew(&mut self) {
        self.once = EncodedOnce::default();
        self.metrics.clear();
    }

    /// What workers have measured.
    pub(crate) fn metrics(&self) -> &JobMetrics {
        &self.metrics
    }

    /// Closes all connections, after what was sent has left.
    pub(crate) fn close_all(&mut self) {
        self.links.clear();
        self.spoken.clear();
    }

    /// Sends a worker a message, over the connection on which it spoke last; the workers that are not reached any more because of it.
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

/// Messages that are the same for many workers, as they were encoded the last time.
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

/// Sends what is queued, until nobody queues any more or the connection is gone.
async fn write(mut sender: Sender, mut queued: mpsc::Receiver<Encoded>) {
    while let Some(message) = queued.recv().await {
        let sent = tokio::time::timeout(LEAVES_WITHIN, sender.send_encoded(message)).await;
        if !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
    let _ = tokio::time::timeout(LEAVES_WITHIN, sender.finish()).await;
}

/// Passes on what comes in, until the connection is gone or speaks nonsense.
async fn read(
    id: LinkId,
    mut receiver: Receiver,
    events: mpsc::Sender<LinkEvent>,
    metrics: JobMetrics,
) {
    loop {
        match receiver.receive::<FromWorker>().await {
            Ok(Some(FromWorker::Control(message))) => {
                if events.send(LinkEvent::Said(id, message)).await.is_err() {
                    return;
                }
            }
            Ok(Some(FromWorker::Metrics(batch))) => metrics.take(&batch),
            Ok(None) | Err(_) => break,
        }
    }
    let _ = events.send(LinkEvent::Gone(id)).await;
}

/// What a master that is none answers.
pub(crate) fn no_master(job: &str) -> Error {
    Error::new(
        ErrorCode::Superseded,
        format!("the host that was asked leads job {job} no longer"),
    )
    .hint("another host takes over within seconds: `ardea describe` shows what was done, then try again")
}
