//! The receiving end of a connection over shared memory.

use std::io;
use std::sync::Arc;

use ardea_core::Result;
use ardea_shm::{
    ProducerEnd, RemoteProducer, RingConfig, RingConsumer, RingEvent, RingOffer, RingSize,
};

use super::RingCounts;
use crate::exchange::assembler::{Assembler, AssemblerConfig};
use crate::exchange::disconnect::DisconnectReason;
use crate::exchange::frame::Frame;

/// The size of the first ring if it follows the observed messages.
pub(super) const FIRST_SIZE: RingSize = RingSize::of_bytes(256 << 10);

/// Number of messages after which the size of the ring is compared with them.
const SIZE_INTERVAL: u64 = 1024;

/// Maximum size of a block that messages are copied into, in bytes: two of the longest.
pub(super) const BLOCK_BYTES: usize = 128 << 10;

/// Number of bytes that are copied out of the ring before the frames in them are returned.
const FILL_BYTES: usize = 32 << 10;

/// A ring of received frames, and its producer.
#[derive(Debug)]
pub(super) struct ReceiveRing {
    consumer: RingConsumer,
    producer: RemoteProducer,
    size: RingSize,
}

impl ReceiveRing {
    /// Creates a ring, and its offer for the peer.
    ///
    /// # Errors
    /// [`LimitReached`](ardea_core::ErrorCode::LimitReached) if there is too little memory.
    pub(super) fn new(size: RingSize) -> Result<(Self, RingOffer)> {
        let config = RingConfig {
            size,
            max_message: size.bytes() as usize,
            ..RingConfig::default()
        };
        let mut consumer = RingConsumer::new(config)?;
        let (offer, producer) = consumer.offer()?;
        let ring = ReceiveRing {
            consumer,
            producer,
            size,
        };
        Ok((ring, offer))
    }
}

/// Reads a stream of frames out of a ring, and out of the rings that replace it.
///
/// Each byte is copied once out of the shared memory, and checked in the copy only: the peer may
/// change the memory at any time.
pub(super) struct RingReader {
    ring: ReceiveRing,
    /// The ring that replaces the present one at its end.
    next: Option<ReceiveRing>,
    assembler: Assembler,
    /// True if the peer has announced that it sends through the ring.
    has_begun: bool,
    /// Number of bytes read, and number of bytes in the returned frames. Both are equal at the end
    /// of a frame.
    received: u64,
    whole: u64,
    /// Number of messages of the present ring, and of their bytes.
    messages: u64,
    message_bytes: u64,
    /// The reason of the end, once there is one. Frames that came before are still returned.
    end: Option<DisconnectReason>,
    /// The reason for which the peer was given up, before the ring was read up to its end.
    given_up: Option<DisconnectReason>,
    /// The counters of former rings.
    past: RingCounts,
}

impl RingReader {
    /// Creates the reader of a ring, which accepts payloads of up to `max_payload` bytes.
    pub(super) fn new(ring: ReceiveRing, config: AssemblerConfig, max_payload: usize) -> Self {
        RingReader {
            ring,
            next: None,
            assembler: Assembler::new(config, max_payload),
            has_begun: false,
            received: 0,
            whole: 0,
            messages: 0,
            message_bytes: 0,
            end: None,
            given_up: None,
            past: RingCounts::default(),
        }
    }

    /// Marks the ring as used by the peer. Returns false if it was before.
    pub(super) fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.has_begun, true)
    }

    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    pub(super) fn allow(&mut self, max_payload: usize) {
        self.assembler.allow(max_payload);
    }

    /// Returns the size of a larger ring, if the messages so far call for one.
    pub(super) fn wanted_size(&self) -> Option<RingSize> {
        if self.messages < SIZE_INTERVAL || self.next.is_some() {
            return None;
        }
        let wanted = RingSize::for_messages(self.message_bytes / self.messages);
        (wanted > self.ring.size).then_some(wanted)
    }

    /// Sets the ring that follows the present one.
    pub(super) fn set_next(&mut self, ring: ReceiveRing) {
        self.next = Some(ring);
    }

    /// Gives up the peer. The frames in the ring are still returned, and then the reason.
    pub(super) fn end(&mut self, why: DisconnectReason) {
        for ring in std::iter::once(&self.ring).chain(&self.next) {
            ring.producer.set_lost();
        }
        if self.given_up.replace(why).is_some() {
            // It was given up before, and the ring did not end: its memory is damaged.
            self.end = self.given_up.clone();
        }
    }

    /// Returns the next frame; `None` if the ring is empty.
    ///
    /// # Errors
    /// The connection has ended, or the ring is damaged. All frames that came before were returned.
    pub(super) fn next_frame(&mut self) -> Result<Option<Frame>, DisconnectReason> {
        loop {
            if let Some(frame) = self.assembler.next_frame() {
                self.whole += frame.wire_bytes() as u64;
                return Ok(Some(frame));
            }
            if let Some(why) = &self.end {
                return Err(why.clone());
            }
            match self.fill() {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(why) => self.end = Some(why),
            }
        }
    }

    /// Copies messages out of the ring. Returns false if there was nothing.
    fn fill(&mut self) -> Result<bool, DisconnectReason> {
        let assembler = &mut self.assembler;
        let mut filled = 0;
        let mut ended = None;
        while filled < FILL_BYTES {
            match self.ring.consumer.poll() {
                Ok(None) => break,
                Ok(Some(RingEvent::Message(message))) => {
                    let bytes = message.payload;
                    self.messages += 1;
                    self.message_bytes += bytes.len() as u64;
                    let mut at = 0;
                    while at < bytes.len() {
                        let space = &mut assembler.space()[filled..];
                        let count = space.len().min(bytes.len() - at);
                        if let Some(piece) = bytes.slice(at, count) {
                            piece.copy_to(&mut space[..count]);
                        }
                        at += count;
                        filled += count;
                        self.received += count as u64;
                        if count == space.len() {
                            let full = std::mem::take(&mut filled);
                            let checked = assembler.filled(full);
                            checked.map_err(DisconnectReason::InvalidFrame)?;
                        }
                    }
                    if filled == 0 {
                        return Ok(true);
                    }
                }
                Ok(Some(RingEvent::Ended { end, .. })) => {
                    ended = Some(Ok(end));
                    break;
                }
                Err(error) => {
                    ended = Some(Err(error));
                    break;
                }
            }
        }
        if filled > 0 {
            let checked = assembler.filled(filled);
            checked.map_err(DisconnectReason::InvalidFrame)?;
        }
        match ended {
            None => Ok(filled > 0),
            Some(Ok(ProducerEnd::Closed)) if self.next.is_some() => {
                self.switch();
                Ok(true)
            }
            Some(Ok(ProducerEnd::Closed | ProducerEnd::Lost)) => Err(self.end_reason()),
            Some(Ok(ProducerEnd::Faulty(error)) | Err(error)) => {
                Err(DisconnectReason::RingFailed(error))
            }
        }
    }

    /// Continues with the next ring.
    fn switch(&mut self) {
        if let Some(next) = self.next.take() {
            let counters = self.ring.consumer.counters();
            self.past.messages += counters.messages;
            self.past.abandoned += counters.abandoned;
            self.past.sleeps += counters.sleeps;
            self.ring = next;
            (self.messages, self.message_bytes) = (0, 0);
        }
    }

    /// Returns the reason for the end of the peer's last ring.
    fn end_reason(&mut self) -> DisconnectReason {
        // Frames that were found but not returned are complete.
        let returned = self.whole + self.assembler.ready_bytes() as u64;
        if self.received != returned {
            let missing = "it was closed in the middle of a frame";
            let error = io::Error::new(io::ErrorKind::UnexpectedEof, missing);
            return DisconnectReason::Broken(Arc::new(error));
        }
        self.given_up.take().unwrap_or(DisconnectReason::Closed)
    }

    /// Announces that the thread is about to sleep; returns false if there is something to read.
    pub(super) fn may_sleep(&mut self) -> bool {
        // An error is returned by the next read.
        self.end.is_none() && self.ring.consumer.may_sleep().unwrap_or(false)
    }

    /// Returns true if the peer must be woken.
    pub(super) fn take_wake(&mut self) -> bool {
        self.ring.consumer.take_wake()
    }

    pub(super) fn add_counts(&self, counts: &mut RingCounts) {
        let present = self.ring.consumer.counters();
        counts.capacity_bytes = present.capacity;
        counts.fill_bytes = present.fill;
        counts.messages += self.past.messages + present.messages;
        counts.abandoned += self.past.abandoned + present.abandoned;
        counts.sleeps += self.past.sleeps + present.sleeps;
    }
}
