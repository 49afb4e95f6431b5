//! An open followed file and its identity.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::files::checked::Checked;
use crate::files::location::SourceFile;
use crate::files::open::open_at_once;
use crate::record_reader::READ_SIZE;
use crate::stream_position::{StreamPosition, TrailingBytes};

/// The identity of a file among all files that have had its name, and the position where reading
/// began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    /// The creation time in nanoseconds since 1970, if the file system reports it. Inode numbers
    /// are reused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    born: Option<u64>,
    pub began: u64,
}

impl Identity {
    fn of(metadata: &fs::Metadata) -> Self {
        Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
            born: born(metadata),
            began: 0,
        }
    }

    /// Returns true if both identify the same file; the start positions may differ.
    pub fn is_of_same(&self, other: &Identity) -> bool {
        let are_twins = self
            .born
            .zip(other.born)
            .is_some_and(|(one, other)| one != other);
        (self.device, self.inode) == (other.device, other.inode) && !are_twins
    }

    /// Returns true if `metadata` has the device and inode of this open file. The inode of an open
    /// file is not reused.
    pub fn has_inode_of(&self, metadata: &fs::Metadata) -> bool {
        (self.device, self.inode) == (metadata.dev(), metadata.ino())
    }

    /// Returns true if this identifies the file with this metadata.
    pub fn is_of(&self, metadata: &fs::Metadata) -> bool {
        self.is_of_same(&Identity::of(metadata))
    }
}

/// An open file with its identity.
pub(super) struct Followed {
    checked: Checked,
    pub identity: Identity,
}

impl Followed {
    /// Opens the file at `path`. Returns `None` if it is not a plain file.
    pub fn open(path: &Path) -> io::Result<Option<Followed>> {
        // A pipe must not be opened: its writer would regard this process as a reader.
        if !fs::metadata(path)?.is_file() {
            return Ok(None);
        }
        let file = open_at_once(path)?;
        let metadata = file.metadata()?;
        Ok(metadata.is_file().then(|| Followed {
            identity: Identity::of(&metadata),
            checked: Checked::growing(SourceFile::Local(file)),
        }))
    }

    /// Returns the position up to which bytes have been read or skipped.
    pub fn position(&self) -> u64 {
        self.checked.position()
    }

    /// Returns the last bytes before the position.
    pub fn passed(&self) -> &TrailingBytes {
        self.checked.passed()
    }

    /// Moves to the end of the last complete line.
    pub fn skip_lines(&mut self) -> io::Result<()> {
        let length = self.checked.local()?.metadata()?.len();
        self.skip_lines_of(length)
    }

    /// Moves to the end of the last complete line within the first `length` bytes.
    pub(super) fn skip_lines_of(&mut self, length: u64) -> io::Result<()> {
        let position = match self.end_of_lines(length) {
            // The file was truncated meanwhile; its present content is new.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
            position => position?,
        };
        self.identity.began = position;
        self.checked.go_to(position)
    }

    /// Moves to the position `place` of an earlier attempt, which began to read at byte `began`.
    /// Returns false if the bytes before `place` have changed.
    pub fn goes_on_at(&mut self, began: u64, place: &StreamPosition) -> io::Result<bool> {
        let offset = began.saturating_add(place.offset);
        let file = self.checked.local()?;
        if file.metadata()?.len() < offset {
            return Ok(false);
        }
        let mut before = vec![0; place.before.len()];
        let from = offset.saturating_sub(before.len() as u64);
        file.read_exact_at(&mut before, from)?;
        if before != place.before {
            return Ok(false);
        }
        self.identity.began = began;
        self.checked.go_to(offset)?;
        Ok(true)
    }

    /// Returns the file rewound to its beginning.
    pub fn rewound(&self) -> io::Result<&File> {
        let mut file = self.checked.local()?;
        file.rewind()?;
        Ok(file)
    }

    /// Returns true if the length of the file differs from the position.
    pub fn has_changed(&self) -> io::Result<bool> {
        Ok(self.checked.local()?.metadata()?.len() != self.position())
    }

    /// Moves to the beginning, where reading starts over.
    pub fn restart(&mut self) {
        self.identity.began = 0;
        self.checked.restart();
    }

    /// Returns the end of the last complete line within the first `length` bytes.
    fn end_of_lines(&self, length: u64) -> io::Result<u64> {
        let mut before = length;
        let mut block = vec![0; READ_SIZE];
        while before > 0 {
            let from = before.saturating_sub(READ_SIZE as u64);
            // At most the size of a block.
            let block = &mut block[..(before - from) as usize];
            self.checked.local()?.read_exact_at(block, from)?;
            if let Some(newline) = memchr::memrchr(b'\n', block) {
                return Ok(from + newline as u64 + 1);
            }
            before = from;
        }
        Ok(0)
    }
}

impl Read for Followed {
    /// # Errors
    /// Those of [`Checked`], including damage if the file was truncated.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.checked.read(buffer)
    }
}

/// Returns the creation time in nanoseconds since 1970, if known.
pub(in crate::files) fn born(metadata: &fs::Metadata) -> Option<u64> {
    let born = metadata.created().ok()?;
    let since = born.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok()
}

/// Returns true if no file has the path: there is none, or a parent is not a directory.
pub(in crate::files) fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
