//! The identity of a file: what tells it from another one that has its name later.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::follow::born;
use super::open::open_at_once;

/// The number of pieces of a file that are compared, and the length of each.
const PIECES: u64 = 16;
const PIECE: u64 = 512;

/// The identity of a plain file at the time when it was opened.
///
/// A file is the same one if its inode, length and time of the last change are as they were. Otherwise sixteen pieces
/// of 512 bytes, evenly spread from its beginning to its end of then, have to be the same; so a file that was
/// appended to, or copied back, is the same one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Fingerprint {
    device: u64,
    inode: u64,
    length: u64,
    /// Nanoseconds since 1970.
    modified_ns: i64,
    /// The hash of the pieces.
    pieces: u64,
}

impl Fingerprint {
    pub fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let length = metadata.len();
        Ok(Fingerprint {
            device: metadata.dev(),
            inode: metadata.ino(),
            length,
            modified_ns: modified_ns(&metadata),
            pieces: pieces(file, length)?,
        })
    }

    /// Returns true if it is the identity of this file, as far as that can be told.
    pub fn is_of(&self, file: &File) -> io::Result<bool> {
        let metadata = file.metadata()?;
        let is_unchanged = (metadata.dev(), metadata.ino()) == (self.device, self.inode)
            && metadata.len() == self.length
            && modified_ns(&metadata) == self.modified_ns;
        if is_unchanged {
            return Ok(true);
        }
        Ok(metadata.len() >= self.length && pieces(file, self.length)? == self.pieces)
    }

    /// The length that the file had.
    pub fn length(&self) -> u64 {
        self.length
    }
}

/// The state of a file that was read, compared with what it was then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Unchanged,
    /// The same content, with another time or inode.
    Touched,
    /// The same file with more, less or other content.
    Altered,
    /// Another file.
    Replaced,
}

/// The identity of a file by its metadata, and by samples of its content once it has been read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Mark {
    device: u64,
    inode: u64,
    /// When it was made, in nanoseconds since 1970, if the file system tells: numbers of inodes are used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    born: Option<u64>,
    length: u64,
    modified_ns: i64,
    /// The hash of pieces of the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pieces: Option<u64>,
}

impl Mark {
    pub fn of(metadata: &Metadata) -> Self {
        Mark {
            device: metadata.dev(),
            inode: metadata.ino(),
            born: born(metadata),
            length: metadata.len(),
            modified_ns: modified_ns(metadata),
            pieces: None,
        }
    }

    /// The mark of a file of which the first `length` bytes have been read; of all bytes if that is
    /// not said.
    pub fn of_read(file: &File, length: Option<u64>) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let length = length.unwrap_or(metadata.len());
        Ok(Mark {
            length,
            pieces: Some(pieces(file, length)?),
            ..Mark::of(&metadata)
        })
    }

    /// Compares the file with the one at `path`, whose mark is `now`. The content decides where
    /// metadata does not: inodes are used again, devices have other numbers after a restart, and
    /// copies may keep times.
    pub fn compare(&self, now: &Mark, path: &Path) -> io::Result<Change> {
        let is_as_long = self.length == now.length;
        let is_as_old = is_as_long && self.modified_ns == now.modified_ns;
        let are_twins = self
            .born
            .zip(now.born)
            .is_some_and(|(one, other)| one != other);
        let has_moved = self.device == now.device && (self.inode != now.inode || are_twins);
        if is_as_old && self.device == now.device && !has_moved {
            return Ok(Change::Unchanged);
        }
        if has_moved && !is_as_old {
            return Ok(Change::Replaced);
        }
        let is_one = self.is_one_with(now);
        let has_content = match self.pieces {
            // None of its bytes can tell it from another one.
            Some(_) if self.length == 0 => is_one && is_as_long,
            Some(_) if self.length > now.length => false,
            Some(expected) if is_as_long || !is_one => {
                pieces(&open_at_once(path)?, self.length)? == expected
            }
            Some(_) | None => is_as_old || (is_one && is_as_long),
        };
        Ok(match (has_content, is_one) {
            (true, _) if is_as_long => Change::Touched,
            (true, _) | (false, true) => Change::Altered,
            (false, false) => Change::Replaced,
        })
    }

    /// The mark of `now`, which has the same content.
    pub fn touched(&self, now: &Mark) -> Mark {
        Mark {
            pieces: self.pieces,
            ..*now
        }
    }

    /// Returns true if it is the mark of the same file, which may have changed since.
    pub fn is_of_same(&self, other: &Mark) -> bool {
        let is_unchanged = (self.length, self.modified_ns) == (other.length, other.modified_ns);
        is_unchanged || self.is_one_with(other)
    }

    /// Returns true if it is certainly the same file, which may have changed since.
    pub fn is_one_with(&self, other: &Mark) -> bool {
        let id = |mark: &Mark| (mark.device, mark.inode, mark.born);
        self.born.is_some() && id(self) == id(other)
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    /// The numbers of its device and inode.
    pub fn inode(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

/// The time of the last change, in nanoseconds since 1970.
fn modified_ns(metadata: &Metadata) -> i64 {
    let seconds = metadata.mtime().saturating_mul(1_000_000_000);
    seconds.saturating_add(metadata.mtime_nsec())
}

/// The hash of pieces of the first `length` bytes; of all of them if they are few.
fn pieces(file: &File, length: u64) -> io::Result<u64> {
    let mut hash = Xxh3::new();
    let mut piece = [0; PIECE as usize];
    for number in 0..PIECES {
        let at = match length <= PIECES * PIECE {
            true => number * PIECE,
            // The last one ends with the file.
            false => {
                let (room, gaps) = (length - PIECE, PIECES - 1);
                room / gaps * number + room % gaps * number / gaps
            }
        };
        if at >= length {
            break;
        }
        // At most the size of a piece.
        let piece = &mut piece[..(length - at).min(PIECE) as usize];
        match file.read_exact_at(piece, at) {
            // It is being truncated.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            read => read?,
        }
        hash.update(piece);
    }
    Ok(hash.digest())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn is_of(fingerprint: &Fingerprint, path: &Path) -> bool {
        fingerprint.is_of(&File::open(path).unwrap()).unwrap()
    }

    #[test]
    fn without_the_numbers_of_the_file_system_the_content_tells_what_has_become_of_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let change = |before: &str, now: &str| {
            fs::write(&path, before).unwrap();
            let mut mark = Mark::of_read(&File::open(&path).unwrap(), None).unwrap();
            (mark.device, mark.born) = (mark.device + 1, None);
            fs::write(&path, now).unwrap();
            let now = Mark::of(&fs::metadata(&path).unwrap());
            mark.compare(&now, &path).unwrap()
        };
        assert_eq!(change("one\n", "one\n"), Change::Touched);
        assert_eq!(change("one\n", "one\ntwo\n"), Change::Altered);
        assert_eq!(change("one\n", "two\n"), Change::Replaced);
        assert_eq!(change("one\n", "two\none\n"), Change::Replaced);
        assert_eq!(change("one\ntwo\n", "one\n"), Change::Replaced);
        assert_eq!(change("", "one\n"), Change::Replaced);
    }

    #[test]
    fn a_file_stays_the_same_when_it_grows_or_is_copied_back_and_not_when_it_is_replaced() {
        for length in [10, 5_000, 200_000] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("file");
            let text: String = (0..).map(|n| format!("{n},")).take(length).collect();
            let text = &text[..length];
            fs::write(&path, text).unwrap();
            let fingerprint = Fingerprint::of(&File::open(&path).unwrap()).unwrap();
            assert!(is_of(&fingerprint, &path));
            fs::write(&path, format!("{text}more")).unwrap();
            assert!(is_of(&fingerprint, &path), "it has grown");
            fs::remove_file(&path).unwrap();
            fs::write(&path, text).unwrap();
            assert!(is_of(&fingerprint, &path), "it was copied back");
            fs::write(&path, &text[..length - 1]).unwrap();
            assert!(!is_of(&fingerprint, &path), "it is shorter");
            fs::write(&path, text.replace(',', ";")).unwrap();
            assert!(!is_of(&fingerprint, &path), "it is another one");
            fs::write(&path, format!("{}!", &text[..length - 1])).unwrap();
            assert!(!is_of(&fingerprint, &path), "its end is another one");
        }
    }
}
