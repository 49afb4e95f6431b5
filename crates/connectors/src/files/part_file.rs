//! Output files that appear under their name only when they are complete.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ardea_core::{Error, ErrorCode, Result, real_path};
use ardea_filesystem::{Permissions, Shown, create_folder, lacks_locks};
use flate2::write::GzEncoder;
use rustix::fs::OFlags;

use super::finished_file::{FinishedFile, reopened};
use super::output_content::OutputContent;
use super::special_file::{ReadyEvent, SpecialFile};

/// The mode of a new file before the umask is applied.
const NEW_FILE: u32 = 0o666;

/// The suffix of an unfinished file.
pub(super) const PART_SUFFIX: &str = ".part";

/// The compression of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// Gzip; names end in `.gz`.
    Gzip,
    /// Zstd; names end in `.zst`.
    Zstd,
}

impl Compression {
    /// Returns the compression implied by the suffix of a file name.
    pub fn of_name(path: &Path) -> Compression {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Compression::Gzip,
            Some("zst") => Compression::Zstd,
            _ => Compression::None,
        }
    }

    /// Returns the file name suffix of this compression.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Compression::None => "",
            Compression::Gzip => ".gz",
            Compression::Zstd => ".zst",
        }
    }
}

/// Returns an encoder of a gzip member.
pub(super) fn gzip_encoder<W: Write>(writer: W) -> GzEncoder<W> {
    GzEncoder::new(writer, flate2::Compression::default())
}

/// Returns an encoder of a zstd frame, which ends with a checksum.
pub(super) fn zstd_encoder<W: Write>(writer: W) -> io::Result<zstd::Encoder<'static, W>> {
    let mut encoder = zstd::Encoder::new(writer, zstd::DEFAULT_COMPRESSION_LEVEL)?;
    encoder.include_checksum(true)?;
    Ok(encoder)
}

/// The encoder in front of a file.
enum Encoder {
    Plain(File),
    Special(SpecialFile),
    Gzip(GzEncoder<File>),
    Zstd(zstd::Encoder<'static, File>),
    /// The bytes written so far can be decompressed; further bytes start a new member.
    Sealed(File),
    /// Sealing has failed.
    Failed,
}

impl Encoder {
    fn of(file: File, compression: Compression) -> io::Result<Encoder> {
        Ok(match compression {
            Compression::None => Encoder::Plain(file),
            Compression::Gzip => Encoder::Gzip(gzip_encoder(file)),
            Compression::Zstd => Encoder::Zstd(zstd_encoder(file)?),
        })
    }

    /// Finishes encoding and returns the file.
    fn end(self, compression: Compression) -> io::Result<Option<File>> {
        match self {
            Encoder::Plain(file) => Ok(Some(file)),
            Encoder::Gzip(encoder) => encoder.finish().map(Some),
            Encoder::Zstd(encoder) => encoder.finish().map(Some),
            // An empty compressed file still has a header.
            Encoder::Sealed(file) if file.metadata()?.len() == 0 => {
                match Encoder::of(file, compression)? {
                    Encoder::Sealed(_) => Ok(None),
                    way => way.end(compression),
                }
            }
            Encoder::Sealed(file) => Ok(Some(file)),
            Encoder::Special(_) => Ok(None),
            Encoder::Failed => Err(io::Error::other("it could not be written before")),
        }
    }
}

/// A file that is written as `NAME.part` and renamed to `NAME` when it is finished.
///
/// The file gets the mode of the file that it replaces, and its owner and group if this process may
/// set them; a new file follows the umask. If dropped unfinished, the file remains as `NAME.part`.
/// An advisory lock allows only one writer at a time.
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
    /// The name until the file is complete. `None` for a device or a pipe, which is written
    /// directly.
    part: Option<PathBuf>,
    way: Encoder,
    compression: Compression,
    /// The number of bytes written so far, before compression.
    pub(super) written: u64,
    /// The length of the file when it was last sealed. `is_open` is true if bytes were written
    /// since.
    sealed: u64,
    is_open: bool,
}

/// Returns an error for writing `path`.
pub(crate) fn cannot_write(path: &Path, error: io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull => "make room on the disk",
        io::ErrorKind::PermissionDenied => "check the permissions",
        _ => "check the path and the disk",
    };
    Error::new(
        ErrorCode::WriteFailed,
        format!("cannot write {}", path.shown()),
    )
    .because(error)
    .hint(hint)
}

/// The target of writes to a path.
#[derive(Debug)]
pub(super) enum OutputTarget {
    /// A plain file, written through a part beside it. A symbolic link stays a link, even if its
    /// target is missing.
    File { path: PathBuf, part: PathBuf },
    /// A device or a pipe, which is written directly and not replaced.
    Special,
}

impl OutputTarget {
    pub fn of(path: &Path) -> io::Result<OutputTarget> {
        let path = match fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() => return Ok(OutputTarget::Special),
            Ok(_) => fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) if path.is_symlink() => real_path(path),
            Err(_) => path.to_path_buf(),
        };
        let part = with_suffix(&path, PART_SUFFIX);
        Ok(OutputTarget::File { path, part })
    }
}

/// Returns the options for opening an unfinished file: opening fails unless it is a plain file.
pub(super) fn part_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.write(true).custom_flags(flags.bits() as i32);
    options
}

/// Returns true if `name` is a name of `file`.
pub(super) fn is_named(file: &File, name: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    let named = fs::symlink_metadata(name);
    Ok(named.is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino())))
}

/// Returns the error of locking an unfinished file.
pub(crate) fn cannot_lock(part: &Path, error: io::Error) -> Error {
    lacks_locks(part, &error, "writing a file").unwrap_or_else(|| cannot_write(part, error))
}

/// Opens and locks an unfinished file. A new file gets `mode`, subject to the umask. Tests use
/// `between` to run code between opening and locking.
fn locked(part: &Path, mode: u32, mut between: impl FnMut()) -> Result<File> {
    let failed = |error| cannot_write(part, error);
    loop {
        // Truncated only under the lock: another writer may be using it.
        let mut options = part_options();
        let file = options.create(true).truncate(false).mode(mode).open(part);
        let file = file.map_err(failed)?;
        between();
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(cannot_lock(part, error)),
            Err(TryLockError::WouldBlock) => return Err(in_use(part)),
        }
        // Another writer may have renamed the file between opening and locking.
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

/// Creates the parent directories of a file.
fn make_way(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => create_folder(parent),
        _ => Ok(()),
    }
}

impl PartFile {
    /// Creates the part of `path`, and missing parent directories. A part left by an earlier run is
    /// overwritten.
    ///
    /// A symbolic link stays a link. A device or a pipe is written directly and uncompressed. While
    /// a pipe has no reader or is full, this function and writes wait as long as `go_on` returns
    /// true. `go_on` is called ten to twenty times a second.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if the file cannot be opened or has another writer;
    /// [`ErrorCode::InvalidConfig`] if it is a directory; [`ErrorCode::Cancelled`] if `go_on`
    /// returned false.
    pub fn create(
        path: PathBuf,
        compression: Compression,
        go_on: impl Fn(ReadyEvent) -> bool + Send + 'static,
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
        match OutputTarget::of(&path).map_err(failed)? {
            OutputTarget::Special => {
                let file = SpecialFile::open(&path, go_on)?;
                Ok(PartFile {
                    path,
                    part: None,
                    way: Encoder::Special(file),
                    compression,
                    written: 0,
                    sealed: 0,
                    is_open: true,
                })
            }
            OutputTarget::File { path, part } => {
                make_way(&path).map_err(failed)?;
                let replaced = Permissions::of(&path).map_err(failed)?;
                let mode = replaced.map_or(NEW_FILE, |_| Permissions::INITIAL_MODE);
                let file = locked(&part, mode, || ())?;
                file.set_len(0).map_err(failed)?;
                if let Some(replaced) = replaced {
                    // Set before the file has content that must not be public.
                    let given = replaced.for_writing().apply_to(&file);
                    given.map_err(failed)?;
                }
                PartFile::begun(path, part, file, compression)
            }
        }
    }

    /// Creates `part` for `path` like [`create`](Self::create). Returns `None` if `path` or `part`
    /// exists.
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
            // Another job has taken it for a leftover of an earlier run.
            Err(TryLockError::WouldBlock) => Ok(None),
        }
    }

    fn begun(
        path: PathBuf,
        part: PathBuf,
        file: File,
        compression: Compression,
    ) -> Result<PartFile> {
        let way = Encoder::of(file, compression).map_err(|error| cannot_write(&path, error))?;
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

    /// Opens the content written so far for reading.
    pub(super) fn written_so_far(&self) -> io::Result<OutputContent> {
        let file = File::open(self.part.as_deref().unwrap_or(&self.path))?;
        Ok(OutputContent::new(
            file,
            self.compression != Compression::None,
        ))
    }

    /// Reopens an unfinished file of an earlier attempt and truncates it to `length`, its length
    /// when it was [sealed](Self::seal). `written` is its length before compression. Returns `None`
    /// if the file is missing.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if the file cannot be opened or is shorter;
    /// [`ErrorCode::StateInUse`] if another process has locked it.
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
            way: Encoder::Sealed(file),
            compression,
            written,
            sealed: length,
            is_open: false,
        }))
    }

    /// Makes the bytes written so far readable by themselves; a compressed file continues with
    /// another member. No effect on a device or a pipe.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`], after which nothing can be written.
    pub(super) fn seal(&mut self) -> Result<()> {
        if !self.is_open || self.part.is_none() || self.written == 0 {
            return Ok(());
        }
        let way = std::mem::replace(&mut self.way, Encoder::Failed);
        let ended = way.end(self.compression).and_then(|file| match file {
            None => Err(io::Error::other("it is no file")),
            Some(file) => Ok((file.metadata()?.len(), file)),
        });
        let (length, file) = ended.map_err(|error| cannot_write(self.name(), error))?;
        self.way = Encoder::Sealed(file);
        (self.sealed, self.is_open) = (length, false);
        Ok(())
    }

    /// Returns the final name, the present name, and the length when the file was last sealed.
    pub(super) fn sealed(&self) -> (&Path, &Path, u64) {
        (&self.path, self.name(), self.sealed)
    }

    /// Returns the present name of the file.
    pub(super) fn name(&self) -> &Path {
        self.part.as_deref().unwrap_or(&self.path)
    }

    /// Writes all bytes.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`], also if the reader has closed a pipe;
    /// [`ErrorCode::OutputClosed`] if the closed pipe is standard output; [`ErrorCode::Cancelled`]
    /// if `go_on` returned false while the pipe was full.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if !self.is_open && !bytes.is_empty() {
            self.open_again()?;
        }
        let outcome = match &mut self.way {
            Encoder::Plain(file) | Encoder::Sealed(file) => file.write_all(bytes),
            Encoder::Special(file) => {
                file.write(&self.path, bytes)?;
                Ok(())
            }
            Encoder::Gzip(encoder) => encoder.write_all(bytes),
            Encoder::Zstd(encoder) => encoder.write_all(bytes),
            Encoder::Failed => Err(io::Error::other("it could not be written before")),
        };
        outcome.map_err(|error| cannot_write(self.name(), error))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Starts a new member after sealed content.
    fn open_again(&mut self) -> Result<()> {
        self.way = match std::mem::replace(&mut self.way, Encoder::Failed) {
            Encoder::Sealed(file) => Encoder::of(file, self.compression)
                .map_err(|error| cannot_write(self.name(), error))?,
            way => way,
        };
        self.is_open = true;
        Ok(())
    }

    /// Flushes the bytes written so far to the disk.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`].
    pub fn sync(&mut self) -> Result<()> {
        let outcome = match &mut self.way {
            Encoder::Plain(file) | Encoder::Sealed(file) => file.sync_data(),
            Encoder::Special(_) | Encoder::Failed => Ok(()),
            Encoder::Gzip(encoder) => encoder.flush().and_then(|()| encoder.get_ref().sync_data()),
            Encoder::Zstd(encoder) => encoder.flush().and_then(|()| encoder.get_ref().sync_data()),
        };
        outcome.map_err(|error| cannot_write(self.name(), error))
    }

    /// Flushes the sealed bytes to the disk.
    pub(super) fn sync_sealed(&self) -> Result<()> {
        let outcome = match &self.way {
            Encoder::Plain(file) | Encoder::Sealed(file) => file.sync_data(),
            Encoder::Gzip(encoder) => encoder.get_ref().sync_data(),
            Encoder::Zstd(encoder) => encoder.get_ref().sync_data(),
            Encoder::Special(_) | Encoder::Failed => Ok(()),
        };
        outcome.map_err(|error| cannot_write(self.name(), error))
    }

    /// Completes the file and renames it to its path, replacing any older file. With `sync`,
    /// content and name are durable before this returns.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`].
    pub fn finish(self, sync: bool) -> Result<()> {
        match self.end(sync)? {
            Some(mut whole) => whole.replace(sync),
            None => Ok(()),
        }
    }

    /// Completes the file like [`finish`](Self::finish) without replacing a file: if the path is
    /// taken, the file gets the path returned by `another`.
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

    /// Completes the content without renaming the file. Returns `None` for a device or a pipe.
    pub(super) fn end(self, sync: bool) -> Result<Option<FinishedFile>> {
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
        FinishedFile::new(path, part, file).map(Some)
    }
}

impl PartFile {
    /// Discards the unfinished file; an older file at the path stays. Bytes written to a device or
    /// a pipe cannot be undone.
    pub fn discard(self) {
        if let Some(part) = &self.part {
            // A part that cannot be removed is overwritten by the next run.
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

/// Returns `path` with `suffix` appended to its name.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests;
