//! Upload of an object in parts, which are objects of their own until it is published.

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ardea_bucket::{Bucket, PendingRequest, RequestError, failed, is_missing};
use ardea_core::{Error, ErrorCode, JobSignals, Result};
use bytes::Bytes;
use object_store::path::Path as ObjectPath;
use object_store::{Error as StoreError, ObjectStoreExt, PutResult};

use super::encoder::ObjectEncoder;
use super::staging::{StagedParts, StagingArea};
use crate::files::output::OutputFile;
use crate::files::part_file::Compression;

/// The size of the first parts. Later parts are larger, so that the parts of an object of the
/// maximum size are at most 10,000.
const PART_BYTES: usize = 8 << 20;

/// The number of parts of one size.
const PARTS_PER_SIZE: usize = 1000;

/// The minimum size of a part other than the last one.
const MIN_PART_BYTES: usize = 5 << 20;

/// The number of parts that are uploaded at a time.
const PARTS_IN_FLIGHT: usize = 2;

/// The longest wait for a part, after which the job is checked for cancellation.
const WAIT: Duration = Duration::from_millis(100);

/// The longest wait for the removal of parts that are not needed any more.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(2);

/// The length of the first line that is retained for the encoder of a later attempt.
const HEAD_BYTES: usize = 64 << 10;

/// The connection of an output to its bucket.
#[derive(Clone)]
pub(super) struct UploadClient {
    pub bucket: Arc<Bucket>,
    pub signals: Arc<JobSignals>,
}

impl UploadClient {
    /// Makes a request. Waits while the store is unavailable, until the job is cancelled.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] or [`ErrorCode::Cancelled`].
    pub fn request<R, F>(
        &self,
        object: &ObjectPath,
        request: impl Fn(Arc<object_store::aws::AmazonS3>) -> F + Send + 'static,
    ) -> Result<R>
    where
        R: Send + 'static,
        F: Future<Output = std::result::Result<R, StoreError>> + Send + 'static,
    {
        let signals = &self.signals;
        let result = self.bucket.request(&|| !signals.is_cancelled(), request);
        result.map_err(|error| self.unwritten(object, error))
    }

    /// Waits for the result of a request, until the job is cancelled.
    pub fn wait<R>(&self, request: &PendingRequest<R>) -> std::result::Result<R, RequestError> {
        loop {
            if let Some(result) = request.wait(WAIT) {
                return result;
            }
            if self.signals.is_cancelled() {
                return Err(RequestError::Cancelled);
            }
        }
    }

    /// Returns the error of a request for an object.
    pub fn unwritten(&self, object: &ObjectPath, error: RequestError) -> Error {
        match error {
            RequestError::Cancelled => {
                let what = format!("writing {object} was cancelled");
                Error::new(ErrorCode::Cancelled, what)
            }
            RequestError::Refused(error) => {
                let place = self.bucket.place();
                failed(ErrorCode::WriteFailed, object.as_ref(), place, &error).permanent()
            }
        }
    }
}

/// An object that is being written. It does not exist before it is published.
pub(in crate::files) struct ObjectUpload {
    client: UploadClient,
    pub(super) path: PathBuf,
    object: ObjectPath,
    area: StagingArea,
    encoder: ObjectEncoder,
    staged: StagedParts,
    /// The parts that are being uploaded, by their keys.
    in_flight: VecDeque<(ObjectPath, PendingRequest<PutResult>)>,
    /// The number of bytes before compression.
    written: u64,
    /// The first line, at most [`HEAD_BYTES`].
    head: Vec<u8>,
    is_head_whole: bool,
}

impl ObjectUpload {
    pub(super) fn new(
        client: UploadClient,
        path: PathBuf,
        (object, area): (ObjectPath, StagingArea),
        compression: Compression,
    ) -> Self {
        ObjectUpload {
            client,
            path,
            object,
            area,
            encoder: ObjectEncoder::new(compression),
            staged: StagedParts::default(),
            in_flight: VecDeque::new(),
            written: 0,
            head: Vec::new(),
            is_head_whole: false,
        }
    }

    /// Continues an upload of an earlier attempt; `tail` follows its parts.
    pub(super) fn resumed(mut self, staged: StagedParts, tail: Vec<u8>, written: u64) -> Self {
        self.encoder = self.encoder.after(tail);
        self.staged = staged;
        self.written = written;
        self
    }

    /// Sets the first line of an upload of an earlier attempt.
    pub fn with_head(mut self, head: Vec<u8>) -> Self {
        self.is_head_whole = head.ends_with(b"\n");
        self.head = head;
        self
    }

    /// Returns the first line, if it is known to its end.
    pub fn head(&self) -> &[u8] {
        match self.is_head_whole {
            true => &self.head,
            false => &[],
        }
    }

    /// Returns the parts that the store has. Valid once no part is in flight.
    pub(super) fn staged(&self) -> &StagedParts {
        &self.staged
    }

    /// Returns the sealed bytes after the parts.
    pub fn tail(&self) -> &[u8] {
        self.encoder.bytes()
    }

    fn note_head(&mut self, bytes: &[u8]) {
        if self.is_head_whole || self.head.len() >= HEAD_BYTES {
            return;
        }
        let line = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |newline| newline + 1);
        let count = line.min(HEAD_BYTES - self.head.len());
        self.head.extend_from_slice(&bytes[..count]);
        self.is_head_whole = self.head.ends_with(b"\n");
    }

    fn part_bytes(&self) -> usize {
        let parts = self.staged.parts.len() + self.in_flight.len();
        PART_BYTES * (1 + parts / PARTS_PER_SIZE)
    }

    /// Starts the upload of the encoded bytes as one part.
    fn send_part(&mut self) -> Result<()> {
        while self.in_flight.len() >= PARTS_IN_FLIGHT {
            self.await_part()?;
        }
        let bytes = Bytes::from(self.encoder.take_bytes());
        self.staged.bytes += bytes.len() as u64;
        let key = self.area.next_key();
        let part = key.clone();
        let request = self.client.bucket.start(move |store| {
            let (part, bytes) = (part.clone(), bytes.clone());
            async move { store.put(&part, bytes.into()).await }
        });
        self.in_flight.push_back((key, request));
        Ok(())
    }

    /// Waits for the oldest part in flight.
    fn await_part(&mut self) -> Result<()> {
        while !self.poll_part()? {
            if self.client.signals.is_cancelled() {
                return Err(self.client.unwritten(&self.object, RequestError::Cancelled));
            }
        }
        Ok(())
    }

    /// Waits up to 100 ms for the oldest part in flight; returns false on timeout.
    fn poll_part(&mut self) -> Result<bool> {
        let Some((_, request)) = self.in_flight.front() else {
            return Ok(true);
        };
        let Some(result) = request.wait(WAIT) else {
            return Ok(false);
        };
        result.map_err(|error| self.client.unwritten(&self.object, error))?;
        if let Some((key, _)) = self.in_flight.pop_front() {
            self.staged.parts.push(key.to_string());
        }
        Ok(true)
    }

    /// Waits up to 100 ms for the parts in flight; returns true when there is none.
    pub fn settle(&mut self) -> Result<bool> {
        if !self.in_flight.is_empty() {
            self.poll_part()?;
        }
        Ok(self.in_flight.is_empty())
    }

    /// Ends the content, and starts the upload of the rest.
    pub fn end(&mut self) -> Result<()> {
        let begun = match self.written {
            // An empty compressed object still has a header.
            0 => self.encoder.begin(),
            _ => Ok(()),
        };
        let ended = begun.and_then(|()| self.encoder.end());
        ended.map_err(|error| self.cannot_encode(&error))?;
        if !self.tail().is_empty() || self.staged.parts.len() + self.in_flight.len() == 0 {
            self.send_part()?;
        }
        Ok(())
    }

    /// Makes the object exist: the store concatenates its parts. Succeeds if an earlier attempt has
    /// done so.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if the store no longer has the parts.
    pub fn publish(&mut self) -> Result<()> {
        while !self.in_flight.is_empty() {
            self.await_part()?;
        }
        let parts = self.staged.paths();
        let bucket = &self.client.bucket;
        let published = bucket.start_concatenation(parts.clone(), self.object.clone());
        match self.client.wait(&published) {
            Ok(()) => {}
            Err(RequestError::Refused(error)) if is_missing(&error) => self.check_published()?,
            Err(error) => return Err(self.client.unwritten(&self.object, error)),
        }
        match self.client.wait(&bucket.start_removal(parts)) {
            Err(RequestError::Cancelled) => {
                Err(self.client.unwritten(&self.object, RequestError::Cancelled))
            }
            // Parts that the store does not remove do no harm.
            _ => Ok(()),
        }
    }

    /// Checks that an object was published whose parts the store does not have any more.
    fn check_published(&self) -> Result<()> {
        let object = self.object.clone();
        let found = self.client.request(&self.object, move |store| {
            let object = object.clone();
            async move {
                match store.head(&object).await {
                    Err(error) if is_missing(&error) => Ok(None),
                    found => found.map(|found| Some(found.size)),
                }
            }
        })?;
        let expected = self.staged.bytes;
        if found == Some(expected) {
            return Ok(());
        }
        let (path, area) = (self.path.display(), self.area.path());
        let what = format!("{path} is gone; it held {expected} bytes of committed output");
        Err(Error::new(ErrorCode::WriteFailed, what)
            .because(format!("neither the object nor its parts in {area} exist"))
            .hint("keep the objects in this folder longer than the job may be down: check the lifecycle rules of the bucket. Otherwise start the job without the checkpoint")
            .permanent())
    }

    /// Removes the parts of an object that is not needed any more, as far as the store answers.
    pub fn abort(self) {
        let parts = self.staged.paths();
        let keys = self.in_flight.iter().map(|(key, _)| key.clone());
        let all = parts.into_iter().chain(keys).collect();
        // Further parts are not removed: the job keeps no state.
        let _ = self.client.bucket.start_removal(all).wait(REMOVAL_TIMEOUT);
    }

    fn cannot_encode(&self, error: &std::io::Error) -> Error {
        let what = format!("cannot compress {}", self.path.display());
        Error::new(ErrorCode::WriteFailed, what).because(error.to_string())
    }
}

impl OutputFile for ObjectUpload {
    fn name(&self) -> &Path {
        &self.path
    }

    fn written(&self) -> u64 {
        self.written
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.note_head(bytes);
        let encoded = self.encoder.write_all(bytes);
        encoded.map_err(|error| self.cannot_encode(&error))?;
        self.written += bytes.len() as u64;
        if self.encoder.bytes().len() >= self.part_bytes() {
            self.send_part()?;
        }
        Ok(())
    }

    fn seal(&mut self) -> Result<()> {
        if self.written > 0 {
            self.encoder
                .end()
                .map_err(|error| self.cannot_encode(&error))?;
        }
        if self.tail().len() >= MIN_PART_BYTES {
            self.send_part()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        // A part is durable when it is uploaded, and the rest is in the snapshot.
        Ok(())
    }
}
