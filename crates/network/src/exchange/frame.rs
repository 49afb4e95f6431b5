//! A frame: a header and its payload, which is never copied on its way.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::exchange::block::Block;
use crate::exchange::header::{HEADER_BYTES, Header};

const INLINE_BYTES: usize = 16;

/// Bytes in a block that others may share, or a few bytes of its own. Cloning copies neither.
#[derive(Clone)]
pub struct Payload(Place);

#[derive(Clone)]
enum Place {
    Inline { bytes: [u8; INLINE_BYTES], len: u8 },
    Shared { block: Block, start: u32, len: u32 },
}

impl Payload {
    /// No bytes.
    pub const EMPTY: Payload = Payload(Place::Inline {
        bytes: [0; INLINE_BYTES],
        len: 0,
    });

    /// A copy of `bytes`, in memory of its own if they are more than 16.
    pub fn copy_of(bytes: &[u8]) -> Self {
        Payload::inline(bytes)
            .unwrap_or_else(|| Payload::in_block(&Arc::new(bytes.to_vec()), 0, bytes.len()))
    }

    /// The `len` bytes of a block from `start` on; few are copied, so that they don't hold the block.
    pub(crate) fn in_block(block: &Block, start: usize, len: usize) -> Self {
        Payload::inline(&block[start..start + len]).unwrap_or_else(|| {
            Payload(Place::Shared {
                block: Arc::clone(block),
                start: start as u32,
                len: len as u32,
            })
        })
    }

    fn inline(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; INLINE_BYTES];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Payload(Place::Inline {
            bytes,
            len: from.len() as u8,
        }))
    }

    /// The `len` bytes from `start` on, in the same memory; they lie within the payload.
    pub(crate) fn slice(&self, start: usize, len: usize) -> Payload {
        match &self.0 {
            Place::Inline { bytes, .. } => Payload::copy_of(&bytes[start..start + len]),
            Place::Shared {
                block, start: base, ..
            } => Payload::in_block(block, *base as usize + start, len),
        }
    }

    /// The address and the size of the block that the payload keeps from being used again, if there is one.
    pub(crate) fn block(&self) -> Option<(usize, usize)> {
        match &self.0 {
            Place::Inline { .. } => None,
            Place::Shared { block, .. } => Some((block.as_ptr().addr(), block.capacity())),
        }
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Place::Inline { bytes, len } => &bytes[..usize::from(*len)],
            Place::Shared { block, start, len } => &block[*start as usize..][..*len as usize],
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
    /// What it is, and for whom.
    pub header: Header,
    /// Its bytes.
    pub payload: Payload,
}

impl Frame {
    /// A frame without payload.
    pub fn bare(header: Header) -> Self {
        Frame {
            header,
            payload: Payload::EMPTY,
        }
    }

    /// What the frame takes of a window: its bytes on the wire.
    pub fn wire_bytes(&self) -> usize {
        HEADER_BYTES + self.payload.len()
    }
}

/// What is given to a connection at once.
#[derive(Clone, Debug)]
pub enum Parcel {
    /// One frame; its header is written afresh, its payload from where it lies.
    Frame(Frame),
    /// Whole frames as they are on the wire, one behind the other.
    Bundle(Payload),
}

impl Parcel {
    /// Its bytes on the wire.
    pub fn wire_bytes(&self) -> usize {
        match self {
            Parcel::Frame(frame) => frame.wire_bytes(),
            Parcel::Bundle(bytes) => bytes.len(),
        }
    }
}
