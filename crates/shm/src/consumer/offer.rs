//! Handing a ring to one producer by a message of the caller's own protocol.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use ardea_core::{Error, ErrorCode, Result};

use super::RingConsumer;
use crate::handover::{ACCEPTED, WELCOME_BYTES, open_welcomed, welcome};
use crate::memory::Memory;
use crate::producer::RingProducer;
use crate::registry::{Dead, Registry};
use crate::sync::Ordering;

/// A ring that is offered to a process: a file, and bytes that describe it. The process opens it by
/// [`RingProducer::accept`].
#[derive(Clone, Debug)]
pub struct RingOffer {
    memory: Arc<Memory>,
    producer: u8,
}

impl RingOffer {
    /// The number of bytes of a description.
    pub const BYTES: usize = WELCOME_BYTES;

    /// Returns the description.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let units = self.memory.geometry().units();
        welcome(ACCEPTED, self.producer, units)
    }

    /// Returns a new handle of the file.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if this process has too many files open.
    pub fn file(&self) -> Result<OwnedFd> {
        let file = self.memory.file().ok_or(ErrorKind::Unsupported.into());
        let file = file.and_then(|file| file.try_clone_to_owned());
        file.map_err(|error| {
            Error::new(ErrorCode::LimitReached, "cannot hand over a ring")
                .because(error)
                .hint("raise the limit of open files (ulimit -n)")
        })
    }
}

/// The producer of an offered ring, as the consumer's process knows it.
#[derive(Debug)]
pub struct RemoteProducer {
    memory: Weak<Memory>,
    registry: Weak<Registry>,
    dead: Dead,
}

impl RemoteProducer {
    /// Reports that the producer's process has ended, or was given up. Its complete messages are
    /// still received; its end follows them.
    pub fn set_lost(&self) {
        self.dead.store(true, Ordering::Release);
        if let (Some(memory), Some(registry)) = (self.memory.upgrade(), self.registry.upgrade()) {
            registry.wake(&memory);
        }
    }
}

impl RingConsumer {
    /// Offers the ring to one other process, and makes it a polled ring: see
    /// [`may_sleep`](Self::may_sleep). The caller sends the offer, and notices the end of the
    /// process: see [`RemoteProducer::set_lost`].
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if the ring has been offered or has a producer.
    pub fn offer(&mut self) -> Result<(RingOffer, RemoteProducer)> {
        if self.producers() > 0 {
            let what = "cannot offer a ring that has a producer";
            return Err(Error::new(ErrorCode::LimitReached, what)
                .hint("create a ring for each producer that polls"));
        }
        let (producer, dead) = self.registry.add(&self.memory)?;
        self.poll_by_owner();
        let offer = RingOffer {
            memory: Arc::clone(&self.memory),
            producer,
        };
        let remote = RemoteProducer {
            memory: Arc::downgrade(&self.memory),
            registry: Arc::downgrade(&self.registry),
            dead,
        };
        Ok((offer, remote))
    }
}

impl RingProducer {
    /// Opens a ring that another process has offered, as the producer of a polled ring: see
    /// [`may_sleep`](Self::may_sleep).
    ///
    /// # Errors
    /// [`ErrorCode::VersionMismatch`] if the process has another version;
    /// [`ErrorCode::BadMessage`] if the offer is damaged, or the size of the file can change;
    /// [`ErrorCode::LimitReached`] if the memory cannot be mapped.
    pub fn accept(offer: &[u8; RingOffer::BYTES], file: OwnedFd) -> Result<RingProducer> {
        let (memory, number) = open_welcomed(offer, Some(file))?;
        let mut producer = RingProducer::new(Arc::new(memory), number, None);
        producer.poll_by_owner();
        Ok(producer)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::{MessageHead, ProducerEnd, RingConfig, RingEvent};

    const TO: MessageHead = MessageHead {
        target: 0,
        epoch: 0,
    };

    #[test]
    fn an_offered_ring_has_one_producer_whose_loss_follows_its_messages() {
        let mut consumer = RingConsumer::new(RingConfig::default()).unwrap();
        let (offer, remote) = consumer.offer().unwrap();
        let file = offer.file().unwrap();
        let mut producer = RingProducer::accept(&offer.to_bytes(), file).unwrap();
        assert!(consumer.offer().is_err(), "it is offered once");
        producer.send(TO, &[7]).unwrap();
        remote.set_lost();
        let Some(RingEvent::Message(message)) = consumer.poll().unwrap() else {
            panic!("the message is lost");
        };
        assert_eq!(message.payload.to_vec(), [7]);
        let end = consumer.poll().unwrap();
        let is_lost = |end| {
            matches!(
                end,
                RingEvent::Ended {
                    producer: 0,
                    end: ProducerEnd::Lost
                }
            )
        };
        assert!(end.is_some_and(is_lost));
    }

    #[test]
    fn a_damaged_offer_or_another_file_is_refused() {
        let mut consumer = RingConsumer::new(RingConfig::default()).unwrap();
        let (offer, _) = consumer.offer().unwrap();
        for at in [0, 8, 12, 16, 20] {
            let mut bytes = offer.to_bytes();
            bytes[at] ^= 0xff;
            assert!(RingProducer::accept(&bytes, offer.file().unwrap()).is_err());
        }
        let other = OwnedFd::from(File::open("/dev/zero").unwrap());
        assert!(RingProducer::accept(&offer.to_bytes(), other).is_err());
    }
}
