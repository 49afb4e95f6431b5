//! A file that is being followed.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::files::checked::Checked;
use crate::files::open::open_at_once;
use crate::intake::READ_SIZE;
use crate::place::{Passed, Place};

/// The file being read, with what tells it from another of the same name.
pub(super) struct Followed {
    checked: Checked,
    pub device: u64,
    pub inode: u64,
    /// When it was made, as far as the file system tells, in nanoseconds since 1970: numbers of inodes are used again.
    pub born: Option<u64>,
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
            device: metadata.dev(),
            inode: metadata.ino(),
            born: born(&metadata),
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
        self.checked.go_to(position)
    }

    /// Goes to where it had been read to, if it has the bytes that came before.
    pub fn goes_on_at(&mut self, offset: u64, place: &Place) -> io::Result<bool> {
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
        self.checked.go_to(offset)?;
        Ok(true)
    }

    /// Goes to the beginning.
    pub fn restart(&mut self) {
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

    pub fn is(&self, other: &fs::Metadata) -> bool {
        (self.device, self.inode) == (other.dev(), other.ino())
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
