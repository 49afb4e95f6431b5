//! The TCP transport: non-blocking, polled sockets without an async runtime.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::time::Duration;

use crate::tls::{Tls, explain, rustls};
use ardea_core::{Error, ErrorCode, Result};

use crate::exchange::framed::{Framed, FramedConfig};
use crate::exchange::network_waker::NetworkWaker;
use crate::exchange::polling::{Polled, Poller, Sockets};
use crate::exchange::tls::TlsStream;
use crate::exchange::transport::{ByteStream, Connection, Listener, Transport};

/// Configuration of a [`TcpTransport`].
#[derive(Clone, Debug, Default)]
pub struct TcpConfig {
    /// Queues and blocks of each connection.
    pub framed: FramedConfig,
    /// True if peers have to authenticate with a token. Without a token and without certificates,
    /// only loopback addresses can be listened at.
    pub is_protected: bool,
    /// Certificates for mutual TLS, if connections are encrypted. Either all processes of a cluster
    /// have them, or none.
    pub tls: Option<Tls>,
}

/// Connections over TCP. Addresses are numeric: `10.0.0.7:7400`, `[::1]:0`; names are not resolved,
/// because that can block.
pub struct TcpTransport {
    poller: Poller,
    config: TcpConfig,
}

impl fmt::Debug for TcpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TcpTransport")
    }
}

impl TcpTransport {
    /// Creates a transport without connections.
    ///
    /// # Errors
    /// If the operating system provides no poll instance.
    pub fn new(config: TcpConfig) -> Result<Self> {
        let poller = Poller::new()?;
        Ok(TcpTransport { poller, config })
    }
}

impl Transport for TcpTransport {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn connect(&mut self, address: &str) -> Result<Box<dyn Connection>> {
        connect(address, self.poller.sockets(), &self.config)
    }

    fn listen(&mut self, address: &str) -> Result<Box<dyn Listener>> {
        listen(address, self.poller.sockets(), &self.config)
    }

    fn waker(&self) -> NetworkWaker {
        self.poller.doorbell()
    }

    fn wait(&mut self, timeout: Duration) -> Result<()> {
        self.poller.wait(timeout)
    }
}

/// Implements [`Transport::connect`] for an address of the network.
pub(crate) fn connect(
    address: &str,
    sockets: &Sockets,
    config: &TcpConfig,
) -> Result<Box<dyn Connection>> {
    let to = numeric(address)?;
    let failed = |error: io::Error| {
        Error::new(ErrorCode::Network, format!("cannot connect to {address}"))
            .because(error)
            .hint("check the address and the limit of open files")
    };
    let stream = mio::net::TcpStream::connect(to).map_err(failed)?;
    let stream = TcpStream::register(stream, sockets, false).map_err(failed)?;
    match &config.tls {
        None => Ok(connection(stream, address.to_string(), config)),
        Some(tls) => {
            let name = tls.peer_name(&to.ip().to_string())?;
            let tls = rustls::ClientConnection::new(tls.client(), name)
                .map_err(|error| no_tls(address, &error))?;
            let stream = TlsStream::new(stream, tls);
            Ok(connection(stream, address.to_string(), config))
        }
    }
}

/// Implements [`Transport::listen`] for an address of the network.
pub(crate) fn listen(
    address: &str,
    sockets: &Sockets,
    config: &TcpConfig,
) -> Result<Box<dyn Listener>> {
    let at = numeric(address)?;
    let is_protected = config.is_protected || config.tls.is_some();
    if !is_protected && !at.ip().is_loopback() {
        return Err(Error::new(
            ErrorCode::InvalidConfig,
            format!(
                "{address} can be reached from other machines, and peers are not authenticated"
            ),
        )
        .hint("configure a token or certificates, or listen at 127.0.0.1"));
    }
    let failed = |error: io::Error| {
        Error::new(ErrorCode::Network, format!("cannot listen at {address}"))
            .because(error)
            .hint("choose another port, or 0 for any that is free")
    };
    let listener = mio::net::TcpListener::bind(at).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?.to_string();
    let listener = sockets.add(listener).map_err(failed)?;
    Ok(Box::new(TcpListener {
        listener,
        address,
        sockets: sockets.clone(),
        config: config.clone(),
    }))
}

fn numeric(address: &str) -> Result<SocketAddr> {
    address.parse().map_err(|_| {
        Error::new(
            ErrorCode::InvalidConfig,
            format!("{address:?} is not a socket address"),
        )
        .hint("write it as 10.0.0.7:7400 or [::1]:7400")
    })
}

fn no_tls(peer: &str, error: &rustls::Error) -> Error {
    Error::new(
        ErrorCode::Network,
        format!("the TLS handshake with {peer} failed"),
    )
    .because(explain(error))
    .hint("check the certificates")
}

fn connection(
    stream: impl ByteStream + 'static,
    peer: String,
    config: &TcpConfig,
) -> Box<dyn Connection> {
    // Before the handshake only a hello frame is accepted; the link raises the limit after it.
    let max_payload = crate::exchange::handshake::MAX_HELLO_BYTES;
    Box::new(Framed::new(stream, peer, config.framed, max_payload).of_kind("tcp"))
}

struct TcpListener {
    listener: Polled<mio::net::TcpListener>,
    address: String,
    sockets: Sockets,
    config: TcpConfig,
}

impl TcpListener {
    fn connection(&self, stream: TcpStream, peer: String) -> Result<Box<dyn Connection>> {
        let Some(tls) = &self.config.tls else {
            return Ok(connection(stream, peer, &self.config));
        };
        let tls =
            rustls::ServerConnection::new(tls.server()).map_err(|error| no_tls(&peer, &error))?;
        Ok(connection(TlsStream::new(stream, tls), peer, &self.config))
    }
}

impl Listener for TcpListener {
    fn address(&self) -> &str {
        &self.address
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Connection>>> {
        let failed = |error: io::Error| {
            Error::new(
                ErrorCode::Network,
                format!("cannot take a connection at {}", self.address),
            )
            .because(error)
            .hint("raise the limit of open files for this process")
        };
        loop {
            match self.listener.try_read(|listener| listener.accept()) {
                Ok((stream, from)) => {
                    let stream =
                        TcpStream::register(stream, &self.sockets, true).map_err(failed)?;
                    return self.connection(stream, from.to_string()).map(Some);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                // The peer closed the connection before it was accepted.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted
                            | io::ErrorKind::ConnectionAborted
                            | io::ErrorKind::ConnectionReset
                    ) => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

/// A socket that may still be connecting.
#[derive(Debug)]
struct TcpStream {
    stream: Polled<mio::net::TcpStream>,
    is_connected: bool,
}

impl TcpStream {
    fn register(
        stream: mio::net::TcpStream,
        sockets: &Sockets,
        is_connected: bool,
    ) -> io::Result<Self> {
        let stream = sockets.add(stream)?;
        if is_connected {
            stream.socket.set_nodelay(true)?;
        }
        Ok(TcpStream {
            stream,
            is_connected,
        })
    }

    /// Checks the outcome of connecting, once the socket is writable.
    fn connect(&mut self) -> io::Result<()> {
        if self.is_connected {
            return Ok(());
        }
        if !self.stream.is_writable() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if let Some(error) = self.stream.socket.take_error()? {
            return Err(error);
        }
        self.stream.socket.peer_addr()?;
        self.stream.socket.set_nodelay(true)?;
        self.is_connected = true;
        Ok(())
    }
}

impl ByteStream for TcpStream {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.connect()?;
        self.stream.read(space)
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.connect()?;
        self.stream.write(pieces)
    }

    fn is_connected(&self) -> bool {
        self.is_connected
    }
}
