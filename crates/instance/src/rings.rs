//! Rings in shared memory for the payloads of large frames.
//!
//! The head of a frame always goes over the socket, so the order of frames is that of the socket,
//! and the socket wakes the other side. A payload goes through the ring if it is large and fits;
//! otherwise it follows its head on the socket.

use std::os::fd::OwnedFd;

use ardea_core::{Error, ErrorCode, Result};
use ardea_shm::{
    MessageHead, RemoteProducer, RingConfig, RingConsumer, RingEvent, RingOffer, RingProducer,
    RingSize,
};

use crate::protocol::{FLAG_IN_RING, FrameHead, InstanceFrame, Violation};

/// The size of each ring. It stays in the second-level cache of a core.
const RING_SIZE: RingSize = RingSize::of_bytes(2 << 20);
/// The length from which a payload goes through the ring.
const MIN_BYTES: usize = 4 << 10;

/// The rings of a connection, one for each direction.
#[derive(Debug, Default)]
pub(crate) struct PayloadRing {
    outgoing: Option<RingProducer>,
    incoming: Option<(RingConsumer, RemoteProducer)>,
}

impl PayloadRing {
    /// Creates the ring of received payloads. Returns its description and its file, for the other
    /// side.
    ///
    /// # Errors
    /// If no memory can be mapped, or the ring has been offered.
    pub(crate) fn offer(&mut self) -> Result<(Vec<u8>, OwnedFd)> {
        if self.incoming.is_some() {
            return Err(Error::new(ErrorCode::Internal, "a ring is offered twice"));
        }
        let mut consumer = RingConsumer::new(RingConfig {
            size: RING_SIZE,
            ..RingConfig::default()
        })?;
        let (offer, remote) = consumer.offer()?;
        let file = offer.file()?;
        self.incoming = Some((consumer, remote));
        Ok((offer.to_bytes().to_vec(), file))
    }

    /// Opens the ring that the other side has offered.
    ///
    /// # Errors
    /// A second offer, or one that cannot be opened.
    pub(crate) fn accept(
        &mut self,
        description: &[u8],
        file: Option<OwnedFd>,
    ) -> Result<(), Violation> {
        let description: Option<&[u8; RingOffer::BYTES]> = description.try_into().ok();
        let (Some(description), Some(file), None) = (description, file, &self.outgoing) else {
            return Err(Violation::new(
                "a ring is offered without its file, or twice",
            ));
        };
        let producer = RingProducer::accept(description, file);
        let producer =
            producer.map_err(|error| Violation::new(format!("a ring can't be opened: {error}")))?;
        self.outgoing = Some(producer);
        Ok(())
    }

    /// Returns the bytes of a frame for the socket. A large payload is written to the ring, if it
    /// has room.
    pub(crate) fn send(&mut self, frame: &InstanceFrame) -> Vec<u8> {
        let (mut bytes, is_in_ring) = self.send_head(frame.head, &frame.payload);
        if !is_in_ring {
            bytes.extend_from_slice(&frame.payload);
        }
        bytes
    }

    /// Returns the bytes of a frame for the socket without its payload, and true if the payload was
    /// written to the ring.
    pub(crate) fn send_head(&mut self, head: FrameHead, payload: &[u8]) -> (Vec<u8>, bool) {
        let is_in_ring = match &mut self.outgoing {
            Some(ring) if payload.len() >= MIN_BYTES && payload.len() <= ring.max_unsplit() => {
                // After an error the ring is not used again.
                let sent = ring.try_send(MessageHead::default(), payload);
                if sent.is_err() {
                    self.outgoing = None;
                }
                sent.unwrap_or(false)
            }
            _ => false,
        };
        if !is_in_ring {
            return (head.to_bytes(payload.len()).to_vec(), false);
        }
        let length = payload.len() as u32;
        let head = head.flags(head.flags | FLAG_IN_RING);
        let frame = InstanceFrame::new(head, length.to_le_bytes().to_vec());
        (frame.to_bytes(), true)
    }

    /// Returns a received frame with its payload, which is taken from the ring if it is there.
    ///
    /// # Errors
    /// A payload that is not in the ring.
    pub(crate) fn receive(&mut self, frame: InstanceFrame) -> Result<InstanceFrame, Violation> {
        if !frame.head.has(FLAG_IN_RING) {
            return Ok(frame);
        }
        let missing = || Violation::new("a payload is not in the ring");
        let length: [u8; 4] = frame.payload[..].try_into().map_err(|_| missing())?;
        let (ring, _) = self.incoming.as_mut().ok_or_else(missing)?;
        let event = ring.poll();
        let event =
            event.map_err(|error| Violation::new(format!("the ring is damaged: {error}")))?;
        match event {
            Some(RingEvent::Message(message))
                if message.payload.len() == u32::from_le_bytes(length) as usize =>
            {
                let head = frame.head.flags(frame.head.flags & !FLAG_IN_RING);
                Ok(InstanceFrame::new(head, message.payload.to_vec()))
            }
            _ => Err(missing()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{FrameBuffer, FrameType};

    fn pair() -> (PayloadRing, PayloadRing) {
        let (mut here, mut there) = (PayloadRing::default(), PayloadRing::default());
        let (description, file) = there.offer().unwrap();
        here.accept(&description, Some(file)).unwrap();
        (here, there)
    }

    fn through(
        here: &mut PayloadRing,
        there: &mut PayloadRing,
        frame: &InstanceFrame,
    ) -> (usize, Result<InstanceFrame, Violation>) {
        let bytes = here.send(frame);
        let mut buffer = FrameBuffer::default();
        buffer.push(&bytes);
        let received = buffer.take().unwrap().unwrap();
        (bytes.len(), there.receive(received))
    }

    #[test]
    fn large_payloads_go_through_the_ring_and_others_over_the_socket() {
        let (mut here, mut there) = pair();
        for (length, on_socket) in [(10, 26), (100_000, 20), (1 << 20, 16 + (1 << 20))] {
            let head = FrameHead::new(FrameType::Batch, 7).flags(1);
            let frame = InstanceFrame::new(head, vec![9; length]);
            for _ in 0..50 {
                let (bytes, received) = through(&mut here, &mut there, &frame);
                assert_eq!(bytes, on_socket);
                assert_eq!(received.as_ref(), Ok(&frame));
            }
        }
    }

    #[test]
    fn a_full_ring_leaves_payloads_to_the_socket() {
        let (mut here, _there) = pair();
        let frame = InstanceFrame::new(FrameHead::new(FrameType::Batch, 1), vec![1; 200_000]);
        let lengths: Vec<usize> = (0..50).map(|_| here.send(&frame).len()).collect();
        assert_eq!(lengths[0], 20);
        assert_eq!(lengths[49], 16 + 200_000);
    }

    #[test]
    fn a_payload_that_is_not_in_the_ring_is_a_violation() {
        let (_, mut there) = pair();
        let head = FrameHead::new(FrameType::Batch, 1).flags(FLAG_IN_RING);
        let frame = InstanceFrame::new(head, 5u32.to_le_bytes().to_vec());
        assert!(there.receive(frame.clone()).is_err());
        assert!(PayloadRing::default().receive(frame).is_err());
        assert!(there.accept(&[1, 2, 3], None).is_err());
    }
}
