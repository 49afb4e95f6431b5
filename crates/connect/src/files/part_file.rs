//! A file that nobody sees under its name before it is whole.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ardea_core::{Error, ErrorCode, Result};
use flate2::write::GzEncoder;

use super::special_file::SpecialFile;

/// What the name of an unfinished file ends in.
pub(super) const PART_SUFFIX: &str = ".part";

/// How a file is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// By gzip; names end in `.gz`.
    Gzip,
    /// By zstd; names end in `.zst`.
    Zstd,
}

impl Compression {
    /// What a file of that name wants.
    pub fn of_name(path: &Path) -> Compression {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Compression::Gzip,
            Some("zst") => Compression::Zstd,
            _ => Compression::None,
        }
    }

    /// What the names of such files end in.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Compression::None => "",
            Compression::Gzip => ".gz",
            Compression::Zstd => ".zst",
        }
    }
}

/// The bytes' way into the file.
enum Way {
    Plain(File),
    Special(SpecialFile),
    Gzip(GzEncoder<File>),
    Zstd(zstd::Encoder<'static, File>),
}

/// A file that is written as `NAME.part` and becomes `NAME` when it is finished.
///
/// Dropped unfinished, it stays as `NAME.part`. Only one writer at a time can have it (an advisory lock).
///
/// ```
/// use ardea_connect::files::{Compression, PartFile};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("numbers.txt");
/// let mut file = PartFile::create(path.clone(), Compression::None, || true)?;
/// file.write(b"1\n2\n")?;
/// assert!(!path.exists(), "not before it is whole");
/// file.finish(true)?;
/// assert_eq!(std::fs::read(&path)?, b"1\n2\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PartFile {
    path: PathBuf,
    /// Its name until it is whole; a device or a pipe has none, and is written as it is.
    part: Option<PathBuf>,
    way: Way,
    /// Bytes written so far, before compression.
    pub(super) written: u64,
}

/// An error of writing `path`.
pub(super) fn cannot_write(path: &Path, error: io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull => "make room on the disk",
        io::ErrorKind::PermissionDenied => "check who may write there",
        _ => "check the path and the disk",
    };
    Error::new(
        ErrorCode::WriteFailed,
        format!("cannot write {}", path.display()),
    )
    .because(error)
    .hint(hint)
}

/// Opens an unfinished file and locks it; `between` is what others may do meanwhile.
fn locked(part: &Path, mut between: impl FnMut()) -> Result<File> {
    let failed = |error| cannot_write(part, error);
    loop {
        // Not truncated before the lock is held: another writer may be at it.
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(part)
            .map_err(failed)?;
        between();
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) => {
                let what = format!(
                    "{} is being written by another job or instance",
                    part.display()
                );
                return Err(
                    Error::new(ErrorCode::WriteFailed, what).hint("give each job its own path")
                );
            }
        }
        // Its writer may have finished between the opening and the locking: then this is a whole file under its final name.
        let ours = file.metadata().map_err(failed)?;
        if fs::metadata(part)
            .is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino()))
        {
            return Ok(file);
        }
    }
}

impl PartFile {
    /// Begins `path`; directories on the way are made. What an earlier run left unfinished under the name is overwritten.
    ///
    /// A link stays a link. A device or a pipe is written as it is, uncompressed; a pipe is waited for until it has a reader that
    /// takes what is written, as long as `go_on` says so, which is asked ten to twenty times a second.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if it can't be opened or somebody else is writing it, [`ErrorCode::InvalidConfig`] if it is a
    /// directory, [`ErrorCode::Cancelled`] if `go_on` said no.
    pub fn create(
        path: PathBuf,
        compression: Compression,
        go_on: impl Fn() -> bool + Send + 'static,
    ) -> Result<PartFile> {
        let failed = |error| cannot_write(&path, error);
        if let Some(directory) = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            fs::create_dir_all(directory).map_err(failed)?;
        }
        if path.is_dir() {
            return Err(Error::new(
                ErrorCode::InvalidConfig,
                format!("cannot write {}: it is a directory", path.display()),
            )
            .hint("name a file in it, such as `records.jsonl`"));
        }
        // A link stays a link: what it leads to is written.
        let path = fs::canonicalize(&path).unwrap_or(path);
        let failed = |error| cannot_write(&path, error);
        if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
            // A device or a pipe is not replaced: it has no part that could become it.
            let file = SpecialFile::open(&path, go_on)?;
            return Ok(PartFile {
                path,
                part: None,
                way: Way::Special(file),
                written: 0,
            });
        }
        let part = with_suffix(&path, PART_SUFFIX);
        let file = locked(&part, || ())?;
        file.set_len(0).map_err(failed)?;
        let way = match compression {
            Compression::None => Way::Plain(file),
            Compression::Gzip => Way::Gzip(GzEncoder::new(file, flate2::Compression::default())),
            Compression::Zstd => Way::Zstd(
                zstd::Encoder::new(file, zstd::DEFAULT_COMPRESSION_LEVEL).map_err(failed)?,
            ),
        };
        Ok(PartFile {
            path,
            part: Some(part),
            way,
            written: 0,
        })
    }

    /// The name under which it is now.
    fn name(&self) -> &Path {
        self.part.as_deref().unwrap_or(&self.path)
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`]; of a pipe, [`ErrorCode::OutputClosed`] if its reader has gone, [`ErrorCode::Cancelled`] if it did
    /// not read and was not to be waited for.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let outcome = match &mut self.way {
            Way::Plain(file) => file.write_all(bytes),
            Way::Special(file) => {
                file.write(&self.path, bytes)?;
                Ok(())
            }
            Way::Gzip(encoder) => encoder.write_all(bytes),
            Way::Zstd(encoder) => encoder.write_all(bytes),
        };
        outcome.map_err(|error| cannot_write(self.name(), error))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Has the disk keep what was written so far.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`].
    pub fn sync(&mut self) -> Result<()> {
        let outcome = match &mut self.way {
            Way::Plain(file) => file.sync_data(),
            Way::Special(_) => Ok(()),
            Way::Gzip(encoder) => encoder.flush().and_then(|()| encoder.get_ref().sync_data()),
            Way::Zstd(encoder) => encoder.flush().and_then(|()| encoder.get_ref().sync_data()),
        };
        outcome.map_err(|error| cannot_write(self.name(), error))
    }

    /// Ends the file and gives it its name, in place of any older file. With `sync`, content and name are on the disk
    /// before this returns.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`].
    pub fn finish(self, sync: bool) -> Result<()> {
        let PartFile {
            path, part, way, ..
        } = self;
        let failed = |error| cannot_write(&path, error);
        let ended = match way {
            Way::Special(_) => return Ok(()),
            Way::Plain(file) => Ok(file),
            Way::Gzip(encoder) => encoder.finish(),
            Way::Zstd(encoder) => encoder.finish(),
        };
        let file = ended.map_err(failed)?;
        let Some(part) = part else { return Ok(()) };
        if sync {
            file.sync_all().map_err(failed)?;
        }
        fs::rename(&part, &path).map_err(failed)?;
        if sync {
            let directory = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            let directory = File::open(directory.unwrap_or(Path::new("."))).map_err(failed)?;
            directory.sync_all().map_err(failed)?;
        }
        Ok(())
    }
}

impl PartFile {
    /// Ends it before it is whole: what was there before stays, and nothing is left of this. What a device or a pipe has got can't
    /// be taken back.
    pub fn discard(self) {
        if let Some(part) = &self.part {
            // One that can't be removed is overwritten by the next run.
            let _ = fs::remove_file(part);
        }
    }
}

impl std::fmt::Debug for PartFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "PartFile({}, {} bytes)",
            self.name().display(),
            self.written
        )
    }
}

/// `path` with `suffix` behind its name.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_writers_of_one_file_are_kept_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/er/out");
        let mut first = PartFile::create(path.clone(), Compression::None, || true).unwrap();
        first.write(b"mine").unwrap();
        let error =
            PartFile::create(path.clone(), Compression::None, || true).expect_err("an error");
        assert!(error.to_string().contains("another job"), "{error}");
        first.finish(true).unwrap();
        assert_eq!(fs::read(path).unwrap(), b"mine");
    }

    #[test]
    fn what_an_earlier_run_left_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut part = PartFile::create(path.clone(), Compression::None, || true).unwrap();
        part.write(b"a long beginning").unwrap();
        drop(part);
        assert!(!path.exists());
        let mut part = PartFile::create(path.clone(), Compression::None, || true).unwrap();
        part.write(b"new").unwrap();
        part.finish(false).unwrap();
        assert_eq!(fs::read(path).unwrap(), b"new");
    }

    #[test]
    fn a_part_that_became_whole_between_opening_and_locking_is_not_taken_for_a_part() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut first = PartFile::create(path.clone(), Compression::None, || true).unwrap();
        first.write(b"whole").unwrap();
        let part = first.part.clone().unwrap();
        let mut first = Some(first);
        let second = locked(&part, || {
            if let Some(first) = first.take() {
                first.finish(false).unwrap();
            }
        });
        second.unwrap().set_len(0).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert!(part.exists(), "the second writer has a part of its own");
    }

    #[test]
    fn a_discarded_file_leaves_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        fs::write(&path, "old").unwrap();
        let mut part = PartFile::create(path.clone(), Compression::None, || true).unwrap();
        part.write(b"new").unwrap();
        part.discard();
        assert_eq!(fs::read(path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
