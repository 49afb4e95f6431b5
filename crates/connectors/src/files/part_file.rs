//! A file that nobody sees under its name before it is whole.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ardea_core::{Error, ErrorCode, Result, real_path};
use ardea_filesystem::{Permissions, Shown, lacks_locks, make_folder};
use flate2::write::GzEncoder;
use rustix::fs::OFlags;

use super::special_file::{Awaited, SpecialFile};
use super::whole::{Whole, reopened};
use crate::decompressed::Decompressed;

/// The mode of a new file, of which the umask takes its part.
const NEW_FILE: u32 = 0o666;

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
    /// All that was written so far can be read by itself; what comes next begins anew.
    Sealed(File),
    /// Sealing it has failed.
    Failed,
}

impl Way {
    fn of(file: File, compression: Compression) -> io::Result<Way> {
        Ok(match compression {
            Compression::None => Way::Plain(file),
            Compression::Gzip => Way::Gzip(GzEncoder::new(file, flate2::Compression::default())),
            Compression::Zstd => {
                let mut encoder = zstd::Encoder::new(file, zstd::DEFAULT_COMPRESSION_LEVEL)?;
                encoder.include_checksum(true)?;
                Way::Zstd(encoder)
            }
        })
    }

    /// The file, when all is in it.
    fn end(self, compression: Compression) -> io::Result<Option<File>> {
        match self {
            Way::Plain(file) => Ok(Some(file)),
            Way::Gzip(encoder) => encoder.finish().map(Some),
            Way::Zstd(encoder) => encoder.finish().map(Some),
            // A compressed file is never quite empty.
            Way::Sealed(file) if file.metadata()?.len() == 0 => match Way::of(file, compression)? {
                Way::Sealed(_) => Ok(None),
                way => way.end(compression),
            },
            Way::Sealed(file) => Ok(Some(file)),
            Way::Special(_) => Ok(None),
            Way::Failed => Err(io::Error::other("it could not be written before")),
        }
    }
}

/// A file that is written as `NAME.part` and becomes `NAME` when it is finished.
///
/// It has the mode of the file that it replaces, and owner and group where this process may set them; a new file follows the umask.
/// Dropped unfinished, it stays as `NAME.part`. Only one writer at a time can have it (an advisory lock).
///
/// ```
/// use ardea_connectors::files::{Compression, PartFile};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("numbers.txt");
/// let mut file = PartFile::create(path.clone(), Compression::None, |_| true)?;
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
    compression: Compression,
    /// Bytes written so far, before compression.
    pub(super) written: u64,
    /// How long the file was when it was sealed last, and whether something has been written since.
    sealed: u64,
    is_open: bool,
}

/// An error of writing `path`.
pub(crate) fn cannot_write(path: &Path, error: io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull => "make room on the disk",
        io::ErrorKind::PermissionDenied => "check who may write there",
        _ => "check the path and the disk",
    };
    Error::new(
        ErrorCode::WriteFailed,
        format!("cannot write {}", path.shown()),
    )
    .because(error)
    .hint(hint)
}

/// Where what is written to a path goes.
#[derive(Debug)]
pub(super) enum Place {
    /// To a file of that name, by way of a part beside it. A link to it stays a link, also one that leads to nothing yet.
    File { path: PathBuf, part: PathBuf },
    /// To a device or a pipe, which is not replaced: it has no part that could become it.
    Special,
}

impl Place {
    pub fn of(path: &Path) -> io::Result<Place> {
        let path = match fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() => return Ok(Place::Special),
            Ok(_) => fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) if path.is_symlink() => real_path(path),
            Err(_) => path.to_path_buf(),
        };
        let part = with_suffix(&path, PART_SUFFIX);
        Ok(Place::File { path, part })
    }
}

/// How an unfinished file is opened: as a plain file, or not at all.
pub(super) fn part_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.write(true).custom_flags(flags.bits() as i32);
    options
}

/// Whether `name` is a name of `file`.
pub(super) fn is_named(file: &File, name: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    let named = fs::symlink_metadata(name);
    Ok(named.is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino())))
}

/// Returns the error of locking an unfinished file.
pub(crate) fn cannot_lock(part: &Path, error: io::Error) -> Error {
    lacks_locks(part, &error, "writing a file").unwrap_or_else(|| cannot_write(part, error))
}

/// Opens an unfinished file and locks it; `between` is what others may do meanwhile. The new file has `mode` as far as the umask
/// lets it.
fn locked(part: &Path, mode: u32, mut between: impl FnMut()) -> Result<File> {
    let failed = |error| cannot_write(part, error);
    loop {
        // Not truncated before the lock is held: another writer may be at it.
        let mut options = part_options();
        let file = options.create(true).truncate(false).mode(mode).open(part);
        let file = file.map_err(failed)?;
        between();
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(cannot_lock(part, error)),
            Err(TryLockError::WouldBlock) => return Err(in_use(part)),
        }
        // Its writer may have finished between the opening and the locking: then this is a whole file under its final name.
        if is_named(&file, part).map_err(failed)? {
            return Ok(file);
        }
    }
}

fn in_use(part: &Path) -> Error {
    let what = format!(
        "{} is being written by another job or instance",
        part.shown()
    );
    Error::new(ErrorCode::WriteFailed, what).hint("give each job its own path")
}

/// Makes the directories on the way to a file.
fn make_way(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => make_folder(parent),
        _ => Ok(()),
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
        go_on: impl Fn(Awaited) -> bool + Send + 'static,
    ) -> Result<PartFile> {
        let failed = |error| cannot_write(&path, error);
        make_way(&path).map_err(failed)?;
        if path.is_dir() {
            return Err(Error::new(
                ErrorCode::InvalidConfig,
                format!("cannot write {}: it is a directory", path.shown()),
            )
            .hint("name a file in it, such as `records.jsonl`"));
        }
        match Place::of(&path).map_err(failed)? {
            Place::Special => {
                let file = SpecialFile::open(&path, go_on)?;
                Ok(PartFile {
                    path,
                    part: None,
                    way: Way::Special(file),
                    compression,
                    written: 0,
                    sealed: 0,
                    is_open: true,
                })
            }
            Place::File { path, part } => {
                make_way(&path).map_err(failed)?;
                let replaced = Permissions::of(&path).map_err(failed)?;
                let mode = replaced.map_or(NEW_FILE, |_| Permissions::UNTIL_GIVEN);
                let file = locked(&part, mode, || ())?;
                file.set_len(0).map_err(failed)?;
                if let Some(replaced) = replaced {
                    // Before anything is in it that not all may read.
                    let given = replaced.while_written().give_to(&file);
                    given.map_err(failed)?;
                }
                PartFile::begun(path, part, file, compression)
            }
        }
    }

    /// Begins `path` as `part`, as [`create`](Self::create) does, if nothing has either name; else none.
    pub(super) fn create_new(
        path: PathBuf,
        part: PathBuf,
        compression: Compression,
    ) -> Result<Option<PartFile>> {
        let failed = |error| cannot_write(&path, error);
        make_way(&path).map_err(failed)?;
        if fs::symlink_metadata(&path).is_ok() {
            return Ok(None);
        }
        let file = match part_options().create_new(true).open(&part) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            file => file.map_err(failed)?,
        };
        match file.try_lock() {
            Ok(()) => PartFile::begun(path, part, file, compression).map(Some),
            Err(TryLockError::Error(error)) => Err(cannot_lock(&path, error)),
            // Somebody has taken it for what an earlier run left.
            Err(TryLockError::WouldBlock) => Ok(None),
        }
    }

    fn begun(
        path: PathBuf,
        part: PathBuf,
        file: File,
        compression: Compression,
    ) -> Result<PartFile> {
        let way = Way::of(file, compression).map_err(|error| cannot_write(&path, error))?;
        Ok(PartFile {
            path,
            part: Some(part),
            way,
            compression,
            written: 0,
            sealed: 0,
            is_open: true,
        })
    }

    /// A reader of what is in the file, from its beginning, with the compression undone.
    pub(super) fn written_so_far(&self) -> io::Result<Decompressed<File>> {
        let file = File::open(self.part.as_deref().unwrap_or(&self.path))?;
        Ok(match self.compression {
            Compression::None => Decompressed::plain(file),
            Compression::Gzip | Compression::Zstd => Decompressed::new(file),
        })
    }

    /// Goes on with an unfinished file of an earlier life, which had `length` bytes when it was [sealed](Self::seal), and `written` before
    /// compression. What came into it later is cut off. None if it is gone.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if it can't be opened, is shorter than that, or somebody else is writing it.
    pub(super) fn resume(
        (path, part): (PathBuf, PathBuf),
        (length, written): (u64, u64),
        compression: Compression,
    ) -> Result<Option<PartFile>> {
        let Some(file) = reopened(&part, length)? else {
            return Ok(None);
        };
        Ok(Some(PartFile {
            path,
            part: Some(part),
            way: Way::Sealed(file),
            compression,
            written,
            sealed: length,
            is_open: false,
        }))
    }

    /// Sees to it that what was written so far can be read by itself: a compressed file goes on with another member. A device or a pipe is
    /// left alone.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`]; nothing can be written after that.
    pub(super) fn seal(&mut self) -> Result<()> {
        if !self.is_open || self.part.is_none() || self.written == 0 {
            return Ok(());
        }
        let way = std::mem::replace(&mut self.way, Way::Failed);
        let ended = way.end(self.compression).and_then(|file| match file {
            None => Err(io::Error::other("it is no file")),
            Some(file) => Ok((file.metadata()?.len(), file)),
        });
        let (length, file) = ended.map_err(|error| cannot_write(self.name(), error))?;
        self.way = Way::Sealed(file);
        (self.sealed, self.is_open) = (length, false);
        Ok(())
    }

    /// Its final name, the one that it has now, and how long it was when it was sealed last.
    pub(super) fn sealed(&self) -> (&Path, &Path, u64) {
        (&self.path, self.name(), self.sealed)
    }

    /// The name under which it is now.
    fn name(&self) -> &Path {
        self.part.as_deref().unwrap_or(&self.path)
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`], also if the reader of a pipe has gone, or [`ErrorCode::OutputClosed`] if that is standard output
    /// by another name; [`ErrorCode::Cancelled`] if it did not read and was not to be waited for.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if !self.is_open && !bytes.is_empty() {
            self.open_again()?;
        }
        let outcome = match &mut self.way {
            Way::Plain(file) | Way::Sealed(file) => file.write_all(bytes),
            Way::Special(file) => {
                file.write(&self.path, bytes)?;
                Ok(())
            }
            Way::Gzip(encoder) => encoder.write_all(bytes),
            Way::Zstd(encoder) => encoder.write_all(bytes),
            Way::Failed => Err(io::Error::other("it could not be written before")),
        };
        outcome.map_err(|error| cannot_write(self.name(), error))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Something comes behind what was sealed.
    fn open_again(&mut self) -> Result<()> {
        self.way = match std::mem::replace(&mut self.way, Way::Failed) {
            Way::Sealed(file) => {
                Way::of(file, self.compression).map_err(|error| cannot_write(self.name(), error))?
            }
            way => way,
        };
        self.is_open = true;
        Ok(())
    }

    /// Has the disk keep what was written so far.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`].
    pub fn sync(&mut self) -> Result<()> {
        let outcome = match &mut self.way {
            Way::Plain(file) | Way::Sealed(file) => file.sync_data(),
            Way::Special(_) | Way::Failed => Ok(()),
            Way::Gzip(encoder) => encoder.flush().and_then(|()| encoder.get_ref().sync_data()),
            Way::Zstd(encoder) => encoder.flush().and_then(|()| encoder.get_ref().sync_data()),
        };
        outcome.map_err(|error| cannot_write(self.name(), error))
    }

    /// Has the disk keep what was written when it was sealed last.
    pub(super) fn sync_sealed(&self) -> Result<()> {
        let outcome = match &self.way {
            Way::Plain(file) | Way::Sealed(file) => file.sync_data(),
            Way::Gzip(encoder) => encoder.get_ref().sync_data(),
            Way::Zstd(encoder) => encoder.get_ref().sync_data(),
            Way::Special(_) | Way::Failed => Ok(()),
        };
        outcome.map_err(|error| cannot_write(self.name(), error))
    }

    /// Ends the file and gives it its name, in place of any older file. With `sync`, content and name are on the disk
    /// before this returns.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`].
    pub fn finish(self, sync: bool) -> Result<()> {
        match self.end(sync)? {
            Some(mut whole) => whole.replace(sync),
            None => Ok(()),
        }
    }

    /// Ends the file as [`finish`](Self::finish) does, but replaces none: if something has its name by now it gets `another`.
    pub(super) fn finish_free(
        self,
        sync: bool,
        another: impl FnMut() -> Result<PathBuf>,
    ) -> Result<()> {
        match self.end(sync)? {
            Some(mut whole) => whole.take_free_name(sync, another),
            None => Ok(()),
        }
    }

    /// Ends the content, which has not got its name then; a device or a pipe has no more to be done to it.
    pub(super) fn end(self, sync: bool) -> Result<Option<Whole>> {
        let PartFile {
            path,
            part,
            way,
            compression,
            ..
        } = self;
        let failed = |error| cannot_write(&path, error);
        let file = way.end(compression).map_err(failed)?;
        let (Some(file), Some(part)) = (file, part) else {
            return Ok(None);
        };
        if sync {
            file.sync_all().map_err(failed)?;
        }
        Whole::new(path, part, file).map(Some)
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
            self.name().shown(),
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
mod tests;
