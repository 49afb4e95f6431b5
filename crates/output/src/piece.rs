//! Reads pieces of an output, across its files.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use crate::OutputFiles;
use crate::files::Part;

/// Number of readings of a piece while files are rotated.
const TRIES: usize = 3;

/// The part of an output that is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// From a position on.
    From(u64),
    /// The last bytes.
    Last,
}

/// A piece of an output.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Piece {
    /// The position of its first byte. If it lies behind the position that was asked for, the bytes
    /// between were left out.
    pub at: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The position behind the output's last byte.
    pub end: u64,
}

impl OutputFiles {
    /// Reads up to `most` bytes. Returns an empty piece where there is no more, and at position 0
    /// where there is no file.
    ///
    /// # Errors
    ///
    /// If a file can't be read.
    pub fn read(&self, wanted: Wanted, most: u64) -> io::Result<Piece> {
        let mut tries = 0;
        loop {
            tries += 1;
            let parts = self.parts()?;
            let piece = read(&parts, wanted, most)?;
            // An old file may have been emptied and begun anew while it was read.
            let (first, _) = self.kept()?;
            if piece.at >= first || tries >= TRIES {
                return Ok(piece);
            }
        }
    }
}

fn read(parts: &[Part], wanted: Wanted, most: u64) -> io::Result<Piece> {
    let first = parts.first().map_or(0, |part| part.at);
    let end = parts.last().map_or(0, Part::end);
    let at = match wanted {
        Wanted::From(position) => position.clamp(first, end),
        Wanted::Last => end.saturating_sub(most).max(first),
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
    Ok(Piece { at, bytes, end })
}

/// Returns the last lines of an output behind a position, at most `lines` of them and 16 KiB.
/// Unreadable files have none.
pub fn last_words(output: &OutputFiles, from: u64, lines: usize) -> Vec<String> {
    const MOST_BYTES: u64 = 16 << 10;
    let read = || -> io::Result<Vec<u8>> {
        let (_, end) = output.kept()?;
        let from = from.max(end.saturating_sub(MOST_BYTES));
        Ok(output.read(Wanted::From(from), MOST_BYTES)?.bytes)
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
            let (first, end) = output.kept().unwrap();
            prop_assert_eq!(end, all.len() as u64);
            prop_assert!(end - first <= (file_bytes + 10) * u64::from(files));
            for wanted in [Wanted::From(from), Wanted::Last] {
                let piece = output.read(wanted, most).unwrap();
                let at = piece.at as usize;
                prop_assert_eq!(&piece.bytes[..], &all.as_bytes()[at..at + piece.bytes.len()]);
                let expected = match wanted {
                    Wanted::From(from) => from.clamp(first, end),
                    Wanted::Last => end.saturating_sub(most).max(first),
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
        assert_eq!(last_words(&output, 7, 20), ["one", "two", "three"]);
        assert_eq!(last_words(&output, 7, 2), ["two", "three"]);
        let none = OutputFiles::new(folder.path(), "none");
        assert!(last_words(&none, 0, 20).is_empty());
    }
}
