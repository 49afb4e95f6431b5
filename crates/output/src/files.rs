//! The files of one output, and the position at which each begins.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The number of ages that are looked at, whatever the bounds once were.
const MOST_AGES: u32 = 1_000;

/// The files of one output in a folder: `NAME`, which is being written, and `NAME.1`, `NAME.2` …,
/// from young to old.
///
/// Beside them, `NAME.at` has the position at which one of them begins: its inode, a space, and the
/// position. All other positions follow from the sizes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutputFiles {
    folder: PathBuf,
    name: String,
}

/// One file of an output.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) file: File,
    /// The age in the file's name; 0 is the current one.
    pub(crate) age: u32,
    pub(crate) inode: u64,
    /// The position of its first byte.
    pub(crate) at: u64,
    /// Its size when it was looked at.
    pub(crate) bytes: u64,
    /// The position of its beginning or its end that stays when it grows. It tells the file from a
    /// later one of its inode.
    pub(crate) mark: u64,
}

impl Part {
    /// The position behind its last byte.
    pub(crate) fn end(&self) -> u64 {
        self.at.saturating_add(self.bytes)
    }
}

impl OutputFiles {
    /// Returns the output of this name in a folder. Nothing is opened.
    pub fn new(folder: impl Into<PathBuf>, name: impl Into<String>) -> Self {
        OutputFiles {
            folder: folder.into(),
            name: name.into(),
        }
    }

    /// Returns the output whose current file has this path, or `None` for a path without a file
    /// name.
    pub fn at(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        Some(OutputFiles::new(path.parent()?, name))
    }

    /// Returns the path of the current file.
    pub fn path(&self) -> PathBuf {
        self.aged(0)
    }

    /// Returns the path of the file of an age.
    pub(crate) fn aged(&self, age: u32) -> PathBuf {
        match age {
            0 => self.folder.join(&self.name),
            age => self.folder.join(format!("{}.{age}", self.name)),
        }
    }

    /// Returns a path beside the files.
    pub(crate) fn beside(&self, suffix: &str) -> PathBuf {
        self.folder.join(format!("{}.{suffix}", self.name))
    }

    /// Returns the position of the first byte that is kept, which is the number of bytes that were
    /// left out, and the position behind the last one.
    ///
    /// # Errors
    ///
    /// If a file can't be opened.
    pub fn kept(&self) -> io::Result<(u64, u64)> {
        let parts = self.parts()?;
        let first = parts.first().map_or(0, |part| part.at);
        Ok((first, parts.last().map_or(first, Part::end)))
    }

    /// Returns the age and the size of each file, from old to young. The current one has age 0.
    pub fn sizes(&self) -> Vec<(u32, u64)> {
        let parts = self.parts().unwrap_or_default().into_iter();
        parts.map(|part| (part.age, part.bytes)).collect()
    }

    /// Opens all files, from old to young. A rotation meanwhile does no harm: a file that was seen
    /// twice counts once.
    pub(crate) fn parts(&self) -> io::Result<Vec<Part>> {
        let mut parts: Vec<Part> = Vec::new();
        let mut missing = 0;
        for age in 0..MOST_AGES {
            let file = match File::open(self.aged(age)) {
                Ok(file) => file,
                // While files are renamed one age is missing.
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
            parts.push(Part {
                file,
                age,
                inode: metadata.ino(),
                at: 0,
                bytes: metadata.len(),
                mark: 0,
            });
        }
        parts.reverse();
        place(&mut parts, self.recorded());
        Ok(parts)
    }

    /// Returns the recorded inode and position.
    fn recorded(&self) -> Option<(u64, u64)> {
        let text = std::fs::read_to_string(self.beside("at")).ok()?;
        let (inode, at) = text.trim().split_once(' ')?;
        Some((inode.parse().ok()?, at.parse().ok()?))
    }

    /// Records the position at which a file begins.
    pub(crate) fn record(&self, inode: u64, at: u64) -> io::Result<()> {
        // The container and its host may record at the same time.
        let scratch = self.beside(&format!("at.{}.new", std::process::id()));
        std::fs::write(&scratch, format!("{inode} {at}\n"))?;
        std::fs::rename(&scratch, self.beside("at"))
    }

    /// Opens the current file for appending, and makes it if it is not there.
    pub(crate) fn append(&self) -> io::Result<File> {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path())
    }
}

/// Computes where the files begin, by the recorded position of one of them. Without a record the
/// oldest begins at 0.
fn place(parts: &mut [Part], recorded: Option<(u64, u64)>) {
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
