//! An exchange over the network, with the authentication of the cluster.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use ardea_network::rpc::{
    HandshakeRequest, Limits, Listener, Receiver, RpcConnection, Security, Sender, connect,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::exchange::{Exchange, ExchangeMessage};
use crate::mailbox::{DeliveryOrder, Mailbox};

/// The longest message: the updates of all variables of an iteration.
const MAX_MESSAGE_BYTES: usize = 1 << 30;
/// The longest encoding of a message around its updates.
const ENVELOPE_BYTES: usize = 64;
/// Time after which a silent host is lost.
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between attempts to connect to a process that does not listen yet.
const CONNECT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Time for the other processes to close their side, so that no sent message is discarded.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A process that listens for the other processes of a run.
pub struct PeerListener {
    runtime: Runtime,
    listener: Listener,
    security: Security,
    max_update_bytes: usize,
}

impl fmt::Debug for PeerListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerListener({})", self.address())
    }
}

impl PeerListener {
    /// Listens at `address` (`host:port`) for processes with the same cluster name, secret and
    /// attempt. An attempt is the number of restores: messages of earlier attempts are refused.
    ///
    /// # Errors
    /// [`ErrorCode::Network`] if the address is invalid or in use; [`ErrorCode::InvalidConfig`] if
    /// it is reachable from other machines, and `security` has neither a secret nor certificates.
    pub fn bind(address: &str, security: &Security, attempt: u64) -> Result<Self> {
        let cluster = format!("{}/iteration/{attempt}", security.cluster());
        let security = security
            .clone()
            .within(cluster)
            .with_limits(|limits| Limits {
                message_bytes: MAX_MESSAGE_BYTES,
                tcp_user_timeout: Some(UNACKNOWLEDGED_TIMEOUT),
                ..limits
            });
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| {
            Error::new(ErrorCode::LimitReached, "cannot start the network thread").because(error)
        })?;
        let listener = runtime.block_on(Listener::bind(address, security.clone()))?;
        Ok(PeerListener {
            runtime,
            listener,
            security,
            max_update_bytes: MAX_MESSAGE_BYTES - ENVELOPE_BYTES,
        })
    }

    /// Returns the address at which the process listens.
    pub fn address(&self) -> String {
        self.listener.address().to_string()
    }

    /// Sets the most bytes of the updates that this process sends at a time; about 1 GiB by default
    /// and at most. Longer updates end the run.
    pub fn max_update_bytes(mut self, bytes: usize) -> Self {
        self.max_update_bytes = bytes.min(MAX_MESSAGE_BYTES - ENVELOPE_BYTES);
        self
    }

    /// Connects to the other processes. `addresses` are those of all processes, and `process` is
    /// the position of this one among them.
    ///
    /// # Errors
    /// [`ErrorCode::Network`] if a process did not listen or connect within `timeout`.
    pub fn connect(
        mut self,
        process: u32,
        addresses: &[String],
        timeout: Duration,
    ) -> Result<PeerExchange> {
        let processes = addresses.len() as u32;
        let connecting = connect_all(
            &mut self.listener,
            &self.security,
            (process, addresses),
            timeout,
        );
        let connections = self.runtime.block_on(connecting)?;
        let mailbox = Arc::new(Mailbox::default());
        let mut outgoing: Outgoing = addresses.iter().map(|_| None).collect();
        let mut peers = Vec::new();
        for (peer, connection) in connections {
            let (sender, messages) = unbounded_channel();
            if let Some(place) = outgoing.get_mut(peer as usize) {
                *place = Some(sender);
            }
            peers.push((peer, connection, messages));
        }
        let received = Arc::clone(&mailbox);
        let network = move || self.runtime.block_on(run_connections(peers, received));
        let thread = thread::Builder::new()
            .name("iteration-peers".into())
            .spawn(network);
        let thread = thread.map_err(|error| {
            Error::new(ErrorCode::LimitReached, "cannot start the network thread").because(error)
        })?;
        Ok(PeerExchange {
            process,
            processes,
            max_update_bytes: self.max_update_bytes,
            mailbox,
            network: Mutex::new(Some((outgoing, thread))),
        })
    }
}

/// The queues of messages to each process; `None` for this process.
type Outgoing = Vec<Option<UnboundedSender<ExchangeMessage>>>;

/// The connections of a process, with the numbers of the peers.
type Connections = Vec<(u32, RpcConnection)>;

/// Connects to all processes before this one, and accepts those after it.
async fn connect_all(
    listener: &mut Listener,
    security: &Security,
    (process, addresses): (u32, &[String]),
    timeout: Duration,
) -> Result<Connections> {
    let deadline = Instant::now() + timeout;
    let mut connections = Vec::new();
    for (peer, address) in (0..process).zip(addresses) {
        let greeting = HandshakeRequest::new(process.to_string());
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match connect(address, &greeting, security, left).await {
                Ok(connection) => {
                    connections.push((peer, connection));
                    break;
                }
                Err(error) if Instant::now() + CONNECT_RETRY_DELAY >= deadline => {
                    return Err(error);
                }
                Err(_) => tokio::time::sleep(CONNECT_RETRY_DELAY).await,
            }
        }
    }
    while connections.len() + 1 < addresses.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        let accepted = tokio::time::timeout(left, listener.accept()).await;
        let connection = accepted.map_err(|_| {
            let missing = addresses.len() - connections.len() - 1;
            let what = format!("{missing} processes of the iteration did not connect in time");
            Error::new(ErrorCode::Network, what).hint("are they running, with the same addresses?")
        })??;
        let peer = connection.greeting().purpose.parse().unwrap_or(u32::MAX);
        let is_expected = peer > process && (peer as usize) < addresses.len();
        if is_expected {
            // A repeated connection is that of a process which gave up the first one.
            connections.retain(|(known, _)| *known != peer);
            connections.push((peer, connection));
        }
    }
    Ok(connections)
}

/// A connection, and the messages to send on it.
type Peer = (u32, RpcConnection, UnboundedReceiver<ExchangeMessage>);

/// Sends and receives until the exchange is closed.
async fn run_connections(peers: Vec<Peer>, mailbox: Arc<Mailbox>) {
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    for (peer, connection, messages) in peers {
        let (sender, receiver) = connection.split();
        writers.push(tokio::spawn(write(
            peer,
            sender,
            messages,
            Arc::clone(&mailbox),
        )));
        readers.push(tokio::spawn(read(peer, receiver, Arc::clone(&mailbox))));
    }
    for writer in writers {
        let _ = writer.await;
    }
    let all_read = async {
        for reader in readers {
            let _ = reader.await;
        }
    };
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, all_read).await;
}

async fn write(
    peer: u32,
    mut sender: Sender,
    mut messages: UnboundedReceiver<ExchangeMessage>,
    mailbox: Arc<Mailbox>,
) {
    while let Some(message) = messages.recv().await {
        if let Err(error) = sender.send(&message).await {
            mailbox.lose(peer, Some(error));
            return;
        }
    }
    // The peer has everything, or has reported the lost connection.
    let _ = sender.finish().await;
}

async fn read(peer: u32, mut receiver: Receiver, mailbox: Arc<Mailbox>) {
    let mut has_finished = false;
    let reason = loop {
        match receiver.receive().await {
            Ok(Some(message)) => {
                has_finished |= matches!(message, ExchangeMessage::Finished { .. });
                mailbox.push(message);
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    if !has_finished {
        mailbox.lose(peer, reason);
    }
}

/// The connections of a process to all others, over TCP and optionally TLS.
pub struct PeerExchange {
    process: u32,
    processes: u32,
    max_update_bytes: usize,
    mailbox: Arc<Mailbox>,
    network: Mutex<Option<(Outgoing, JoinHandle<()>)>>,
}

impl fmt::Debug for PeerExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerExchange({} of {})", self.process, self.processes)
    }
}

impl PeerExchange {
    /// Refuses updates that the receiver would refuse as too long.
    fn check_length(&self, message: &ExchangeMessage) -> Result<()> {
        let (bytes, most) = (message.update_bytes(), self.max_update_bytes);
        if bytes <= most {
            return Ok(());
        }
        let what = format!(
            "the updates of an iteration have {bytes} bytes, and a message to another process at most {most}"
        );
        Err(Error::new(ErrorCode::LimitReached, what)
            .hint("commit sparse updates or smaller variables, or run one process")
            .permanent())
    }
}

impl Exchange for PeerExchange {
    fn process(&self) -> u32 {
        self.process
    }

    fn processes(&self) -> u32 {
        self.processes
    }

    fn send(&self, to: u32, message: ExchangeMessage) -> Result<()> {
        self.check_length(&message)?;
        let network = self.network.lock();
        let network = network.unwrap_or_else(PoisonError::into_inner);
        if let Some((outgoing, _)) = &*network
            && let Some(Some(peer)) = outgoing.get(to as usize)
        {
            // A lost peer is reported by its reader.
            let _ = peer.send(message);
        }
        Ok(())
    }

    fn receive(&self) -> Result<Option<ExchangeMessage>> {
        self.mailbox.receive(DeliveryOrder::OldestFirst)
    }

    fn close(&self) {
        self.mailbox.close();
        let network = self.network.lock();
        let network = network.unwrap_or_else(PoisonError::into_inner).take();
        if let Some((outgoing, thread)) = network {
            drop(outgoing);
            // The thread has no result.
            let _ = thread.join();
        }
    }
}

impl Drop for PeerExchange {
    fn drop(&mut self) {
        self.close();
    }
}
