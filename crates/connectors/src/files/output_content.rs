//! The content of an output file that a restored sink continues.

use std::fs::File;
use std::io::Read;

use crate::decompressed::Decompressed;

/// The content of an output file that is continued. It ends where the next bytes will be written.
#[derive(Debug)]
pub struct OutputContent {
    file: File,
    is_compressed: bool,
}

impl OutputContent {
    pub(super) fn new(file: File, is_compressed: bool) -> Self {
        OutputContent {
            file,
            is_compressed,
        }
    }

    /// Returns the file, which is compressed if the sink compresses its output.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Returns a reader of the content before compression. It starts where the file is positioned:
    /// initially, at the beginning.
    pub fn decompressed(&mut self) -> impl Read {
        match self.is_compressed {
            true => Decompressed::new(&mut self.file),
            false => Decompressed::plain(&mut self.file),
        }
    }
}
