//! A series of gzip members or zstd frames, decompressed one after the other.

use std::io::{self, BufRead, BufReader, ErrorKind, Read};

use flate2::bufread::GzDecoder;

use super::Packing;

/// The size of a read of compressed data.
const COMPRESSED_READ_SIZE: usize = 64 << 10;

/// A reader that decompresses the members of a stream.
///
/// A member is followed by another one, the end, or padding: zero bytes, as in tape archives and
/// preallocated files. Other data is an error of kind [`ErrorKind::InvalidData`].
pub(crate) struct Members<R: Read> {
    packing: Packing,
    stage: Stage<BufReader<R>>,
    /// The number of the present member, from one.
    number: u64,
    /// True if reads return zero bytes at the end of each member.
    stops: bool,
}

/// The state of the reader.
enum Stage<B: BufRead> {
    /// Within a gzip member.
    Gzip(GzDecoder<B>),
    /// Within a zstd frame.
    Zstd(zstd::Decoder<'static, B>),
    /// After a member.
    Between(B),
    /// A decoder could not be created, or reported damage.
    Failed,
}

impl<B: BufRead> Stage<B> {
    fn begin(packing: Packing, stream: B) -> io::Result<Self> {
        Ok(match packing {
            Packing::Gzip => Stage::Gzip(GzDecoder::new(stream)),
            Packing::Zstd => {
                Stage::Zstd(zstd::Decoder::with_dictionary(stream, &[])?.single_frame())
            }
        })
    }
}

impl<R: Read> Members<R> {
    pub fn new(packing: Packing, stream: R) -> io::Result<Self> {
        let stream = BufReader::with_capacity(COMPRESSED_READ_SIZE, stream);
        Ok(Members {
            packing,
            stage: Stage::begin(packing, stream)?,
            number: 1,
            stops: false,
        })
    }

    /// Makes reads return zero bytes at the end of each member, until the
    /// [next one](Self::begin_next) is started.
    pub fn stop_at_members(&mut self, stops: bool) {
        self.stops = stops;
    }

    /// Returns the underlying stream.
    pub fn stream(&mut self) -> Option<&mut R> {
        let stream = match &mut self.stage {
            Stage::Gzip(decoder) => decoder.get_mut(),
            Stage::Zstd(decoder) => decoder.get_mut(),
            Stage::Between(stream) => stream,
            Stage::Failed => return None,
        };
        Some(stream.get_mut())
    }

    /// Skips the padding after a member. Returns the number of bytes that were read from the
    /// stream and belong to the next member; `None` at the end of the stream.
    pub fn skip_padding(&mut self) -> io::Result<Option<usize>> {
        let Stage::Between(stream) = &mut self.stage else {
            return Ok(None);
        };
        loop {
            let bytes = stream.fill_buf()?;
            let Some(at) = bytes.iter().position(|&byte| byte != 0) else {
                let zeros = bytes.len();
                stream.consume(zeros);
                match zeros {
                    0 => return Ok(None),
                    _ => continue,
                }
            };
            if !self.packing.may_begin_with(bytes[at]) {
                return Err(garbage(self.number));
            }
            let left = bytes.len() - at;
            stream.consume(at);
            return Ok(Some(left));
        }
    }

    /// Skips padding and starts the next member; false at the end of the stream.
    pub fn begin_next(&mut self) -> io::Result<bool> {
        if self.skip_padding()?.is_none() {
            return Ok(false);
        }
        if let Stage::Between(stream) = std::mem::replace(&mut self.stage, Stage::Failed) {
            self.stage = Stage::begin(self.packing, stream)?;
            self.number += 1;
        }
        Ok(true)
    }

    /// Finishes the present member.
    fn end_member(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Failed) {
            Stage::Gzip(decoder) => Stage::Between(decoder.into_inner()),
            Stage::Zstd(decoder) => Stage::Between(decoder.into_inner()),
            stage => stage,
        };
    }
}

impl<R: Read> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let read = match &mut self.stage {
                Stage::Gzip(decoder) => decoder.read(buffer)?,
                Stage::Zstd(decoder) => decoder.read(buffer)?,
                Stage::Between(_) if self.stops => return Ok(0),
                Stage::Between(_) => match self.begin_next()? {
                    true => continue,
                    false => return Ok(0),
                },
                Stage::Failed => return Ok(0),
            };
            if read > 0 {
                return Ok(read);
            }
            self.end_member();
        }
    }
}

fn garbage(member: u64) -> io::Error {
    let what =
        format!("the data behind member {member} is neither another member nor zero padding");
    io::Error::new(ErrorKind::InvalidData, what)
}
