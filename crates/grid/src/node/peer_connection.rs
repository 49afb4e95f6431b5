//! Connection between two members, polled by the driver.

use std::io::{self, IoSlice};

use crate::protocol::{Member, Message};
use ardea_core::Result;
use ardea_network::exchange::{ByteStream, Readiness, Sockets, TlsStream};
use ardea_network::rpc::{BufferUsage, DetachedConnection, MessageReader, write};
use serde::{Deserialize, Serialize};

/// Number of unsent bytes above which no further batch is encoded. Messages that wait longer stay
/// in the send queue, where they can be reordered.
const FULL_BYTES: usize = 256 << 10;

/// Content of a connection: first the sender's identity, then its messages.
#[derive(Serialize, Deserialize)]
pub(crate) enum MessageBatch {
    From(Member),
    Batch(Vec<Message>),
}

/// A connection between two members.
pub(crate) struct PeerStream {
    stream: Box<dyn ByteStream>,
    readiness: Readiness,
    messages: MessageReader,
    out: Vec<u8>,
    /// Number of bytes of `out` already sent.
    left: usize,
    needed: BufferUsage,
}

impl PeerStream {
    /// Takes over a connection for polling.
    pub fn new(apart: DetachedConnection, sockets: &Sockets) -> io::Result<Self> {
        let socket = sockets.adopt(apart.socket)?;
        let readiness = socket.readiness();
        // Data may have arrived before polling began.
        readiness.force_ready();
        Ok(PeerStream {
            stream: match apart.tls {
                None => Box::new(socket),
                Some(tls) => Box::new(TlsStream::new(socket, tls)),
            },
            readiness,
            messages: apart.messages,
            out: Vec::new(),
            left: 0,
            needed: BufferUsage::default(),
        })
    }

    /// Makes the next read and write try the socket, even if polling has not reported it as ready.
    pub fn look(&self) {
        self.readiness.force_ready();
    }

    /// Returns true if no further batch should be encoded.
    pub fn is_full(&self) -> bool {
        self.out.len() - self.left >= FULL_BYTES
    }

    /// Returns true if there is nothing left to send.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty() && self.stream.held() == 0
    }

    /// Encodes a batch, which is sent by the next [`flush`](Self::flush).
    pub fn write(&mut self, letter: &MessageBatch) -> Result<()> {
        write(letter, &mut self.out)
    }

    /// Sends as much as possible without blocking. Returns the number of bytes.
    pub fn flush(&mut self) -> io::Result<usize> {
        let before = self.left;
        self.needed.record(self.out.len());
        while self.left < self.out.len() {
            match self.stream.write(&[IoSlice::new(&self.out[self.left..])]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.left += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let sent = self.left - before;
        if self.left == self.out.len() {
            self.left = 0;
            self.out.clear();
        }
        match self.stream.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(sent),
        }
    }

    /// Frees memory that was not needed recently. Called periodically.
    pub fn tidy(&mut self) {
        self.messages.shrink();
        let kept = self.needed.decay();
        if self.out.is_empty() && self.out.capacity() > kept {
            self.out = Vec::new();
        }
    }

    /// Returns the next batch; `None` if none has arrived completely.
    ///
    /// # Errors
    /// [`Ended`] if the connection is closed or broken.
    pub fn receive(&mut self) -> Result<Option<MessageBatch>, Ended> {
        loop {
            // An unreadable batch is of an incompatible version, which only an operator can
            // resolve.
            if let Some(letter) = self.messages.take().map_err(|_| Ended)? {
                return Ok(Some(letter));
            }
            match self.stream.read(self.messages.space()) {
                Ok(0) => return Err(Ended),
                Ok(bytes) => self.messages.advance(bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(_) => return Err(Ended),
            }
        }
    }
}

/// Error: the connection is closed or broken.
#[derive(Debug)]
pub(crate) struct Ended;
