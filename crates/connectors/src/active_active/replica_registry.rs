//! The registry of replicas: one status file per replica, locked while its process lives.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Timestamp};
use ardea_filesystem::{Shown, create_folder};
use serde::{Deserialize, Serialize};

use super::arbiter::folder_of;
use crate::files::{cannot_lock, cannot_write};

/// The maximum number of replicas that run at the same time.
const MAX_REPLICAS: u64 = 16;
/// The suffix of a replica's status file, after its number.
const SUFFIX: &str = ".copy";

/// The status reported by a replica.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ReplicaStatus {
    pub job: String,
    pub host: String,
    pub process: u32,
    /// The event time up to which its slices are complete.
    pub until: Option<Timestamp>,
    /// The numbers of slices that the replica has appended (`first`) and found in the file (`met`)
    /// in this attempt.
    pub first: u64,
    pub met: u64,
    /// The time of the report.
    pub at: Timestamp,
}

/// The lock of a replica's number, released on drop.
pub(super) struct ReplicaLock {
    pub number: u64,
    file: File,
}

impl ReplicaLock {
    /// Locks the first free replica number.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if there are too many replicas, [`ErrorCode::WriteFailed`] if
    /// the status file cannot be opened, [`ErrorCode::StoreUnsuitable`] if the file system has no
    /// locks.
    pub fn take(path: &Path) -> Result<Self> {
        let folder = folder_of(path);
        create_folder(&folder).map_err(|error| cannot_write(&folder, error))?;
        for number in 1..=MAX_REPLICAS {
            let path = folder.join(format!("{number}{SUFFIX}"));
            let mut options = File::options();
            let options = options.read(true).write(true).create(true).truncate(false);
            let file = options
                .open(&path)
                .map_err(|error| cannot_write(&path, error))?;
            match file.try_lock() {
                Ok(()) => return Ok(ReplicaLock { number, file }),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(cannot_lock(&path, error)),
            }
        }
        let what = format!("{MAX_REPLICAS} replicas already write {}", path.shown());
        Err(Error::new(ErrorCode::LimitReached, what).hint("two survive the failure of one"))
    }

    /// Writes the status of this replica.
    pub fn write_status(&self, told: &ReplicaStatus) -> io::Result<()> {
        let mut text = serde_json::to_vec(told)?;
        text.push(b'\n');
        self.file.write_all_at(&text, 0)?;
        self.file.set_len(text.len() as u64)
    }
}

/// Returns the host name.
pub(super) fn host() -> String {
    let system = rustix::system::uname();
    system.nodename().to_string_lossy().into_owned()
}

/// The status of a replica that writes a file of [`active_active`](crate::active_active).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaInfo {
    /// The number of the replica, from 1.
    pub number: u64,
    /// True if the replica's process is alive. A dead replica is listed until another one takes its
    /// number.
    pub is_alive: bool,
    /// The name of the replica's job.
    pub job: String,
    /// The host of the replica's process.
    pub host: String,
    /// The ID of the replica's process.
    pub process: u32,
    /// The event time up to which its slices are complete.
    pub until: Option<Timestamp>,
    /// The replica's lag behind the most advanced replica, in event time.
    pub behind: Duration,
    /// The number of slices that the replica has appended since its start.
    pub first: u64,
    /// The number of the replica's slices that were already in the file.
    pub met: u64,
    /// The time of the replica's last report. A replica reports about ten times a second while
    /// event time advances.
    pub reported_at: Timestamp,
}

/// Returns the present and former replicas that write a file, ordered by number.
///
/// # Errors
/// [`ErrorCode::ReadFailed`] if the file is missing or cannot be read.
pub fn replicas(path: impl AsRef<Path>) -> Result<Vec<ReplicaInfo>> {
    let path = path.as_ref();
    let folder = folder_of(path);
    let failed = |error: io::Error| {
        let what = format!("found no replicas of a job that write {}", path.shown());
        Error::new(ErrorCode::ReadFailed, what)
            .because(error)
            .hint("name the file that their sink writes, with the folder ….replicas beside it")
    };
    let mut replicas = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_string_lossy();
        let number = name.strip_suffix(SUFFIX).and_then(|n| n.parse().ok());
        let Some(number) = number else { continue };
        replicas.extend(read_status(&folder.join(&*name), number).map_err(failed)?);
    }
    replicas.sort_unstable_by_key(|copy| copy.number);
    let furthest = replicas.iter().filter_map(|copy| copy.until).max();
    for copy in &mut replicas {
        let until = furthest.zip(copy.until);
        copy.behind = until.map_or(Duration::ZERO, |(furthest, until)| furthest.since(until));
    }
    Ok(replicas)
}

/// Reads the status of a replica; `None` if it has not reported yet.
fn read_status(path: &Path, number: u64) -> io::Result<Option<ReplicaInfo>> {
    let mut file = File::open(path)?;
    let is_alive = match file.try_lock_shared() {
        Ok(()) => {
            file.unlock()?;
            false
        }
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(error)) => return Err(error),
    };
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    // A concurrent write may leave a partial first line or bytes behind it.
    let line = text.lines().next().unwrap_or_default();
    let told: Option<ReplicaStatus> = serde_json::from_str(line).ok();
    Ok(told.map(|told| ReplicaInfo {
        number,
        is_alive,
        job: told.job,
        host: told.host,
        process: told.process,
        until: told.until,
        behind: Duration::ZERO,
        first: told.first,
        met: told.met,
        reported_at: told.at,
    }))
}
