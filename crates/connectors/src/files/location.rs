//! The location of files: the local file system, or a bucket of an object store.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
#[cfg(feature = "s3")]
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};

#[cfg(feature = "s3")]
use super::bucket::{BucketFiles, ObjectReader};
use super::fingerprint::Fingerprint;

/// The beginning of the address of a bucket.
const BUCKET_SCHEME: &[u8] = b"s3://";

/// Returns true if a path is the address of a bucket.
pub(super) fn is_bucket(path: &Path) -> bool {
    path.as_os_str().as_bytes().starts_with(BUCKET_SCHEME)
}

/// The storage of files.
#[derive(Clone, Debug)]
pub(super) enum FileStore {
    Local,
    #[cfg(feature = "s3")]
    Bucket(Arc<BucketFiles>),
}

/// A path, and the storage in which it is.
#[derive(Clone, Debug)]
pub(super) struct Location {
    pub store: FileStore,
    /// The path; of an object, its address without endpoint and region.
    pub path: PathBuf,
}

impl Location {
    /// Returns the location of a path as given by a user. No request is made.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if it is a malformed address of a bucket, or if buckets are not
    /// compiled in.
    pub fn of(path: &Path) -> Result<Location> {
        if !is_bucket(path) {
            return Ok(Location {
                store: FileStore::Local,
                path: path.to_path_buf(),
            });
        }
        #[cfg(feature = "s3")]
        {
            let files = BucketFiles::at(path)?;
            Ok(Location {
                path: files.path(),
                store: FileStore::Bucket(Arc::new(files)),
            })
        }
        #[cfg(not(feature = "s3"))]
        {
            let what = format!("{} is in a bucket", path.display());
            Err(Error::new(ErrorCode::InvalidConfig, what)
                .because("the program was built without the feature `s3`")
                .hint("build it with the feature `s3`: cargo add ardea --features s3"))
        }
    }

    /// Returns a path as given by a user without the parameters of an address. A malformed address
    /// stays as it is.
    pub fn plain_path(path: &Path) -> PathBuf {
        Location::of(path).map_or_else(|_| path.to_path_buf(), |location| location.path)
    }

    /// Checks that a path is in the local file system; `what` needs it to be.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if it is the address of a bucket.
    pub fn require_local(path: &Path, what: &str) -> Result<()> {
        if !is_bucket(path) {
            return Ok(());
        }
        let what = format!("{what} cannot be in a bucket: {}", path.display());
        Err(Error::new(ErrorCode::InvalidConfig, what)
            .hint("use a path of the local file system, or read the bucket as a bounded source"))
    }
}

/// A file that is open for reading.
pub(super) enum SourceFile {
    Local(File),
    #[cfg(feature = "s3")]
    Object(Arc<ObjectReader>),
}

impl SourceFile {
    /// Returns another handle of the same open file. Handles of an object share its ranges.
    pub fn try_clone(&self) -> io::Result<SourceFile> {
        match self {
            SourceFile::Local(file) => Ok(SourceFile::Local(file.try_clone()?)),
            #[cfg(feature = "s3")]
            SourceFile::Object(object) => Ok(SourceFile::Object(Arc::clone(object))),
        }
    }

    /// Returns the present length in bytes. An object has the length that it had when it was
    /// opened.
    pub fn length(&self) -> io::Result<u64> {
        match self {
            SourceFile::Local(file) => Ok(file.metadata()?.len()),
            #[cfg(feature = "s3")]
            SourceFile::Object(object) => Ok(object.length()),
        }
    }

    /// Returns true for an object: each request for a range verifies its version.
    pub fn is_immutable(&self) -> bool {
        self.local().is_none()
    }

    /// Returns true if the kernel generates the file, whose content differs on each read. Such a
    /// file occupies no blocks.
    pub fn is_generated(&self) -> io::Result<bool> {
        match self.local() {
            Some(file) => Ok(file.metadata()?.blocks() == 0),
            None => Ok(false),
        }
    }

    /// Reads at an offset.
    ///
    /// # Errors
    /// An I/O error; [`ErrorKind::WouldBlock`] if the bytes of an object have not arrived within
    /// 100 ms.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            SourceFile::Local(file) => file.read_at(buffer, offset),
            #[cfg(feature = "s3")]
            SourceFile::Object(object) => object.read_at(buffer, offset),
        }
    }

    /// Fills the buffer from an offset. Waits for the bytes of an object.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            SourceFile::Local(file) => file.read_exact_at(buffer, offset),
            #[cfg(feature = "s3")]
            SourceFile::Object(object) => object.read_exact_at(buffer, offset),
        }
    }

    /// Announces that bytes from `offset` on will be read.
    pub fn will_read(&self, offset: u64) {
        match self {
            SourceFile::Local(_) => {
                // The system reads local files ahead.
                let _ = offset;
            }
            #[cfg(feature = "s3")]
            SourceFile::Object(object) => object.will_read(offset),
        }
    }

    /// Returns the local file; `None` for an object.
    pub fn local(&self) -> Option<&File> {
        match self {
            SourceFile::Local(file) => Some(file),
            #[cfg(feature = "s3")]
            SourceFile::Object(_) => None,
        }
    }

    /// Returns the fingerprint.
    pub fn fingerprint(&self) -> io::Result<Fingerprint> {
        match self {
            SourceFile::Local(file) => Fingerprint::of(file),
            #[cfg(feature = "s3")]
            SourceFile::Object(object) => Ok(object.fingerprint()),
        }
    }

    /// Returns true if this is the file with a fingerprint, as far as this can be determined.
    pub fn has_fingerprint(&self, fingerprint: &Fingerprint) -> io::Result<bool> {
        match self {
            SourceFile::Local(file) => fingerprint.is_of(file),
            #[cfg(feature = "s3")]
            SourceFile::Object(object) => Ok(object.fingerprint() == *fingerprint),
        }
    }
}

/// A reader that waits for the bytes of an object as long as `go_on` returns true.
pub(super) struct BlockingReader<R, G> {
    pub reader: R,
    pub go_on: G,
}

impl<R: Read, G: Fn() -> bool> Read for BlockingReader<R, G> {
    /// # Errors
    /// Those of the reader; [`ErrorKind::TimedOut`] once `go_on` returns false.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.reader.read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !(self.go_on)() {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                read => return read,
            }
        }
    }
}
