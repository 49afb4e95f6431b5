//! A file that is being followed.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::files::checked::Checked;
use crate::files::open::open_at_once;
use crate::intake::READ_SIZE;
use crate::place::{Passed, Place};

/// The identity of a file among others of the same name, and the place where reading it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    /// When it was made, as far as the file system tells, in nanoseconds since 1970: numbers of
    /// inodes are used again.
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

    /// Returns true if it is that of the same file, wherever reading began.
    pub fn is_of_same(&self, other: &Identity) -> bool {
        let are_twins = self
            .born
            .zip(other.born)
            .is_some_and(|(one, other)| one != other);
        (self.device, self.inode) == (other.device, other.inode) && !are_twins
    }

    /// Returns true if the open file that has it is the one with this metadata: its inode is not
    /// used again meanwhile.
    pub fn has_inode_of(&self, metadata: &fs::Metadata) -> bool {
        (self.device, self.inode) == (metadata.dev(), metadata.ino())
    }

    /// Returns true if it is that of the file with this metadata.
    pub fn is_of(&self, metadata: &fs::Metadata) -> bool {
        self.is_of_same(&Identity::of(metadata))
    }
}

/// The file being read, with its identity.
pub(super) struct Followed {
    checked: Checked,
    pub identity: Identity,
}

impl Followed {
    /// None if what has the path is no plain file.
    pub fn open(path: &Path) -> io::Result<Option<Followed>> {
        // A pipe is not even opened: its writer would take that for a reader.
        if !fs::metadata(path)?.is_file() {
            return Ok(None);
        }
        let file = open_at_once(path)?;
        let metadata = file.metadata()?;
        Ok(metadata.is_file().then(|| Followed {
            identity: Identity::of(&metadata),
            checked: Checked::growing(file),
        }))
    }

    /// The bytes before this are read, or were passed over.
    pub fn position(&self) -> u64 {
        self.checked.position()
    }

    /// The last bytes before the position.
    pub fn passed(&self) -> &Passed {
        self.checked.passed()
    }

    /// Goes behind the last whole line that the file has.
    pub fn skip_lines(&mut self) -> io::Result<()> {
        let length = self.checked.file().metadata()?.len();
        self.skip_lines_of(length)
    }

    /// Goes behind the last whole line of the file's first `length` bytes.
    pub(super) fn skip_lines_of(&mut self, length: u64) -> io::Result<()> {
        let position = match self.end_of_lines(length) {
            // It was truncated meanwhile: what it has now is new.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
            position => position?,
        };
        self.identity.began = position;
        self.checked.go_to(position)
    }

    /// Goes to the place that it had been read to, if it has the bytes that came before. Reading it
    /// began at `began`.
    pub fn goes_on_at(&mut self, began: u64, place: &Place) -> io::Result<bool> {
        let offset = began.saturating_add(place.offset);
        let file = self.checked.file();
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

    /// The same file from its beginning.
    pub fn rewound(&self) -> io::Result<&File> {
        let mut file = self.checked.file();
        file.rewind()?;
        Ok(file)
    }

    /// Returns true if it has another length than it had when it was read last.
    pub fn has_changed(&self) -> io::Result<bool> {
        Ok(self.checked.file().metadata()?.len() != self.position())
    }

    /// Goes to the beginning, where reading begins anew.
    pub fn restart(&mut self) {
        self.identity.began = 0;
        self.checked.restart();
    }

    /// Where the last whole line of the first `length` bytes ends.
    fn end_of_lines(&self, length: u64) -> io::Result<u64> {
        let mut before = length;
        let mut block = vec![0; READ_SIZE];
        while before > 0 {
            let from = before.saturating_sub(READ_SIZE as u64);
            // At most the size of a block.
            let block = &mut block[..(before - from) as usize];
            self.checked.file().read_exact_at(block, from)?;
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
    /// As [`Checked::read`](Checked): with damage if the file was truncated.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.checked.read(buffer)
    }
}

/// When a file was made, in nanoseconds since 1970, if that is known.
pub(in crate::files) fn born(metadata: &fs::Metadata) -> Option<u64> {
    let born = metadata.created().ok()?;
    let since = born.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok()
}

/// Whether no file has the path: nothing does, or what should be a folder on the way is none now.
pub(in crate::files) fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
