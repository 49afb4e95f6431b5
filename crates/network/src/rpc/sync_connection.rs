//! Connections for threads that poll sockets themselves, without tokio.
//!
//! The frames are the same as with tokio, so the peer sees no difference.

use std::fmt;
use std::net::TcpStream;
use std::sync::Arc;

use crate::tls::rustls;
use ardea_core::Result;
use serde::de::DeserializeOwned;

use crate::rpc::buffer_shrink::BufferUsage;
use crate::rpc::frame::{FrameReader, LENGTH_BYTES, decode, whole};

/// Minimum read size, in bytes.
const SPACE_BYTES: usize = 64 << 10;

/// A connection after the handshake, detached from tokio.
pub struct DetachedConnection {
    /// The socket, in non-blocking mode.
    pub socket: TcpStream,
    /// TLS over it, if the cluster uses it.
    pub tls: Option<rustls::Connection>,
    /// Bytes already received.
    pub messages: MessageReader,
}

impl fmt::Debug for DetachedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DetachedConnection({})", self.messages.peer)
    }
}

/// The received bytes of a connection, split into messages. Its memory grows with the received
/// bytes, not with announced lengths.
#[derive(Debug)]
pub struct MessageReader {
    /// The bytes from `start` to `end` were received and not taken.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    needed: BufferUsage,
    most_bytes: usize,
    peer: Arc<str>,
}

impl MessageReader {
    pub(crate) fn behind(cutter: FrameReader, most_bytes: usize, peer: &Arc<str>) -> Self {
        let buffer = cutter.into_rest();
        MessageReader {
            start: 0,
            end: buffer.len(),
            buffer,
            needed: BufferUsage::default(),
            most_bytes,
            peer: Arc::clone(peer),
        }
    }

    /// Returns the peer's address, for messages to users.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Returns the buffer to read into; the caller then reports the number of bytes to
    /// [`advance`](Self::advance).
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.buffer.len() - self.end < SPACE_BYTES / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            // Twice the received bytes, so that long messages are not moved repeatedly.
            let wanted = (2 * self.end).max(SPACE_BYTES);
            if self.buffer.len() < wanted {
                self.buffer.resize(wanted, 0);
            }
        }
        &mut self.buffer[self.end..]
    }

    /// Records that the caller has read `bytes` bytes from the socket into the buffer.
    pub fn advance(&mut self, bytes: usize) {
        self.end = (self.end + bytes).min(self.buffer.len());
        self.needed.record(self.end);
    }

    /// Frees memory that was not needed lately. Expected to be called several times a second.
    pub fn shrink(&mut self) {
        let kept = self.needed.decay();
        if self.start == self.end && self.buffer.len() > kept {
            (self.start, self.end) = (0, 0);
            self.buffer = Vec::new();
        }
    }

    /// Returns the next message, if it is complete.
    ///
    /// # Errors
    /// `BadMessage` if a message is too long or can't be decoded: the connection is then unusable.
    pub fn take<M: DeserializeOwned>(&mut self) -> Result<Option<M>> {
        let come = &self.buffer[self.start..self.end];
        let Some(end) = whole(come, self.most_bytes, &self.peer)? else {
            return Ok(None);
        };
        let message = decode(&come[LENGTH_BYTES..end], &self.peer)?;
        self.start += end;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::frame::{Encoded, write};
    use ardea_core::ErrorCode;
    use proptest::prelude::*;

    fn messages(most_bytes: usize) -> MessageReader {
        MessageReader::behind(FrameReader::default(), most_bytes, &"10.0.0.7:7".into())
    }

    fn came(messages: &mut MessageReader, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = messages.space();
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            messages.advance(count);
            bytes = &bytes[count..];
        }
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in_wherever_the_bytes_are_cut(
            all in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
            piece in 1_usize..100,
        ) {
            let mut bytes = Vec::new();
            for message in &all {
                write(message, &mut bytes).unwrap();
            }
            let encoded: Vec<u8> = all
                .iter()
                .flat_map(|message| Encoded::new(message).unwrap().bytes().to_vec())
                .collect();
            prop_assert_eq!(&bytes, &encoded);
            let (mut messages, mut got) = (messages(1000), Vec::new());
            for piece in bytes.chunks(piece) {
                came(&mut messages, piece);
                while let Some(message) = messages.take::<Vec<u8>>().unwrap() {
                    got.push(message);
                }
            }
            prop_assert_eq!(got, all);
        }

        #[test]
        fn any_bytes_lead_to_messages_or_to_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut messages = messages(1 << 20);
            came(&mut messages, &bytes);
            while let Ok(Some(_)) = messages.take::<(String, Vec<u64>)>() {}
        }
    }

    #[test]
    fn what_is_too_long_is_refused_before_it_has_come() {
        let mut messages = messages(100);
        came(&mut messages, &[255, 255, 255, 255, 0]);
        let error = messages.take::<u8>().unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadMessage);
        assert!(error.to_string().contains("10.0.0.7:7"), "{error}");
        assert!(messages.buffer.len() < 1 << 20);
    }

    #[test]
    fn a_long_message_is_taken_whole_and_its_memory_given_back_when_no_more_come() {
        let long = vec![7_u8; 5 << 20];
        let (mut bytes, mut messages) = (Vec::new(), messages(16 << 20));
        write(&long, &mut bytes).unwrap();
        came(&mut messages, &bytes);
        assert_eq!(messages.take::<Vec<u8>>().unwrap(), Some(long));
        messages.shrink();
        assert!(messages.space().len() > 5 << 20);
        for _ in 0..1_000 {
            messages.shrink();
        }
        assert!(messages.space().len() <= SPACE_BYTES);
    }
}
