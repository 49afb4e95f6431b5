//! The content of an output that a restored sink continues.

use std::fs::File;
use std::io::{self, Cursor, ErrorKind, Read};

use crate::decompressed::Decompressed;

/// The content of an output that is continued. It ends where the next bytes will be written.
#[derive(Debug)]
pub struct OutputContent(Content);

#[derive(Debug)]
enum Content {
    File {
        file: File,
        is_compressed: bool,
    },
    /// The decompressed first line of an object, which cannot be read before it is complete; `None`
    /// if it is not known.
    #[cfg_attr(
        not(feature = "s3"),
        expect(dead_code, reason = "objects are in buckets only")
    )]
    FirstLine(Option<Cursor<Vec<u8>>>),
}

impl OutputContent {
    pub(super) fn new(file: File, is_compressed: bool) -> Self {
        OutputContent(Content::File {
            file,
            is_compressed,
        })
    }

    /// Returns the content of an object with this first line; `None` if it is not known.
    #[cfg(feature = "s3")]
    pub(super) fn of_object(first_line: Option<Vec<u8>>) -> Self {
        OutputContent(Content::FirstLine(first_line.map(Cursor::new)))
    }

    /// Returns false if the output has content that cannot be read: an object of a bucket whose
    /// first line is longer than 64 KiB or is not UTF-8.
    pub fn is_readable(&self) -> bool {
        !matches!(self.0, Content::FirstLine(None))
    }

    /// Returns the file, which is compressed if the sink compresses its output.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for an object of a bucket, of which only the first line is known.
    pub fn file(&mut self) -> io::Result<&mut File> {
        match &mut self.0 {
            Content::File { file, .. } => Ok(file),
            Content::FirstLine(_) => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// Returns a reader of the content before compression. It starts where the file is positioned:
    /// initially, at the beginning. Of an object of a bucket, it returns the first line, if it
    /// [can be read](Self::is_readable).
    pub fn decompressed(&mut self) -> impl Read {
        let reader: Box<dyn Read + '_> = match &mut self.0 {
            Content::File {
                file,
                is_compressed: true,
            } => Box::new(Decompressed::new(file)),
            Content::File { file, .. } => Box::new(file),
            Content::FirstLine(Some(line)) => Box::new(line),
            Content::FirstLine(None) => Box::new(io::empty()),
        };
        reader
    }
}
