//! A store in a bucket.

use std::fmt;
use std::sync::Arc;

use crate::store::{FileEntry, FileName, FileState, ObjectStore};
use ardea_bucket::{Bucket, BucketPrefix, Credentials, failed, is_not_implemented};
use ardea_core::{Error, ErrorCode, Result};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::aws::AmazonS3;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore as _, ObjectStoreExt, PutMode};

use crate::s3::unconditional::unconditional;

/// The number of concurrent requests per call.
const AT_A_TIME: usize = 8;

/// A store of files as objects in a bucket, below a prefix.
///
/// Each object is written by one request, and listed by its name without the prefix. Objects below
/// a further `/`, and those whose names are not valid file names, are ignored. See
/// [`s3`](crate::s3) for the guarantees.
pub struct S3Store {
    bucket: Bucket,
}

impl S3Store {
    /// Opens the store at this address. Sends one request that checks that the bucket exists and is
    /// accessible.
    ///
    /// # Errors
    /// `InvalidConfig` for an invalid address, `ReadFailed` if the bucket cannot be listed,
    /// `LimitReached` if the system refuses threads.
    pub fn open(address: &str) -> Result<Self> {
        Self::begin(address, None)
    }

    /// Opens the store with these credentials instead of those of the environment.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_as(address: &str, credentials: &Credentials) -> Result<Self> {
        Self::begin(address, Some(credentials))
    }

    fn begin(address: &str, credentials: Option<&Credentials>) -> Result<Self> {
        let address = BucketPrefix::parse(address)?;
        let folder = S3Store {
            bucket: Bucket::open(&address, credentials, "checkpoints-s3")?,
        };
        folder.answers()?;
        Ok(folder)
    }

    /// Sends one request that checks that the bucket exists and is accessible.
    fn answers(&self) -> Result<()> {
        self.has_object(|_| true).map(drop)
    }

    /// Returns true if `is_meant` returns true for an object below the prefix. Lists the objects, a
    /// thousand per request.
    fn has_object(&self, is_meant: impl Fn(&Path) -> bool + Send + 'static) -> Result<bool> {
        let (store, prefix) = (self.bucket.store(), self.bucket.prefix().clone());
        let found = self.bucket.wait(async move {
            let mut objects = store.list(Some(&prefix));
            while let Some(object) = objects.try_next().await? {
                if is_meant(&object.location) {
                    return Ok(true);
                }
            }
            Ok(false)
        })?;
        found.map_err(|error| self.unread("the folder itself", &error))
    }

    fn path(&self, name: &FileName) -> Path {
        self.bucket.prefix().clone().join(name.as_str())
    }

    /// Writes an object twice with different bytes, for the probe. Returns the outcome.
    fn write_twice(&self, path: Path) -> Result<PutAttempt> {
        let store = self.bucket.store();
        self.bucket.wait(async move {
            let first = put(&store, &path, Bytes::from_static(FIRST)).await;
            let second = match first {
                Ok(()) => put(&store, &path, Bytes::from_static(SECOND)).await,
                Err(error) => return PutAttempt::Unwritable(error),
            };
            let found = match store.get(&path).await {
                Ok(found) => found.bytes().await,
                Err(error) => Err(error),
            };
            // A probe object that cannot be removed does no harm.
            let _ = store.delete(&path).await;
            match (second, found) {
                (Err(error), Ok(found)) if found == FIRST => match is_taken(&error) {
                    true => PutAttempt::KeptApart,
                    false => PutAttempt::Unwritable(error),
                },
                (Ok(()), _) | (_, Ok(_)) => PutAttempt::Replaced,
                (Err(error), Err(_)) => PutAttempt::Unwritable(error),
            }
        })
    }

    fn unwritten(&self, what: &str, error: &StoreError) -> Error {
        failed(ErrorCode::WriteFailed, what, self.bucket.place(), error)
    }

    fn unread(&self, what: &str, error: &StoreError) -> Error {
        failed(ErrorCode::ReadFailed, what, self.bucket.place(), error)
    }
}

const FIRST: &[u8] = b"a probe of this bucket, which may be removed\n";
const SECOND: &[u8] = b"a second one\n";

/// The outcome of writing an object twice on the condition that it does not exist.
enum PutAttempt {
    /// The second write was refused, and the first object exists.
    KeptApart,
    /// The condition was ignored.
    Replaced,
    Unwritable(StoreError),
}

/// Writes an object. Succeeds if the name is free, or if an object with the same bytes exists.
async fn put(store: &AmazonS3, path: &Path, bytes: Bytes) -> std::result::Result<(), StoreError> {
    let written = store
        .put_opts(path, bytes.clone().into(), PutMode::Create.into())
        .await;
    match written {
        Ok(_) => Ok(()),
        Err(error) if is_taken(&error) => {
            // This process may have written the object, and the answer was lost.
            match store.get(path).await?.bytes().await? == bytes {
                true => Ok(()),
                false => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// Returns true if the error means that the name of the object is taken.
fn is_taken(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }
    )
}

/// Returns true if an object directly below the prefix was written by [`S3Store::probe`]. Such an
/// object remains if the process was killed or has no permission to remove objects.
fn is_probe(path: &Path, prefix: &Path) -> bool {
    let mut parts = path.prefix_match(prefix).into_iter().flatten();
    let (name, rest) = (parts.next(), parts.next());
    let name = name.as_ref().map(|name| name.as_ref());
    let token = name
        .and_then(|name| name.strip_prefix("probe-"))
        .and_then(|name| name.strip_suffix(".probe"));
    rest.is_none() && token.is_some_and(|token| u64::from_str_radix(token, 16).is_ok())
}

impl ObjectStore for S3Store {
    fn place(&self) -> String {
        self.bucket.place().to_string()
    }

    fn write(&self, name: &FileName, bytes: &[u8]) -> Result<()> {
        self.write_all(&[(name.clone(), Bytes::copy_from_slice(bytes))])
    }

    fn write_all(&self, files: &[(FileName, Bytes)]) -> Result<()> {
        let puts: Vec<_> = files
            .iter()
            .map(|(name, bytes)| (name.clone(), self.path(name), bytes.clone()))
            .collect();
        let store = self.bucket.store();
        let failed = self.bucket.wait(async move {
            let mut puts = stream::iter(puts.into_iter().map(|(name, path, bytes)| {
                let store = Arc::clone(&store);
                async move {
                    put(&store, &path, bytes)
                        .await
                        .map_err(|error| (name, error))
                }
            }))
            .buffer_unordered(AT_A_TIME);
            let mut failed = None;
            // After an error, requests in progress are awaited, so that their results are known.
            while let Some(done) = puts.next().await {
                if let Err(error) = done {
                    failed.get_or_insert(error);
                }
            }
            failed
        })?;
        match failed {
            None => Ok(()),
            Some((name, error)) => Err(self.unwritten(name.as_str(), &error)),
        }
    }

    fn probe(&self) -> Result<()> {
        let token = ardea_core::unique_number();
        let name = format!("probe-{token:016x}.probe");
        let path = self.bucket.prefix().clone().join(name);
        match self.write_twice(path)? {
            PutAttempt::KeptApart => Ok(()),
            PutAttempt::Replaced => Err(unconditional(
                self.bucket.place(),
                "it has replaced an object in spite of the condition (If-None-Match: *)",
            )),
            PutAttempt::Unwritable(error) if is_not_implemented(&error) => {
                let why = "it answers that it does not implement them (If-None-Match: *)";
                Err(unconditional(self.bucket.place(), why))
            }
            PutAttempt::Unwritable(error) => Err(self.unwritten("a probe", &error)),
        }
    }

    fn read(&self, name: &FileName) -> Result<Option<Bytes>> {
        let (store, path) = (self.bucket.store(), self.path(name));
        let read = self
            .bucket
            .wait(async move { store.get(&path).await?.bytes().await })?;
        match read {
            Ok(bytes) => Ok(Some(bytes)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.unread(name.as_str(), &error)),
        }
    }

    fn list(&self) -> Result<Vec<FileEntry>> {
        let (store, prefix) = (self.bucket.store(), self.bucket.prefix().clone());
        let found = self
            .bucket
            .wait(async move { store.list_with_delimiter(Some(&prefix)).await })?;
        let found = found.map_err(|error| self.unread("the folder itself", &error))?;
        let listed = found.objects.into_iter().filter_map(|object| {
            Some(FileEntry {
                name: FileName::new(object.location.filename()?)?,
                state: FileState::Whole,
                bytes: object.size,
            })
        });
        Ok(listed.collect())
    }

    fn is_empty(&self) -> Result<bool> {
        let prefix = self.bucket.prefix().clone();
        Ok(!self.has_object(move |path| !is_probe(path, &prefix))?)
    }

    fn remove(&self, files: &[(FileName, FileState)]) -> Result<()> {
        let whole = files.iter().filter(|(_, state)| *state == FileState::Whole);
        let paths: Vec<_> = whole.map(|(name, _)| Ok(self.path(name))).collect();
        if paths.is_empty() {
            return Ok(());
        }
        let store = self.bucket.store();
        let removed = self.bucket.wait(async move {
            let paths = stream::iter(paths).boxed();
            let mut removed = store.delete_stream(paths);
            loop {
                match removed.try_next().await {
                    Ok(None) => return Ok(()),
                    Ok(Some(_)) | Err(StoreError::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        })?;
        removed.map_err(|error| self.unwritten("the folder itself", &error))
    }
}

impl fmt::Debug for S3Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S3Folder({})", self.bucket.place())
    }
}
