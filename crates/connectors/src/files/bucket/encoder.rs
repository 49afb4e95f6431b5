//! Compression of the content of an object, in memory.

use std::io::{self, Write};

use flate2::write::GzEncoder;

use crate::files::part_file::{Compression, gzip_encoder, zstd_encoder};

/// The encoder of the content of an object. The encoded bytes are taken from it in parts.
pub(super) struct ObjectEncoder {
    compression: Compression,
    stage: Stage,
}

enum Stage {
    Plain(Vec<u8>),
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(zstd::Encoder<'static, Vec<u8>>),
    /// Between two members.
    Ended(Vec<u8>),
    /// Ending a member has failed.
    Failed,
}

impl ObjectEncoder {
    pub fn new(compression: Compression) -> Self {
        ObjectEncoder {
            compression,
            stage: Stage::Ended(Vec::new()),
        }
    }

    /// Continues after bytes that are already encoded.
    pub fn after(self, bytes: Vec<u8>) -> Self {
        ObjectEncoder {
            stage: Stage::Ended(bytes),
            ..self
        }
    }

    /// Starts a member, unless one is being written.
    pub fn begin(&mut self) -> io::Result<()> {
        if let Stage::Ended(bytes) = &mut self.stage {
            let bytes = std::mem::take(bytes);
            self.stage = match self.compression {
                Compression::None => Stage::Plain(bytes),
                Compression::Gzip => Stage::Gzip(gzip_encoder(bytes)),
                Compression::Zstd => Stage::Zstd(zstd_encoder(bytes)?),
            };
        }
        Ok(())
    }

    /// Ends the present member. An object without content has an empty member.
    pub fn end(&mut self) -> io::Result<()> {
        let stage = std::mem::replace(&mut self.stage, Stage::Failed);
        self.stage = Stage::Ended(match stage {
            Stage::Plain(bytes) | Stage::Ended(bytes) => bytes,
            Stage::Gzip(encoder) => encoder.finish()?,
            Stage::Zstd(encoder) => encoder.finish()?,
            Stage::Failed => return Err(failed()),
        });
        Ok(())
    }

    /// Returns the encoded bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.stage {
            Stage::Plain(bytes) | Stage::Ended(bytes) => bytes,
            Stage::Gzip(encoder) => encoder.get_ref(),
            Stage::Zstd(encoder) => encoder.get_ref(),
            Stage::Failed => &[],
        }
    }

    /// Takes the encoded bytes. A member that is being written continues.
    pub fn take_bytes(&mut self) -> Vec<u8> {
        match &mut self.stage {
            Stage::Plain(bytes) | Stage::Ended(bytes) => std::mem::take(bytes),
            Stage::Gzip(encoder) => std::mem::take(encoder.get_mut()),
            Stage::Zstd(encoder) => std::mem::take(encoder.get_mut()),
            Stage::Failed => Vec::new(),
        }
    }
}

impl Write for ObjectEncoder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begin()?;
        match &mut self.stage {
            Stage::Plain(encoded) => encoded.write(bytes),
            Stage::Gzip(encoder) => encoder.write(bytes),
            Stage::Zstd(encoder) => encoder.write(bytes),
            Stage::Ended(_) | Stage::Failed => Err(failed()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn failed() -> io::Error {
    io::Error::other("it could not be compressed before")
}
