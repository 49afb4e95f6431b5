//! Which copies there are, and how far each is: a file a copy, locked for as long as it lives.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Timestamp};
use ardea_filesystem::{Shown, make_folder};
use serde::{Deserialize, Serialize};

use super::arbiter::folder_of;
use crate::files::{cannot_lock, cannot_write};

/// How many copies there may be at a time.
const MOST: u64 = 16;
/// What the name of a copy's file ends with, behind its number.
const SUFFIX: &str = ".copy";

/// What a copy says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Told {
    pub job: String,
    pub host: String,
    pub process: u32,
    /// Until when all of its slices are over.
    pub until: Option<Timestamp>,
    /// How many slices were in the file by it, and how many it found there, in this life.
    pub first: u64,
    pub met: u64,
    /// When it said so.
    pub at: Timestamp,
}

/// The place of a copy among all of a file, held until it is dropped.
pub(super) struct Seat {
    pub number: u64,
    file: File,
}

impl Seat {
    /// The first that nobody has.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if there are too many copies, [`ErrorCode::WriteFailed`] if it can't be written down,
    /// [`ErrorCode::StoreUnsuitable`] if its file system has no locks.
    pub fn take(path: &Path) -> Result<Self> {
        let folder = folder_of(path);
        make_folder(&folder).map_err(|error| cannot_write(&folder, error))?;
        for number in 1..=MOST {
            let path = folder.join(format!("{number}{SUFFIX}"));
            let mut options = File::options();
            let options = options.read(true).write(true).create(true).truncate(false);
            let file = options
                .open(&path)
                .map_err(|error| cannot_write(&path, error))?;
            match file.try_lock() {
                Ok(()) => return Ok(Seat { number, file }),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(cannot_lock(&path, error)),
            }
        }
        let what = format!("{MOST} copies write {} already", path.shown());
        Err(Error::new(ErrorCode::LimitReached, what).hint("two are enough to outlive one"))
    }

    /// Says how far this copy is, to whoever looks.
    pub fn tell(&self, told: &Told) -> io::Result<()> {
        let mut text = serde_json::to_vec(told)?;
        text.push(b'\n');
        self.file.write_all_at(&text, 0)?;
        self.file.set_len(text.len() as u64)
    }
}

/// This machine's name.
pub(super) fn host() -> String {
    let system = rustix::system::uname();
    system.nodename().to_string_lossy().into_owned()
}

/// A copy of a job that writes a file of [`twins`](crate::twins), as it was when it was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Twin {
    /// Its number among the copies, from 1.
    pub number: u64,
    /// Whether its process lives. One that is gone is shown until another takes its number.
    pub is_alive: bool,
    /// The name of its job.
    pub job: String,
    /// The machine that it runs on.
    pub host: String,
    /// Its process there.
    pub process: u32,
    /// Until when, in event time, it has dealt with everything.
    pub until: Option<Timestamp>,
    /// How far it is behind the copy that is the furthest, in event time.
    pub behind: Duration,
    /// How many slices were in the file by it, since it began.
    pub first: u64,
    /// How many slices it had when they were there already.
    pub met: u64,
    /// When it said so last: about ten times a second while time goes on.
    pub told: Timestamp,
}

/// The copies that write a file, or have written it; ordered by their numbers.
///
/// # Errors
/// [`ErrorCode::ReadFailed`] if there is no such file, or it can't be read.
pub fn copies(path: impl AsRef<Path>) -> Result<Vec<Twin>> {
    let path = path.as_ref();
    let folder = folder_of(path);
    let failed = |error: io::Error| {
        let what = format!("no copies of a job are known that write {}", path.shown());
        Error::new(ErrorCode::ReadFailed, what)
            .because(error)
            .hint("name the file that their sink writes; the folder ….twins lies beside it")
    };
    let mut copies = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_string_lossy();
        let number = name.strip_suffix(SUFFIX).and_then(|n| n.parse().ok());
        let Some(number) = number else { continue };
        copies.extend(look(&folder.join(&*name), number).map_err(failed)?);
    }
    copies.sort_unstable_by_key(|copy| copy.number);
    let furthest = copies.iter().filter_map(|copy| copy.until).max();
    for copy in &mut copies {
        let until = furthest.zip(copy.until);
        copy.behind = until.map_or(Duration::ZERO, |(furthest, until)| furthest.since(until));
    }
    Ok(copies)
}

/// A copy; none if it has not said anything yet.
fn look(path: &Path, number: u64) -> io::Result<Option<Twin>> {
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
    // What is just being written is read as far as its first line, which may not be whole yet.
    let line = text.lines().next().unwrap_or_default();
    let told: Option<Told> = serde_json::from_str(line).ok();
    Ok(told.map(|told| Twin {
        number,
        is_alive,
        job: told.job,
        host: told.host,
        process: told.process,
        until: told.until,
        behind: Duration::ZERO,
        first: told.first,
        met: told.met,
        told: told.at,
    }))
}
