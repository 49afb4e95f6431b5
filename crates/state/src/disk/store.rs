//! The store of a process.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use ardea_core::{Error, ErrorCode, LocalPlace, LocalStore, Result};
use fjall::{Database, Keyspace, KeyspaceCreateOptions};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::disk::failure::{full, unreadable, unwritable};
use crate::disk::folder::Part;
use crate::disk::place::DiskPlace;

/// Writing fails with less room than this on the disk.
const LEAST_FREE: u64 = 128 << 20;
/// Threads that tidy up what was written.
const THREADS: usize = 2;
/// The least size of all journals that fjall accepts.
const JOURNALS: u64 = 64 << 20;
/// Of the memory one part in so many is for what was read from disk, and as much for what is about to be written there.
const CACHE_SHARE: u64 = 8;

/// Places on a local disk for the state of this process's instances; see the crate's documentation.
pub struct DiskStore {
    folder: PathBuf,
    memory: u64,
    /// Where the threads of the store may run.
    cores: Option<CpuSet>,
    /// There while there are places.
    open: Mutex<Weak<Open>>,
}

impl DiskStore {
    /// In a part of this folder, which is made when it is needed. `memory` is the number of bytes that all of it may take together, about: what
    /// instances keep in memory, and what the store itself does. The store's threads may run where the caller may.
    pub fn new(folder: impl Into<PathBuf>, memory: u64) -> Self {
        DiskStore {
            folder: folder.into(),
            memory,
            cores: sched_getaffinity(None).ok(),
            open: Mutex::default(),
        }
    }

    /// The store, opened if nobody has.
    fn opened(&self) -> Result<Arc<Open>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = open.upgrade() {
            return Ok(open);
        }
        let made = Arc::new(self.make()?);
        *open = Arc::downgrade(&made);
        Ok(made)
    }

    /// Opens it on a thread that may run on any core: whoever asks for it may be kept on one, and the store's own threads would be kept there
    /// as well.
    fn make(&self) -> Result<Open> {
        let (folder, memory, cores) = (self.folder.clone(), self.memory, self.cores);
        let opening = thread::Builder::new().name("ardea-state".to_string());
        let opening = opening.spawn(move || {
            if let Some(cores) = cores {
                // Where that is forbidden they stay where they are.
                let _ = sched_setaffinity(None, &cores);
            }
            Open::make(&folder, memory)
        });
        let opening = opening.map_err(|cause| {
            let what = "the system refuses a thread that opens the place of state on disk";
            Error::new(ErrorCode::LimitReached, what).because(cause)
        })?;
        let opened = opening.join();
        opened.map_err(|_| Error::new(ErrorCode::Internal, "opening state on disk failed"))?
    }
}

impl fmt::Debug for DiskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DiskStore({})", self.folder.display())
    }
}

impl LocalStore for DiskStore {
    fn open(&self) -> Result<Box<dyn LocalPlace>> {
        Ok(Box::new(DiskPlace::open(self.opened()?)?))
    }
}

/// What the places of a process share.
pub(crate) struct Open {
    /// None once it has been dropped.
    database: Option<Database>,
    memory: u64,
    places: AtomicUsize,
    made: AtomicU64,
    /// Something could not be written: fjall does not go on after that.
    is_broken: AtomicBool,
    part: Part,
}

impl Open {
    fn make(folder: &Path, memory: u64) -> Result<Open> {
        let part = Part::make(folder)?;
        check_room(&part)?;
        let database = Database::builder(part.path().join("data"))
            .cache_size(memory / CACHE_SHARE)
            .worker_threads(THREADS)
            .max_journaling_size(JOURNALS)
            .manual_journal_persist(true)
            .open()
            .map_err(|cause| unwritable(folder, cause))?;
        Ok(Open {
            database: Some(database),
            memory,
            places: AtomicUsize::new(0),
            made: AtomicU64::new(0),
            is_broken: AtomicBool::new(false),
            part,
        })
    }

    /// A map of its own for one more place.
    pub(crate) fn add_place(&self) -> Result<Keyspace> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let options = || {
            let buffer = (self.memory / CACHE_SHARE / 8).clamp(1 << 20, 32 << 20);
            KeyspaceCreateOptions::default()
                .max_memtable_size(buffer)
                .manual_journal_persist(true)
        };
        let keyspace = self
            .database()?
            .keyspace(&format!("place-{number}"), options);
        let keyspace = keyspace.map_err(|cause| self.failed(cause))?;
        self.places.fetch_add(1, Ordering::Relaxed);
        Ok(keyspace)
    }

    /// A place is gone.
    pub(crate) fn remove_place(&self, keyspace: &Keyspace) {
        self.places.fetch_sub(1, Ordering::Relaxed);
        if let Some(database) = self.database.as_ref().filter(|_| !self.is_broken()) {
            // It goes with the folder at the latest.
            let _ = database.delete_keyspace(keyspace.clone());
        }
    }

    /// How many bytes the owner of a place may keep in memory: what is left of all, shared alike.
    pub(crate) fn share(&self) -> u64 {
        let places = self.places.load(Ordering::Relaxed).max(1) as u64;
        (self.memory - 2 * (self.memory / CACHE_SHARE)) / places
    }

    /// The database.
    ///
    /// # Errors
    /// If something could not be written before.
    pub(crate) fn database(&self) -> Result<&Database> {
        let database = self.database.as_ref().filter(|_| !self.is_broken());
        database.ok_or_else(|| unwritable(self.part.path(), fjall::Error::Poisoned))
    }

    /// Refuses to write to a disk that is nearly full: fjall would wait for room without an end, or go on no more.
    pub(crate) fn check_room(&self) -> Result<()> {
        check_room(&self.part)
    }

    /// What has to be said of something that could not be written.
    pub(crate) fn failed(&self, cause: fjall::Error) -> ardea_core::Error {
        self.is_broken.store(true, Ordering::Relaxed);
        unwritable(self.part.path(), cause)
    }

    /// What has to be said of something that could not be read.
    pub(crate) fn unread(&self, cause: fjall::Error) -> ardea_core::Error {
        unreadable(self.part.path(), cause)
    }

    fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }
}

fn check_room(part: &Part) -> Result<()> {
    match part.free()? {
        free if free < LEAST_FREE => Err(full(part.path(), free)),
        _ => Ok(()),
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(database) = self.database.take()
            && self.is_broken()
        {
            // It would wait for threads of its own that have ended with the failure.
            std::mem::forget(database);
        }
    }
}
