//! The files of one output, and the position at which each starts.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The number of ages (the N of `NAME.N`) that are searched, independently of the current bounds.
const MAX_AGES: u32 = 1_000;

/// The files of one output in a folder: `NAME`, which is being written, and `NAME.1`, `NAME.2` …,
/// from newest to oldest.
///
/// Beside them, `NAME.at` holds the position at which one of the files starts: the inode of that
/// file, a space, and the position. The positions of the other files follow from the sizes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutputFiles {
    folder: PathBuf,
    name: String,
}

/// One file of an output.
#[derive(Debug)]
pub(crate) struct OutputFile {
    pub(crate) file: File,
    /// The age in the file's name: 0 is the current file, 1 the newest rotated file.
    pub(crate) age: u32,
    pub(crate) inode: u64,
    /// The position of the file's first byte.
    pub(crate) at: u64,
    /// The file's size when it was opened.
    pub(crate) bytes: u64,
    /// The position of the file's start or end, whichever does not change when the file grows. It
    /// distinguishes the file from a later one with the same inode.
    pub(crate) mark: u64,
}

impl OutputFile {
    /// Returns the position after the file's last byte.
    pub(crate) fn end(&self) -> u64 {
        self.at.saturating_add(self.bytes)
    }
}

impl OutputFiles {
    /// Creates the output `name` in a folder. Opens no file.
    pub fn new(folder: impl Into<PathBuf>, name: impl Into<String>) -> Self {
        OutputFiles {
            folder: folder.into(),
            name: name.into(),
        }
    }

    /// Creates the output whose current file has this path; `None` for a path without a file name.
    pub fn at(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        Some(OutputFiles::new(path.parent()?, name))
    }

    /// Returns the path of the current file.
    pub fn path(&self) -> PathBuf {
        self.aged(0)
    }

    /// Returns the path of the file of this age: `NAME` for 0, otherwise `NAME.age`.
    pub(crate) fn aged(&self, age: u32) -> PathBuf {
        match age {
            0 => self.folder.join(&self.name),
            age => self.folder.join(format!("{}.{age}", self.name)),
        }
    }

    /// Returns a path beside the files, with another suffix.
    pub(crate) fn beside(&self, suffix: &str) -> PathBuf {
        self.folder.join(format!("{}.{suffix}", self.name))
    }

    /// Returns the position of the first stored byte, which is the number of dropped bytes, and the
    /// position after the last one.
    ///
    /// # Errors
    ///
    /// If a file cannot be opened.
    pub fn stored_range(&self) -> io::Result<(u64, u64)> {
        let parts = self.parts()?;
        let first = parts.first().map_or(0, |part| part.at);
        Ok((first, parts.last().map_or(first, OutputFile::end)))
    }

    /// Returns the age and the size of each file, from oldest to newest. The current file has age
    /// 0, the newest rotated file age 1.
    pub fn sizes(&self) -> Vec<(u32, u64)> {
        let parts = self.parts().unwrap_or_default().into_iter();
        parts.map(|part| (part.age, part.bytes)).collect()
    }

    /// Opens all files, from oldest to newest. Tolerates a concurrent rotation: a file found twice
    /// counts once.
    pub(crate) fn parts(&self) -> io::Result<Vec<OutputFile>> {
        let mut parts: Vec<OutputFile> = Vec::new();
        let mut missing = 0;
        for age in 0..MAX_AGES {
            let file = match File::open(self.aged(age)) {
                Ok(file) => file,
                // During a rotation one age is missing.
                Err(error) if error.kind() == ErrorKind::NotFound && missing < 2 => {
                    missing += 1;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                Err(error) => return Err(error),
            };
            missing = 0;
            let metadata = file.metadata()?;
            if parts
                .last()
                .is_some_and(|part| part.inode == metadata.ino())
            {
                continue;
            }
            parts.push(OutputFile {
                file,
                age,
                inode: metadata.ino(),
                at: 0,
                bytes: metadata.len(),
                mark: 0,
            });
        }
        parts.reverse();
        compute_positions(&mut parts, self.recorded());
        Ok(parts)
    }

    fn recorded(&self) -> Option<(u64, u64)> {
        let text = std::fs::read_to_string(self.beside("at")).ok()?;
        let (inode, at) = text.trim().split_once(' ')?;
        Some((inode.parse().ok()?, at.parse().ok()?))
    }

    /// Records the position at which a file starts.
    pub(crate) fn record(&self, inode: u64, at: u64) -> io::Result<()> {
        // The container and its host may record at the same time.
        let scratch = self.beside(&format!("at.{}.new", std::process::id()));
        std::fs::write(&scratch, format!("{inode} {at}\n"))?;
        std::fs::rename(&scratch, self.beside("at"))
    }

    /// Opens the current file for appending, and creates it if it is missing.
    pub(crate) fn append(&self) -> io::Result<File> {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path())
    }
}

/// Computes the positions of the files from the recorded position of one of them. Without a
/// recorded position the oldest file starts at 0.
fn compute_positions(parts: &mut [OutputFile], recorded: Option<(u64, u64)>) {
    let known = recorded.and_then(|(inode, at)| {
        let index = parts.iter().position(|part| part.inode == inode)?;
        Some((index, at))
    });
    let (index, at) = known.unwrap_or((0, 0));
    let mut before = at;
    for part in parts.iter_mut().take(index).rev() {
        part.mark = before;
        before = before.saturating_sub(part.bytes);
        part.at = before;
    }
    let mut next = at;
    for part in parts.iter_mut().skip(index) {
        (part.at, part.mark) = (next, next);
        next = part.end();
    }
}
