//! The connection to the job's leader.

use std::time::Duration;

use ardea_coordination::control::{FromWorker, ToWorker};
use ardea_core::{Error, Result};
use ardea_network::rpc::{Encoded, HandshakeRequest, Receiver, Security, Sender, connect};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Capacity of the send queue, in messages. Messages beyond it are dropped; the protocol tolerates
/// lost messages.
const QUEUE_CAPACITY: usize = 256;

/// An event of a connection, with the number of the connection.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// A message of the leader.
    Received(u64, ToWorker),
    /// The connection has closed, because of this error if there is one.
    Closed(u64, Option<Error>),
}

/// The current connection to the leader; at most one.
pub(crate) struct MasterLink {
    greeting: HandshakeRequest,
    security: Security,
    events: mpsc::UnboundedSender<LinkEvent>,
    current: Option<Current>,
    last: u64,
}

struct Current {
    number: u64,
    address: String,
    /// The send queue; `None` once the queue is closed.
    out: Option<mpsc::Sender<Encoded>>,
    task: JoinHandle<()>,
}

impl Drop for Current {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl MasterLink {
    pub(crate) fn new(
        greeting: HandshakeRequest,
        security: Security,
        events: mpsc::UnboundedSender<LinkEvent>,
    ) -> Self {
        MasterLink {
            greeting,
            security,
            events,
            current: None,
            last: 0,
        }
    }

    /// Sends a message to the leader at `address`. If the current connection leads to another
    /// address, opens a new connection. The message may be lost.
    ///
    /// # Errors
    /// If the message can't be encoded.
    pub(crate) fn send(&mut self, address: &str, message: &FromWorker) -> Result<()> {
        let message = Encoded::new(message)?;
        let current = match self.current.take() {
            Some(current) if current.address == address && !current.task.is_finished() => current,
            _ => self.open(address),
        };
        // The queue is full if the leader does not read; the agent repeats its requests.
        if let Some(out) = &current.out {
            let _ = out.try_send(message);
        }
        self.current = Some(current);
        Ok(())
    }

    /// Sends a message over the current connection, if there is one.
    ///
    /// # Errors
    /// If the message can't be encoded.
    pub(crate) fn send_to_current(&mut self, message: &FromWorker) -> Result<()> {
        match self.current.as_ref().map(|current| current.address.clone()) {
            Some(address) => self.send(&address, message),
            None => Ok(()),
        }
    }

    /// Returns true if `number` is that of the current connection; events of other connections are
    /// ignored.
    pub(crate) fn is_current(&self, number: u64) -> bool {
        self.current
            .as_ref()
            .is_some_and(|current| current.number == number)
    }

    /// Drops the current connection.
    pub(crate) fn close(&mut self) {
        self.current = None;
    }

    /// Sends the queued messages for at most `patience`, then closes the connection.
    pub(crate) async fn finish(&mut self, patience: Duration) {
        if let Some(mut current) = self.current.take() {
            // Without the sending end, the task ends once the queue is empty.
            current.out = None;
            let _ = tokio::time::timeout(patience, &mut current.task).await;
        }
    }

    fn open(&mut self, address: &str) -> Current {
        self.last += 1;
        let number = self.last;
        let (out, messages) = mpsc::channel(QUEUE_CAPACITY);
        let (greeting, security) = (self.greeting.clone(), self.security.clone());
        let (address, events) = (address.to_string(), self.events.clone());
        let to = address.clone();
        let task = tokio::spawn(async move {
            let outcome = match connect(&to, &greeting, &security, CONNECT_TIMEOUT).await {
                Ok(courier) => {
                    let (sender, receiver) = courier.split();
                    tokio::select! {
                        outcome = write(sender, messages) => outcome,
                        outcome = read(receiver, number, &events) => outcome,
                    }
                }
                Err(error) => Err(error),
            };
            let _ = events.send(LinkEvent::Closed(number, outcome.err()));
        });
        Current {
            number,
            address,
            out: Some(out),
            task,
        }
    }
}

async fn write(mut sender: Sender, mut messages: mpsc::Receiver<Encoded>) -> Result<()> {
    while let Some(message) = messages.recv().await {
        sender.send_encoded(message).await?;
    }
    Ok(())
}

async fn read(
    mut receiver: Receiver,
    number: u64,
    events: &mpsc::UnboundedSender<LinkEvent>,
) -> Result<()> {
    while let Some(message) = receiver.receive().await? {
        if events.send(LinkEvent::Received(number, message)).is_err() {
            break;
        }
    }
    Ok(())
}
