//! The producer of a polled ring: its owner sleeps outside of the ring when that is full.

use ardea_core::Result;

use super::RingProducer;
use crate::layout::UNIT;
use crate::message::HEAD_BYTES;
use crate::sync::{Ordering, fence};

impl RingProducer {
    /// Lets the owners of both ends wake each other.
    pub(crate) fn poll_by_owner(&mut self) {
        self.is_polled = true;
    }

    /// Remembers that the consumer must be woken. Later messages need no other wake-up.
    pub(super) fn owe_wake(&mut self) {
        self.memory.sleeping().store(0, Ordering::Relaxed);
        self.owes_wake = true;
    }

    /// Announces that the owner is about to sleep outside of the ring, until there is room for a
    /// message of `length` bytes. Returns false if there is room; the owner must not sleep then.
    ///
    /// After it has returned true, the consumer's owner signals the next room, which may be less.
    ///
    /// # Errors
    /// [`ErrorCode::PeerLost`](ardea_core::ErrorCode::PeerLost) if the consumer is gone.
    pub fn may_sleep(&mut self, length: usize) -> Result<bool> {
        self.check_consumer()?;
        self.memory.waiting().store(1, Ordering::Relaxed);
        // Either the consumer sees the flag after it has moved the head, or this sees the head.
        fence(Ordering::SeqCst);
        let units = (HEAD_BYTES + length).div_ceil(UNIT) as u64;
        let is_full = !self.slots.would_fit(&self.memory, units);
        self.counters.sleeps += u64::from(is_full);
        Ok(is_full)
    }

    /// Returns true if the owner has to wake the consumer's owner. Each wake-up is returned once.
    /// To be called after messages were sent, before the owner sleeps.
    pub fn take_wake(&mut self) -> bool {
        std::mem::take(&mut self.owes_wake)
    }
}
