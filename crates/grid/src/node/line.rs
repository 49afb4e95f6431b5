//! A connection between two members, polled by whoever drives one of them.

use std::io::{self, IoSlice};

use crate::protocol::{Member, Word};
use ardea_core::Result;
use ardea_network::exchange::{ByteStream, Readiness, Sockets, TlsStream};
use ardea_network::rpc::{Apart, Messages, Needed, write};
use serde::{Deserialize, Serialize};

/// How much may wait to leave before more is written, in bytes: what waits longer waits as words, of which some go before others.
const FULL_BYTES: usize = 256 << 10;

/// What goes over a connection: first who speaks, then what is said.
#[derive(Serialize, Deserialize)]
pub(crate) enum Letter {
    From(Member),
    Words(Vec<Word>),
}

/// A connection between two members.
pub(crate) struct Line {
    stream: Box<dyn ByteStream>,
    readiness: Readiness,
    messages: Messages,
    out: Vec<u8>,
    /// How much of that has left.
    left: usize,
    needed: Needed,
}

impl Line {
    /// Polls a connection from now on.
    pub fn new(apart: Apart, sockets: &Sockets) -> io::Result<Self> {
        let socket = sockets.adopt(apart.socket)?;
        let readiness = socket.readiness();
        // Something may have come before anybody polled it.
        readiness.look();
        Ok(Line {
            stream: match apart.tls {
                None => Box::new(socket),
                Some(tls) => Box::new(TlsStream::new(socket, tls)),
            },
            readiness,
            messages: apart.messages,
            out: Vec::new(),
            left: 0,
            needed: Needed::default(),
        })
    }

    /// Whatever polling has told, the operating system is asked the next time.
    pub fn look(&self) {
        self.readiness.look();
    }

    /// Whether so much waits to leave that no more is to be written.
    pub fn is_full(&self) -> bool {
        self.out.len() - self.left >= FULL_BYTES
    }

    /// Whether nothing waits to leave.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty() && self.stream.held() == 0
    }

    /// Writes a letter, which leaves with the next [`flush`](Self::flush).
    pub fn write(&mut self, letter: &Letter) -> Result<()> {
        write(letter, &mut self.out)
    }

    /// Sends what goes without waiting; how many bytes.
    pub fn flush(&mut self) -> io::Result<usize> {
        let before = self.left;
        self.needed.see(self.out.len());
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

    /// Some time has passed: gives memory back that was not needed lately.
    pub fn tidy(&mut self) {
        self.messages.tidy();
        let kept = self.needed.pass();
        if self.out.is_empty() && self.out.capacity() > kept {
            self.out = Vec::new();
        }
    }

    /// The next letter; none if no whole one has come.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub fn receive(&mut self) -> Result<Option<Letter>, Ended> {
        loop {
            // A letter that can't be read is of another version: its sender has to be told by people.
            if let Some(letter) = self.messages.take().map_err(|_| Ended)? {
                return Ok(Some(letter));
            }
            match self.stream.read(self.messages.space()) {
                Ok(0) => return Err(Ended),
                Ok(bytes) => self.messages.came(bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(_) => return Err(Ended),
            }
        }
    }
}

/// A connection is of no use any more.
#[derive(Debug)]
pub(crate) struct Ended;
