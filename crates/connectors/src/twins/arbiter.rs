//! Who decides which copy's slice is taken: the file itself, under a lock.
//!
//! # Why each slice is there once, whole, and in order
//!
//! Each copy offers its slices in their order, and meets the entries of the ledger in theirs. One that it meets was had first by another copy: then
//! both have to have the same content. Where it meets no more it takes the lock, looks again, and if there is still none it appends: the
//! content first, then the entry. So:
//!
//! * *A copy that dies, whenever, leaves nothing half done.* Content without an entry counts for nothing: the next copy writes over it, with
//!   the same bytes. The kernel lets go of the lock of a process that is gone.
//! * *A slice is in the file once:* only who has met all entries appends, under the lock, behind the last.
//! * *What a machine that lost power has lost is written again.* Whoever opens the file cuts off what is not sound of its end, and compares what it
//!   meets of what was there already with the file itself, not with its ledger: a disk writes in any order, and may have lost a slice that is not
//!   the last. A snapshot speaks only of slices that the disk has, so that somebody offers all others again.
//! * *What only some copies have is noticed:* a slice that a copy meets and hasn't got, or has got and can't meet, or whose content differs, ends
//!   that copy with the reason. What is in the file stays.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result, Timestamp};
use ardea_filesystem::{Shown, make_folder};
use xxhash_rust::xxh3::xxh3_64;

use super::ledger::{ENTRY, Entry, head, width_of};
use super::slices::Width;
use crate::files::cannot_write;

/// The name of the ledger in the folder beside the file.
const LEDGER: &str = "ledger";
/// How long whoever offers a slice waits for the lock before it says that it can't be had now.
const TURN: Duration = Duration::from_millis(20);
/// How long whoever opens the file waits for it.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it is until the lock is tried again.
const AGAIN: Duration = Duration::from_micros(50);
/// How many entries are read at a time.
const AT_ONCE: u64 = 512;
/// How many entries at the ledger's end are looked at when it is opened: those of many cuts.
const LOOKED_AT: u64 = 64 << 10;

/// What became of a slice that was offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Offered {
    /// It is in the file now.
    First,
    /// It was there already, and is the same.
    Met,
    /// Another copy holds the lock: try again.
    NotNow,
}

/// Whether the lock is held, so that what can't be read is torn and not on its way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lock {
    Held,
    Free,
}

/// A slice of this copy.
struct Offer<'a> {
    slice: i64,
    content: &'a [u8],
    hash: u64,
}

/// One copy's view of the file and its ledger.
pub(super) struct Arbiter {
    path: PathBuf,
    width: Width,
    data: File,
    ledger: File,
    /// Which copy this is.
    copy: u64,
    /// How many entries it has met, its own included.
    met: u64,
    /// Where the file ends with those.
    end: u64,
    /// Read, and not met yet.
    ahead: VecDeque<Entry>,
    /// How many entries there were when it was opened: of the content of those it is not known whether the disk has kept it.
    found: u64,
}

/// The folder beside a file of twins.
pub(super) fn folder_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".twins");
    path.with_file_name(name)
}

/// The folder that a file lies in.
fn above(path: &Path) -> &Path {
    let folder = path.parent();
    folder
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

impl Arbiter {
    /// The file at `path`, with slices of this width, for the copy of this number; made if it isn't there. What a machine that lost power has lost
    /// of its end is cut off.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if it can't be opened, [`ErrorCode::InvalidJob`] if it is of others.
    pub fn open(path: &Path, width: Width, copy: u64) -> Result<Self> {
        let folder = folder_of(path);
        make_folder(&folder).map_err(|error| cannot_write(&folder, error))?;
        let open = |path: &Path| {
            let mut options = File::options();
            let options = options.read(true).write(true).create(true).truncate(false);
            options
                .open(path)
                .map_err(|error| cannot_write(path, error))
        };
        let mut arbiter = Arbiter {
            ledger: open(&folder.join(LEDGER))?,
            data: open(path)?,
            path: path.to_path_buf(),
            width,
            copy,
            met: 0,
            end: 0,
            ahead: VecDeque::new(),
            found: 0,
        };
        if !arbiter.lock(PATIENCE)? {
            return Err(arbiter.is_held());
        }
        let prepared = arbiter.prepare();
        arbiter.unlock()?;
        arbiter.found = prepared?;
        Ok(arbiter)
    }

    /// How many slices it has met.
    pub fn met(&self) -> u64 {
        self.met
    }

    /// Goes on behind so many slices.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if fewer are there.
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

    /// Offers the content of the next slice of this copy; returns within about 20 ms.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if another copy has other slices; [`ErrorCode::WriteFailed`] if the file can't be written.
    pub fn offer(&mut self, slice: i64, content: &[u8]) -> Result<Offered> {
        let offer = Offer {
            slice,
            content,
            hash: xxh3_64(content),
        };
        if self.meet(&offer, Lock::Free)? {
            return Ok(Offered::Met);
        }
        if !self.lock(TURN)? {
            return Ok(Offered::NotNow);
        }
        let decided = self.decide(&offer);
        self.unlock()?;
        decided
    }

    /// # Errors
    /// [`ErrorCode::InvalidJob`] if another copy has slices that this one, which has come to its end, has not.
    pub fn check_end(&mut self) -> Result<()> {
        match self.peek(Lock::Free)? {
            Some(entry) => Err(self.has_not(entry.slice)),
            None => Ok(()),
        }
    }

    /// The file and its ledger, for whoever brings them to the disk.
    pub fn files(&self) -> io::Result<[File; 2]> {
        Ok([self.data.try_clone()?, self.ledger.try_clone()?])
    }

    fn decide(&mut self, offer: &Offer<'_>) -> Result<Offered> {
        if self.meet(offer, Lock::Held)? {
            return Ok(Offered::Met);
        }
        self.append(offer)?;
        Ok(Offered::First)
    }

    /// Whether another copy had it first.
    fn meet(&mut self, offer: &Offer<'_>, lock: Lock) -> Result<bool> {
        let Some(entry) = self.peek(lock)? else {
            return Ok(false);
        };
        if entry.slice < offer.slice {
            return Err(self.has_not(entry.slice));
        }
        if entry.slice > offer.slice {
            return Err(self.differs(offer.slice, "only this copy has results in it"));
        }
        let length = offer.content.len() as u64;
        if (entry.hash, entry.end) != (offer.hash, self.end + length) {
            return Err(self.differs(offer.slice, "the copies have other results in it"));
        }
        if self.met < self.found {
            self.keep_content(offer)?;
        }
        self.ahead.pop_front();
        (self.met, self.end) = (self.met + 1, entry.end);
        Ok(true)
    }

    /// Sees to it that what a slice that was there already should be is what the file has.
    fn keep_content(&self, offer: &Offer<'_>) -> Result<()> {
        let mut there = vec![0; offer.content.len()];
        let read = self.data.read_exact_at(&mut there, self.end);
        if read.is_ok() && there == offer.content {
            return Ok(());
        }
        // Whoever else does this writes the same bytes.
        let written = self.data.write_all_at(offer.content, self.end);
        written.map_err(|error| self.cannot(error))
    }

    /// Writes it behind all that is there; only with the lock, and behind all entries.
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
            // What is behind has been written by a copy that died meanwhile.
            .and_then(|data| {
                if data.len() > end {
                    self.data.set_len(end)
                } else {
                    Ok(())
                }
            })
            .and_then(|()| {
                self.ledger
                    .write_all_at(&entry.to_bytes(), place_of(self.met))
            });
        written.map_err(|error| self.cannot(error))?;
        (self.met, self.end) = (self.met + 1, end);
        Ok(())
    }

    /// The first entry that has not been met.
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
        let mut bytes = vec![0; ((length - at) / ENTRY).min(AT_ONCE) as usize * ENTRY as usize];
        let read = self.ledger.read_exact_at(&mut bytes, at);
        read.map_err(|error| self.cannot(error))?;
        let (entries, _) = bytes.as_chunks::<{ ENTRY as usize }>();
        for (n, bytes) in (1..).zip(entries) {
            match Entry::of(bytes) {
                Some(entry) => self.ahead.push_back(entry),
                // The last one may be on its way, or be what is left of one that was.
                None if at + n * ENTRY + ENTRY > length => break,
                None if lock == Lock::Free => break,
                None => return Err(self.is_damaged()),
            }
        }
        Ok(())
    }

    /// An entry; none if there are not so many.
    fn entry_at(&self, number: u64) -> Result<Option<Entry>> {
        let at = place_of(number);
        if self.ledger_length()? < at + ENTRY {
            return Ok(None);
        }
        let mut bytes = [0; ENTRY as usize];
        let read = self.ledger.read_exact_at(&mut bytes, at);
        read.map_err(|error| self.cannot(error))?;
        Ok(Entry::of(&bytes))
    }

    /// Makes a new file ready, or sees to it that an old one is sound; how many slices there are.
    fn prepare(&self) -> Result<u64> {
        if self.ledger_length()? < ENTRY {
            self.begin()?;
            return Ok(0);
        }
        let mut bytes = [0; ENTRY as usize];
        let read = self.ledger.read_exact_at(&mut bytes, 0);
        read.map_err(|error| self.cannot(error))?;
        match width_of(&bytes) {
            Some(width) if width == self.width => self.mend(),
            Some(width) => Err(self.has_other_slices(width)),
            None => Err(self.is_damaged()),
        }
    }

    fn begin(&self) -> Result<()> {
        let length = self.data_length()?;
        if length > 0 {
            let what = format!(
                "{} is there already, with {length} bytes",
                self.path.shown()
            );
            let error = Error::new(ErrorCode::InvalidJob, what);
            return Err(error.hint("remove it, or have the copies write another file"));
        }
        let begun = self
            .ledger
            .write_all_at(&head(self.width), 0)
            .and_then(|()| self.ledger.sync_all())
            .and_then(|()| File::open(folder_of(&self.path))?.sync_all())
            // The names of the file and of that folder.
            .and_then(|()| File::open(above(&self.path))?.sync_all());
        begun.map_err(|error| self.cannot(error))
    }

    /// Cuts off what a machine that lost power has kept of slices whose rest it has lost; how many are left. While a copy lives all entries
    /// are sound.
    fn mend(&self) -> Result<u64> {
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
            // Not one of many is sound: that is no lost end.
            return Err(self.is_damaged());
        }
        if place_of(count) < length {
            let cut = self.ledger.set_len(place_of(count));
            cut.map_err(|error| self.cannot(error))?;
        }
        Ok(count)
    }

    /// Of so many entries those before the first that can't be read, as far as is looked.
    fn readable(&self, all: u64) -> Result<u64> {
        let from = all.saturating_sub(LOOKED_AT);
        let mut bytes = vec![0; ((all - from) * ENTRY) as usize];
        let read = self.ledger.read_exact_at(&mut bytes, place_of(from));
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

    /// Takes the lock; false if it can't be had within `patience`.
    fn lock(&self, patience: Duration) -> Result<bool> {
        let begun = Instant::now();
        loop {
            match self.ledger.try_lock() {
                Ok(()) => return Ok(true),
                Err(TryLockError::Error(error)) => return Err(self.cannot(error)),
                Err(TryLockError::WouldBlock) if begun.elapsed() >= patience => return Ok(false),
                Err(TryLockError::WouldBlock) => thread::sleep(AGAIN),
            }
        }
    }

    fn unlock(&self) -> Result<()> {
        self.ledger.unlock().map_err(|error| self.cannot(error))
    }

    fn ledger_length(&self) -> Result<u64> {
        let ledger = self.ledger.metadata();
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
        let what = format!("{} is held by another copy", self.path.shown());
        Error::new(ErrorCode::WriteFailed, what)
            .hint("a copy that was stopped in the middle of a slice has to go on, or to be killed")
    }

    fn is_damaged(&self) -> Error {
        let ledger = folder_of(&self.path).join(LEDGER);
        let what = format!("{} is damaged", ledger.shown());
        Error::new(ErrorCode::WriteFailed, what)
            .hint("restore it together with the file, or have the copies write another file")
    }

    fn lost(&self, met: u64) -> Error {
        let path = self.path.shown();
        let what = format!("{path} has fewer than {met} slices, and so many have been there");
        Error::new(ErrorCode::WriteFailed, what).hint(
            "put file and folder back as they were, or start all copies from the beginning, with another file",
        )
    }

    fn has_other_slices(&self, width: Width) -> Error {
        let told = |width: Width| Duration::from_micros(width.micros().unsigned_abs());
        let what = format!(
            "{} has slices of {:?}, this copy would write some of {:?}",
            self.path.shown(),
            told(width),
            told(self.width)
        );
        Error::new(ErrorCode::InvalidJob, what)
            .hint("run the same program, or have the copies write another file")
    }

    fn has_not(&self, slice: i64) -> Error {
        self.differs(slice, "another copy has results in it, this one has none")
    }

    fn differs(&self, slice: i64, how: &str) -> Error {
        let (start, end): (Timestamp, Timestamp) = (
            self.width.start_of(slice),
            self.width.start_of(slice.saturating_add(1)),
        );
        let what = format!(
            "the copies that write {} are not alike: from {start} to {end} {how}",
            self.path.shown()
        );
        Error::new(ErrorCode::InvalidJob, what).hint(
            "copies are the same program and read the same input from the same beginning; results may follow from records and their event times alone, \
             not from the clock, from chance, or from the order of several inputs",
        )
    }
}

/// Where the entry of this number stands in the ledger.
const fn place_of(number: u64) -> u64 {
    (number + 1) * ENTRY
}
