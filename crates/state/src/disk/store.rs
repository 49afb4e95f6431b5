//! The disk store of a process.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use ardea_core::{Error, ErrorCode, KeyValueStore, Result, StateBackend};
use fjall::{Database, Keyspace, KeyspaceCreateOptions};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::disk::failure::{full, unreadable, unwritable};
use crate::disk::folder::Subfolder;
use crate::disk::instance_store::DiskKeyValueStore;

/// Minimum free disk space in bytes; writing fails below it.
const MIN_FREE: u64 = 128 << 20;
/// Number of compaction threads.
const COMPACTION_THREADS: usize = 2;
/// Limit of the total journal size: the smallest that fjall accepts.
const MAX_JOURNAL_BYTES: u64 = 64 << 20;
/// The block cache, and all write buffers together, each get the memory budget divided by this.
const CACHE_SHARE: u64 = 8;

/// A disk store for the state of this process's instances; see the module documentation.
pub struct DiskStore {
    folder: PathBuf,
    memory: u64,
    /// The cores on which the threads of the store may run.
    cores: Option<CpuSet>,
    /// The open database, as long as an instance uses it.
    open: Mutex<Weak<OpenDatabase>>,
}

impl DiskStore {
    /// Creates a store in a subfolder of `folder`, which is created when needed. `memory` is the
    /// approximate memory budget in bytes, for the store itself and for the state that the
    /// instances have in memory. The store's threads may run on the caller's cores.
    pub fn new(folder: impl Into<PathBuf>, memory: u64) -> Self {
        DiskStore {
            folder: folder.into(),
            memory,
            cores: sched_getaffinity(None).ok(),
            open: Mutex::default(),
        }
    }

    /// Returns the database, opening it if necessary.
    fn opened(&self) -> Result<Arc<OpenDatabase>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = open.upgrade() {
            return Ok(open);
        }
        let made = Arc::new(self.make()?);
        *open = Arc::downgrade(&made);
        Ok(made)
    }

    /// Opens the database on a thread without core affinity: the caller may be pinned to a core,
    /// and the store's threads would inherit that.
    fn make(&self) -> Result<OpenDatabase> {
        let (folder, memory, cores) = (self.folder.clone(), self.memory, self.cores);
        let opening = thread::Builder::new().name("ardea-state".to_string());
        let opening = opening.spawn(move || {
            if let Some(cores) = cores {
                // If that is forbidden, they keep the present affinity.
                let _ = sched_setaffinity(None, &cores);
            }
            OpenDatabase::make(&folder, memory)
        });
        let opening = opening.map_err(|cause| {
            let what = "cannot start a thread to open the state store on disk";
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

impl StateBackend for DiskStore {
    fn open(&self) -> Result<Box<dyn KeyValueStore>> {
        Ok(Box::new(DiskKeyValueStore::open(self.opened()?)?))
    }
}

/// The database, shared by the instances of a process.
pub(crate) struct OpenDatabase {
    /// `None` during drop.
    database: Option<Database>,
    memory: u64,
    maps: AtomicUsize,
    made: AtomicU64,
    /// True after a write failed: fjall does not work after that.
    is_broken: AtomicBool,
    part: Subfolder,
}

impl OpenDatabase {
    fn make(folder: &Path, memory: u64) -> Result<OpenDatabase> {
        let part = Subfolder::make(folder)?;
        check_room(&part)?;
        let database = Database::builder(part.path().join("data"))
            .cache_size(memory / CACHE_SHARE)
            .worker_threads(COMPACTION_THREADS)
            .max_journaling_size(MAX_JOURNAL_BYTES)
            .manual_journal_persist(true)
            .open()
            .map_err(|cause| unwritable(folder, cause))?;
        Ok(OpenDatabase {
            database: Some(database),
            memory,
            maps: AtomicUsize::new(0),
            made: AtomicU64::new(0),
            is_broken: AtomicBool::new(false),
            part,
        })
    }

    /// Creates the map of another instance.
    pub(crate) fn add_map(&self) -> Result<Keyspace> {
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
        let keyspace = keyspace.map_err(|cause| self.write_error(cause))?;
        self.maps.fetch_add(1, Ordering::Relaxed);
        Ok(keyspace)
    }

    /// Removes the map of an instance.
    pub(crate) fn remove_map(&self, keyspace: &Keyspace) {
        self.maps.fetch_sub(1, Ordering::Relaxed);
        if let Some(database) = self.database.as_ref().filter(|_| !self.is_broken()) {
            // The map is deleted with the folder at the latest.
            let _ = database.delete_keyspace(keyspace.clone());
        }
    }

    /// Returns the memory budget of each instance in bytes: an equal share of the budget without
    /// cache and write buffers.
    pub(crate) fn share(&self) -> u64 {
        let places = self.maps.load(Ordering::Relaxed).max(1) as u64;
        (self.memory - 2 * (self.memory / CACHE_SHARE)) / places
    }

    /// Returns the database.
    ///
    /// # Errors
    /// If a write has failed before.
    pub(crate) fn database(&self) -> Result<&Database> {
        let database = self.database.as_ref().filter(|_| !self.is_broken());
        database.ok_or_else(|| unwritable(self.part.path(), fjall::Error::Poisoned))
    }

    /// Refuses writes to a disk that is nearly full: fjall would wait for room indefinitely, or
    /// stop working.
    pub(crate) fn check_room(&self) -> Result<()> {
        check_room(&self.part)
    }

    /// Marks the store as broken after a failed write, and returns the error.
    pub(crate) fn write_error(&self, cause: fjall::Error) -> ardea_core::Error {
        self.is_broken.store(true, Ordering::Relaxed);
        unwritable(self.part.path(), cause)
    }

    /// Returns the error for a failed read.
    pub(crate) fn read_error(&self, cause: fjall::Error) -> ardea_core::Error {
        unreadable(self.part.path(), cause)
    }

    fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }
}

fn check_room(part: &Subfolder) -> Result<()> {
    match part.free()? {
        free if free < MIN_FREE => Err(full(part.path(), free)),
        _ => Ok(()),
    }
}

impl Drop for OpenDatabase {
    fn drop(&mut self) {
        if let Some(database) = self.database.take()
            && self.is_broken()
        {
            // Dropping it would wait for its threads, which have ended with the failure.
            std::mem::forget(database);
        }
    }
}
