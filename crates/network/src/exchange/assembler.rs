//! Reassembles frames from bytes that arrive in pieces of any size.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::exchange::block::{Block, BlockPool};
use crate::exchange::frame::{Frame, Payload};
use crate::exchange::header::{FrameError, HEADER_BYTES, Header};

/// Maximum size, in bytes, of a run of complete frames that is copied out of its block. A copy
/// costs less than a new block.
const SMALL_BYTES: usize = 4096;

/// Read size and block reuse of an [`Assembler`].
#[derive(Clone, Copy, Debug)]
pub struct AssemblerConfig {
    /// Size of a block, and so of a read, in bytes.
    pub block_bytes: usize,
    /// Maximum number of blocks kept for reuse.
    pub keep_blocks: usize,
}

impl Default for AssemblerConfig {
    fn default() -> Self {
        AssemblerConfig {
            block_bytes: 256 << 10,
            keep_blocks: 32,
        }
    }
}

/// Collects the bytes of one connection and splits them into frames, which share the memory that
/// the bytes were read into.
///
/// Bytes are read straight into [`space`](Self::space). Only an incomplete frame at the end of a
/// block is moved, once, to the next block. A block grows for a frame larger than itself only as
/// the bytes arrive: an announced length alone costs no memory.
///
/// ```
/// use ardea_network::exchange::{Assembler, AssemblerConfig, Header, Kind, StreamId};
///
/// let header = Header::new(Kind::Heartbeat, StreamId::new(0, 0));
/// let mut assembler = Assembler::new(AssemblerConfig::default(), 4096);
/// for byte in header.encode(0) {
///     assert!(assembler.next_frame().is_none());
///     assembler.space()[0] = byte;
///     assembler.filled(1)?;
/// }
/// assert_eq!(assembler.next_frame().unwrap().header, header);
/// # Ok::<(), ardea_network::exchange::FrameError>(())
/// ```
#[derive(Debug)]
pub struct Assembler {
    pool: BlockPool,
    small: BlockPool,
    block: Block,
    filled: usize,
    ready: VecDeque<Frame>,
    found: Vec<(Header, usize, usize)>,
    max_payload: usize,
}

impl Assembler {
    /// Creates an assembler that refuses payloads of more than `most_payload` bytes.
    pub fn new(config: AssemblerConfig, most_payload: usize) -> Self {
        let mut pool = BlockPool::new(config.block_bytes.max(2 * HEADER_BYTES), config.keep_blocks);
        let block = pool.take();
        Assembler {
            pool,
            small: BlockPool::new(SMALL_BYTES, config.keep_blocks),
            block,
            filled: 0,
            ready: VecDeque::new(),
            found: Vec::new(),
            max_payload: most_payload,
        }
    }

    /// Sets the largest accepted payload, in bytes, for frames whose header has not been read yet.
    pub fn allow(&mut self, most_payload: usize) {
        self.max_payload = most_payload;
    }

    /// Returns the buffer for the next bytes; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        // The block is not shared at this point, so this copies nothing.
        &mut Arc::make_mut(&mut self.block)[self.filled..]
    }

    /// Returns the next complete frame, if any.
    pub fn next_frame(&mut self) -> Option<Frame> {
        self.ready.pop_front()
    }

    /// Returns the size of the frames that [`next_frame`](Self::next_frame) has not returned, in
    /// bytes.
    pub(crate) fn ready_bytes(&self) -> usize {
        self.ready.iter().map(Frame::wire_bytes).sum()
    }

    /// Returns the number of blocks allocated so far.
    pub fn blocks_made(&self) -> u64 {
        self.pool.made() + self.small.made()
    }

    /// Reports that the first `bytes` of [`space`](Self::space) have been filled.
    ///
    /// # Errors
    /// If the bytes are not valid frames. Frames before the fault can still be taken; no more bytes
    /// may be added.
    pub fn filled(&mut self, bytes: usize) -> Result<(), FrameError> {
        self.filled = (self.filled + bytes).min(self.block.len());
        let mut whole = 0;
        let outcome = loop {
            match self.frame_at(whole) {
                Ok(Some((header, length))) => {
                    self.found.push((header, whole + HEADER_BYTES, length));
                    whole += HEADER_BYTES + length;
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if whole > 0 {
            self.cut(whole);
        }
        if self.filled == self.block.len() {
            self.grow();
        }
        outcome
    }

    /// Returns the header of the frame at position `at` and the length of its payload; `None` if
    /// the frame is incomplete.
    fn frame_at(&self, at: usize) -> Result<Option<(Header, usize)>, FrameError> {
        let rest = &self.block[at..self.filled];
        let Some(bytes) = rest.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let (header, length) = Header::decode(bytes, self.max_payload)?;
        Ok((rest.len() - HEADER_BYTES >= length).then_some((header, length)))
    }

    /// Turns the first `whole` bytes into frames and keeps the bytes after them.
    fn cut(&mut self, whole: usize) {
        let tail = whole..self.filled;
        self.filled -= whole;
        let shared = if whole <= SMALL_BYTES && self.block.len() > SMALL_BYTES {
            let mut small = self.small.take();
            Arc::make_mut(&mut small)[..whole].copy_from_slice(&self.block[..whole]);
            Arc::make_mut(&mut self.block).copy_within(tail, 0);
            self.small.lend(&small);
            small
        } else {
            let mut next = self.pool.take();
            let room = Arc::make_mut(&mut next);
            if room.len() < self.filled {
                // The block is too small if the tail comes from a block that grew for a large
                // frame.
                room.resize(self.filled, 0);
            }
            room[..self.filled].copy_from_slice(&self.block[tail]);
            let full = std::mem::replace(&mut self.block, next);
            self.pool.lend(&full);
            full
        };
        for (header, start, length) in self.found.drain(..) {
            self.ready.push_back(Frame {
                header,
                payload: Payload::in_block(&shared, start, length),
            });
        }
    }

    /// Doubles a full block, because its only frame is larger than the block.
    fn grow(&mut self) {
        let length = self.block.len();
        Arc::make_mut(&mut self.block).resize(2 * length, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::header::Kind;
    use crate::exchange::ids::StreamId;
    use proptest::prelude::*;

    fn config(block_bytes: usize) -> AssemblerConfig {
        AssemblerConfig {
            block_bytes,
            keep_blocks: 4,
        }
    }

    fn frame(sequence: u64, payload: &[u8]) -> Frame {
        let mut header = Header::new(Kind::Records, StreamId::new(1, 2));
        header.sequence = sequence;
        Frame {
            header,
            payload: Payload::copy_of(payload),
        }
    }

    fn wire(frames: &[Frame]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for frame in frames {
            bytes.extend_from_slice(&frame.header.encode(frame.payload.len()));
            bytes.extend_from_slice(&frame.payload);
        }
        bytes
    }

    /// Feeds the bytes in pieces of the given sizes, repeating the sizes.
    fn feed(
        assembler: &mut Assembler,
        mut bytes: &[u8],
        pieces: &[usize],
    ) -> (Vec<Frame>, Result<(), FrameError>) {
        let mut frames = Vec::new();
        for &piece in pieces.iter().cycle() {
            if bytes.is_empty() {
                break;
            }
            let space = assembler.space();
            let count = piece.min(space.len()).min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            let outcome = assembler.filled(count);
            frames.extend(std::iter::from_fn(|| assembler.next_frame()));
            if outcome.is_err() {
                return (frames, outcome);
            }
        }
        (frames, Ok(()))
    }

    proptest! {
        #[test]
        fn any_chunking_of_bytes_gives_the_same_frames(
            lengths in prop::collection::vec(prop_oneof![0usize..40, 0usize..400, 3000usize..9000], 0..20),
            pieces in prop::collection::vec(1usize..6000, 1..20),
            block in prop_oneof![Just(96usize), Just(1000), Just(16384)],
        ) {
            let sent: Vec<Frame> = lengths
                .iter()
                .enumerate()
                .map(|(i, &length)| {
                    let payload: Vec<u8> = (0..length).map(|at| (at * 31 + i) as u8).collect();
                    frame(i as u64, &payload)
                })
                .collect();
            let mut assembler = Assembler::new(config(block), 10_000);
            let (got, outcome) = feed(&mut assembler, &wire(&sent), &pieces);
            prop_assert_eq!(outcome, Ok(()));
            prop_assert_eq!(got, sent);
        }

        #[test]
        fn garbage_never_panics_and_never_yields_a_frame(
            bytes in prop::collection::vec(any::<u8>(), 48..3000),
            pieces in prop::collection::vec(1usize..500, 1..5),
        ) {
            prop_assume!(&bytes[..2] != b"AX");
            let mut assembler = Assembler::new(config(256), 1000);
            let (got, outcome) = feed(&mut assembler, &bytes, &pieces);
            prop_assert!(got.is_empty() && outcome.is_err());
        }

        #[test]
        fn damage_is_found_or_lies_in_a_payload(
            lengths in prop::collection::vec(0usize..300, 1..8),
            at in any::<prop::sample::Index>(),
            damage in 1u8..,
            piece in 1usize..400,
        ) {
            let sent: Vec<Frame> = lengths.iter().map(|&length| frame(9, &vec![1; length])).collect();
            let mut bytes = wire(&sent);
            let at = at.index(bytes.len());
            bytes[at] ^= damage;
            let mut assembler = Assembler::new(config(512), 1000);
            let (got, outcome) = feed(&mut assembler, &bytes, &[piece]);
            if outcome.is_ok() {
                prop_assert_eq!(got.len(), sent.len());
                prop_assert!(got.iter().zip(&sent).all(|(got, sent)| got.header == sent.header));
            } else {
                prop_assert_eq!(&got[..], &sent[..got.len()]);
            }
        }
    }

    #[test]
    fn an_announced_length_alone_costs_no_memory() {
        let mut assembler = Assembler::new(config(4096), 1 << 30);
        let header = Header::new(Kind::Records, StreamId::new(1, 2)).encode(200 << 20);
        let (_, outcome) = feed(&mut assembler, &header, &[48]);
        assert_eq!(outcome, Ok(()));
        assert!(assembler.block.capacity() <= 4096);
    }

    #[test]
    fn frames_before_a_fault_are_still_there() {
        let mut bytes = wire(&[frame(1, &[1; 50]), frame(2, &[2; 50])]);
        bytes.extend_from_slice(&[0; 48]);
        let mut assembler = Assembler::new(config(4096), 1000);
        let (got, outcome) = feed(&mut assembler, &bytes, &[bytes.len()]);
        assert_eq!(got.len(), 2);
        assert!(matches!(outcome, Err(FrameError::NotAFrame { .. })));
    }

    #[test]
    fn the_payload_lies_where_it_was_read() {
        let bytes = wire(&[frame(1, &[5; 6000])]);
        let mut assembler = Assembler::new(config(16384), 10_000);
        let space = assembler.space().as_ptr();
        let (got, _) = feed(&mut assembler, &bytes, &[bytes.len()]);
        assert_eq!(got[0].payload.as_ptr(), space.wrapping_add(HEADER_BYTES));
    }

    #[test]
    fn blocks_are_used_again_when_their_frames_are_gone() {
        let bytes = wire(&[frame(1, &[1; 5000]), frame(2, &[2; 5000])]);
        let mut assembler = Assembler::new(config(16384), 10_000);
        for _ in 0..3 {
            let (got, _) = feed(&mut assembler, &bytes, &[7000]);
            assert_eq!(got.len(), 2);
        }
        let made = assembler.blocks_made();
        for _ in 0..100 {
            let (got, _) = feed(&mut assembler, &bytes, &[7000]);
            assert_eq!(got.len(), 2);
        }
        assert_eq!(assembler.blocks_made(), made);
    }
}
