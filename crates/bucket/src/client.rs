//! Blocking clients for buckets.

use std::fmt;
use std::future::{Future, ready};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, OutageReporter, Result};
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::aws::AmazonS3;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt};
use tokio::runtime::Runtime;

use crate::address::{BucketPrefix, Credentials};
use crate::failure::{is_unavailable, reason};
use crate::part_copy::PartCopier;

/// The interval at which a waiting caller is asked if it still waits.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The delay between two attempts while the store is unavailable. The client has retried each
/// attempt already.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The number of parts of a concatenation that are copied at a time.
const COPIES_IN_FLIGHT: usize = 8;

/// A client for a prefix of a bucket, with its own thread.
///
/// Calls block. They can be made on threads of other runtimes.
pub struct Bucket {
    store: Arc<AmazonS3>,
    copier: Arc<PartCopier>,
    prefix: Path,
    place: String,
    outage: OutageReporter,
    /// The runtime of the client; taken on drop, which can happen on any thread.
    runtime: Option<Runtime>,
}

/// The reason why a request has no result.
#[derive(Debug)]
pub enum RequestError {
    /// The caller no longer waits.
    Cancelled,
    /// The store has refused the request, and would refuse it again.
    Refused(StoreError),
}

/// A request that is being made. It is not repeated any more once this is dropped.
#[derive(Debug)]
pub struct PendingRequest<R> {
    answer: Receiver<std::result::Result<R, StoreError>>,
    /// Dropped with this value.
    _is_awaited: Arc<()>,
}

impl<R> PendingRequest<R> {
    /// Waits up to `timeout` for the result; returns `None` on timeout.
    ///
    /// # Errors
    /// As [`Bucket::request`].
    pub fn wait(&self, timeout: Duration) -> Option<std::result::Result<R, RequestError>> {
        match self.answer.recv_timeout(timeout) {
            Ok(result) => Some(result.map_err(RequestError::Refused)),
            Err(RecvTimeoutError::Timeout) => None,
            // The runtime has been shut down.
            Err(RecvTimeoutError::Disconnected) => Some(Err(RequestError::Cancelled)),
        }
    }
}

impl Bucket {
    /// Creates a client with these `credentials`, or with those of the environment if `None`. Makes
    /// no request. `thread` is the name of its thread.
    ///
    /// # Errors
    /// `InvalidConfig` if the client's configuration is invalid, `LimitReached` if the system
    /// refuses a thread.
    pub fn open(
        address: &BucketPrefix,
        credentials: Option<&Credentials>,
        thread: &str,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(thread)
            .enable_all()
            .build()
            .map_err(|error| {
                Error::new(ErrorCode::LimitReached, "no thread could be started").because(error)
            })?;
        let (store, copier) = address.client(credentials)?;
        Ok(Bucket {
            store: Arc::new(store),
            copier: Arc::new(copier),
            prefix: address.prefix.clone(),
            place: address.place(),
            outage: OutageReporter::new(address.place()),
            runtime: Some(runtime),
        })
    }

    /// Returns the asynchronous client.
    pub fn store(&self) -> Arc<AmazonS3> {
        Arc::clone(&self.store)
    }

    /// Returns the prefix of the address.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Returns the address without endpoint and region, for display.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Runs a future on the thread of the client, and waits for its result.
    ///
    /// # Errors
    /// `Internal` if the runtime has dropped the future.
    pub fn wait<R: Send + 'static>(
        &self,
        work: impl Future<Output = R> + Send + 'static,
    ) -> Result<R> {
        let (done, answer) = mpsc::sync_channel(1);
        if let Some(runtime) = &self.runtime {
            runtime.spawn(async move {
                // Fails only if the caller is gone.
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

    /// Starts a request, which is repeated while the store is unavailable. The beginning and the
    /// end of an outage are reported on standard error.
    pub fn start<R, F>(
        &self,
        request: impl Fn(Arc<AmazonS3>) -> F + Send + 'static,
    ) -> PendingRequest<R>
    where
        R: Send + 'static,
        F: Future<Output = std::result::Result<R, StoreError>> + Send + 'static,
    {
        let (done, answer) = mpsc::sync_channel(1);
        let (store, outage) = (Arc::clone(&self.store), self.outage.clone());
        let is_awaited = Arc::new(());
        let awaiting = Arc::downgrade(&is_awaited);
        if let Some(runtime) = &self.runtime {
            runtime.spawn(async move {
                loop {
                    match request(Arc::clone(&store)).await {
                        Err(error) if is_unavailable(&error) => {
                            if awaiting.strong_count() == 0 {
                                return;
                            }
                            outage.away(reason(&error));
                            tokio::time::sleep(RETRY_DELAY).await;
                        }
                        result => {
                            outage.answers();
                            // Fails only if the caller no longer waits.
                            let _ = done.send(result);
                            return;
                        }
                    }
                }
            });
        }
        PendingRequest {
            answer,
            _is_awaited: is_awaited,
        }
    }

    /// Starts the removal of objects, as far as the store allows it.
    pub fn start_removal(&self, objects: Vec<Path>) -> PendingRequest<()> {
        self.start(move |store| {
            let objects = objects.clone().into_iter().map(Ok);
            async move {
                let removed = store.delete_stream(stream::iter(objects).boxed());
                let failed = removed.filter_map(|removed| ready(removed.err()));
                let unavailable = failed.filter(|error| ready(is_unavailable(error)));
                match unavailable.boxed().next().await {
                    None => Ok(()),
                    Some(error) => Err(error),
                }
            }
        })
    }

    /// Starts the concatenation of objects within the store. It replaces the object `to` as a whole
    /// or not at all, and leaves the others. All but the last have at least 5 MiB. It is repeated
    /// as in [`start`](Self::start).
    pub fn start_concatenation(&self, from: Vec<Path>, to: Path) -> PendingRequest<()> {
        let copier = Arc::clone(&self.copier);
        self.start(move |store| {
            let (copier, from, to) = (Arc::clone(&copier), from.clone(), to.clone());
            async move {
                match &from[..] {
                    [only] => store.copy(only, &to).await,
                    _ => concatenate(&store, &copier, &from, &to).await,
                }
            }
        })
    }

    /// Makes a request, and waits for its result as long as `go_on` returns true, which is called
    /// ten times a second. The request is repeated while the store is unavailable.
    ///
    /// # Errors
    /// [`RequestError::Refused`] with an error other than unavailability.
    pub fn request<R, F>(
        &self,
        go_on: &dyn Fn() -> bool,
        request: impl Fn(Arc<AmazonS3>) -> F + Send + 'static,
    ) -> std::result::Result<R, RequestError>
    where
        R: Send + 'static,
        F: Future<Output = std::result::Result<R, StoreError>> + Send + 'static,
    {
        let pending = self.start(request);
        loop {
            if let Some(result) = pending.wait(CHECK_INTERVAL) {
                return result;
            }
            if !go_on() {
                return Err(RequestError::Cancelled);
            }
        }
    }
}

async fn concatenate(
    store: &AmazonS3,
    copier: &PartCopier,
    from: &[Path],
    to: &Path,
) -> std::result::Result<(), StoreError> {
    let upload = store.create_multipart(to).await?;
    // Collected first: the compiler does not prove that a lazy iterator of them can be sent.
    let mut copies = Vec::with_capacity(from.len());
    for (index, from) in from.iter().enumerate() {
        copies.push(copier.copy(store, from, (to, &upload, index)));
    }
    let copies = stream::iter(copies).buffered(COPIES_IN_FLIGHT);
    let parts: std::result::Result<Vec<PartId>, _> = copies.try_collect().await;
    let completed = match parts {
        Ok(parts) => store.complete_multipart(to, &upload, parts).await.map(drop),
        Err(error) => Err(error),
    };
    if completed.is_err() {
        // The parts of an upload that is not aborted are no object.
        let _ = store.abort_multipart(to, &upload).await;
    }
    completed
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bucket({})", self.place)
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
