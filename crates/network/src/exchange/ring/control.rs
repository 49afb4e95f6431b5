//! The messages between the two ends on their socket.

use ardea_shm::RingOffer;

use crate::exchange::frame::{Frame, Payload};
use crate::exchange::header::{Header, Kind};
use crate::exchange::ids::StreamId;

const OFFER: u8 = 0;
const BEGIN: u8 = 1;
const WAKE: u8 = 2;

/// A message on the socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ControlMessage {
    /// Frames may be sent through the ring of this description, whose file is attached.
    Offer([u8; RingOffer::BYTES]),
    /// The sender's next frames come through the first ring that was offered to it.
    Begin,
    /// There is something in a ring.
    Wake,
}

impl ControlMessage {
    pub(super) fn to_frame(&self) -> Frame {
        let mut offer = [OFFER; 1 + RingOffer::BYTES];
        let bytes = match self {
            ControlMessage::Offer(description) => {
                offer[1..].copy_from_slice(description);
                &offer[..]
            }
            ControlMessage::Begin => &[BEGIN],
            ControlMessage::Wake => &[WAKE],
        };
        Frame {
            header: Header::new(Kind::Ring, StreamId::new(0, 0)),
            payload: Payload::copy_of(bytes),
        }
    }

    /// Decodes a message; `None` if it is invalid.
    pub(super) fn from_frame(frame: &Frame) -> Option<Self> {
        match frame.payload.split_first()? {
            (&OFFER, rest) => rest.try_into().ok().map(ControlMessage::Offer),
            (&BEGIN, []) => Some(ControlMessage::Begin),
            (&WAKE, []) => Some(ControlMessage::Wake),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_encoding_and_no_other_is_accepted() {
        let offer = ControlMessage::Offer([7; RingOffer::BYTES]);
        for message in [offer, ControlMessage::Begin, ControlMessage::Wake] {
            let mut frame = message.to_frame();
            assert_eq!(ControlMessage::from_frame(&frame), Some(message));
            let longer = [&frame.payload[..], &[0]].concat();
            frame.payload = Payload::copy_of(&longer);
            assert_eq!(ControlMessage::from_frame(&frame), None);
        }
        let mut frame = ControlMessage::Wake.to_frame();
        for bytes in [&[][..], &[3], &[OFFER, 1]] {
            frame.payload = Payload::copy_of(bytes);
            assert_eq!(ControlMessage::from_frame(&frame), None);
        }
    }
}
