//! Sockets that are polled, for transports over them: which ones may be read or written, and a sleep that a doorbell ends.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Waker};
use mio::event::{Event, Source};
use mio::{Events, Interest, Poll, Registry, Token};

use crate::exchange::doorbell::Doorbell;
use crate::exchange::transport::ByteStream;

/// The token of the doorbell; sockets have their slot's number.
const BELL: Token = Token(usize::MAX);

/// Polls the sockets of a transport, on the transport's thread.
pub struct Poller {
    poll: Poll,
    events: Events,
    sockets: Sockets,
    doorbell: Doorbell,
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Poller")
    }
}

impl Poller {
    /// A poller without sockets.
    ///
    /// # Errors
    /// If the operating system gives no means to poll.
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
            doorbell: Doorbell::new(Waker::new(move || {
                // An eventfd that can't be written to is full, and so has been rung.
                let _ = waker.wake();
            })),
        })
    }

    /// Where sockets are added.
    pub fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// What [`Transport::doorbell`](crate::exchange::Transport::doorbell) gives.
    pub fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    /// What [`Transport::wait`](crate::exchange::Transport::wait) does.
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

/// Where sockets are registered: a slot each, free again when its socket is gone. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sockets {
    registry: Arc<Registry>,
    slots: Arc<Mutex<Vec<Weak<Ready>>>>,
}

impl Sockets {
    /// Polls this socket from now on, until it is dropped. It must not block.
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
        // An event that is still under way for the former socket only makes this one look once in vain.
        slots[slot] = Arc::downgrade(&ready);
        Ok(Polled { socket, ready })
    }

    /// Polls a connection that somebody else has made, from now on, until it is dropped. It must not block.
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

/// What is known of a polled socket, for who can't wait for polling to tell it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<Ready>);

impl Readiness {
    /// Whatever polling has told: the next read and the next write ask the operating system.
    pub fn look(&self) {
        self.0.readable.store(true, Ordering::Relaxed);
        self.0.writable.store(true, Ordering::Relaxed);
    }
}

/// A socket that knows from polling when a system call would be in vain.
#[derive(Debug)]
pub struct Polled<S> {
    pub(crate) socket: S,
    ready: Arc<Ready>,
}

impl<S> Polled<S> {
    /// What is known of it.
    pub fn readiness(&self) -> Readiness {
        Readiness(Arc::clone(&self.ready))
    }

    /// Whether it may be written, or has failed.
    pub(crate) fn is_writable(&self) -> bool {
        self.ready.writable.load(Ordering::Relaxed)
    }

    /// Does something that needs it to be readable, such as accepting a connection.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock), without a system call, if nothing has come since the last time that said so.
    pub fn take<T>(&mut self, take: impl FnOnce(&mut S) -> io::Result<T>) -> io::Result<T> {
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

/// A connected stream.
impl<S: Read + Write + Send> ByteStream for Polled<S> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let wanted = space.len();
        let outcome = self.take(|stream| stream.read(space));
        // Polling tells of every byte that comes after a short read; epoll(7) allows to rely on it.
        if matches!(outcome, Ok(bytes) if bytes < wanted)
            && !self.ready.ending.load(Ordering::Relaxed)
        {
            self.ready.readable.store(false, Ordering::Relaxed);
        }
        outcome
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.is_writable() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let outcome = self.socket.write_vectored(pieces);
        if matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            self.ready.writable.store(false, Ordering::Relaxed);
        }
        outcome
    }

    fn is_connected(&self) -> bool {
        true
    }
}
