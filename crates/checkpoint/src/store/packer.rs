//! Packs the content of blocks, a piece at a time.

use ardea_core::{Error, ErrorCode, Result};
use zstd::bulk::Compressor;
use zstd::zstd_safe::compress_bound;

use crate::store::core_pace::CorePace;

/// The level of zstd: twice as quick as the lowest of the ordinary ones, for some hundredths more bytes.
const LEVEL: i32 = -1;
/// Less is not packed.
const PACKED_LEAST_BYTES: usize = 128;
/// Of what is larger than four of these, so much from its middle is packed first: if that doesn't become half as long, the rest is not tried. What is packed less well costs more
/// time to pack than it saves on its way, and cuts come out of what records could have.
const SAMPLE_BYTES: usize = 16 * 1024;
/// How much is packed in one go, as a frame of its own: what unpacks one takes several that follow each other. As one stream it would be copied first.
const PIECE_BYTES: usize = 64 * 1024;

/// Packs one content after the other, in memory of its own.
#[derive(Default)]
pub(crate) struct Packer {
    /// Made when there is something to pack: it takes some hundred kilobytes.
    compressor: Option<Compressor<'static>>,
    packed: Vec<u8>,
    /// A piece, packed.
    piece: Vec<u8>,
}

impl Packer {
    /// The content packed; none if it is as well as it is, or can't be.
    ///
    /// # Errors
    /// `LimitReached` if there is no memory to pack in.
    pub fn pack(&mut self, content: &[u8], pace: &CorePace) -> Result<Option<&[u8]>> {
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

/// Packs a piece as one frame, in place of what is in `packed`; whether that could be done.
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
            let (mut packer, pace) = (Packer::default(), CorePace::begin());
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
            .pack(&noise, &CorePace::begin())
            .expect("there is memory");
        assert_eq!(packed, None);
    }
}
