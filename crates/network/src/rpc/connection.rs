//! A connection between two processes after the handshake.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};

use crate::rpc::frame::{Encoded, FrameReader, connection_lost, decode};
use crate::rpc::handshake::HandshakeRequest;
use crate::rpc::security::Stream;
use crate::rpc::sync_connection::{DetachedConnection, MessageReader};

/// A connection between two processes after the handshake. It is closed when both halves are
/// dropped.
pub struct RpcConnection {
    greeting: HandshakeRequest,
    peer: Arc<str>,
    sender: Sender,
    receiver: Receiver,
}

impl RpcConnection {
    pub(crate) fn new(
        greeting: HandshakeRequest,
        peer: Arc<str>,
        read: ReadHalf<Box<dyn Stream>>,
        write: WriteHalf<Box<dyn Stream>>,
        cutter: FrameReader,
        most_bytes: usize,
    ) -> Self {
        RpcConnection {
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

    /// Returns the handshake request of the connecting side.
    pub fn greeting(&self) -> &HandshakeRequest {
        &self.greeting
    }

    /// Returns the peer's address, for messages to users.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Detaches the socket from tokio, for a thread that polls it itself.
    ///
    /// # Errors
    /// If the runtime fails to release the socket.
    pub fn detach(self) -> Result<DetachedConnection> {
        let failed = |error| connection_lost(&self.peer, error);
        let (socket, tls) = self.receiver.stream.unsplit(self.sender.stream).detach();
        Ok(DetachedConnection {
            socket: socket.into_std().map_err(failed)?,
            tls,
            messages: MessageReader::behind(
                self.receiver.cutter,
                self.receiver.most_bytes,
                &self.peer,
            ),
        })
    }

    /// Splits the connection into halves, which may be used by different tasks.
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }
}

impl fmt::Debug for RpcConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RpcConnection({}: {})", self.peer, self.greeting.purpose)
    }
}

/// The half that sends.
pub struct Sender {
    stream: WriteHalf<Box<dyn Stream>>,
    peer: Arc<str>,
    /// Unsent messages, with the number of bytes already written of each.
    unsent: VecDeque<(Encoded, usize)>,
    is_cut: bool,
}

impl Sender {
    /// Sends a message; when the future completes, the message is with the operating system. If the
    /// future is dropped earlier, the message is sent before the next message.
    ///
    /// # Errors
    /// If the connection is lost, or the message can't be encoded.
    pub async fn send<M: Serialize + ?Sized>(&mut self, message: &M) -> Result<()> {
        self.send_encoded(Encoded::new(message)?).await
    }

    /// Sends an already encoded message; otherwise like [`send`](Self::send).
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn send_encoded(&mut self, message: Encoded) -> Result<()> {
        self.unsent.push_back((message, 0));
        self.flush().await
    }

    /// Sends the rest of messages whose futures were dropped.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn flush(&mut self) -> Result<()> {
        if self.is_cut {
            return Err(connection_lost(
                &self.peer,
                std::io::ErrorKind::BrokenPipe.into(),
            ));
        }
        let outcome = self.write_all().await;
        self.is_cut = outcome.is_err();
        outcome.map_err(|error| connection_lost(&self.peer, error))
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

    /// Sends everything, then closes this direction.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn finish(mut self) -> Result<()> {
        self.flush().await?;
        let closed = self.stream.shutdown().await;
        closed.map_err(|error| connection_lost(&self.peer, error))
    }

    /// Returns the peer's address, for messages to users.
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
    cutter: FrameReader,
    most_bytes: usize,
}

impl Receiver {
    /// Returns the next message; `None` when the peer has closed its side between two messages. The
    /// future may be dropped: received bytes are not lost.
    ///
    /// # Errors
    /// [`ErrorCode::Network`] if the connection was cut; [`ErrorCode::BadMessage`] if a message is
    /// too long or can't be decoded. After a message that is too long, the connection is unusable.
    pub async fn receive<M: DeserializeOwned>(&mut self) -> Result<Option<M>> {
        let next = self
            .cutter
            .next(&mut self.stream, self.most_bytes, &self.peer);
        match next.await? {
            Some(body) => decode(body, &self.peer).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the next message of a peer that has to send one.
    ///
    /// # Errors
    /// As [`receive`](Self::receive), and if the peer has closed its side.
    pub async fn expect<M: DeserializeOwned>(&mut self) -> Result<M> {
        self.receive().await?.ok_or_else(|| {
            Error::new(
                ErrorCode::Network,
                format!("{} closed the connection instead of answering", self.peer),
            )
            .hint("check the log of that process")
        })
    }

    /// Returns the peer's address, for messages to users.
    pub fn peer(&self) -> &str {
        &self.peer
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({})", self.peer)
    }
}
