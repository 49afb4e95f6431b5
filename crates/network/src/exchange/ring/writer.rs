//! The sending end of a connection over shared memory.

use ardea_core::{ErrorCode, Result};
use ardea_shm::{MessageHead, RingProducer};

use crate::exchange::frame::SendBuffer;
use crate::exchange::framed::FramedConfig;
use crate::exchange::send_queue::SendQueue;

/// Maximum length of a message, in bytes. It is a little more than the usual length of a full
/// buffer: frames that lie in one message are not moved by the receiver.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// Writes unsent buffers into a ring. A message has as many whole buffers as fit. A buffer is
/// copied once, and takes several messages if it is longer than the longest one.
#[derive(Debug)]
pub(super) struct RingWriter {
    producer: RingProducer,
    unsent: SendQueue,
    slice_bytes: usize,
    /// The number of waits for room in former rings.
    full_before: u64,
}

const TO: MessageHead = MessageHead {
    target: 0,
    epoch: 0,
};

impl RingWriter {
    pub(super) fn new(producer: RingProducer, config: FramedConfig) -> Self {
        RingWriter {
            producer,
            unsent: SendQueue::new(config.most_unsent_bytes, config.most_unsent_parcels),
            slice_bytes: config.slice_bytes,
            full_before: 0,
        }
    }

    /// Sends the next bytes through another ring, and closes the present one.
    pub(super) fn replace(&mut self, producer: RingProducer) {
        self.full_before = self.full_count();
        self.producer = producer;
    }

    pub(super) fn send(&mut self, parcel: SendBuffer) -> Result<(), SendBuffer> {
        self.unsent.push(parcel)
    }

    pub(super) fn unsent(&self) -> usize {
        self.unsent.bytes()
    }

    /// Moves unsent bytes into the ring, at most one slice. Returns their number.
    ///
    /// # Errors
    /// The ring is damaged. A peer that is gone is no error: the socket reports it, behind the
    /// frames that the peer has sent.
    pub(super) fn flush(&mut self) -> Result<usize> {
        let mut moved = 0;
        while self.unsent.bytes() > 0 && moved < self.slice_bytes {
            let length = self.next_length();
            let producer = &mut self.producer;
            let written: Result<usize> = self.unsent.with_pieces(|pieces| {
                let Some(mut message) = producer.try_begin(TO, length)? else {
                    return Ok(0);
                };
                let mut left = length;
                for piece in pieces {
                    let now = piece.len().min(left);
                    message.write(&piece[..now])?;
                    left -= now;
                }
                message.commit()?;
                Ok(length)
            });
            match written {
                Ok(0) => break,
                Ok(bytes) => {
                    self.unsent.advance(bytes);
                    moved += bytes;
                }
                Err(error) if error.code() == ErrorCode::PeerLost => break,
                Err(error) => return Err(error),
            }
        }
        Ok(moved)
    }

    /// Returns the length of the next message.
    fn next_length(&self) -> usize {
        let most = self.producer.max_unsplit().min(MAX_MESSAGE_BYTES);
        self.unsent.whole_bytes(most)
    }

    /// Announces that the thread is about to sleep; returns false if unsent bytes can be moved.
    pub(super) fn may_sleep(&mut self) -> bool {
        // A lost peer is reported by the socket.
        self.unsent.bytes() == 0 || self.producer.may_sleep(self.next_length()).unwrap_or(true)
    }

    /// Returns true if the peer must be woken.
    pub(super) fn take_wake(&mut self) -> bool {
        self.producer.take_wake()
    }

    /// Returns how often the thread has waited for room.
    pub(super) fn full_count(&self) -> u64 {
        self.full_before + self.producer.counters().sleeps
    }
}
