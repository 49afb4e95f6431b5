//! TCP: non-blocking sockets of our own, polled, with nothing between them and the tasklets.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Waker};
use ardea_tls::{Tls, explain, rustls};
use mio::event::{Event, Source};
use mio::{Events, Interest, Poll, Registry, Token};

use crate::doorbell::Doorbell;
use crate::framed::{Framed, FramedConfig};
use crate::tls::TlsStream;
use crate::transport::{ByteStream, Connection, Listener, Transport};

/// The token of the doorbell; sockets have their slot's number.
const BELL: Token = Token(usize::MAX);

/// How TCP is used.
#[derive(Clone, Debug, Default)]
pub struct TcpConfig {
    /// Queues and blocks of each connection.
    pub framed: FramedConfig,
    /// Whether peers have to prove who they are by a token. Without that, and without certificates, only loopback addresses can be
    /// listened at.
    pub is_protected: bool,
    /// Certificates, if connections are encrypted and both sides have to show one. All of a cluster have them, or nobody.
    pub tls: Option<Tls>,
}

/// Connections over TCP. Addresses are numeric: `10.0.0.7:7400`, `[::1]:0`; finding out names can block, and is not done here.
pub struct TcpTransport {
    poll: Poll,
    events: Events,
    sockets: Sockets,
    doorbell: Doorbell,
    config: TcpConfig,
}

impl fmt::Debug for TcpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TcpTransport")
    }
}

impl TcpTransport {
    /// A transport without connections.
    ///
    /// # Errors
    /// If the operating system gives no means to poll.
    pub fn new(config: TcpConfig) -> Result<Self> {
        let failed = |error| unpollable("start", error);
        let poll = Poll::new().map_err(failed)?;
        let waker = mio::Waker::new(poll.registry(), BELL).map_err(failed)?;
        Ok(TcpTransport {
            sockets: Sockets {
                registry: Arc::new(poll.registry().try_clone().map_err(failed)?),
                slots: Arc::default(),
            },
            poll,
            events: Events::with_capacity(256),
            doorbell: Doorbell::new(Waker::new(move || {
                // An eventfd that can't be written to is full, and so has been rung.
                let _ = waker.wake();
            })),
            config,
        })
    }
}

fn unpollable(what: &str, error: io::Error) -> Error {
    Error::new(ErrorCode::Network, format!("cannot {what} polling sockets"))
        .because(error)
        .hint("raise the limit of open files for this process")
}

impl Transport for TcpTransport {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn connect(&mut self, address: &str) -> Result<Box<dyn Connection>> {
        let to = numeric(address)?;
        let failed = |error: io::Error| {
            Error::new(ErrorCode::Network, format!("cannot connect to {address}"))
                .because(error)
                .hint("check the address and the limit of open files")
        };
        let stream = mio::net::TcpStream::connect(to).map_err(failed)?;
        let stream = TcpStream::register(stream, &self.sockets, false).map_err(failed)?;
        match &self.config.tls {
            None => Ok(connection(stream, address.to_string(), &self.config)),
            Some(tls) => {
                let name = tls.peer_name(&to.ip().to_string())?;
                let tls = rustls::ClientConnection::new(tls.client(), name)
                    .map_err(|error| no_tls(address, &error))?;
                let stream = TlsStream::new(stream, tls);
                Ok(connection(stream, address.to_string(), &self.config))
            }
        }
    }

    fn listen(&mut self, address: &str) -> Result<Box<dyn Listener>> {
        let at = numeric(address)?;
        let is_protected = self.config.is_protected || self.config.tls.is_some();
        if !is_protected && !at.ip().is_loopback() {
            return Err(Error::new(
                ErrorCode::InvalidConfig,
                format!("{address} can be reached from other machines, and peers prove nothing"),
            )
            .hint("configure a token or certificates, or listen at 127.0.0.1"));
        }
        let failed = |error: io::Error| {
            Error::new(ErrorCode::Network, format!("cannot listen at {address}"))
                .because(error)
                .hint("choose another port, or 0 for any that is free")
        };
        let mut listener = mio::net::TcpListener::bind(at).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?.to_string();
        let ready = self.sockets.add(&mut listener).map_err(failed)?;
        Ok(Box::new(TcpListener {
            listener,
            address,
            ready,
            sockets: self.sockets.clone(),
            config: self.config.clone(),
        }))
    }

    fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    fn wait(&mut self, timeout: Duration) -> Result<()> {
        let timeout = if timeout.is_zero() || self.doorbell.may_sleep() {
            timeout
        } else {
            Duration::ZERO
        };
        let polled = self.poll.poll(&mut self.events, Some(timeout));
        self.doorbell.awake();
        match polled {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                return Err(unpollable("go on", error));
            }
            _ => {}
        }
        let slots = self.sockets.slots();
        for event in &self.events {
            let Token(slot) = event.token();
            if let Some(ready) = slots.get(slot).and_then(Weak::upgrade) {
                ready.on(event);
            }
        }
        Ok(())
    }
}

fn numeric(address: &str) -> Result<SocketAddr> {
    address.parse().map_err(|_| {
        Error::new(
            ErrorCode::InvalidConfig,
            format!("{address:?} is no address of a socket"),
        )
        .hint("write it as 10.0.0.7:7400 or [::1]:7400")
    })
}

fn no_tls(peer: &str, error: &rustls::Error) -> Error {
    Error::new(ErrorCode::Network, format!("no TLS with {peer}"))
        .because(explain(error))
        .hint("check the certificates")
}

fn connection(
    stream: impl ByteStream + 'static,
    peer: String,
    config: &TcpConfig,
) -> Box<dyn Connection> {
    // Strangers get to send a greeting; the link allows more when it knows them.
    Box::new(Framed::new(
        stream,
        peer,
        config.framed,
        crate::handshake::MOST_GREETING_BYTES,
    ))
}

/// What polling has told about a socket, until the socket finds it no longer true.
#[derive(Debug, Default)]
struct Ready {
    readable: AtomicBool,
    writable: AtomicBool,
    /// The peer has ended its side: a short read does not mean that there is nothing more to learn.
    ending: AtomicBool,
}

impl Ready {
    fn on(&self, event: &Event) {
        let ends = event.is_read_closed() || event.is_write_closed() || event.is_error();
        if ends {
            self.ending.store(true, Ordering::Relaxed);
        }
        if ends || event.is_readable() {
            self.readable.store(true, Ordering::Relaxed);
        }
        if ends || event.is_writable() {
            self.writable.store(true, Ordering::Relaxed);
        }
    }
}

/// Where sockets are registered: a slot each, free again when its socket is gone.
#[derive(Clone, Debug)]
struct Sockets {
    registry: Arc<Registry>,
    slots: Arc<Mutex<Vec<Weak<Ready>>>>,
}

impl Sockets {
    fn slots(&self) -> MutexGuard<'_, Vec<Weak<Ready>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, socket: &mut impl Source) -> io::Result<Arc<Ready>> {
        let ready = Arc::new(Ready::default());
        let mut slots = self.slots();
        let free = slots.iter().position(|slot| slot.strong_count() == 0);
        let slot = free.unwrap_or(slots.len());
        self.registry
            .register(socket, Token(slot), Interest::READABLE | Interest::WRITABLE)?;
        if slot == slots.len() {
            slots.push(Weak::new());
        }
        // An event that is still under way for the former socket only makes this one look once in vain.
        slots[slot] = Arc::downgrade(&ready);
        Ok(ready)
    }
}

struct TcpListener {
    listener: mio::net::TcpListener,
    address: String,
    ready: Arc<Ready>,
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
        if !self.ready.readable.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let failed = |error: io::Error| {
            Error::new(
                ErrorCode::Network,
                format!("cannot take a connection at {}", self.address),
            )
            .because(error)
            .hint("raise the limit of open files for this process")
        };
        loop {
            match self.listener.accept() {
                Ok((stream, from)) => {
                    let stream =
                        TcpStream::register(stream, &self.sockets, true).map_err(failed)?;
                    return self.connection(stream, from.to_string()).map(Some);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.ready.readable.store(false, Ordering::Relaxed);
                    return Ok(None);
                }
                // Whoever it was has hung up meanwhile.
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

/// A socket that knows from polling when a system call would be in vain.
#[derive(Debug)]
struct TcpStream {
    stream: mio::net::TcpStream,
    ready: Arc<Ready>,
    is_connected: bool,
}

impl TcpStream {
    fn register(
        mut stream: mio::net::TcpStream,
        sockets: &Sockets,
        is_connected: bool,
    ) -> io::Result<Self> {
        let ready = sockets.add(&mut stream)?;
        if is_connected {
            stream.set_nodelay(true)?;
        }
        Ok(TcpStream {
            stream,
            ready,
            is_connected,
        })
    }

    /// Finds out how connecting went, once something is known about it.
    fn connect(&mut self) -> io::Result<()> {
        if self.is_connected {
            return Ok(());
        }
        if !self.ready.writable.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        self.stream.peer_addr()?;
        self.stream.set_nodelay(true)?;
        self.is_connected = true;
        Ok(())
    }
}

impl ByteStream for TcpStream {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.connect()?;
        if !self.ready.readable.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let outcome = self.stream.read(space);
        let is_drained = match &outcome {
            // Polling tells of every byte that comes after a short read; epoll(7) allows to rely on it.
            Ok(bytes) => *bytes < space.len() && !self.ready.ending.load(Ordering::Relaxed),
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        };
        if is_drained {
            self.ready.readable.store(false, Ordering::Relaxed);
        }
        outcome
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.connect()?;
        if !self.ready.writable.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let outcome = self.stream.write_vectored(pieces);
        if matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            self.ready.writable.store(false, Ordering::Relaxed);
        }
        outcome
    }

    fn is_connected(&self) -> bool {
        self.is_connected
    }
}
