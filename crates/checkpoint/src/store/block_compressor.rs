//! Compression of block contents, in chunks.

use ardea_core::{Error, ErrorCode, Result};
use zstd::bulk::Compressor;
use zstd::zstd_safe::compress_bound;

use crate::store::yield_pacer::YieldPacer;

/// The zstd level. Level -1 is twice as fast as level 1, with a few percent more bytes.
const LEVEL: i32 = -1;
/// The minimum size in bytes of a content to be compressed.
const PACKED_LEAST_BYTES: usize = 128;
/// The size of the sample that is compressed first, from the middle of a content larger than four
/// samples. If the sample does not shrink to half, the content is stored uncompressed: compression
/// would cost record processing more CPU time than it saves.
const SAMPLE_BYTES: usize = 16 * 1024;
/// The size of a chunk in bytes. Each chunk is a separate zstd frame; decoders accept consecutive
/// frames.
const PIECE_BYTES: usize = 64 * 1024;

/// A compressor with reusable buffers.
#[derive(Default)]
pub(crate) struct Packer {
    /// The zstd compressor, created on first use, since it takes some hundred kilobytes.
    compressor: Option<Compressor<'static>>,
    packed: Vec<u8>,
    piece: Vec<u8>,
}

impl Packer {
    /// Compresses a content. Returns `None` if compression saves too little or is not possible.
    ///
    /// # Errors
    /// `LimitReached` if the compressor cannot be allocated.
    pub fn pack(&mut self, content: &[u8], pace: &YieldPacer) -> Result<Option<&[u8]>> {
        if content.len() < PACKED_LEAST_BYTES {
            return Ok(None);
        }
        let Packer {
            compressor,
            packed,
            piece,
        } = self;
        let compressor = match compressor {
            Some(compressor) => compressor,
            empty => empty.insert(Compressor::new(LEVEL).map_err(|error| {
                Error::new(ErrorCode::LimitReached, "no memory to pack blocks").because(error)
            })?),
        };
        if content.len() > 4 * SAMPLE_BYTES {
            let sample = &content[content.len() / 2..][..SAMPLE_BYTES];
            if !is_packed(compressor, sample, piece) || piece.len() > SAMPLE_BYTES / 2 {
                return Ok(None);
            }
        }
        packed.clear();
        for content in content.chunks(PIECE_BYTES) {
            if !is_packed(compressor, content, piece) {
                return Ok(None);
            }
            packed.extend_from_slice(piece);
            pace.yield_if_due();
        }
        Ok(Some(packed))
    }
}

/// Compresses the chunk `piece` as one frame into `packed`, whose content is replaced. Returns true
/// if successful.
fn is_packed(compressor: &mut Compressor<'_>, piece: &[u8], packed: &mut Vec<u8>) -> bool {
    packed.clear();
    packed.reserve(compress_bound(piece.len()));
    compressor.compress_to_buffer(piece, packed).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_unpacked_is_what_was_packed_one_after_the_other(
            contents in proptest::collection::vec((0_usize..400_000, 1_u64..50), 1..4),
        ) {
            let (mut packer, pace) = (Packer::default(), YieldPacer::begin());
            for (bytes, step) in contents {
                let content: Vec<u8> = (0..bytes as u64).map(|at| (at / step) as u8).collect();
                let packed = packer.pack(&content, &pace).expect("there is memory");
                match packed {
                    Some(packed) => {
                        let back = zstd::bulk::decompress(packed, content.len());
                        prop_assert_eq!(back.expect("whole"), content);
                    }
                    None => prop_assert!(content.len() < PACKED_LEAST_BYTES),
                }
            }
        }
    }

    #[test]
    fn what_is_not_worth_it_is_left_as_it_is() {
        let mut state = 1_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        };
        let noise: Vec<u8> = (0..1 << 20).map(|_| next()).collect();
        let mut packer = Packer::default();
        let packed = packer
            .pack(&noise, &YieldPacer::begin())
            .expect("there is memory");
        assert_eq!(packed, None);
    }
}
