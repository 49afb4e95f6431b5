//! What a transport has to do: the one place where workers meet.
//!
//! A transport belongs to one thread, which polls it, its listeners and its connections in slices; nothing here blocks except
//! [`Transport::wait`]. Framing, the handshake, flow control and heartbeats are above it and the same for all. Two are here:
//! [`tcp`](crate::exchange::TcpTransport) between hosts, with TLS or without, [`memory`](crate::exchange::MemoryTransport) within a process. A stream of
//! bytes of another kind (a Unix socket) only has to be a [`ByteStream`]; what moves frames in its own way (a ring in shared
//! memory) is a [`Connection`] itself.

use std::io;
use std::time::Duration;

use ardea_core::Result;

use crate::exchange::doorbell::Doorbell;
use crate::exchange::frame::{Frame, Parcel};
use crate::exchange::gone::PeerGone;

/// A way between workers.
pub trait Transport: Send {
    /// Its name in the configuration.
    fn name(&self) -> &'static str;

    /// Begins to connect to an address, in the transport's own notation, and returns at once. That nobody is there is told by
    /// the connection.
    ///
    /// # Errors
    /// If the address makes no sense, or this process can open no more connections.
    fn connect(&mut self, address: &str) -> Result<Box<dyn Connection>>;

    /// Takes connections from now on.
    ///
    /// # Errors
    /// If the address makes no sense, is taken, or may not be listened at.
    fn listen(&mut self, address: &str) -> Result<Box<dyn Listener>>;

    /// Ends the present or the next [`wait`](Self::wait), from any thread.
    fn doorbell(&self) -> Doorbell;

    /// Waits until a connection or listener may have something to do, somebody rang, or `timeout` is over. With a timeout of zero
    /// it only looks, which connections need from time to time to see that they can go on.
    ///
    /// # Errors
    /// If the operating system refuses; the transport is of no use then.
    fn wait(&mut self, timeout: Duration) -> Result<()>;
}

/// Where connections come in.
pub trait Listener: Send {
    /// The address that others connect to.
    fn address(&self) -> &str;

    /// The next connection, if there is one. Never blocks.
    ///
    /// # Errors
    /// If one could not be taken, such as for want of file descriptors; later ones may be.
    fn accept(&mut self) -> Result<Option<Box<dyn Connection>>>;
}

/// A way to one peer, both ways. Frames arrive once, in their order, or the peer is gone.
pub trait Connection: Send {
    /// The peer's address, for messages.
    fn peer(&self) -> &str;

    /// Takes a parcel to send, or gives it back if there are enough already: then [`flush`](Self::flush) and try again later.
    /// Nothing goes out before the next flush.
    fn send(&mut self, parcel: Parcel) -> Result<(), Parcel>;

    /// Moves what was taken towards the peer, as much as goes without waiting, within a slice. Returns the bytes moved.
    ///
    /// # Errors
    /// The peer is gone.
    fn flush(&mut self) -> Result<usize, PeerGone>;

    /// The next frame, if one has come. Without one all that had come has been taken in.
    ///
    /// # Errors
    /// The peer is gone; all whole frames that it sent before have been given out.
    fn receive(&mut self) -> Result<Option<Frame>, PeerGone>;

    /// Changes the greatest payload that is taken from the peer, in bytes.
    fn allow(&mut self, most_payload: usize);

    /// Bytes taken and not moved yet.
    fn unsent(&self) -> usize;
}

/// A non-blocking stream of bytes, from which [`Framed`](crate::exchange::Framed) makes a connection.
pub trait ByteStream: Send {
    /// Reads into `space`. Zero: the peer has closed its side.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if nothing is there, without a system call if that is known.
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize>;

    /// Writes the beginning of these pieces.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if nothing can be written, without a system call if that is known.
    fn write(&mut self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize>;

    /// Moves what was written and is held back, for streams that do so.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if not all of it can be moved now.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Bytes, or about as many, that were written and are held back: [`flush`](Self::flush) moves them.
    fn held(&self) -> usize {
        0
    }

    /// Whether the connection has come to be; before that a failure means that the peer can't be reached.
    fn is_connected(&self) -> bool;
}

/// A stream that could not be opened says why when it is used: that the peer can't be reached.
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

/// The reason is final, also one such as "would block", of a listener whose queue is full.
fn opened<S>(stream: &mut io::Result<S>) -> io::Result<&mut S> {
    stream
        .as_mut()
        .map_err(|error| io::Error::other(error.to_string()))
}
