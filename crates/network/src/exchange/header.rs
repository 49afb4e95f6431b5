//! The 48-byte header before each payload.
//!
//! All numbers are little-endian. This table is the complete specification:
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 2 | magic | `A` `X` |
//! | 2 | 1 | version | of this layout: 1 |
//! | 3 | 1 | kind | see [`Kind`] |
//! | 4 | 4 | payload length | bytes that follow the header |
//! | 8 | 4 | job | |
//! | 12 | 4 | edge | |
//! | 16 | 4 | source instance | 2³² − 1: all of the sending worker |
//! | 20 | 4 | target instance | 2³² − 1: all of the receiving worker |
//! | 24 | 8 | epoch | of the payload; in a barrier, the epoch that ends |
//! | 32 | 8 | sequence number | of the frame in its stream, from 1; in a grant, of the last processed frame |
//! | 40 | 2 | records | number of records in the payload |
//! | 42 | 2 | flags | bit 0: the sender had to wait for its window before this frame; others are ignored |
//! | 44 | 4 | checksum | the low half of xxh3-64 over bytes 0 to 43 |
//!
//! The payload has no checksum: the transport must protect it. The header has one because a wrong
//! length would make all following bytes unreadable, and a wrong address would deliver valid
//! records to the wrong instance.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use ardea_core::Epoch;

use crate::exchange::ids::{EdgeNumber, InstanceNumber, JobNumber, StreamId};

/// Size of a header, in bytes.
pub const HEADER_BYTES: usize = 48;

/// Version of the header's layout.
pub const FRAME_VERSION: u8 = 1;

/// Largest payload that any configuration allows.
pub const MAX_PAYLOAD_BYTES: usize = 256 << 20;

const MAGIC: [u8; 2] = *b"AX";
const CHECKED: usize = HEADER_BYTES - 4;

/// The kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Records with their event times; see [`codec`](crate::exchange::RowsCodec).
    Records = 1,
    /// A watermark: no older event follows. Payload: microseconds, eight bytes.
    Watermark = 2,
    /// The stream is idle and must be ignored when watermarks are merged; no payload.
    Idle = 3,
    /// A barrier: the epoch in the header ends here; no payload.
    Barrier = 4,
    /// End of stream; no payload.
    Done = 5,
    /// A flow-control grant. Payload: processed position and allowed position, eight bytes each.
    Grant = 6,
    /// The handshake: the first frame in both directions.
    Hello = 7,
    /// The reason why the connection will be closed.
    Refusal = 8,
    /// A keep-alive; no payload.
    Heartbeat = 9,
    /// No instance on the sending worker currently sends to the target instance; no payload.
    Leave = 10,
    /// A latency marker of a source. Payload: the time of day in microseconds, eight bytes.
    Latency = 11,
    /// A message between the two ends of a connection over shared memory. It never reaches a link.
    Ring = 12,
    /// The end of a micro-batch. Payload: its number, eight bytes; then the sources' ends since the
    /// last such frame, if the sender may be restored alone.
    BatchEnd = 13,
    /// From a receiver: the sources' ends that it has got since the last barrier. A sender that was
    /// restored alone repeats them.
    SourceEnds = 14,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Records,
            2 => Kind::Watermark,
            3 => Kind::Idle,
            4 => Kind::Barrier,
            5 => Kind::Done,
            6 => Kind::Grant,
            7 => Kind::Hello,
            8 => Kind::Refusal,
            9 => Kind::Heartbeat,
            10 => Kind::Leave,
            11 => Kind::Latency,
            12 => Kind::Ring,
            13 => Kind::BatchEnd,
            14 => Kind::SourceEnds,
            _ => return None,
        })
    }

    /// Returns true for frames that carry the data of an edge in its order, and so count against
    /// the window.
    pub const fn is_data(self) -> bool {
        matches!(
            self,
            Kind::Records
                | Kind::Watermark
                | Kind::Idle
                | Kind::Barrier
                | Kind::Done
                | Kind::Leave
                | Kind::Latency
                | Kind::BatchEnd
        )
    }

    /// Returns the payload length, if all frames of this kind have the same.
    const fn fixed_payload(self) -> Option<usize> {
        match self {
            Kind::Records
            | Kind::Hello
            | Kind::Refusal
            | Kind::Ring
            | Kind::BatchEnd
            | Kind::SourceEnds => None,
            Kind::Watermark | Kind::Latency => Some(8),
            Kind::Grant => Some(16),
            Kind::Idle | Kind::Barrier | Kind::Done | Kind::Heartbeat | Kind::Leave => Some(0),
        }
    }
}

/// The fields written before a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Kind of the frame.
    pub kind: Kind,
    /// True if the sender had to wait for its window before this frame.
    pub waited: bool,
    /// Number of records in the payload.
    pub records: u16,
    /// Job and edge.
    pub stream: StreamId,
    /// Sending instance.
    pub source: InstanceNumber,
    /// Receiving instance.
    pub target: InstanceNumber,
    /// Epoch of the payload; in a barrier, the epoch that ends.
    pub epoch: Epoch,
    /// Sequence number of the frame in its stream.
    pub sequence: u64,
}

impl Header {
    /// Creates a header of this kind, from all instances to all, without a sequence number.
    pub const fn new(kind: Kind, stream: StreamId) -> Self {
        Header {
            kind,
            waited: false,
            records: 0,
            stream,
            source: InstanceNumber::ALL,
            target: InstanceNumber::ALL,
            epoch: Epoch(0),
            sequence: 0,
        }
    }

    /// Encodes the header for a payload of `payload_bytes`, which is at most
    /// [`MAX_PAYLOAD_BYTES`].
    pub fn encode(&self, payload_bytes: usize) -> [u8; HEADER_BYTES] {
        debug_assert!(payload_bytes <= MAX_PAYLOAD_BYTES);
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..2].copy_from_slice(&MAGIC);
        bytes[2] = FRAME_VERSION;
        bytes[3] = self.kind as u8;
        bytes[4..8].copy_from_slice(&(payload_bytes as u32).to_le_bytes());
        bytes[8..12].copy_from_slice(&self.stream.job.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.stream.edge.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.source.0.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.target.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[40..42].copy_from_slice(&self.records.to_le_bytes());
        bytes[42..44].copy_from_slice(&u16::from(self.waited).to_le_bytes());
        let checksum = xxh3_64(&bytes[..CHECKED]) as u32;
        bytes[CHECKED..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes a header; returns it with the length of its payload.
    ///
    /// # Errors
    /// The first fault found, the most informative one first. A length above `most_payload` is
    /// refused.
    pub fn decode(
        bytes: &[u8; HEADER_BYTES],
        most_payload: usize,
    ) -> Result<(Header, usize), FrameError> {
        if bytes[0..2] != MAGIC {
            let mut first = [0; 8];
            first.copy_from_slice(&bytes[..8]);
            return Err(FrameError::NotAFrame { first });
        }
        if bytes[2] != FRAME_VERSION {
            return Err(FrameError::Version { theirs: bytes[2] });
        }
        let u32_at = |at: usize| u32::from_le_bytes(four(bytes, at));
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if xxh3_64(&bytes[..CHECKED]) as u32 != u32_at(CHECKED) {
            return Err(FrameError::Checksum);
        }
        let kind = Kind::from_byte(bytes[3]).ok_or(FrameError::UnknownKind { kind: bytes[3] })?;
        let length = u32_at(4) as usize;
        if length > most_payload {
            return Err(FrameError::TooLong {
                bytes: length,
                most: most_payload,
            });
        }
        if kind.fixed_payload().is_some_and(|fixed| fixed != length) {
            return Err(FrameError::WrongLength {
                kind,
                bytes: length,
            });
        }
        let header = Header {
            kind,
            waited: bytes[42] & 1 == 1,
            records: u16::from_le_bytes([bytes[40], bytes[41]]),
            stream: StreamId {
                job: JobNumber(u32_at(8)),
                edge: EdgeNumber(u32_at(12)),
            },
            source: InstanceNumber(u32_at(16)),
            target: InstanceNumber(u32_at(20)),
            epoch: Epoch(u64_at(24)),
            sequence: u64_at(32),
        };
        Ok((header, length))
    }
}

fn four(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; 4] {
    [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]
}

/// A decoding error. Nothing more can be read from the connection after such an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// The bytes don't begin with the magic number.
    NotAFrame {
        /// The first bytes.
        first: [u8; 8],
    },
    /// The layout has another version.
    Version {
        /// Version of the peer's layout.
        theirs: u8,
    },
    /// The checksum of the header does not match.
    Checksum,
    /// The kind is unknown to this version.
    UnknownKind {
        /// Number of the kind.
        kind: u8,
    },
    /// The payload is longer than allowed.
    TooLong {
        /// The announced length.
        bytes: usize,
        /// The greatest allowed length.
        most: usize,
    },
    /// The length of the payload does not match its kind.
    WrongLength {
        /// The kind.
        kind: Kind,
        /// The announced length.
        bytes: usize,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::NotAFrame { first } => write!(
                f,
                "it does not speak the exchange protocol: it sent \"{}\"",
                first.escape_ascii()
            ),
            FrameError::Version { theirs } => write!(
                f,
                "it sends frames of version {theirs}, this worker reads version {FRAME_VERSION}"
            ),
            FrameError::Checksum => f.write_str("the checksum of a frame header does not match"),
            FrameError::UnknownKind { kind } => {
                write!(f, "it sent a frame of unknown kind {kind}")
            }
            FrameError::TooLong { bytes, most } => write!(
                f,
                "it announced a payload of {bytes} bytes where at most {most} are allowed"
            ),
            FrameError::WrongLength { kind, bytes } => {
                write!(
                    f,
                    "it announced a {kind:?} frame with a payload of {bytes} bytes"
                )
            }
        }
    }
}

impl std::error::Error for FrameError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> impl Strategy<Value = (Header, usize)> {
        (
            1u8..=12,
            any::<(bool, u16, u32, u32, u32, u32, u64, u64)>(),
            0usize..1000,
        )
            .prop_map(
                |(kind, (waited, records, job, edge, source, target, epoch, sequence), free)| {
                    let kind = Kind::from_byte(kind).unwrap();
                    let header = Header {
                        kind,
                        waited,
                        records,
                        stream: StreamId::new(job, edge),
                        source: InstanceNumber(source),
                        target: InstanceNumber(target),
                        epoch: Epoch(epoch),
                        sequence,
                    };
                    (header, kind.fixed_payload().unwrap_or(free))
                },
            )
    }

    proptest! {
        #[test]
        fn what_was_written_is_read((header, length) in header()) {
            let bytes = header.encode(length);
            prop_assert_eq!(Header::decode(&bytes, 1000), Ok((header, length)));
        }

        #[test]
        fn no_damage_of_a_bit_goes_unseen((header, length) in header(), bit in 0usize..HEADER_BYTES * 8) {
            let mut bytes = header.encode(length);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Header::decode(&bytes, usize::MAX).is_err());
        }

        #[test]
        fn any_bytes_are_refused_or_read_without_a_panic(bytes in any::<[u8; 32]>(), magic: bool) {
            let mut all = [0; HEADER_BYTES];
            all[..32].copy_from_slice(&bytes);
            if magic {
                all[..3].copy_from_slice(b"AX\x01");
                let checksum = xxh3_64(&all[..CHECKED]) as u32;
                all[CHECKED..].copy_from_slice(&checksum.to_le_bytes());
            }
            let _ = Header::decode(&all, 4096);
        }
    }

    #[test]
    fn the_layout_is_what_the_table_says() {
        let header = Header {
            kind: Kind::Records,
            waited: true,
            records: 0x0102,
            stream: StreamId::new(0x0304_0506, 0x0708_090a),
            source: InstanceNumber(0x0b0c_0d0e),
            target: InstanceNumber(0x0f10_1112),
            epoch: Epoch(0x1314_1516_1718_191a),
            sequence: 0x1b1c_1d1e_1f20_2122,
        };
        let expected = [
            0x41, 0x58, 1, 1, 5, 0, 0, 0, 6, 5, 4, 3, 10, 9, 8, 7, 14, 13, 12, 11, 0x12, 0x11,
            0x10, 0x0f, 0x1a, 0x19, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x22, 0x21, 0x20, 0x1f,
            0x1e, 0x1d, 0x1c, 0x1b, 2, 1, 1, 0,
        ];
        assert_eq!(header.encode(5)[..CHECKED], expected);
    }

    #[test]
    fn a_web_browser_is_distinguished_from_a_damaged_worker() {
        let mut bytes = [b' '; HEADER_BYTES];
        bytes[..14].copy_from_slice(b"GET / HTTP/1.1");
        let error = Header::decode(&bytes, 10).unwrap_err().to_string();
        assert!(error.contains("GET / HT"), "{error}");
    }

    #[test]
    fn a_longer_payload_than_allowed_is_refused_with_both_numbers() {
        let bytes = Header::new(Kind::Records, StreamId::new(1, 1)).encode(5000);
        let error = Header::decode(&bytes, 4096).unwrap_err().to_string();
        assert!(error.contains("5000") && error.contains("4096"), "{error}");
    }
}
