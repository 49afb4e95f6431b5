//! Connections that somebody polls himself: what is left of a courier when its thread is no thread of tokio.
//!
//! The same frames go over them, so the other end need not know.

use std::fmt;
use std::net::TcpStream;
use std::sync::Arc;

use crate::tls::rustls;
use ardea_core::Result;
use serde::de::DeserializeOwned;

use crate::rpc::frame::{Cutter, LENGTH_BYTES, decode, whole};
use crate::rpc::needed::Needed;

/// How much is read at a time at least, in bytes.
const SPACE_BYTES: usize = 64 << 10;

/// A connection whose two sides have greeted each other, apart.
pub struct Apart {
    /// The socket, which does not block.
    pub socket: TcpStream,
    /// TLS over it, if the cluster has it.
    pub tls: Option<rustls::Connection>,
    /// What has come over it already.
    pub messages: Messages,
}

impl fmt::Debug for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Apart({})", self.messages.peer)
    }
}

/// What has come over a connection, cut into messages. Its memory grows with what has come, not with what was announced.
#[derive(Debug)]
pub struct Messages {
    /// What is between `start` and `end` has come and was not taken.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    needed: Needed,
    most_bytes: usize,
    peer: Arc<str>,
}

impl Messages {
    pub(crate) fn behind(cutter: Cutter, most_bytes: usize, peer: &Arc<str>) -> Self {
        let buffer = cutter.into_rest();
        Messages {
            start: 0,
            end: buffer.len(),
            buffer,
            needed: Needed::default(),
            most_bytes,
            peer: Arc::clone(peer),
        }
    }

    /// The address at the other end, for messages to people.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Where to read into; then it is told how much [has come](Self::came).
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.buffer.len() - self.end < SPACE_BYTES / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            // Twice what has come, so that long messages are not moved again and again.
            let wanted = (2 * self.end).max(SPACE_BYTES);
            if self.buffer.len() < wanted {
                self.buffer.resize(wanted, 0);
            }
        }
        &mut self.buffer[self.end..]
    }

    /// So many bytes have come.
    pub fn came(&mut self, bytes: usize) {
        self.end = (self.end + bytes).min(self.buffer.len());
        self.needed.see(self.end);
    }

    /// Some time has passed: gives memory back that was not needed lately. Expected several times a second.
    pub fn tidy(&mut self) {
        let kept = self.needed.pass();
        if self.start == self.end && self.buffer.len() > kept {
            (self.start, self.end) = (0, 0);
            self.buffer = Vec::new();
        }
    }

    /// The next message, if all of it has come.
    ///
    /// # Errors
    /// `BadMessage` if what came is too long, or is none of these messages: the connection is of no use any more.
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

    fn messages(most_bytes: usize) -> Messages {
        Messages::behind(Cutter::default(), most_bytes, &"10.0.0.7:7".into())
    }

    fn came(messages: &mut Messages, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = messages.space();
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            messages.came(count);
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
        messages.tidy();
        assert!(messages.space().len() > 5 << 20);
        for _ in 0..1_000 {
            messages.tidy();
        }
        assert!(messages.space().len() <= SPACE_BYTES);
    }
}
