//! A frame: a header and a payload that is never copied on its way.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::exchange::block::Block;
use crate::exchange::header::{HEADER_BYTES, Header};

const INLINE_BYTES: usize = 16;

/// Bytes in a block that may be shared, or a few inline bytes. Cloning does not copy a shared
/// block.
#[derive(Clone)]
pub struct Payload(PayloadSource);

#[derive(Clone)]
enum PayloadSource {
    Inline { bytes: [u8; INLINE_BYTES], len: u8 },
    Shared { block: Block, start: u32, len: u32 },
}

impl Payload {
    /// The empty payload.
    pub const EMPTY: Payload = Payload(PayloadSource::Inline {
        bytes: [0; INLINE_BYTES],
        len: 0,
    });

    /// Copies `bytes`, to a separate allocation if they are more than 16.
    pub fn copy_of(bytes: &[u8]) -> Self {
        Payload::inline(bytes)
            .unwrap_or_else(|| Payload::in_block(&Arc::new(bytes.to_vec()), 0, bytes.len()))
    }

    /// Returns the `len` bytes of a block from `start`. A few bytes are copied, so that they don't
    /// keep the block alive.
    pub(crate) fn in_block(block: &Block, start: usize, len: usize) -> Self {
        Payload::inline(&block[start..start + len]).unwrap_or_else(|| {
            Payload(PayloadSource::Shared {
                block: Arc::clone(block),
                start: start as u32,
                len: len as u32,
            })
        })
    }

    fn inline(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; INLINE_BYTES];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Payload(PayloadSource::Inline {
            bytes,
            len: from.len() as u8,
        }))
    }

    /// Returns the `len` bytes from `start`, in the same memory. The range must lie within the
    /// payload.
    pub(crate) fn slice(&self, start: usize, len: usize) -> Payload {
        match &self.0 {
            PayloadSource::Inline { bytes, .. } => Payload::copy_of(&bytes[start..start + len]),
            PayloadSource::Shared {
                block, start: base, ..
            } => Payload::in_block(block, *base as usize + start, len),
        }
    }

    /// Returns address and size of the block that the payload keeps alive, if any.
    pub(crate) fn block(&self) -> Option<(usize, usize)> {
        match &self.0 {
            PayloadSource::Inline { .. } => None,
            PayloadSource::Shared { block, .. } => Some((block.as_ptr().addr(), block.capacity())),
        }
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            PayloadSource::Inline { bytes, len } => &bytes[..usize::from(*len)],
            PayloadSource::Shared { block, start, len } => {
                &block[*start as usize..][..*len as usize]
            }
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.len())
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Payload) -> bool {
        self[..] == other[..]
    }
}

/// A header and its payload.
///
/// Routing changes the header; the payload stays where it is:
///
/// ```
/// use ardea_network::exchange::{Frame, Header, InstanceNumber, Kind, Payload, StreamId};
///
/// let mut frame = Frame {
///     header: Header::new(Kind::Records, StreamId::new(1, 0)),
///     payload: Payload::copy_of(&[7; 100]),
/// };
/// let before = frame.payload.as_ptr();
/// frame.header.target = InstanceNumber(3);
/// assert_eq!(frame.payload.as_ptr(), before);
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Frame {
    /// Kind, address and sequence number.
    pub header: Header,
    /// The bytes after the header.
    pub payload: Payload,
}

impl Frame {
    /// Creates a frame without payload.
    pub fn bare(header: Header) -> Self {
        Frame {
            header,
            payload: Payload::EMPTY,
        }
    }

    /// Returns the size of the frame on the wire, which counts against the window.
    pub fn wire_bytes(&self) -> usize {
        HEADER_BYTES + self.payload.len()
    }
}

/// A unit handed to a connection for sending.
#[derive(Clone, Debug)]
pub enum SendBuffer {
    /// One frame. Its header is encoded on sending; its payload is not copied.
    Frame(Frame),
    /// Complete encoded frames, one after the other.
    Bundle(Payload),
}

impl SendBuffer {
    /// Returns the size on the wire, in bytes.
    pub fn wire_bytes(&self) -> usize {
        match self {
            SendBuffer::Frame(frame) => frame.wire_bytes(),
            SendBuffer::Bundle(bytes) => bytes.len(),
        }
    }
}
