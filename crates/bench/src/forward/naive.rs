//! The work of a worker without the forwarder's optimizations.
//!
//! The codec of the edges between workers decodes the tuples of a frame into owned values, and
//! encodes them again. So an optimization is compared with a fast alternative.

use std::sync::Arc;

use ardea_core::{Chunk, ChunkCodec, Result, Timestamp};
use ardea_network::exchange::{Frame, Payload, RowsCodec};

use super::params::ForwardParams;

/// Letters from which words are cut.
const LETTERS: &str = "overcommunicatio";

/// The tuples of a frame: words, as in word count.
#[derive(Clone)]
pub(super) struct Load {
    codec: Arc<dyn ChunkCodec>,
    /// The number of tuples in each frame.
    pub(super) tuples: usize,
    pub(super) payload: Payload,
}

impl Load {
    /// Returns as many words as fit into `bytes`; at least one.
    pub(super) fn of(bytes: usize) -> Result<Self> {
        let codec: Arc<dyn ChunkCodec> = Arc::new(RowsCodec::<String>::wire());
        let mut encoded = Vec::new();
        let (mut fits, mut too_many) = (1, bytes / 3 + 2);
        // Binary search: a word has at least three letters.
        while fits + 1 < too_many {
            let middle = usize::midpoint(fits, too_many);
            encode_words(&*codec, middle, &mut encoded)?;
            if encoded.len() <= bytes {
                fits = middle;
            } else {
                too_many = middle;
            }
        }
        encode_words(&*codec, fits, &mut encoded)?;
        Ok(Load {
            codec,
            tuples: fits,
            payload: Payload::copy_of(&encoded),
        })
    }
}

/// Encodes `words` words.
fn encode_words(codec: &dyn ChunkCodec, words: usize, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    let mut chunk = Chunk::default();
    chunk.rows_or_new(words)?.extend_columns(|values, times| {
        values.extend((0..words as u64).map(word));
        times.extend((0..words).map(|_| Timestamp::MIN));
    });
    // A call may stop at its limit before the chunk is empty.
    while codec.encode(&mut chunk, usize::MAX, out)? > 0 && !chunk.is_empty() {}
    Ok(())
}

fn word(number: u64) -> String {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    LETTERS[..3 + (number >> 60) as usize % 14].to_string()
}

/// A handler of frames that does the work of optimizations that are switched off.
pub(super) struct Naive {
    load: Load,
    in_place: bool,
    pools: bool,
    lazy: bool,
    decoded: Chunk,
    encoded: Vec<u8>,
}

impl Naive {
    pub(super) fn new(load: Load, params: &ForwardParams) -> Self {
        Naive {
            load,
            in_place: params.in_place,
            pools: params.pools,
            lazy: params.lazy,
            decoded: Chunk::default(),
            encoded: Vec::new(),
        }
    }

    /// Processes a frame.
    #[inline]
    pub(super) fn handle(&mut self, frame: &mut Frame) -> Result<()> {
        if !self.lazy {
            self.decode_and_encode(frame)
        } else {
            if !self.in_place {
                frame.payload = Payload::copy_of(&frame.payload);
            }
            Ok(())
        }
    }

    /// Decodes each tuple into an owned value, and encodes it again. With pools it reuses memory,
    /// otherwise it allocates for each frame. The new payload is a copy in any case, which includes
    /// the copying of `in_place`.
    fn decode_and_encode(&mut self, frame: &mut Frame) -> Result<()> {
        if !self.pools {
            self.decoded = Chunk::default();
            self.encoded = Vec::new();
        }
        self.encoded.clear();
        let Load { codec, tuples, .. } = &self.load;
        codec.decode(*tuples, &frame.payload, &mut self.decoded)?;
        while codec.encode(&mut self.decoded, usize::MAX, &mut self.encoded)? > 0
            && !self.decoded.is_empty()
        {}
        frame.payload = Payload::copy_of(&self.encoded);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ardea_network::exchange::{Header, Kind, StreamId};

    use super::*;

    #[test]
    fn a_frame_is_as_full_as_its_bytes_allow_and_never_empty() {
        for bytes in [1, 100, 1_000, 16_384] {
            let load = Load::of(bytes).unwrap();
            assert!(load.tuples >= 1);
            assert!(load.tuples == 1 || load.payload.len() <= bytes, "{bytes}");
        }
        let full = Load::of(16_384).unwrap();
        assert!(full.payload.len() > 16_300, "{}", full.payload.len());
        assert!(full.tuples > 500, "{}", full.tuples);
    }

    #[test]
    fn whatever_is_done_to_a_frame_its_bytes_stay_the_same() {
        let load = Load::of(5_000).unwrap();
        for off in 0..8 {
            let params = ForwardParams {
                in_place: off & 1 == 0,
                pools: off & 2 == 0,
                lazy: off & 4 == 0,
                ..ForwardParams::default()
            };
            let mut naive = Naive::new(load.clone(), &params);
            for _ in 0..3 {
                let mut frame = Frame {
                    header: Header::new(Kind::Records, StreamId::new(1, 1)),
                    payload: load.payload.clone(),
                };
                naive.handle(&mut frame).unwrap();
                assert_eq!(frame.payload, load.payload, "{params:?}");
                let stays = frame.payload.as_ptr() == load.payload.as_ptr();
                assert_eq!(stays, params.in_place && params.lazy);
            }
        }
    }
}
