//! TLS over another byte stream: both sides present a certificate of the cluster's authority.
//!
//! Encrypted bytes that the stream below does not accept are buffered here, and count as unsent
//! until a flush moves them. No application data is accepted during the handshake.

use std::io::{self, IoSlice, Read, Write};

use crate::tls::{explain, rustls};

use crate::exchange::transport::ByteStream;

/// Maximum number of buffered encrypted bytes.
const MOST_HELD_BYTES: usize = 128 << 10;
/// Number of reads without application data after which the peer is considered malicious: it sends
/// only empty records.
const MOST_IDLE_READS: usize = 1_000;

/// A stream with TLS over it.
#[derive(Debug)]
pub struct TlsStream<S: ByteStream> {
    below: S,
    tls: rustls::Connection,
    /// Encrypted bytes that wait for the stream below.
    held: usize,
}

impl<S: ByteStream> TlsStream<S> {
    /// Creates a stream for either side of a connection.
    pub fn new(below: S, tls: impl Into<rustls::Connection>) -> Self {
        let mut tls = tls.into();
        tls.set_buffer_limit(Some(MOST_HELD_BYTES));
        TlsStream {
            below,
            tls,
            held: 0,
        }
    }

    /// Moves encrypted bytes to the stream below; fails if the stream doesn't accept all of them.
    fn push(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut InnerStream(&mut self.below)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.held = self.held.saturating_sub(bytes),
                Err(error) => {
                    self.held = self.held.max(1);
                    return Err(error);
                }
            }
        }
        self.held = 0;
        Ok(())
    }

    /// Reads and decrypts once; returns false at the end of the stream below.
    fn pull(&mut self) -> io::Result<bool> {
        let bytes = self.tls.read_tls(&mut InnerStream(&mut self.below))?;
        if let Err(error) = self.tls.process_new_packets() {
            // Sends the TLS alert, if the peer is still connected.
            let _ = self.push();
            let why = explain(&error);
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        // Sends responses of the TLS protocol.
        self.push().or_else(later)?;
        Ok(bytes > 0)
    }
}

/// Turns a retriable error into success.
fn later(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}

impl<S: ByteStream> ByteStream for TlsStream<S> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        if self.tls.is_handshaking() {
            self.push().or_else(later)?;
        }
        for _ in 0..MOST_IDLE_READS {
            match self.tls.reader().read(space) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // An end without a close notification is an error: an attacker could have cut the
                // connection.
                outcome => return outcome,
            }
            if !self.pull()? && self.tls.is_handshaking() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let what = "it sends nothing but empty TLS records";
        Err(io::Error::new(io::ErrorKind::InvalidData, what))
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.push()?;
        while self.tls.is_handshaking() {
            // A side that only writes has to read the handshake as well.
            if !self.pull()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let bytes = self.tls.writer().write_vectored(pieces)?;
        self.held = bytes;
        self.push().or_else(later)?;
        Ok(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.push()
    }

    fn held(&self) -> usize {
        self.held
    }

    fn is_connected(&self) -> bool {
        self.below.is_connected() && !self.tls.is_handshaking()
    }
}

impl<S: ByteStream> Drop for TlsStream<S> {
    /// Sends a close notification, so that the peer can exclude truncation.
    fn drop(&mut self) {
        self.tls.send_close_notify();
        let _ = self.push();
    }
}

/// Adapts the stream below to the interface of rustls.
struct InnerStream<'a, S>(&'a mut S);

impl<S: ByteStream> Read for InnerStream<'_, S> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.0.read(space)
    }
}

impl<S: ByteStream> Write for InnerStream<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
