//! Connections of workers over shared memory or Unix sockets within a host, and over TCP between
//! hosts.
//!
//! Addresses are those of [TCP](crate::exchange::TcpTransport), and those of
//! [`host_address`](crate::exchange::host_address). A worker listens at one of each, and tries a
//! peer's address on this host first: it can be reached exactly if the peer is on this host.

use std::fmt;
use std::io;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};

use crate::exchange::framed::{Framed, FramedConfig};
use crate::exchange::handshake::MAX_HELLO_BYTES;
use crate::exchange::network_waker::NetworkWaker;
use crate::exchange::polling::{Poller, Sockets};
use crate::exchange::ring::{RingConnection, RingSetup};
use crate::exchange::tcp::{self, TcpConfig};
use crate::exchange::transport::{AddressScope, Connection, Listener, Transport};
use crate::exchange::unix::{self, UnixSocket, UnixSocketListener, is_host_address};

/// The way between workers of one host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostPath {
    /// A Unix socket.
    UnixSocket,
    /// Rings in shared memory, with a Unix socket for everything else.
    SharedMemory(RingSetup),
}

/// Configuration of a [`HostTransport`].
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The way between workers of one host.
    pub path: HostPath,
    /// The configuration for workers of other hosts; `None` if these can't be reached.
    pub tcp: Option<TcpConfig>,
    /// Queues and blocks of each connection within the host.
    pub framed: FramedConfig,
}

/// Connections within a host, and over TCP between hosts.
///
/// Peers within the host run as the same user, which the operating system reports; their
/// connections are not encrypted.
pub struct HostTransport {
    poller: Poller,
    config: HostConfig,
}

impl fmt::Debug for HostTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostTransport({})", self.name())
    }
}

impl HostTransport {
    /// Creates a transport without connections.
    ///
    /// # Errors
    /// If the operating system provides no poll instance.
    pub fn new(config: HostConfig) -> Result<Self> {
        let poller = Poller::new()?;
        Ok(HostTransport { poller, config })
    }

    fn tcp(&self, address: &str) -> Result<&TcpConfig> {
        self.config.tcp.as_ref().ok_or_else(|| {
            Error::new(
                ErrorCode::InvalidConfig,
                format!("{address} is an address of the network, and this transport has none"),
            )
            .hint("set worker.transport=auto for a job on several hosts")
        })
    }
}

impl Transport for HostTransport {
    fn name(&self) -> &'static str {
        match (&self.config.tcp, self.config.path) {
            (Some(_), _) => "auto",
            (None, HostPath::UnixSocket) => "uds",
            (None, HostPath::SharedMemory(_)) => "shm",
        }
    }

    fn scope(&self) -> AddressScope {
        match &self.config.tcp {
            Some(_) => AddressScope::HostThenNetwork,
            None => AddressScope::Host,
        }
    }

    fn connect(&mut self, address: &str) -> Result<Box<dyn Connection>> {
        let sockets = self.poller.sockets();
        if !is_host_address(address) {
            return tcp::connect(address, sockets, self.tcp(address)?);
        }
        Ok(match unix::connect(address, sockets) {
            Ok(socket) => connection(socket, address.to_string(), &self.config),
            Err(error) => {
                // Every use of the connection returns the error.
                let stream: io::Result<UnixSocket> = Err(error);
                let framed = self.config.framed;
                Box::new(Framed::new(
                    stream,
                    address.to_string(),
                    framed,
                    MAX_HELLO_BYTES,
                ))
            }
        })
    }

    fn listen(&mut self, address: &str) -> Result<Box<dyn Listener>> {
        let sockets: &Sockets = self.poller.sockets();
        if !is_host_address(address) {
            return tcp::listen(address, sockets, self.tcp(address)?);
        }
        Ok(Box::new(HostListener {
            listener: UnixSocketListener::bind(address, sockets)?,
            config: self.config.clone(),
        }))
    }

    fn waker(&self) -> NetworkWaker {
        self.poller.doorbell()
    }

    fn wait(&mut self, timeout: Duration) -> Result<()> {
        self.poller.wait(timeout)
    }
}

fn connection(socket: UnixSocket, peer: String, config: &HostConfig) -> Box<dyn Connection> {
    // Before the handshake only a hello frame is accepted; the link raises the limit after it.
    let socket = Framed::new(socket, peer, config.framed, MAX_HELLO_BYTES);
    match config.path {
        HostPath::UnixSocket => Box::new(socket.of_kind("uds")),
        HostPath::SharedMemory(setup) => {
            Box::new(RingConnection::new(socket, config.framed, setup))
        }
    }
}

struct HostListener {
    listener: UnixSocketListener,
    config: HostConfig,
}

impl Listener for HostListener {
    fn address(&self) -> &str {
        self.listener.address()
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Connection>>> {
        let accepted = self.listener.accept()?;
        Ok(accepted.map(|(socket, peer)| connection(socket, peer, &self.config)))
    }
}
