//! TLS over another stream of bytes: both sides show a certificate of the cluster's authority.
//!
//! Encrypted bytes that the stream below does not take at once are held here, and count as unsent until a flush has moved them. While
//! the two sides greet each other nothing is taken at all.

use std::io::{self, IoSlice, Read, Write};

use crate::tls::{explain, rustls};

use crate::exchange::transport::ByteStream;

/// Encrypted bytes that are held at most.
const MOST_HELD_BYTES: usize = 128 << 10;
/// So many reads without a byte of the peer's words: it sends nothing but empty records.
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
    /// Of the side that connects, or that was connected to.
    pub fn new(below: S, tls: impl Into<rustls::Connection>) -> Self {
        let mut tls = tls.into();
        tls.set_buffer_limit(Some(MOST_HELD_BYTES));
        TlsStream {
            below,
            tls,
            held: 0,
        }
    }

    /// Moves what is encrypted to the stream below; an error if that doesn't take all of it now.
    fn push(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Below(&mut self.below)) {
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

    /// Takes in what has come, once; false if nothing has.
    fn pull(&mut self) -> io::Result<bool> {
        let bytes = self.tls.read_tls(&mut Below(&mut self.below))?;
        if let Err(error) = self.tls.process_new_packets() {
            // The peer is told why, if it is still there to hear it.
            let _ = self.push();
            let why = explain(&error);
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        // Answers of the protocol itself.
        self.push().or_else(later)?;
        Ok(bytes > 0)
    }
}

/// What can't be done now is done later.
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
                // An end without a farewell is an error here: anybody on the way could have cut the connection.
                outcome => return outcome,
            }
            if !self.pull()? && self.tls.is_handshaking() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let what = "it sends nothing but empty records of TLS";
        Err(io::Error::new(io::ErrorKind::InvalidData, what))
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.push()?;
        while self.tls.is_handshaking() {
            // Who only writes has to hear the greeting as well.
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
    /// Says farewell, so that the peer knows that nothing was cut off.
    fn drop(&mut self) {
        self.tls.send_close_notify();
        let _ = self.push();
    }
}

/// The stream below, as TLS wants it.
struct Below<'a, S>(&'a mut S);

impl<S: ByteStream> Read for Below<'_, S> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.0.read(space)
    }
}

impl<S: ByteStream> Write for Below<'_, S> {
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
