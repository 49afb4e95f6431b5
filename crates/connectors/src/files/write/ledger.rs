//! What a file sink has written that is not to be seen yet, and how that outlives it.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use ardea_core::instance_state::{self as kept, Siblings};
use ardea_core::{
    Cut, CutDraft, CutWriter, Epoch, Error, ErrorCode, Instance, Progress, RestoredState, Result,
    StateShape, Timestamp,
};
use ardea_filesystem::Shown;
use serde::{Deserialize, Serialize};

use crate::files::part_file::{PartFile, cannot_write};
use crate::files::plan::Plan;
use crate::files::whole::{Whole, reopened, sync_folder_of};

/// The name of the state.
const STATE: &str = "output";

/// A path as it is written: as text if it is that.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum KeptPath {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<&Path> for KeptPath {
    fn from(path: &Path) -> Self {
        match path.to_str() {
            Some(text) => KeptPath::Text(text.to_string()),
            None => KeptPath::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
    }
}

impl From<&KeptPath> for PathBuf {
    fn from(path: &KeptPath) -> Self {
        match path {
            KeptPath::Text(text) => text.into(),
            KeptPath::Bytes(bytes) => OsStr::from_bytes(bytes).into(),
        }
    }
}

/// A file of which so much counts.
#[derive(Debug, Serialize, Deserialize)]
struct KeptFile {
    path: KeptPath,
    part: KeptPath,
    length: u64,
    /// Before compression.
    #[serde(default, skip_serializing_if = "is_zero")]
    written: u64,
    /// The time of day when it was begun, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    begun_ms: Option<i64>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What an instance hands over.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    instances: u32,
    run: u64,
    generation: u32,
    number: u64,
    has_begun: bool,
    has_ended: bool,
    open: Option<KeptFile>,
    pending: Vec<KeptFile>,
    /// Where its files lie, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<KeptPlace>,
}

/// A folder of a machine: the same path may be another folder elsewhere.
#[derive(Debug, Serialize, Deserialize)]
struct KeptPlace {
    host: String,
    /// The number that its file system knows it by; of one that several machines share, the same on all of them.
    folder: u64,
    /// When it was made, in microseconds, where file systems tell: folders of machines that are copies of one have the same numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    made: Option<u64>,
}

impl KeptPlace {
    /// Where this file lies; none if that can't be told.
    fn of(part: &Path) -> Option<Self> {
        let system = rustix::system::uname();
        let folder = folder_of(part)?;
        Some(KeptPlace {
            host: system.nodename().to_string_lossy().into_owned(),
            folder: folder.ino(),
            made: made_at(&folder),
        })
    }

    /// Whether a file that lay there would be seen here, under its part's name or, when it is published, another.
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

/// What is known of the folder of a file.
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

/// A file that has all its content, and gets its name when its epoch is committed.
struct Pending {
    whole: Whole,
    length: u64,
    /// The epoch whose cut was the first to speak of it.
    since: Option<Epoch>,
    /// True once the disk has its content.
    is_synced: bool,
}

/// What a sink goes on with.
pub(super) struct Resumed {
    /// The file that was being written.
    pub file: Option<PartFile>,
    /// The time of day when that was begun, if it is known.
    pub begun: Option<Timestamp>,
    /// The number of the next one.
    pub number: u64,
}

/// What has been written, and who is to see it when.
///
/// A file is written beyond the ends of epochs; how much of it counts, its *sealed length*, is in the cut, and the rest is cut off when the
/// job goes back there. A file that has all its content keeps the name of a part until an epoch is committed whose cut speaks of it.
/// So nothing is seen under its name that could be written again, and what is seen has been synced before.
pub(super) struct Ledger {
    instance: Instance,
    /// Tells the unfinished numbered files of this instance from those of others.
    run: u64,
    /// How often the names of files had to change, see [`Plan::file_of_generation`].
    pub generation: u32,
    /// Whether a file has been begun, so that none has to be there for the sake of its name.
    has_begun: bool,
    /// Whether there are names of parts that are not known to be on the disk.
    has_new_names: bool,
    has_ended: bool,
    pending: Vec<Pending>,
    draft: CutDraft,
    /// Whether what the cut speaks of is not known to be on the disk.
    is_to_sync: bool,
    /// What can't be relied upon any more.
    failed: Option<Error>,
    siblings: Siblings<Kept>,
}

impl Ledger {
    /// What it remembers.
    pub fn states() -> Vec<StateShape> {
        vec![StateShape::own(STATE)]
    }

    pub fn new(instance: Instance) -> Self {
        Ledger {
            instance,
            run: ardea_core::unique_number(),
            generation: 0,
            has_begun: false,
            has_new_names: false,
            has_ended: false,
            pending: Vec::new(),
            draft: CutDraft::default(),
            is_to_sync: false,
            failed: None,
            siblings: Siblings::default(),
        }
    }

    /// The name of an unfinished numbered file.
    pub fn part_of(&self, path: &Path) -> PathBuf {
        Plan::part_of_run(path, self.run)
    }

    /// A file is begun.
    pub fn begin(&mut self) {
        (self.has_begun, self.has_new_names) = (true, true);
    }

    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// # Errors
    /// What failed when something was synced: what the disk has is not known then.
    pub fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// A file has all its content.
    pub fn add(&mut self, whole: Whole) -> Result<()> {
        let length = whole.length()?;
        self.pending.push(Pending {
            whole,
            length,
            since: None,
            is_synced: false,
        });
        Ok(())
    }

    /// The input has ended.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// A cut is taken; `open`, which is sealed, is the file that is being written, and when it was
    /// begun.
    pub fn take_cut(
        &mut self,
        cut: Cut,
        open: Option<(&PartFile, Timestamp)>,
        number: u64,
    ) -> Result<()> {
        let open = open.map(|(file, begun)| {
            let (path, part, length) = file.sealed();
            KeptFile {
                path: path.into(),
                part: part.into(),
                length,
                written: file.written,
                begun_ms: Some(begun.as_millis()),
            }
        });
        let pending = self.pending.iter_mut().map(|pending| {
            pending.since = pending.since.or(Some(cut.epoch));
            KeptFile {
                path: pending.whole.path.as_path().into(),
                part: pending.whole.part.as_path().into(),
                length: pending.length,
                written: 0,
                begun_ms: None,
            }
        });
        let mut kept = Kept {
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
        kept.place = first.and_then(|file| KeptPlace::of(&PathBuf::from(&file.part)));
        self.is_to_sync = true;
        let chunk = self.draft.begin();
        kept::put(chunk, STATE, (self.instance.index, &[]), &kept)
    }

    /// Writes the cut that was taken, when the disk has what it speaks of.
    pub fn write_cut(
        &mut self,
        writer: &mut CutWriter<'_>,
        open: Option<&PartFile>,
    ) -> Result<Progress> {
        if self.is_to_sync {
            self.check()?;
            if let Err(error) = self.sync(open) {
                // The system may forget what it could not write, and say next time that all is well.
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
            // Parts lie where their files will.
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

    /// An epoch is committed: what its cut spoke of is seen from now on. Files of numbers replace none, but get `another` name.
    pub fn publish(
        &mut self,
        epoch: Epoch,
        replaces: bool,
        mut another: impl FnMut() -> Result<PathBuf>,
    ) -> Result<()> {
        let is_due = |pending: &Pending| pending.since.is_some_and(|since| since <= epoch);
        while let Some(at) = self.pending.iter().position(is_due) {
            let whole = &mut self.pending[at].whole;
            // The next cut does not speak of it any more, so that its name has to last.
            match replaces {
                true => whole.replace(true)?,
                false => whole.take_free_name(true, &mut another)?,
            }
            self.pending.remove(at);
        }
        Ok(())
    }

    pub fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            if entry.state != STATE {
                return Err(RestoredState::unknown(&entry));
            }
            self.siblings.take(&entry)?;
        }
        Ok(())
    }

    /// Goes on where all had come to; none if nothing was remembered. What has come later is removed.
    pub fn resume(&mut self, epoch: Epoch, plan: &Plan) -> Result<Option<Resumed>> {
        let Some(all) = self.siblings.all(|kept| kept.instances)? else {
            return Ok(None);
        };
        let is_same = all.len() == self.instance.parallelism as usize;
        let generations = all.iter().map(|kept| kept.generation + 1);
        let next_generation = generations.max().unwrap_or(0);
        let mut resumed = Resumed {
            file: None,
            begun: None,
            number: 0,
        };
        for (number, kept) in (0..).zip(all) {
            if !self.instance.owns(number) {
                continue;
            }
            remove_later(plan, &kept)?;
            for file in kept.pending {
                let found = Whole::found((&file.path).into(), (&file.part).into(), file.length)?;
                if found.is_none() {
                    check_published(&file, kept.place.as_ref())?;
                }
                // One that has gone has got its name.
                self.pending.extend(found.map(|whole| Pending {
                    whole,
                    length: file.length,
                    since: Some(epoch),
                    is_synced: false,
                }));
            }
            match kept.open {
                Some(file) if is_same => {
                    let part = PathBuf::from(&file.part);
                    let names = (PathBuf::from(&file.path), part.clone());
                    resumed.begun = file.begun_ms.map(Timestamp::from_millis);
                    let lengths = (file.length, file.written);
                    let found = PartFile::resume(names, lengths, plan.compression)?;
                    resumed.file = Some(found.ok_or_else(|| gone(&part, file.length))?);
                }
                // Nobody writes on in it: it is whole as it is.
                Some(file) => {
                    let part = PathBuf::from(&file.part);
                    let found = Whole::found((&file.path).into(), part.clone(), file.length)?;
                    self.add(found.ok_or_else(|| gone(&part, file.length))?)?;
                }
                None => {}
            }
            if is_same {
                self.run = kept.run;
                // What comes behind the end must not replace what was there by then.
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

/// Removes the unfinished numbered files that an instance began after the cut.
fn remove_later(plan: &Plan, kept: &Kept) -> Result<()> {
    if !plan.rotates() {
        return Ok(());
    }
    let parts = plan.parts_of_run(kept.run);
    let parts = parts.map_err(|error| cannot_write(&plan.path, error))?;
    let known = kept.pending.iter().chain(&kept.open);
    let known: Vec<PathBuf> = known.map(|file| PathBuf::from(&file.part)).collect();
    // By name, as the way to the folder may be written otherwise now.
    let is_known = |part: &PathBuf| {
        known
            .iter()
            .any(|known| known.file_name() == part.file_name())
    };
    for part in parts.into_iter().filter(|part| !is_known(part)) {
        // Not while somebody is writing it.
        if reopened(&part, 0)?.is_some() {
            fs::remove_file(&part).map_err(|error| cannot_write(&part, error))?;
        }
    }
    Ok(())
}

/// A part that has gone has got its name, if it would be seen here.
///
/// # Errors
/// [`ErrorCode::WriteFailed`] if it lies on another machine, whose folder this one doesn't see: it counts, and was never published.
fn check_published(file: &KeptFile, place: Option<&KeptPlace>) -> Result<()> {
    let (path, part) = (PathBuf::from(&file.path), PathBuf::from(&file.part));
    let Some(place) = place.filter(|place| !place.is_here(&part)) else {
        return Ok(());
    };
    if fs::metadata(&path).is_ok_and(|found| found.len() == file.length) {
        return Ok(());
    }
    let what = format!(
        "{} was left on {}, with {} bytes of output that count, and is not seen here",
        part.shown(),
        place.host,
        file.length
    );
    Err(Error::new(ErrorCode::WriteFailed, what).hint(
        "on a cluster files are written to a folder that all hosts see by the same path; bring the file here, under this name, and have the job begin again",
    ))
}

fn gone(part: &Path, length: u64) -> Error {
    let what = format!(
        "{} is gone, which held {length} bytes of output that count",
        part.shown()
    );
    Error::new(ErrorCode::WriteFailed, what)
        .hint("put the file back, or start the job without the snapshot")
}
