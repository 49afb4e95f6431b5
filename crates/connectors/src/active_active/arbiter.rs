//! Arbitration between replicas: the first replica to append a slice to the file under a lock wins.
//!
//! # Guarantees
//!
//! Each replica offers its slices in order and compares them with the entries of the index in
//! order. If an entry exists, another replica was first, and both contents must be equal. Otherwise
//! the replica takes the lock, checks again, and if there is still no entry, appends first the
//! content and then the entry. So:
//!
//! * *A failing replica leaves no partial slice.* Content without an entry does not count: the next
//!   replica overwrites it with the same bytes. The kernel releases the lock of a dead process.
//! * *Each slice is written once:* a replica appends only under the lock, after comparing all
//!   entries, behind the last one.
//! * *Slices lost in a power failure are written again.* Opening the file truncates an invalid end.
//!   Slices that existed before are compared with the file itself, not with the index: a disk may
//!   write in any order and lose a slice before the last one. A checkpoint covers only durable
//!   slices, so some replica offers the lost slices again.
//! * *Diverging replicas are detected:* a replica fails if the index lacks one of its slices, has
//!   an additional slice, or has different content. The file is not changed.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result, Timestamp};
use ardea_filesystem::{Shown, create_folder};
use xxhash_rust::xxh3::xxh3_64;

use super::slice_index::{ENTRY, Entry, head, width_of};
use super::slices::Width;
use crate::files::cannot_write;

/// The name of the index file in the folder beside the output file.
const INDEX_FILE: &str = "ledger";
/// The time that an offer waits for the lock before it returns [`OfferOutcome::Busy`].
const OFFER_TIMEOUT: Duration = Duration::from_millis(20);
/// The lock timeout when the file is opened.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval between two attempts to lock.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_micros(50);
/// The number of entries read at a time.
const ENTRIES_PER_READ: u64 = 512;
/// The number of entries at the end of the index that are validated on opening. Fewer are written
/// between two snapshots.
const VALIDATED_ENTRIES: u64 = 64 << 10;

/// The outcome of offering a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OfferOutcome {
    /// The slice was appended.
    Appended,
    /// The file already contains the slice with the same content.
    AlreadyPresent,
    /// Another replica holds the lock; retry.
    Busy,
}

/// The state of the lock. An unreadable entry is damaged if this replica holds the lock; otherwise
/// another replica may be writing it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lock {
    Held,
    Free,
}

/// A complete slice that this replica offers to the file.
struct Offer<'a> {
    slice: i64,
    content: &'a [u8],
    hash: u64,
}

/// A replica's view of the file and its index.
pub(super) struct Arbiter {
    path: PathBuf,
    width: Width,
    data: File,
    index: File,
    /// The number of this replica.
    copy: u64,
    /// The number of entries compared or appended.
    met: u64,
    /// The end of the compared or appended slices, as an offset in the file.
    end: u64,
    /// Entries that were read but not compared yet.
    ahead: VecDeque<Entry>,
    /// The number of entries when the file was opened. The slices of these entries may not be
    /// durable and are compared with the file.
    found: u64,
}

/// Returns the folder `….replicas` beside the output file.
pub(super) fn folder_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".replicas");
    path.with_file_name(name)
}

/// Returns the parent directory of a file.
fn above(path: &Path) -> &Path {
    let folder = path.parent();
    folder
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

impl Arbiter {
    /// Opens or creates the file at `path`, with slices of `width`, for replica number `copy`.
    /// Truncates an end that is invalid after a power failure.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if the file cannot be opened, [`ErrorCode::InvalidJob`] if it
    /// belongs to another job.
    pub fn open(path: &Path, width: Width, copy: u64) -> Result<Self> {
        let folder = folder_of(path);
        create_folder(&folder).map_err(|error| cannot_write(&folder, error))?;
        let open = |path: &Path| {
            let mut options = File::options();
            let options = options.read(true).write(true).create(true).truncate(false);
            options
                .open(path)
                .map_err(|error| cannot_write(path, error))
        };
        let mut arbiter = Arbiter {
            index: open(&folder.join(INDEX_FILE))?,
            data: open(path)?,
            path: path.to_path_buf(),
            width,
            copy,
            met: 0,
            end: 0,
            ahead: VecDeque::new(),
            found: 0,
        };
        if !arbiter.lock(OPEN_TIMEOUT)? {
            return Err(arbiter.is_held());
        }
        let prepared = arbiter.prepare();
        arbiter.unlock()?;
        arbiter.found = prepared?;
        Ok(arbiter)
    }

    /// Returns the number of slices compared or appended.
    pub fn met(&self) -> u64 {
        self.met
    }

    /// Continues after the first `met` slices.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if the file has fewer slices.
    pub fn resume(&mut self, met: u64) -> Result<()> {
        (self.met, self.end) = (0, 0);
        self.ahead.clear();
        let Some(last) = met.checked_sub(1) else {
            return Ok(());
        };
        let entry = self.entry_at(last)?;
        let entry = entry.ok_or_else(|| self.lost(met))?;
        (self.met, self.end) = (met, entry.end);
        Ok(())
    }

    /// Offers the content of the next slice of this replica; returns within about 20 ms.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if another replica has different slices;
    /// [`ErrorCode::WriteFailed`] if the file cannot be written.
    pub fn offer(&mut self, slice: i64, content: &[u8]) -> Result<OfferOutcome> {
        let offer = Offer {
            slice,
            content,
            hash: xxh3_64(content),
        };
        if self.meet(&offer, Lock::Free)? {
            return Ok(OfferOutcome::AlreadyPresent);
        }
        if !self.lock(OFFER_TIMEOUT)? {
            return Ok(OfferOutcome::Busy);
        }
        let decided = self.decide(&offer);
        self.unlock()?;
        decided
    }

    /// # Errors
    /// [`ErrorCode::InvalidJob`] if another replica has written slices after the last one of this
    /// replica.
    pub fn check_end(&mut self) -> Result<()> {
        match self.peek(Lock::Free)? {
            Some(entry) => Err(self.has_not(entry.slice)),
            None => Ok(()),
        }
    }

    /// Returns handles of the file and its index, for flushing them to disk.
    pub fn files(&self) -> io::Result<[File; 2]> {
        Ok([self.data.try_clone()?, self.index.try_clone()?])
    }

    fn decide(&mut self, offer: &Offer<'_>) -> Result<OfferOutcome> {
        if self.meet(offer, Lock::Held)? {
            return Ok(OfferOutcome::AlreadyPresent);
        }
        self.append(offer)?;
        Ok(OfferOutcome::Appended)
    }

    /// Compares the offer with the next entry; returns false if there is no entry.
    fn meet(&mut self, offer: &Offer<'_>, lock: Lock) -> Result<bool> {
        let Some(entry) = self.peek(lock)? else {
            return Ok(false);
        };
        if entry.slice < offer.slice {
            return Err(self.has_not(entry.slice));
        }
        if entry.slice > offer.slice {
            return Err(self.differs(offer.slice, "only this replica has results"));
        }
        let length = offer.content.len() as u64;
        if (entry.hash, entry.end) != (offer.hash, self.end + length) {
            return Err(self.differs(offer.slice, "the replicas have different results"));
        }
        if self.met < self.found {
            self.keep_content(offer)?;
        }
        self.ahead.pop_front();
        (self.met, self.end) = (self.met + 1, entry.end);
        Ok(true)
    }

    /// Rewrites the content of the offered slice if the file lacks it, although the index had its
    /// entry when the file was opened.
    fn keep_content(&self, offer: &Offer<'_>) -> Result<()> {
        let mut there = vec![0; offer.content.len()];
        let read = self.data.read_exact_at(&mut there, self.end);
        if read.is_ok() && there == offer.content {
            return Ok(());
        }
        // Other replicas write the same bytes.
        let written = self.data.write_all_at(offer.content, self.end);
        written.map_err(|error| self.cannot(error))
    }

    /// Appends the offer. The caller holds the lock and has compared all entries.
    fn append(&mut self, offer: &Offer<'_>) -> Result<()> {
        let end = self.end + offer.content.len() as u64;
        let entry = Entry {
            slice: offer.slice,
            end,
            hash: offer.hash,
            copy: self.copy,
        };
        let written = self
            .data
            .write_all_at(offer.content, self.end)
            .and_then(|()| self.data.metadata())
            // Bytes behind the slice were written by a replica that has failed.
            .and_then(|data| {
                if data.len() > end {
                    self.data.set_len(end)
                } else {
                    Ok(())
                }
            })
            .and_then(|()| {
                self.index
                    .write_all_at(&entry.to_bytes(), place_of(self.met))
            });
        written.map_err(|error| self.cannot(error))?;
        (self.met, self.end) = (self.met + 1, end);
        Ok(())
    }

    /// Returns the first entry not compared yet.
    fn peek(&mut self, lock: Lock) -> Result<Option<Entry>> {
        if self.ahead.is_empty() {
            self.read_ahead(lock)?;
        }
        Ok(self.ahead.front().copied())
    }

    fn read_ahead(&mut self, lock: Lock) -> Result<()> {
        let length = self.ledger_length()?;
        let at = place_of(self.met);
        if length < at {
            return Err(self.lost(self.met));
        }
        let mut bytes =
            vec![0; ((length - at) / ENTRY).min(ENTRIES_PER_READ) as usize * ENTRY as usize];
        let read = self.index.read_exact_at(&mut bytes, at);
        read.map_err(|error| self.cannot(error))?;
        let (entries, _) = bytes.as_chunks::<{ ENTRY as usize }>();
        for (n, bytes) in (1..).zip(entries) {
            match Entry::of(bytes) {
                Some(entry) => self.ahead.push_back(entry),
                // The last entry may be incomplete: being written, or left by a failed replica.
                None if at + n * ENTRY + ENTRY > length => break,
                None if lock == Lock::Free => break,
                None => return Err(self.is_damaged()),
            }
        }
        Ok(())
    }

    /// Returns the entry with this number; `None` if the index has fewer entries.
    fn entry_at(&self, number: u64) -> Result<Option<Entry>> {
        let at = place_of(number);
        if self.ledger_length()? < at + ENTRY {
            return Ok(None);
        }
        let mut bytes = [0; ENTRY as usize];
        let read = self.index.read_exact_at(&mut bytes, at);
        read.map_err(|error| self.cannot(error))?;
        Ok(Entry::of(&bytes))
    }

    /// Initializes a new file or repairs an existing one; returns the number of slices.
    fn prepare(&self) -> Result<u64> {
        if self.ledger_length()? < ENTRY {
            self.begin()?;
            return Ok(0);
        }
        let mut bytes = [0; ENTRY as usize];
        let read = self.index.read_exact_at(&mut bytes, 0);
        read.map_err(|error| self.cannot(error))?;
        match width_of(&bytes) {
            Some(width) if width == self.width => self.truncate_invalid_end(),
            Some(width) => Err(self.has_other_slices(width)),
            None => Err(self.is_damaged()),
        }
    }

    fn begin(&self) -> Result<()> {
        let length = self.data_length()?;
        if length > 0 {
            let what = format!(
                "{} already exists and has {length} bytes",
                self.path.shown()
            );
            let error = Error::new(ErrorCode::InvalidJob, what);
            return Err(error.hint("remove it, or let the replicas write another file"));
        }
        let begun = self
            .index
            .write_all_at(&head(self.width), 0)
            .and_then(|()| self.index.sync_all())
            .and_then(|()| File::open(folder_of(&self.path))?.sync_all())
            // Makes the names of the file and of that folder durable.
            .and_then(|()| File::open(above(&self.path))?.sync_all());
        begun.map_err(|error| self.cannot(error))
    }

    /// Truncates slices that are incomplete after a power failure; returns the number of slices
    /// left. While a replica runs, all entries are valid.
    fn truncate_invalid_end(&self) -> Result<u64> {
        let length = self.ledger_length()?;
        let has = self.data_length()?;
        let all = (length - ENTRY) / ENTRY;
        let mut count = self.readable(all)?;
        while let Some(last) = count.checked_sub(1) {
            if let Some(entry) = self.entry_at(last)?
                && self.is_sound(&entry, last, has)?
            {
                break;
            }
            count = last;
        }
        if count == 0 && all > 1 {
            // If none of many is valid, the damage is not just a lost end.
            return Err(self.is_damaged());
        }
        if place_of(count) < length {
            let snapshot = self.index.set_len(place_of(count));
            snapshot.map_err(|error| self.cannot(error))?;
        }
        Ok(count)
    }

    /// Returns the number of entries before the first unreadable one among the last
    /// [`VALIDATED_ENTRIES`] entries.
    fn readable(&self, all: u64) -> Result<u64> {
        let from = all.saturating_sub(VALIDATED_ENTRIES);
        let mut bytes = vec![0; ((all - from) * ENTRY) as usize];
        let read = self.index.read_exact_at(&mut bytes, place_of(from));
        read.map_err(|error| self.cannot(error))?;
        let (entries, _) = bytes.as_chunks::<{ ENTRY as usize }>();
        let sound = entries
            .iter()
            .take_while(|bytes| Entry::of(bytes).is_some());
        Ok(from + sound.count() as u64)
    }

    fn is_sound(&self, entry: &Entry, number: u64, has: u64) -> Result<bool> {
        let start = match number.checked_sub(1) {
            None => Some(0),
            Some(before) => self.entry_at(before)?.map(|before| before.end),
        };
        let length = start.and_then(|start| Some((start, entry.end.checked_sub(start)?)));
        let Some((start, length)) = length.filter(|_| entry.end <= has) else {
            return Ok(false);
        };
        let mut content = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        let read = self.data.read_exact_at(&mut content, start);
        read.map_err(|error| self.cannot(error))?;
        Ok(xxh3_64(&content) == entry.hash)
    }

    /// Takes the lock; returns false if another replica holds it longer than `patience`.
    fn lock(&self, patience: Duration) -> Result<bool> {
        let begun = Instant::now();
        loop {
            match self.index.try_lock() {
                Ok(()) => return Ok(true),
                Err(TryLockError::Error(error)) => return Err(self.cannot(error)),
                Err(TryLockError::WouldBlock) if begun.elapsed() >= patience => return Ok(false),
                Err(TryLockError::WouldBlock) => thread::sleep(LOCK_RETRY_INTERVAL),
            }
        }
    }

    fn unlock(&self) -> Result<()> {
        self.index.unlock().map_err(|error| self.cannot(error))
    }

    fn ledger_length(&self) -> Result<u64> {
        let ledger = self.index.metadata();
        Ok(ledger.map_err(|error| self.cannot(error))?.len())
    }

    fn data_length(&self) -> Result<u64> {
        let data = self.data.metadata();
        Ok(data.map_err(|error| self.cannot(error))?.len())
    }

    fn cannot(&self, error: io::Error) -> Error {
        cannot_write(&self.path, error)
    }

    fn is_held(&self) -> Error {
        let what = format!("{} is locked by another replica", self.path.shown());
        Error::new(ErrorCode::WriteFailed, what)
            .hint("continue or kill a replica that was suspended while it wrote a slice")
    }

    fn is_damaged(&self) -> Error {
        let ledger = folder_of(&self.path).join(INDEX_FILE);
        let what = format!("{} is damaged", ledger.shown());
        Error::new(ErrorCode::WriteFailed, what)
            .hint("restore it together with the file, or let the replicas write another file")
    }

    fn lost(&self, met: u64) -> Error {
        let path = self.path.shown();
        let what = format!("{path} has fewer than {met} slices, but as many were written before");
        Error::new(ErrorCode::WriteFailed, what).hint(
            "restore the file and its folder, or start all replicas from the beginning, with another file",
        )
    }

    fn has_other_slices(&self, width: Width) -> Error {
        let told = |width: Width| Duration::from_micros(width.micros().unsigned_abs());
        let what = format!(
            "{} has slices of {:?}, but this replica is configured with {:?}",
            self.path.shown(),
            told(width),
            told(self.width)
        );
        Error::new(ErrorCode::InvalidJob, what)
            .hint("run the same program, or let the replicas write another file")
    }

    fn has_not(&self, slice: i64) -> Error {
        self.differs(slice, "another replica has results, this one has none")
    }

    fn differs(&self, slice: i64, how: &str) -> Error {
        let (start, end): (Timestamp, Timestamp) = (
            self.width.start_of(slice),
            self.width.start_of(slice.saturating_add(1)),
        );
        let what = format!(
            "the replicas that write {} have diverged: from {start} to {end}, {how}",
            self.path.shown()
        );
        Error::new(ErrorCode::InvalidJob, what).hint(
            "replicas must run the same program and read the same input from the same beginning; results must depend only on records and their event times, \
             not on the clock, on chance, or on the order of several inputs",
        )
    }
}

/// Returns the offset of an entry in the index.
const fn place_of(number: u64) -> u64 {
    (number + 1) * ENTRY
}
