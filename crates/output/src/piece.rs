//! Pieces of an output, read across its files.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use crate::OutputFiles;
use crate::files::OutputFile;

/// The number of attempts to read a piece while files are rotated.
const MAX_READ_ATTEMPTS: usize = 3;

/// The requested part of an output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadFrom {
    /// From a position on.
    From(u64),
    /// The last bytes.
    Last,
}

/// A piece of an output.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OutputPiece {
    /// The position of the first byte. If it is after the requested position, the bytes in between
    /// were dropped.
    pub at: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The position after the last byte of the output.
    pub end: u64,
}

impl OutputFiles {
    /// Reads up to `most` bytes. Returns an empty piece at the end of the output, and at position 0
    /// if there is no file.
    ///
    /// # Errors
    ///
    /// If a file cannot be read.
    pub fn read(&self, wanted: ReadFrom, most: u64) -> io::Result<OutputPiece> {
        let mut tries = 0;
        loop {
            tries += 1;
            let parts = self.parts()?;
            let piece = read(&parts, wanted, most)?;
            // An old file may have been emptied and reused while it was read.
            let (first, _) = self.stored_range()?;
            if piece.at >= first || tries >= MAX_READ_ATTEMPTS {
                return Ok(piece);
            }
        }
    }
}

fn read(parts: &[OutputFile], wanted: ReadFrom, most: u64) -> io::Result<OutputPiece> {
    let first = parts.first().map_or(0, |part| part.at);
    let end = parts.last().map_or(0, OutputFile::end);
    let at = match wanted {
        ReadFrom::From(position) => position.clamp(first, end),
        ReadFrom::Last => end.saturating_sub(most).max(first),
    };
    let mut bytes = Vec::new();
    for part in parts {
        let next = at + bytes.len() as u64;
        let missing = most.saturating_sub(bytes.len() as u64);
        if missing == 0 || part.end() <= next {
            continue;
        }
        let mut file: &File = &part.file;
        file.seek(SeekFrom::Start(next.saturating_sub(part.at)))?;
        file.take(missing.min(part.end() - next))
            .read_to_end(&mut bytes)?;
    }
    Ok(OutputPiece { at, bytes, end })
}

/// Returns the last lines of an output after the position `from`: at most `lines` lines, and 16
/// KiB. Returns none if the files are unreadable.
pub fn last_lines(output: &OutputFiles, from: u64, lines: usize) -> Vec<String> {
    const MOST_BYTES: u64 = 16 << 10;
    let read = || -> io::Result<Vec<u8>> {
        let (_, end) = output.stored_range()?;
        let from = from.max(end.saturating_sub(MOST_BYTES));
        Ok(output.read(ReadFrom::From(from), MOST_BYTES)?.bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    let skipped = all.len().saturating_sub(lines);
    all[skipped..].iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;
    use crate::OutputBounds;

    proptest! {
        #[test]
        fn any_piece_is_what_was_written_at_its_position(
            pieces in prop::collection::vec("[a-z]{0,9}\n", 0..30),
            file_bytes in 1_u64..40, files in 2_u32..5,
            from in 0_u64..300, most in 0_u64..100,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let output = OutputFiles::new(folder.path(), "out");
            let bounds = OutputBounds { file_bytes, files };
            for piece in &pieces {
                output.open(&bounds).unwrap().write_all(piece.as_bytes()).unwrap();
            }
            let all = pieces.concat();
            let (first, end) = output.stored_range().unwrap();
            prop_assert_eq!(end, all.len() as u64);
            prop_assert!(end - first <= (file_bytes + 10) * u64::from(files));
            for wanted in [ReadFrom::From(from), ReadFrom::Last] {
                let piece = output.read(wanted, most).unwrap();
                let at = piece.at as usize;
                prop_assert_eq!(&piece.bytes[..], &all.as_bytes()[at..at + piece.bytes.len()]);
                let expected = match wanted {
                    ReadFrom::From(from) => from.clamp(first, end),
                    ReadFrom::Last => end.saturating_sub(most).max(first),
                };
                prop_assert_eq!(piece.at, expected);
                prop_assert_eq!(piece.bytes.len() as u64, most.min(end - piece.at));
            }
        }
    }

    #[test]
    fn last_words_are_those_behind_a_position_across_files() {
        let folder = tempfile::tempdir().unwrap();
        let output = OutputFiles::new(folder.path(), "out");
        let bounds = OutputBounds {
            file_bytes: 6,
            files: 3,
        };
        for line in ["before\n", "one\n", "two\n", "three\n"] {
            output
                .open(&bounds)
                .unwrap()
                .write_all(line.as_bytes())
                .unwrap();
        }
        assert_eq!(last_lines(&output, 7, 20), ["one", "two", "three"]);
        assert_eq!(last_lines(&output, 7, 2), ["two", "three"]);
        let none = OutputFiles::new(folder.path(), "none");
        assert!(last_lines(&none, 0, 20).is_empty());
    }
}
