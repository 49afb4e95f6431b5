//! Reading of an object by ranges, ahead of the position.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ardea_bucket::{
    Bucket, PendingRequest, RequestError, is_access_denied, is_changed, is_missing, reason,
};
use ardea_core::JobSignals;
use bytes::Bytes;
use object_store::path::Path as ObjectPath;
use object_store::{Error as StoreError, ObjectMeta, ObjectStore};

use super::ObjectStatus;
use crate::decompressed::Damage;
use crate::files::fingerprint::Fingerprint;
use crate::files::read::block_reader::TAIL;

/// The size of a range that is read at once.
const RANGE_BYTES: u64 = 4 << 20;

/// The size of a range that is read at once after the end of a block of members.
const OVERRUN_BYTES: u64 = 1 << 20;

/// The number of bytes after a block of members that are requested with it: the rest of a small
/// last member, and the bytes that prove the next one.
const MEMBER_TAIL: u64 = 256 << 10;

/// The longest wait of a read.
const WAIT: Duration = Duration::from_millis(100);

/// The ranges that are requested before they are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::files) enum ReadAhead {
    /// The range after the present one.
    Next,
    /// Only those that [`ObjectReader::will_read`] announces.
    Announced {
        /// The size of an announced range.
        announced: u64,
        /// The size of a range that is read without announcement.
        other: u64,
        /// The number of ranges that a reader holds.
        held: usize,
    },
}

impl ReadAhead {
    /// Returns the way to read blocks of this size, each with one request: from the byte before a
    /// block to the end of its last line.
    pub fn of_blocks(block_bytes: u64) -> Self {
        let bytes = block_bytes.saturating_add(1 + TAIL as u64);
        ReadAhead::Announced {
            announced: bytes,
            other: bytes,
            held: 2,
        }
    }

    /// Returns the way to read blocks of members of this size. The last member of a block may end
    /// far behind it, and is read by smaller ranges.
    pub fn of_packed_blocks(block_bytes: u64) -> Self {
        ReadAhead::Announced {
            announced: block_bytes.saturating_add(MEMBER_TAIL),
            other: OVERRUN_BYTES,
            held: 3,
        }
    }

    /// Returns the number of ranges that a reader holds: the one being read, and the next one.
    fn held(self) -> usize {
        match self {
            ReadAhead::Next => 2,
            ReadAhead::Announced { held, .. } => held,
        }
    }
}

/// A reader of one version of an object.
///
/// It holds at most two or three ranges. A range that another version of the object would answer is
/// refused.
pub(in crate::files) struct ObjectReader {
    bucket: Arc<Bucket>,
    location: ObjectPath,
    status: ObjectStatus,
    ahead: ReadAhead,
    ranges: Mutex<Vec<ObjectRange>>,
    signals: Arc<JobSignals>,
}

/// A range of the object, from its offset on.
struct ObjectRange {
    range: Range<u64>,
    content: RangeContent,
}

enum RangeContent {
    Requested(PendingRequest<Bytes>),
    Present(Bytes),
}

impl ObjectReader {
    pub fn new(
        bucket: Arc<Bucket>,
        object: &ObjectMeta,
        ahead: ReadAhead,
        signals: &Arc<JobSignals>,
    ) -> Self {
        ObjectReader {
            bucket,
            location: object.location.clone(),
            status: ObjectStatus::of(object),
            ahead,
            ranges: Mutex::default(),
            signals: Arc::clone(signals),
        }
    }

    pub fn length(&self) -> u64 {
        self.status.bytes
    }

    pub fn fingerprint(&self) -> Fingerprint {
        self.status.fingerprint()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ObjectRange>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads at an offset.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if the bytes have not arrived within 100 ms, or [`Damage`] if the
    /// object has changed or is refused.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset >= self.length() || buffer.is_empty() {
            return Ok(0);
        }
        let mut ranges = self.lock();
        let index = match ranges.iter().position(|it| it.range.contains(&offset)) {
            Some(index) => index,
            None => {
                let size = match self.ahead {
                    ReadAhead::Next => RANGE_BYTES,
                    ReadAhead::Announced { other, .. } => other,
                };
                self.request_at(&mut ranges, offset, size);
                ranges.len() - 1
            }
        };
        let ObjectRange { range, content } = &mut ranges[index];
        if let RangeContent::Requested(request) = content {
            match request.wait(WAIT) {
                None => return Err(ErrorKind::WouldBlock.into()),
                Some(Ok(bytes)) => *content = RangeContent::Present(bytes),
                Some(Err(error)) => return Err(broken(error)),
            }
        }
        let RangeContent::Present(bytes) = content else {
            return Err(ErrorKind::WouldBlock.into());
        };
        let from = usize::try_from(offset - range.start).unwrap_or(usize::MAX);
        let Some(rest) = bytes.get(from..).filter(|rest| !rest.is_empty()) else {
            let what = "the store has answered with fewer bytes than requested";
            return Err(io::Error::other(Damage::transient(what)));
        };
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        let next = range.end;
        let has_next = ranges.iter().any(|it| it.range.start == next);
        if self.ahead == ReadAhead::Next && !has_next {
            self.request_at(&mut ranges, next, RANGE_BYTES);
        }
        Ok(count)
    }

    /// Fills the buffer from an offset, with a request of its own. Waits while the store is
    /// unavailable, until the job is cancelled.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.saturating_add(buffer.len() as u64);
        if end > self.length() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if buffer.is_empty() {
            return Ok(());
        }
        let request = self.request(offset..end);
        let bytes = loop {
            if let Some(answer) = request.wait(WAIT) {
                break answer.map_err(broken)?;
            }
            if self.signals.is_cancelled() {
                return Err(broken(RequestError::Cancelled));
            }
        };
        if bytes.len() != buffer.len() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        buffer.copy_from_slice(&bytes);
        Ok(())
    }

    /// Announces that bytes from `offset` on will be read.
    pub fn will_read(&self, offset: u64) {
        let mut ranges = self.lock();
        if !ranges.iter().any(|it| it.range.contains(&offset)) {
            let size = match self.ahead {
                ReadAhead::Next => RANGE_BYTES,
                ReadAhead::Announced { announced, .. } => announced,
            };
            self.request_at(&mut ranges, offset, size);
        }
    }

    /// Requests the range of `size` bytes at an offset. Drops the range that ends first if there
    /// are too many.
    fn request_at(&self, ranges: &mut Vec<ObjectRange>, offset: u64, size: u64) {
        if offset >= self.length() {
            return;
        }
        let range = offset..offset.saturating_add(size.max(1)).min(self.length());
        if ranges.len() >= self.ahead.held() {
            let ends = ranges.iter().enumerate();
            let first = ends.min_by_key(|(_, it)| it.range.end);
            ranges.remove(first.map_or(0, |(index, _)| index));
        }
        let content = RangeContent::Requested(self.request(range.clone()));
        ranges.push(ObjectRange { range, content });
    }

    fn request(&self, range: Range<u64>) -> PendingRequest<Bytes> {
        let (location, status) = (self.location.clone(), self.status.clone());
        self.bucket.start(move |store| {
            let (location, mut options) = (location.clone(), status.unchanged());
            options.range = Some(range.clone().into());
            async move { store.get_opts(&location, options).await?.bytes().await }
        })
    }
}

/// Returns the error of a refused request for a range.
fn broken(error: RequestError) -> io::Error {
    let damage = match error {
        RequestError::Cancelled => Damage::transient("the request was cancelled"),
        RequestError::Refused(error) => damage_of(&error),
    };
    io::Error::other(damage)
}

fn damage_of(error: &StoreError) -> Damage {
    if is_changed(error) {
        return Damage::permanent("the object was replaced while it was read");
    }
    if is_missing(error) {
        return Damage::permanent("the object was removed while it was read");
    }
    if is_access_denied(error) {
        return Damage::permanent("the store denies access");
    }
    Damage::transient(reason(error))
}
