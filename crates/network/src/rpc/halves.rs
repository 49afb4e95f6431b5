//! A connection between two processes that have greeted each other.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};

use crate::rpc::frame::{Cutter, Encoded, cut_off, decode};
use crate::rpc::greeting::Greeting;
use crate::rpc::polled::{Apart, Messages};
use crate::rpc::security::Stream;

/// A connection between two processes that have greeted each other. When both halves are dropped it is closed.
pub struct Courier {
    greeting: Greeting,
    peer: Arc<str>,
    sender: Sender,
    receiver: Receiver,
}

impl Courier {
    pub(crate) fn new(
        greeting: Greeting,
        peer: Arc<str>,
        read: ReadHalf<Box<dyn Stream>>,
        write: WriteHalf<Box<dyn Stream>>,
        cutter: Cutter,
        most_bytes: usize,
    ) -> Self {
        Courier {
            greeting,
            sender: Sender {
                stream: write,
                peer: Arc::clone(&peer),
                unsent: VecDeque::new(),
                is_cut: false,
            },
            receiver: Receiver {
                stream: read,
                peer: Arc::clone(&peer),
                cutter,
                most_bytes,
            },
            peer,
        }
    }

    /// How whoever connected has greeted.
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// The address at the other end, for messages to people.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// The socket, for whoever polls it in a thread of its own instead of by tokio.
    ///
    /// # Errors
    /// If the runtime doesn't let go of the socket.
    pub fn apart(self) -> Result<Apart> {
        let failed = |error| cut_off(&self.peer, error);
        let (socket, tls) = self.receiver.stream.unsplit(self.sender.stream).apart();
        Ok(Apart {
            socket: socket.into_std().map_err(failed)?,
            tls,
            messages: Messages::behind(self.receiver.cutter, self.receiver.most_bytes, &self.peer),
        })
    }

    /// Its halves, which may be used by different tasks.
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }
}

impl fmt::Debug for Courier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Courier({}: {})", self.peer, self.greeting.purpose)
    }
}

/// The half that sends.
pub struct Sender {
    stream: WriteHalf<Box<dyn Stream>>,
    peer: Arc<str>,
    /// Messages with how much of each has left.
    unsent: VecDeque<(Encoded, usize)>,
    is_cut: bool,
}

impl Sender {
    /// Sends a message; when it is ready, the message is with the operating system. If the future is dropped before, the message leaves in
    /// front of the next one.
    ///
    /// # Errors
    /// If the connection is gone, or the message can't be encoded.
    pub async fn send<M: Serialize + ?Sized>(&mut self, message: &M) -> Result<()> {
        self.send_encoded(Encoded::new(message)?).await
    }

    /// Sends a message that was encoded before; otherwise like [`send`](Self::send).
    ///
    /// # Errors
    /// If the connection is gone.
    pub async fn send_encoded(&mut self, message: Encoded) -> Result<()> {
        self.unsent.push_back((message, 0));
        self.flush().await
    }

    /// Sends what is left of messages whose sending was given up.
    ///
    /// # Errors
    /// If the connection is gone.
    pub async fn flush(&mut self) -> Result<()> {
        if self.is_cut {
            return Err(cut_off(&self.peer, std::io::ErrorKind::BrokenPipe.into()));
        }
        let outcome = self.write_all().await;
        self.is_cut = outcome.is_err();
        outcome.map_err(|error| cut_off(&self.peer, error))
    }

    async fn write_all(&mut self) -> std::io::Result<()> {
        while let Some((message, left)) = self.unsent.front_mut() {
            let rest = &message.bytes()[*left..];
            if rest.is_empty() {
                self.unsent.pop_front();
                continue;
            }
            match self.stream.write(rest).await? {
                0 => return Err(std::io::ErrorKind::WriteZero.into()),
                bytes => *left += bytes,
            }
        }
        self.stream.flush().await
    }

    /// Tells the peer that nothing more comes.
    ///
    /// # Errors
    /// If the connection is gone.
    pub async fn finish(mut self) -> Result<()> {
        self.flush().await?;
        let closed = self.stream.shutdown().await;
        closed.map_err(|error| cut_off(&self.peer, error))
    }

    /// The address at the other end, for messages to people.
    pub fn peer(&self) -> &str {
        &self.peer
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({})", self.peer)
    }
}

/// The half that receives.
pub struct Receiver {
    stream: ReadHalf<Box<dyn Stream>>,
    peer: Arc<str>,
    cutter: Cutter,
    most_bytes: usize,
}

impl Receiver {
    /// The next message; `None` when the peer has closed its side between two messages. The future may be dropped: nothing that was read is
    /// lost.
    ///
    /// # Errors
    /// [`ErrorCode::Network`] if the connection was cut; [`ErrorCode::BadMessage`] if what came is too long, after which the connection is of
    /// no use, or is none of these messages, after which the next one may be.
    pub async fn receive<M: DeserializeOwned>(&mut self) -> Result<Option<M>> {
        let next = self
            .cutter
            .next(&mut self.stream, self.most_bytes, &self.peer);
        match next.await? {
            Some(body) => decode(body, &self.peer).map(Some),
            None => Ok(None),
        }
    }

    /// The next message of a peer that has to send one.
    ///
    /// # Errors
    /// As [`receive`](Self::receive), and if the peer has closed its side.
    pub async fn expect<M: DeserializeOwned>(&mut self) -> Result<M> {
        self.receive().await?.ok_or_else(|| {
            Error::new(
                ErrorCode::Network,
                format!("{} closed the connection instead of answering", self.peer),
            )
            .hint("look at the log of that process")
        })
    }

    /// The address at the other end, for messages to people.
    pub fn peer(&self) -> &str {
        &self.peer
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({})", self.peer)
    }
}
