//! Readiness polling for transports over sockets, with a sleep that a [`NetworkWaker`] ends.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Waker};
use mio::event::{Event, Source};
use mio::{Events, Interest, Poll, Registry, Token};

use crate::exchange::network_waker::NetworkWaker;
use crate::exchange::transport::ByteStream;

/// The token of the waker; sockets use the index of their slot.
const BELL: Token = Token(usize::MAX);

/// Polls the sockets of a transport, on the transport's thread.
pub struct Poller {
    poll: Poll,
    events: Events,
    sockets: Sockets,
    doorbell: NetworkWaker,
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Poller")
    }
}

impl Poller {
    /// Creates a poller without sockets.
    ///
    /// # Errors
    /// If the operating system provides no poll instance.
    pub fn new() -> Result<Self> {
        let failed = |error| unpollable("start", error);
        let poll = Poll::new().map_err(failed)?;
        let waker = mio::Waker::new(poll.registry(), BELL).map_err(failed)?;
        Ok(Poller {
            sockets: Sockets {
                registry: Arc::new(poll.registry().try_clone().map_err(failed)?),
                slots: Arc::default(),
            },
            poll,
            events: Events::with_capacity(256),
            doorbell: NetworkWaker::new(Waker::new(move || {
                // A write to an eventfd fails only when it is full, so a wake-up is pending.
                let _ = waker.wake();
            })),
        })
    }

    /// Returns the registry to which sockets are added.
    pub fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// Implements [`Transport::waker`](crate::exchange::Transport::waker).
    pub fn doorbell(&self) -> NetworkWaker {
        self.doorbell.clone()
    }

    /// Implements [`Transport::wait`](crate::exchange::Transport::wait).
    ///
    /// # Errors
    /// If the operating system refuses to poll.
    pub fn wait(&mut self, timeout: Duration) -> Result<()> {
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

fn unpollable(what: &str, error: io::Error) -> Error {
    Error::new(ErrorCode::Network, format!("cannot {what} polling sockets"))
        .because(error)
        .hint("raise the limit of open files for this process")
}

/// A registry of sockets. Each socket has a slot, which is freed when the socket is dropped. Cheap
/// to clone.
#[derive(Clone, Debug)]
pub struct Sockets {
    registry: Arc<Registry>,
    slots: Arc<Mutex<Vec<Weak<Ready>>>>,
}

impl Sockets {
    /// Polls `socket`, which must be non-blocking, until it is dropped.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn add<S: Source>(&self, mut socket: S) -> io::Result<Polled<S>> {
        let ready = Arc::new(Ready::default());
        let mut slots = self.slots();
        let free = slots.iter().position(|slot| slot.strong_count() == 0);
        let slot = free.unwrap_or(slots.len());
        let both = Interest::READABLE | Interest::WRITABLE;
        self.registry.register(&mut socket, Token(slot), both)?;
        if slot == slots.len() {
            slots.push(Weak::new());
        }
        // An event still in flight for the slot's former socket causes one needless system call.
        slots[slot] = Arc::downgrade(&ready);
        Ok(Polled { socket, ready })
    }

    /// Polls an existing connection, which must be non-blocking, until it is dropped.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn adopt(&self, stream: std::net::TcpStream) -> io::Result<Polled<mio::net::TcpStream>> {
        self.add(mio::net::TcpStream::from_std(stream))
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Weak<Ready>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Readiness of a socket: set by polling, cleared when a system call would block.
#[derive(Debug, Default)]
struct Ready {
    readable: AtomicBool,
    writable: AtomicBool,
    /// The peer has closed its side, so a short read does not mean that nothing is left to read.
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

/// The readiness of a polled socket, for a caller that can't wait for the next poll. Cheap to
/// clone.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<Ready>);

impl Readiness {
    /// Marks the socket as ready, so that the next read and the next write make a system call.
    pub fn force_ready(&self) {
        self.0.readable.store(true, Ordering::Relaxed);
        self.0.writable.store(true, Ordering::Relaxed);
    }
}

/// A socket that uses the polled readiness to avoid system calls that would block.
#[derive(Debug)]
pub struct Polled<S> {
    pub(crate) socket: S,
    ready: Arc<Ready>,
}

impl<S> Polled<S> {
    /// Returns the readiness of the socket.
    pub fn readiness(&self) -> Readiness {
        Readiness(Arc::clone(&self.ready))
    }

    /// Returns true if the socket may be written, or has failed.
    pub(crate) fn is_writable(&self) -> bool {
        self.ready.writable.load(Ordering::Relaxed)
    }

    /// Runs an operation that needs the socket to be readable, such as accepting a connection.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock), without a system call, if nothing arrived since
    /// the operation last returned `WouldBlock`.
    pub fn try_read<T>(&mut self, take: impl FnOnce(&mut S) -> io::Result<T>) -> io::Result<T> {
        if !self.ready.readable.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let outcome = take(&mut self.socket);
        if matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            self.ready.readable.store(false, Ordering::Relaxed);
        }
        outcome
    }
}

impl<S> Polled<S> {
    /// Reports that a read returned fewer bytes than there was space for. The next read makes no
    /// system call until polling reports more bytes, as epoll(7) guarantees.
    pub(crate) fn note_short_read(&self) {
        if !self.ready.ending.load(Ordering::Relaxed) {
            self.ready.readable.store(false, Ordering::Relaxed);
        }
    }

    /// Runs an operation that needs the socket to be writable.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock), without a system call, if the socket has accepted
    /// nothing since the operation last returned `WouldBlock`.
    pub(crate) fn try_write<T>(
        &mut self,
        put: impl FnOnce(&mut S) -> io::Result<T>,
    ) -> io::Result<T> {
        if !self.is_writable() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let outcome = put(&mut self.socket);
        if matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            self.ready.writable.store(false, Ordering::Relaxed);
        }
        outcome
    }
}

/// A connected stream.
impl<S: Read + Write + Send> ByteStream for Polled<S> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let wanted = space.len();
        let outcome = self.try_read(|stream| stream.read(space));
        if matches!(outcome, Ok(bytes) if bytes < wanted) {
            self.note_short_read();
        }
        outcome
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.try_write(|stream| stream.write_vectored(pieces))
    }

    fn is_connected(&self) -> bool {
        true
    }
}
