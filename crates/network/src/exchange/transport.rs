//! The interface of transports between workers.
//!
//! A transport belongs to one thread, which polls it, its listeners and its connections in slices;
//! nothing here blocks except [`Transport::wait`]. Framing, handshake, flow control and heartbeats
//! are above it and the same for all transports. Three are implemented:
//! [`tcp`](crate::exchange::TcpTransport) between hosts, with or without TLS,
//! [`host`](crate::exchange::HostTransport) for workers of one host in addition, and
//! [`memory`](crate::exchange::MemoryTransport) within a process. Another kind of byte stream only
//! has to implement [`ByteStream`]; a transport that moves frames directly, such as a ring in
//! shared memory, implements [`Connection`].

use std::io;
use std::time::Duration;

use ardea_core::Result;

use crate::exchange::disconnect::Disconnected;
use crate::exchange::frame::{Frame, SendBuffer};
use crate::exchange::network_waker::NetworkWaker;
use crate::exchange::ring::RingCounts;

/// The addresses at which a transport looks for a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressScope {
    /// The address of the worker in the network.
    Network,
    /// The worker's address on this host, then that in the network.
    HostThenNetwork,
    /// The worker's address on this host only.
    Host,
}

/// A network transport between workers.
pub trait Transport: Send {
    /// Returns the transport's name in the configuration.
    fn name(&self) -> &'static str;

    /// Returns the kinds of addresses that this transport connects to and listens at. Addresses on
    /// this host are those of [`host_address`](crate::exchange::host_address).
    fn scope(&self) -> AddressScope {
        AddressScope::Network
    }

    /// Starts connecting to an address, in the transport's own notation, and returns at once. A
    /// failure to connect is reported by the connection.
    ///
    /// # Errors
    /// If the address is invalid, or this process can open no more connections.
    fn connect(&mut self, address: &str) -> Result<Box<dyn Connection>>;

    /// Starts listening.
    ///
    /// # Errors
    /// If the address is invalid, in use, or may not be listened at.
    fn listen(&mut self, address: &str) -> Result<Box<dyn Listener>>;

    /// Returns the waker that ends the current or the next [`wait`](Self::wait), from any thread.
    fn waker(&self) -> NetworkWaker;

    /// Waits until a connection or listener may be ready, the waker is rung, or `timeout` has
    /// passed. Before a longer wait, [`Connection::may_wait`] must have returned true for each
    /// connection. A timeout of zero only polls; such calls are needed from time to time, so that
    /// connections detect their readiness.
    ///
    /// # Errors
    /// If the operating system refuses; the transport must not be used after that.
    fn wait(&mut self, timeout: Duration) -> Result<()>;
}

/// Accepts incoming connections.
pub trait Listener: Send {
    /// Returns the address that others connect to.
    fn address(&self) -> &str;

    /// Returns the next incoming connection, if any. Never blocks.
    ///
    /// # Errors
    /// If a connection could not be accepted, for example for lack of file descriptors; later calls
    /// may succeed.
    fn accept(&mut self) -> Result<Option<Box<dyn Connection>>>;
}

/// A bidirectional connection to one peer. Frames arrive once and in order, or the peer is
/// disconnected.
pub trait Connection: Send {
    /// Returns the peer's address, for messages.
    fn peer(&self) -> &str;

    /// Accepts a buffer to send, or returns it if the queue is full: the caller must
    /// [`flush`](Self::flush) and retry later. Nothing is sent before the next flush.
    fn send(&mut self, parcel: SendBuffer) -> Result<(), SendBuffer>;

    /// Sends queued data without blocking, at most one slice. Returns the number of bytes moved.
    ///
    /// # Errors
    /// The peer is disconnected.
    fn flush(&mut self) -> Result<usize, Disconnected>;

    /// Returns the next frame, if one has arrived. `None` means that all received bytes have been
    /// read.
    ///
    /// # Errors
    /// The peer is disconnected; all complete frames that it sent before have been given out.
    fn receive(&mut self) -> Result<Option<Frame>, Disconnected>;

    /// Changes the largest payload accepted from the peer, in bytes.
    fn allow(&mut self, most_payload: usize);

    /// Returns the number of bytes accepted and not sent yet.
    fn unsent(&self) -> usize;

    /// Announces that the thread is about to [wait](Transport::wait) for more than a moment.
    /// Returns false if there is something to do; the thread must not wait then.
    ///
    /// After it has returned true, the wait ends when a frame arrives or an unsent one can be sent.
    /// A connection over a socket needs no announcement.
    fn may_wait(&mut self) -> bool {
        true
    }

    /// Returns the kind of this connection, if its transport has several: `shm`, `uds` or `tcp`.
    fn kind(&self) -> Option<&'static str> {
        None
    }

    /// Returns the state of the rings of a connection over shared memory.
    fn ring_counts(&self) -> Option<RingCounts> {
        None
    }
}

/// A non-blocking byte stream, from which [`Framed`](crate::exchange::Framed) makes a connection.
pub trait ByteStream: Send {
    /// Reads into `space`. Returns the number of bytes, zero if the peer has closed its side.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if no data is available; without a system call, if
    /// possible.
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize>;

    /// Writes the beginning of `pieces`. Returns the number of bytes.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if nothing can be written; without a system call,
    /// if possible.
    fn write(&mut self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize>;

    /// Sends written bytes that are still buffered, for streams that buffer.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if not all of them can be sent now.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Returns the approximate number of written bytes still buffered; [`flush`](Self::flush) sends
    /// them.
    fn held(&self) -> usize {
        0
    }

    /// Returns true once the connection is established. An earlier failure means that the peer is
    /// unreachable.
    fn is_connected(&self) -> bool;
}

/// A stream that could not be opened: every use returns the error, so the peer is unreachable.
impl<S: ByteStream> ByteStream for io::Result<S> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        opened(self)?.read(space)
    }

    fn write(&mut self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        opened(self)?.write(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        opened(self)?.flush()
    }

    fn held(&self) -> usize {
        self.as_ref().map_or(0, S::held)
    }

    fn is_connected(&self) -> bool {
        self.as_ref().is_ok_and(S::is_connected)
    }
}

/// Returns the stream, or its error as a permanent one. This includes "would block", which a
/// listener with a full queue causes.
fn opened<S>(stream: &mut io::Result<S>) -> io::Result<&mut S> {
    stream
        .as_mut()
        .map_err(|error| io::Error::other(error.to_string()))
}
