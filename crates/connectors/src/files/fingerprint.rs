//! Identities of files, which distinguish a file from a later one of the same name.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::follow::born;
use super::open::open_at_once;

/// The number of samples of a file that are compared, and the length of each.
const PIECES: u64 = 16;
const PIECE: u64 = 512;

/// The identity of a plain file when it was opened.
///
/// A file is the same if its inode, length and modification time are unchanged. Otherwise sixteen
/// samples of 512 bytes, evenly spread over its length when it was opened, must be equal. So a file
/// that was appended to or copied back counts as the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Fingerprint {
    device: u64,
    inode: u64,
    length: u64,
    /// The modification time in nanoseconds since 1970.
    modified_ns: i64,
    /// The hash of the samples.
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

    /// Returns the fingerprint of an object; `hash` identifies its version.
    #[cfg(feature = "s3")]
    pub fn of_object(length: u64, modified_ns: i64, hash: u64) -> Self {
        Fingerprint {
            device: 0,
            inode: 0,
            length,
            modified_ns,
            pieces: hash,
        }
    }

    /// Returns true if `file` is the identified file, as far as this can be determined.
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

    /// Returns the length of the file when it was opened.
    pub fn length(&self) -> u64 {
        self.length
    }
}

/// The difference between a file that was read and the file now at its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Unchanged,
    /// The file has the same content, but another modification time or inode.
    Touched,
    /// It is the same file with more, less or other content.
    Altered,
    /// It is another file.
    Replaced,
}

/// The identity of a file by its metadata, and by samples of its content once it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct FileIdentity {
    device: u64,
    inode: u64,
    /// The creation time in nanoseconds since 1970, if the file system reports it. Inode numbers
    /// are reused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    born: Option<u64>,
    length: u64,
    modified_ns: i64,
    /// The hash of samples of the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pieces: Option<u64>,
}

impl FileIdentity {
    pub fn of(metadata: &Metadata) -> Self {
        FileIdentity {
            device: metadata.dev(),
            inode: metadata.ino(),
            born: born(metadata),
            length: metadata.len(),
            modified_ns: modified_ns(metadata),
            pieces: None,
        }
    }

    /// Returns the identity of a file of which the first `length` bytes were read, or all bytes if
    /// `length` is `None`.
    pub fn of_read(file: &File, length: Option<u64>) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let length = length.unwrap_or(metadata.len());
        Ok(FileIdentity {
            length,
            pieces: Some(pieces(file, length)?),
            ..FileIdentity::of(&metadata)
        })
    }

    /// Compares this identity with `now`, the identity of the file that is now at `path`. The
    /// content decides where metadata is ambiguous: inodes are reused, device numbers change after
    /// a reboot, and copies may preserve times.
    pub fn compare(&self, now: &FileIdentity, path: &Path) -> io::Result<Change> {
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
            // An empty file has no content to compare.
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

    /// Returns the identity `now` with the content hash of this one, for a file with the same
    /// content.
    pub fn touched(&self, now: &FileIdentity) -> FileIdentity {
        FileIdentity {
            pieces: self.pieces,
            ..*now
        }
    }

    /// Returns true if `other` probably identifies the same file, whose content may differ.
    pub fn is_of_same(&self, other: &FileIdentity) -> bool {
        let is_unchanged = (self.length, self.modified_ns) == (other.length, other.modified_ns);
        is_unchanged || self.is_one_with(other)
    }

    /// Returns true if both certainly identify the same file, whose content may differ.
    pub fn is_one_with(&self, other: &FileIdentity) -> bool {
        let id = |mark: &FileIdentity| (mark.device, mark.inode, mark.born);
        self.born.is_some() && id(self) == id(other)
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the device and inode numbers.
    pub fn inode(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

/// Returns the modification time in nanoseconds since 1970.
fn modified_ns(metadata: &Metadata) -> i64 {
    let seconds = metadata.mtime().saturating_mul(1_000_000_000);
    seconds.saturating_add(metadata.mtime_nsec())
}

/// Returns the hash of samples of the first `length` bytes; in a small file, of all these bytes.
fn pieces(file: &File, length: u64) -> io::Result<u64> {
    let mut hash = Xxh3::new();
    let mut piece = [0; PIECE as usize];
    for number in 0..PIECES {
        let at = match length <= PIECES * PIECE {
            true => number * PIECE,
            // The last sample ends at the end of the file.
            false => {
                let (room, gaps) = (length - PIECE, PIECES - 1);
                room / gaps * number + room % gaps * number / gaps
            }
        };
        if at >= length {
            break;
        }
        // At most the size of a sample.
        let piece = &mut piece[..(length - at).min(PIECE) as usize];
        match file.read_exact_at(piece, at) {
            // The file is being truncated.
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
            let mut mark = FileIdentity::of_read(&File::open(&path).unwrap(), None).unwrap();
            (mark.device, mark.born) = (mark.device + 1, None);
            fs::write(&path, now).unwrap();
            let now = FileIdentity::of(&fs::metadata(&path).unwrap());
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
