//! The output of a file sink that is not yet visible, and its snapshots.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use ardea_core::instance_state::{self as kept, PeerInstances};
use ardea_core::{
    Epoch, Error, ErrorCode, Instance, Progress, RestoredState, Result, SmallSnapshot,
    SnapshotRequest, SnapshotWriter, StateShape, Timestamp,
};
use ardea_filesystem::Shown;
use serde::{Deserialize, Serialize};

use crate::files::finished_file::{FinishedFile, reopened, sync_folder_of};
use crate::files::part_file::{PartFile, cannot_write};
use crate::files::plan::Plan;

/// The name of the state.
const STATE: &str = "output";

/// A path in a snapshot: as text if it is valid UTF-8.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum StoredPath {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<&Path> for StoredPath {
    fn from(path: &Path) -> Self {
        match path.to_str() {
            Some(text) => StoredPath::Text(text.to_string()),
            None => StoredPath::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
    }
}

impl From<&StoredPath> for PathBuf {
    fn from(path: &StoredPath) -> Self {
        match path {
            StoredPath::Text(text) => text.into(),
            StoredPath::Bytes(bytes) => OsStr::from_bytes(bytes).into(),
        }
    }
}

/// An unfinished file in a snapshot, and its valid length.
#[derive(Debug, Serialize, Deserialize)]
struct StoredFile {
    path: StoredPath,
    part: StoredPath,
    length: u64,
    /// The number of bytes written, before compression.
    #[serde(default, skip_serializing_if = "is_zero")]
    written: u64,
    /// The wall-clock time when the file was started, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    begun_ms: Option<i64>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The snapshot of an instance.
#[derive(Debug, Serialize, Deserialize)]
struct WriterState {
    instances: u32,
    run: u64,
    generation: u32,
    number: u64,
    has_begun: bool,
    has_ended: bool,
    open: Option<StoredFile>,
    pending: Vec<StoredFile>,
    /// The directory of the instance's files, if there are files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<StoredFolder>,
}

/// The identity of a directory, since the same path may be a different directory on another host.
#[derive(Debug, Serialize, Deserialize)]
struct StoredFolder {
    host: String,
    /// The inode number, which is the same on all hosts of a shared file system.
    folder: u64,
    /// The creation time in microseconds, if the file system reports it. Inode numbers may be equal
    /// on machines cloned from one image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    made: Option<u64>,
}

impl StoredFolder {
    /// Returns the identity of the directory of `part`; `None` if it cannot be determined.
    fn of(part: &Path) -> Option<Self> {
        let system = rustix::system::uname();
        let folder = folder_of(part)?;
        Some(StoredFolder {
            host: system.nodename().to_string_lossy().into_owned(),
            folder: folder.ino(),
            made: made_at(&folder),
        })
    }

    /// Returns true if a file in this directory would be visible on the present host.
    fn is_here(&self, part: &Path) -> bool {
        let system = rustix::system::uname();
        let is_same_host = system.nodename().to_bytes() == self.host.as_bytes();
        let is_same_folder = |folder: Metadata| {
            let made = self.made.zip(made_at(&folder));
            folder.ino() == self.folder && made.is_none_or(|(then, now)| then == now)
        };
        is_same_host || folder_of(part).is_some_and(is_same_folder)
    }
}

/// Returns the metadata of the directory of a file.
fn folder_of(part: &Path) -> Option<Metadata> {
    let folder = part
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    fs::metadata(folder.unwrap_or(Path::new("."))).ok()
}

fn made_at(folder: &Metadata) -> Option<u64> {
    let made = folder.created().ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(made.as_micros()).ok()
}

/// A complete file that is renamed when the epoch `since` is committed.
struct PendingFile {
    whole: FinishedFile,
    length: u64,
    /// The epoch of the first snapshot that contains the file.
    since: Option<Epoch>,
    /// True once the content is durable.
    is_synced: bool,
}

/// The state to continue from.
pub(super) struct Resumed {
    /// The unfinished file.
    pub file: Option<PartFile>,
    /// The unfinished files that no instance continues, if they need an end.
    pub interrupted: Vec<PartFile>,
    /// The wall-clock time when the unfinished file was started, if known.
    pub begun: Option<Timestamp>,
    /// The next file number.
    pub number: u64,
}

/// The files of a sink that are not yet visible.
///
/// Files may span epochs. The snapshot contains the *sealed length* of the open file; on a restore
/// the rest is truncated. A complete file is renamed when an epoch is committed whose snapshot
/// contains it. So visible output is durable and is never written again.
pub(super) struct PendingFiles {
    instance: Instance,
    /// A number in the names of this instance's unfinished numbered files, which distinguishes them
    /// from other files.
    run: u64,
    /// The number of times that file names had to change; see [`Plan::file_of_generation`].
    pub generation: u32,
    /// True if a file was started. Otherwise a sink without rotation creates an empty file at its
    /// end.
    has_begun: bool,
    /// True if the names of new parts may not be durable.
    has_new_names: bool,
    has_ended: bool,
    pending: Vec<PendingFile>,
    draft: SmallSnapshot,
    /// True if files of the snapshot may not be durable.
    is_to_sync: bool,
    /// The error of a flush, after which no snapshot may be taken.
    failed: Option<Error>,
    siblings: PeerInstances<WriterState>,
}

impl PendingFiles {
    /// Returns the shapes of its states.
    pub fn states() -> Vec<StateShape> {
        vec![StateShape::own(STATE)]
    }

    pub fn new(instance: Instance) -> Self {
        PendingFiles {
            instance,
            run: ardea_core::unique_number(),
            generation: 0,
            has_begun: false,
            has_new_names: false,
            has_ended: false,
            pending: Vec::new(),
            draft: SmallSnapshot::default(),
            is_to_sync: false,
            failed: None,
            siblings: PeerInstances::default(),
        }
    }

    /// Returns the name of an unfinished numbered file.
    pub fn part_of(&self, path: &Path) -> PathBuf {
        Plan::part_of_run(path, self.run)
    }

    /// Records that a file is started.
    pub fn begin(&mut self) {
        (self.has_begun, self.has_new_names) = (true, true);
    }

    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// # Errors
    /// The error of an earlier flush, after which the content of the disk is unknown.
    pub fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Adds a complete file.
    pub fn add(&mut self, whole: FinishedFile) -> Result<()> {
        let length = whole.length()?;
        self.pending.push(PendingFile {
            whole,
            length,
            since: None,
            is_synced: false,
        });
        Ok(())
    }

    /// Records that the input has ended.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Takes a snapshot; `open` is the unfinished file, which is sealed, and the time when it was
    /// started.
    pub fn take_snapshot(
        &mut self,
        snapshot: SnapshotRequest,
        open: Option<(&PartFile, Timestamp)>,
        number: u64,
    ) -> Result<()> {
        let open = open.map(|(file, begun)| {
            let (path, part, length) = file.sealed();
            StoredFile {
                path: path.into(),
                part: part.into(),
                length,
                written: file.written,
                begun_ms: Some(begun.as_millis()),
            }
        });
        let pending = self.pending.iter_mut().map(|pending| {
            pending.since = pending.since.or(Some(snapshot.epoch));
            StoredFile {
                path: pending.whole.path.as_path().into(),
                part: pending.whole.part.as_path().into(),
                length: pending.length,
                written: 0,
                begun_ms: None,
            }
        });
        let mut kept = WriterState {
            instances: self.instance.parallelism,
            run: self.run,
            generation: self.generation,
            number,
            has_begun: self.has_begun,
            has_ended: self.has_ended,
            open,
            pending: pending.collect(),
            place: None,
        };
        let first = kept.open.iter().chain(&kept.pending).next();
        kept.place = first.and_then(|file| StoredFolder::of(&PathBuf::from(&file.part)));
        self.is_to_sync = true;
        let chunk = self.draft.begin();
        kept::put(chunk, STATE, (self.instance.index, &[]), &kept)
    }

    /// Writes the snapshot taken last once its files are durable.
    pub fn write_snapshot(
        &mut self,
        writer: &mut SnapshotWriter<'_>,
        open: Option<&PartFile>,
    ) -> Result<Progress> {
        if self.is_to_sync {
            self.check()?;
            if let Err(error) = self.sync(open) {
                // A repeated fsync may succeed although the failed pages were dropped.
                self.failed = Some(error.clone());
                return Err(error);
            }
            self.is_to_sync = false;
        }
        self.draft.write(writer)
    }

    fn sync(&mut self, open: Option<&PartFile>) -> Result<()> {
        open.map_or(Ok(()), PartFile::sync_sealed)?;
        for pending in self.pending.iter_mut().filter(|it| !it.is_synced) {
            pending.whole.sync()?;
            pending.is_synced = true;
        }
        if std::mem::take(&mut self.has_new_names) {
            // Parts are in the directories of their files.
            let parts = self
                .pending
                .iter()
                .map(|pending| pending.whole.part.as_path());
            let parts = parts.chain(open.map(|open| open.sealed().1));
            let mut parts: Vec<&Path> = parts.collect();
            parts.dedup_by(|one, other| one.parent() == other.parent());
            parts.into_iter().try_for_each(sync_folder_of)?;
        }
        Ok(())
    }

    /// Renames the files contained in the snapshot of a committed epoch. Unless `replaces` is true,
    /// a file whose path is taken gets the path returned by `another`.
    pub fn publish(
        &mut self,
        epoch: Epoch,
        replaces: bool,
        mut another: impl FnMut() -> Result<PathBuf>,
    ) -> Result<()> {
        let is_due = |pending: &PendingFile| pending.since.is_some_and(|since| since <= epoch);
        while let Some(at) = self.pending.iter().position(is_due) {
            let whole = &mut self.pending[at].whole;
            // Later snapshots omit the file, so its name must be durable.
            match replaces {
                true => whole.replace(true)?,
                false => whole.take_free_name(true, &mut another)?,
            }
            self.pending.remove(at);
        }
        Ok(())
    }

    pub fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.siblings.restore(STATE, state)
    }

    /// Continues from the restored states; returns `None` if there are none. Removes files started
    /// after the snapshot. `has_end` is true if a file needs an end to be complete.
    pub fn resume(&mut self, epoch: Epoch, plan: &Plan, has_end: bool) -> Result<Option<Resumed>> {
        let Some(all) = self.siblings.all(|kept| kept.instances)? else {
            return Ok(None);
        };
        let is_same = all.len() == self.instance.parallelism as usize;
        let generations = all.iter().map(|kept| kept.generation + 1);
        let next_generation = generations.max().unwrap_or(0);
        let mut resumed = Resumed {
            file: None,
            interrupted: Vec::new(),
            begun: None,
            number: 0,
        };
        for (number, kept) in (0..).zip(all) {
            if !self.instance.owns(number) {
                continue;
            }
            remove_later(plan, &kept)?;
            for file in kept.pending {
                let found =
                    FinishedFile::found((&file.path).into(), (&file.part).into(), file.length)?;
                if found.is_none() {
                    check_published(&file, kept.place.as_ref())?;
                }
                // A missing part has already been renamed.
                self.pending.extend(found.map(|whole| PendingFile {
                    whole,
                    length: file.length,
                    since: Some(epoch),
                    is_synced: false,
                }));
            }
            match kept.open {
                Some(file) if is_same => {
                    resumed.begun = file.begun_ms.map(Timestamp::from_millis);
                    resumed.file = Some(reopen(&file, plan)?);
                }
                // After a rescale no instance continues the file: it is completed as it is.
                Some(file) if has_end => resumed.interrupted.push(reopen(&file, plan)?),
                Some(file) => {
                    let part = PathBuf::from(&file.part);
                    let found =
                        FinishedFile::found((&file.path).into(), part.clone(), file.length)?;
                    self.add(found.ok_or_else(|| gone(&part, file.length))?)?;
                }
                None => {}
            }
            if is_same {
                self.run = kept.run;
                // Output after the end of the job must not replace earlier output.
                self.generation = kept.generation + u32::from(kept.has_ended);
                self.has_begun = kept.has_begun || kept.has_ended;
                resumed.number = kept.number;
            }
        }
        if !is_same {
            self.generation = next_generation;
            self.has_begun = true;
        }
        Ok(Some(resumed))
    }
}

/// Reopens an unfinished file of a snapshot.
fn reopen(file: &StoredFile, plan: &Plan) -> Result<PartFile> {
    let part = PathBuf::from(&file.part);
    let names = (PathBuf::from(&file.path), part.clone());
    let lengths = (file.length, file.written);
    let found = PartFile::resume(names, lengths, plan.compression)?;
    found.ok_or_else(|| gone(&part, file.length))
}

/// Removes the unfinished numbered files that an instance started after the snapshot.
fn remove_later(plan: &Plan, kept: &WriterState) -> Result<()> {
    if !plan.rotates() {
        return Ok(());
    }
    let parts = plan.parts_of_run(kept.run);
    let parts = parts.map_err(|error| cannot_write(&plan.path, error))?;
    let known = kept.pending.iter().chain(&kept.open);
    let known: Vec<PathBuf> = known.map(|file| PathBuf::from(&file.part)).collect();
    // Compared by file name, since the path of the directory may have changed.
    let is_known = |part: &PathBuf| {
        known
            .iter()
            .any(|known| known.file_name() == part.file_name())
    };
    for part in parts.into_iter().filter(|part| !is_known(part)) {
        // The call fails while another process is writing the part.
        if reopened(&part, 0)?.is_some() {
            fs::remove_file(&part).map_err(|error| cannot_write(&part, error))?;
        }
    }
    Ok(())
}

/// Checks that a missing part was renamed, rather than being invisible from this host.
///
/// # Errors
/// [`ErrorCode::WriteFailed`] if the part is on another host in a directory that is not shared. The
/// content is then committed but was never made visible.
fn check_published(file: &StoredFile, place: Option<&StoredFolder>) -> Result<()> {
    let (path, part) = (PathBuf::from(&file.path), PathBuf::from(&file.part));
    let Some(place) = place.filter(|place| !place.is_here(&part)) else {
        return Ok(());
    };
    if fs::metadata(&path).is_ok_and(|found| found.len() == file.length) {
        return Ok(());
    }
    let what = format!(
        "{} was left on {}, with {} bytes of committed output, and is not visible here",
        part.shown(),
        place.host,
        file.length
    );
    Err(Error::new(ErrorCode::WriteFailed, what).hint(
        "on a cluster, write files to a folder that all hosts share under the same path; copy the file here, under this name, and restart the job",
    ))
}

fn gone(part: &Path, length: u64) -> Error {
    let what = format!(
        "{} is gone; it held {length} bytes of committed output",
        part.shown()
    );
    Error::new(ErrorCode::WriteFailed, what)
        .hint("put the file back, or start the job without the checkpoint")
}
