//! A folder that is a part of a bucket.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, mpsc};

use crate::store::{FileName, FileState, Folder, Listed};
use ardea_core::{Error, ErrorCode, Result};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::aws::AmazonS3;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutMode};
use tokio::runtime::Runtime;

use crate::s3::address::{Credentials, Place};
use crate::s3::failure::{failed, is_not_implemented, unconditional};

/// How many requests are under way at a time for one call.
const AT_A_TIME: usize = 8;

/// Files that are objects of a bucket, below a prefix.
///
/// An object is written by one request, and listed by its name without the prefix; objects deeper down and those with other names are not
/// looked at. See the head of this crate for what is promised.
pub struct S3Folder {
    store: Arc<AmazonS3>,
    prefix: Path,
    place: String,
    /// Taken when it goes, which may be anywhere.
    runtime: Option<Runtime>,
}

impl S3Folder {
    /// The folder at this address. One request is made, to see that the bucket is there and lets us in.
    ///
    /// # Errors
    /// `InvalidConfig` for what is no address, `ReadFailed` if the bucket can't be listed, `LimitReached` if the system gives no threads.
    pub fn open(address: &str) -> Result<Self> {
        Self::begin(address, None)
    }

    /// The same, with these credentials and not those of the environment.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_as(address: &str, credentials: &Credentials) -> Result<Self> {
        Self::begin(address, Some(credentials))
    }

    fn begin(address: &str, credentials: Option<&Credentials>) -> Result<Self> {
        let place = Place::parse(address)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("snapshots-s3")
            .enable_all()
            .build()
            .map_err(|error| {
                Error::new(ErrorCode::LimitReached, "no thread could be started").because(error)
            })?;
        let folder = S3Folder {
            store: Arc::new(place.client(credentials)?),
            place: match place.prefix.as_ref() {
                "" => format!("s3://{}", place.bucket),
                prefix => format!("s3://{}/{prefix}", place.bucket),
            },
            prefix: place.prefix,
            runtime: Some(runtime),
        };
        folder.answers()?;
        Ok(folder)
    }

    /// Whether the bucket is there and lets us in, by one request, however much is in it.
    fn answers(&self) -> Result<()> {
        self.has_object(|_| true).map(drop)
    }

    /// Returns whether an object below the prefix passes the test. One request serves a thousand
    /// objects.
    fn has_object(&self, is_meant: impl Fn(&Path) -> bool + Send + 'static) -> Result<bool> {
        let (store, prefix) = (Arc::clone(&self.store), self.prefix.clone());
        let found = self.wait(async move {
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
        self.prefix.clone().join(name.as_str())
    }

    /// Writes a file twice, with other bytes the second time. Returns the outcome.
    fn write_twice(&self, path: Path) -> Result<Tried> {
        let store = Arc::clone(&self.store);
        self.wait(async move {
            let first = put(&store, &path, Bytes::from_static(FIRST)).await;
            let second = match first {
                Ok(()) => put(&store, &path, Bytes::from_static(SECOND)).await,
                Err(error) => return Tried::Unwritable(error),
            };
            let found = match store.get(&path).await {
                Ok(found) => found.bytes().await,
                Err(error) => Err(error),
            };
            // One that can't be removed now is in nobody's way.
            let _ = store.delete(&path).await;
            match (second, found) {
                (Err(error), Ok(found)) if found == FIRST => match is_taken(&error) {
                    true => Tried::KeptApart,
                    false => Tried::Unwritable(error),
                },
                (Ok(()), _) | (_, Ok(_)) => Tried::Replaced,
                (Err(error), Err(_)) => Tried::Unwritable(error),
            }
        })
    }

    fn unwritten(&self, what: &str, error: &StoreError) -> Error {
        failed(ErrorCode::WriteFailed, what, &self.place, error)
    }

    fn unread(&self, what: &str, error: &StoreError) -> Error {
        failed(ErrorCode::ReadFailed, what, &self.place, error)
    }

    /// Has the runtime do something, and waits for it. Also good on a thread that is part of another runtime, which it blocks.
    fn wait<R: Send + 'static>(&self, work: impl Future<Output = R> + Send + 'static) -> Result<R> {
        let (done, answer) = mpsc::sync_channel(1);
        if let Some(runtime) = &self.runtime {
            runtime.spawn(async move {
                // Nobody waits for it any more when the job is over.
                let _ = done.send(work.await);
            });
        }
        answer.recv().map_err(|error| {
            Error::new(
                ErrorCode::Internal,
                "a request to an object store was dropped",
            )
            .because(error)
        })
    }
}

const FIRST: &[u8] = b"a probe of this bucket, which may be removed\n";
const SECOND: &[u8] = b"a second one\n";

/// The outcome of writing an object twice on the condition that it is not there.
enum Tried {
    /// The second was refused, and the first is there.
    KeptApart,
    /// The condition was passed over.
    Replaced,
    Unwritable(StoreError),
}

/// Writes an object whose name is free, or which is there with the same bytes.
async fn put(store: &AmazonS3, path: &Path, bytes: Bytes) -> std::result::Result<(), StoreError> {
    let written = store
        .put_opts(path, bytes.clone().into(), PutMode::Create.into())
        .await;
    match written {
        Ok(_) => Ok(()),
        Err(error) if is_taken(&error) => {
            // Perhaps by ourselves, and the answer was lost.
            match store.get(path).await?.bytes().await? == bytes {
                true => Ok(()),
                false => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// Returns whether the store refuses a name because an object has it.
fn is_taken(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }
    )
}

/// Returns whether an object directly below the prefix is one that [`S3Folder::probe`] writes. It
/// stays where the process was killed, or may remove nothing.
fn is_probe(path: &Path, prefix: &Path) -> bool {
    let mut parts = path.prefix_match(prefix).into_iter().flatten();
    let (name, rest) = (parts.next(), parts.next());
    let name = name.as_ref().map(|name| name.as_ref());
    let token = name
        .and_then(|name| name.strip_prefix("probe-"))
        .and_then(|name| name.strip_suffix(".probe"));
    rest.is_none() && token.is_some_and(|token| u64::from_str_radix(token, 16).is_ok())
}

impl Folder for S3Folder {
    fn place(&self) -> String {
        self.place.clone()
    }

    fn write(&self, name: &FileName, bytes: &[u8]) -> Result<()> {
        self.write_all(&[(name.clone(), Bytes::copy_from_slice(bytes))])
    }

    fn write_all(&self, files: &[(FileName, Bytes)]) -> Result<()> {
        let puts: Vec<_> = files
            .iter()
            .map(|(name, bytes)| (name.clone(), self.path(name), bytes.clone()))
            .collect();
        let store = Arc::clone(&self.store);
        let failed = self.wait(async move {
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
            // What is under way is waited for: it is known then what is there.
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
        let path = self
            .prefix
            .clone()
            .join(format!("probe-{token:016x}.probe"));
        match self.write_twice(path)? {
            Tried::KeptApart => Ok(()),
            Tried::Replaced => Err(unconditional(
                &self.place,
                "it has replaced an object although it was asked not to (If-None-Match: *)",
            )),
            Tried::Unwritable(error) if is_not_implemented(&error) => {
                let why = "it answers that it does not implement them (If-None-Match: *)";
                Err(unconditional(&self.place, why))
            }
            Tried::Unwritable(error) => Err(self.unwritten("a probe", &error)),
        }
    }

    fn read(&self, name: &FileName) -> Result<Option<Bytes>> {
        let (store, path) = (Arc::clone(&self.store), self.path(name));
        let read = self.wait(async move { store.get(&path).await?.bytes().await })?;
        match read {
            Ok(bytes) => Ok(Some(bytes)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.unread(name.as_str(), &error)),
        }
    }

    fn list(&self) -> Result<Vec<Listed>> {
        let (store, prefix) = (Arc::clone(&self.store), self.prefix.clone());
        let found = self.wait(async move { store.list_with_delimiter(Some(&prefix)).await })?;
        let found = found.map_err(|error| self.unread("the folder itself", &error))?;
        let listed = found.objects.into_iter().filter_map(|object| {
            Some(Listed {
                name: FileName::new(object.location.filename()?)?,
                state: FileState::Whole,
                bytes: object.size,
            })
        });
        Ok(listed.collect())
    }

    fn is_empty(&self) -> Result<bool> {
        let prefix = self.prefix.clone();
        Ok(!self.has_object(move |path| !is_probe(path, &prefix))?)
    }

    fn remove(&self, files: &[(FileName, FileState)]) -> Result<()> {
        let whole = files.iter().filter(|(_, state)| *state == FileState::Whole);
        let paths: Vec<_> = whole.map(|(name, _)| Ok(self.path(name))).collect();
        if paths.is_empty() {
            return Ok(());
        }
        let store = Arc::clone(&self.store);
        let removed = self.wait(async move {
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

impl fmt::Debug for S3Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S3Folder({})", self.place)
    }
}

impl Drop for S3Folder {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
