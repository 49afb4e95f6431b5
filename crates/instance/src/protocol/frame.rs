//! Frames: the unit of the protocol.

use std::sync::Arc;

use super::read::Violation;

/// Length of a frame's head in bytes.
pub const HEAD_BYTES: usize = 16;

/// Maximum length of a frame's payload in bytes.
pub const MAX_FRAME_BYTES: usize = 32 << 20;

/// Length of a payload from which a part of an answer or of a state is sent.
pub(crate) const PART_BYTES: usize = 1 << 20;

/// Flag of RESULT and EMIT: another frame of the same answer follows.
pub const FLAG_MORE: u8 = 1;
/// Flag of a RESULT: it belongs to the watermark with this time, not to a batch.
pub const FLAG_OF_WATERMARK: u8 = 2;
/// Flag of any frame: the payload is in the ring, and four bytes on the socket have its length.
pub const FLAG_IN_RING: u8 = 0x80;
/// Flag of STATE and RESTORE: the last part. Flag of BARRIER: the last one, after all records.
pub const FLAG_LAST: u8 = 1;
/// Flag of the last part of a STATE: the instance must live until the checkpoint is durable.
pub const FLAG_AWAITS_COMMIT: u8 = 2;
/// Flag of a NEXT: only failed messages are emitted again.
pub const FLAG_FAILED_ONLY: u8 = 1;

macro_rules! frame_types {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// The type of a frame.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum FrameType {
            $($(#[$doc])* $name,)*
        }

        impl FrameType {
            /// Returns the type with this number.
            pub const fn of_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(FrameType::$name),)*
                    _ => None,
                }
            }

            /// Returns the number on the wire.
            pub const fn number(self) -> u8 {
                match self {
                    $(FrameType::$name => $number,)*
                }
            }

            /// Returns the name in the protocol's documentation.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(FrameType::$name => $text,)*
                }
            }
        }
    };
}

frame_types! {
    /// The versions and abilities of the sender. Both sides send it once.
    Hello = 1, "HELLO";
    /// The job, the step, the instance and the format of records. From the host.
    Configure = 2, "CONFIGURE";
    /// A part of the state to restore. From the host.
    Restore = 3, "RESTORE";
    /// The instance is configured and restored. From the instance.
    Ready = 4, "READY";
    /// Records to process. From the host.
    Batch = 5, "BATCH";
    /// The outcome of a batch or of a watermark. From the instance.
    Result = 6, "RESULT";
    /// The event time has advanced. The instance returns it.
    Watermark = 7, "WATERMARK";
    /// The end of an epoch: a request for the state. From the host.
    Barrier = 8, "BARRIER";
    /// A part of the state at a barrier. From the instance.
    State = 9, "STATE";
    /// The checkpoint of an epoch is durable. From the host.
    Commit = 10, "COMMIT";
    /// No further message follows: the process must exit. From the host.
    Stop = 11, "STOP";
    /// A line for the log. From the instance.
    Log = 12, "LOG";
    /// The instance works and needs more time. From the instance.
    Heartbeat = 13, "HEARTBEAT";
    /// A failure that ends the job. From the instance.
    Error = 14, "ERROR";
    /// An offer of a ring, whose file is attached. From both sides.
    Ring = 15, "RING";
    /// Tuples of a spout or bolt. From the instance.
    Emit = 16, "EMIT";
    /// Outcomes of tuples. From both sides.
    Acks = 17, "ACKS";
    /// A request for the next tuples of a spout. From the host.
    Next = 18, "NEXT";
    /// A regular call of a bolt. From the host.
    Tick = 19, "TICK";
    /// The value of a metric of user code. From the instance.
    Metric = 20, "METRIC";
    /// A change of the topology. From the host.
    Control = 21, "CONTROL";
    /// A record that could not be processed, outside of a batch. From the instance.
    DeadLetter = 22, "DEADLETTER";
    /// A spout that waits has tuples. From the instance.
    Wake = 23, "WAKE";
    /// Records that a vertex has counted. From the instance.
    Counts = 24, "COUNTS";
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHead {
    /// The type.
    pub kind: FrameType,
    /// The flags.
    pub flags: u8,
    /// The number of a batch or of a request, the time of a watermark, or an epoch; otherwise zero.
    pub sequence: u64,
}

impl FrameHead {
    /// Creates a head without flags.
    pub const fn new(kind: FrameType, sequence: u64) -> Self {
        FrameHead {
            kind,
            flags: 0,
            sequence,
        }
    }

    /// Returns the head with these flags.
    pub const fn flags(self, flags: u8) -> Self {
        FrameHead { flags, ..self }
    }

    /// Returns true if all these flags are set.
    pub const fn has(self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Returns the bytes of the head of a frame with a payload of this length.
    pub fn to_bytes(self, payload_bytes: usize) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        let length = u32::try_from(payload_bytes).unwrap_or(u32::MAX);
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes[4] = self.kind.number();
        bytes[5] = self.flags;
        bytes[8..].copy_from_slice(&self.sequence.to_le_bytes());
        bytes
    }

    /// Returns the sequence as a signed time.
    pub const fn time(self) -> i64 {
        self.sequence as i64
    }
}

/// A frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InstanceFrame {
    /// The head.
    pub head: FrameHead,
    /// The payload.
    pub payload: Vec<u8>,
}

impl InstanceFrame {
    /// Creates a frame.
    pub const fn new(head: FrameHead, payload: Vec<u8>) -> Self {
        InstanceFrame { head, payload }
    }

    /// Creates a frame without flags and payload.
    pub const fn empty(kind: FrameType, sequence: u64) -> Self {
        InstanceFrame::new(FrameHead::new(kind, sequence), Vec::new())
    }

    /// Returns the bytes of the whole frame.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.payload.len());
        bytes.extend_from_slice(&self.head.to_bytes(self.payload.len()));
        bytes.extend_from_slice(&self.payload);
        bytes
    }
}

/// A frame to send. The payload of a batch is shared with the session, which may send it again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedFrame {
    /// The head.
    pub head: FrameHead,
    /// The payload.
    pub payload: Arc<Vec<u8>>,
}

impl From<InstanceFrame> for SharedFrame {
    fn from(frame: InstanceFrame) -> Self {
        SharedFrame {
            head: frame.head,
            payload: frame.payload.into(),
        }
    }
}

/// Bytes received from the other side, divided into frames.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    /// The start of the bytes that are not taken yet.
    start: usize,
}

impl FrameBuffer {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        } else if self.start > 1 << 16 && self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next complete frame.
    ///
    /// # Errors
    /// A frame of an unknown type, or longer than [`MAX_FRAME_BYTES`].
    pub fn take(&mut self) -> Result<Option<InstanceFrame>, Violation> {
        let received = &self.bytes[self.start..];
        let Some((head, rest)) = received.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let (length, head) = read_head(head)?;
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        let frame = InstanceFrame::new(head, payload.to_vec());
        self.start += HEAD_BYTES + length;
        Ok(Some(frame))
    }

    /// Returns true if the end of a frame has not been received.
    pub fn is_partial(&self) -> bool {
        self.start < self.bytes.len()
    }
}

fn read_head(bytes: &[u8; HEAD_BYTES]) -> Result<(usize, FrameHead), Violation> {
    let [l0, l1, l2, l3, kind, flags, _, _, sequence @ ..] = *bytes;
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    let Some(kind) = FrameType::of_number(kind) else {
        let what = format!("the frame type {kind} does not exist in protocol 1");
        return Err(Violation::new(what));
    };
    if length > MAX_FRAME_BYTES {
        return Err(Violation::new(format!(
            "a {} of {length} bytes exceeds the limit of {MAX_FRAME_BYTES} bytes",
            kind.as_str()
        )));
    }
    let sequence = u64::from_le_bytes(sequence);
    Ok((
        length,
        FrameHead {
            kind,
            flags,
            sequence,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_frame_of_an_unknown_type_is_refused() {
        let mut buffer = FrameBuffer::default();
        let mut bytes = InstanceFrame::empty(FrameType::Ready, 0).to_bytes();
        bytes[4] = 99;
        buffer.push(&bytes);
        let violation = buffer.take().unwrap_err();
        assert!(violation.0.contains("99"), "{violation}");
    }

    #[test]
    fn a_frame_longer_than_the_limit_is_refused_before_it_has_arrived() {
        let mut buffer = FrameBuffer::default();
        let mut bytes = InstanceFrame::empty(FrameType::Result, 1).to_bytes();
        bytes[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        buffer.push(&bytes);
        assert!(buffer.take().unwrap_err().0.contains("RESULT"));
    }

    proptest! {
        #[test]
        fn frames_arrive_whole_whatever_the_pieces(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..20),
            piece in 1usize..97,
        ) {
            let frames: Vec<_> = payloads.into_iter().zip(0..).map(|(payload, number)| {
                let head = FrameHead::new(FrameType::Batch, number).flags(number as u8);
                InstanceFrame::new(head, payload)
            }).collect();
            let bytes: Vec<u8> = frames.iter().flat_map(InstanceFrame::to_bytes).collect();
            let (mut buffer, mut taken) = (FrameBuffer::default(), Vec::new());
            for piece in bytes.chunks(piece) {
                buffer.push(piece);
                while let Some(frame) = buffer.take().unwrap() {
                    taken.push(frame);
                }
            }
            prop_assert_eq!(taken, frames);
            prop_assert!(!buffer.is_partial());
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut buffer = FrameBuffer::default();
            buffer.push(&bytes);
            while let Ok(Some(_)) = buffer.take() {}
        }
    }
}
