//! The connection to the job's master.

use std::time::Duration;

use ardea_coordination::control::{FromWorker, ToWorker};
use ardea_core::{Error, Result};
use ardea_network::rpc::{Encoded, Greeting, Receiver, Security, Sender, connect};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How long connecting may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many messages may wait to be sent; more are dropped, as messages may be.
const WAITING: usize = 256;

/// What comes of a connection, with its number.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// A word of the master.
    Told(u64, ToWorker),
    /// It is closed, for this reason if there is one.
    Closed(u64, Option<Error>),
}

/// One connection at a time, to whoever is the master.
pub(crate) struct MasterLink {
    greeting: Greeting,
    security: Security,
    events: mpsc::UnboundedSender<LinkEvent>,
    current: Option<Current>,
    last: u64,
}

struct Current {
    number: u64,
    address: String,
    /// None when nothing more is to be sent.
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
        greeting: Greeting,
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

    /// Sends a message to the process at that address, over a new connection if the present one leads elsewhere. It may be lost.
    ///
    /// # Errors
    /// If the message can't be encoded.
    pub(crate) fn send(&mut self, address: &str, message: &FromWorker) -> Result<()> {
        let message = Encoded::new(message)?;
        let current = match self.current.take() {
            Some(current) if current.address == address && !current.task.is_finished() => current,
            _ => self.open(address),
        };
        // A full queue is that of a master that does not read: it is asked again.
        if let Some(out) = &current.out {
            let _ = out.try_send(message);
        }
        self.current = Some(current);
        Ok(())
    }

    /// Sends a message over the present connection, if there is one.
    ///
    /// # Errors
    /// If the message can't be encoded.
    pub(crate) fn send_to_current(&mut self, message: &FromWorker) -> Result<()> {
        match self.current.as_ref().map(|current| current.address.clone()) {
            Some(address) => self.send(&address, message),
            None => Ok(()),
        }
    }

    /// Whether what comes over this connection still counts.
    pub(crate) fn is_current(&self, number: u64) -> bool {
        self.current
            .as_ref()
            .is_some_and(|current| current.number == number)
    }

    /// Forgets the present connection.
    pub(crate) fn close(&mut self) {
        self.current = None;
    }

    /// Sends what waits, as far as it goes within `patience`, and closes the connection.
    pub(crate) async fn finish(&mut self, patience: Duration) {
        if let Some(mut current) = self.current.take() {
            // Its task ends when all that waits is sent and nothing more can come.
            current.out = None;
            let _ = tokio::time::timeout(patience, &mut current.task).await;
        }
    }

    fn open(&mut self, address: &str) -> Current {
        self.last += 1;
        let number = self.last;
        let (out, messages) = mpsc::channel(WAITING);
        let (greeting, security) = (self.greeting.clone(), self.security.clone());
        let (address, events) = (address.to_string(), self.events.clone());
        let to = address.clone();
        let task = tokio::spawn(async move {
            let outcome = match connect(&to, &greeting, &security, PATIENCE).await {
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
        if events.send(LinkEvent::Told(number, message)).is_err() {
            break;
        }
    }
    Ok(())
}
