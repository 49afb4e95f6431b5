//! Polling of a directory for new files.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use ardea_core::{
    BadRecords, Epoch, Error, ErrorCode, Instance, InstanceContext, OnError, Progress,
    RestoredState, Result, SnapshotRequest, SnapshotWriter, StateShape,
};

use super::read_files::{DirectoryId, Marks, ReadFiles};
use crate::files::fingerprint::{Change, FileIdentity};
use crate::files::follow::is_missing;
use crate::files::list::{cannot_read, is_complete};
use crate::files::open::{Input, open_at_once};
use crate::files::read::splits::FilePosition;
use crate::files::read::supply::{Next, Supply};

/// The longest pause of one call while no file is found.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The minimum age of a directory's modification time. A younger one does not prove that nothing
/// has changed since, as some file systems count in whole seconds.
const SETTLED: Duration = Duration::from_secs(2);

/// The minimum time between two listings of an unchanged directory, as a multiple of the duration
/// of one listing. Files that grow in place do not change the directory.
const REST_FACTOR: u32 = 20;

/// The settings of a watched directory.
#[derive(Clone, Debug)]
pub(super) struct WatchSettings {
    pub path: PathBuf,
    pub suffix: Option<String>,
    pub interval: Duration,
    pub only_new: bool,
}

/// A supply of files that polls a directory and returns each file once.
pub(super) struct DirectoryWatcher {
    watching: WatchSettings,
    read_files: ReadFiles,
    /// Dead letters for files that were changed after they were read.
    changed: BadRecords,
    /// Files found and not begun yet, in the order of their names.
    found: VecDeque<Vec<u8>>,
    /// The current file.
    at_hand: Option<(Vec<u8>, Option<FileIdentity>)>,
    looked_at: Option<Instant>,
    /// The modification time of the directory at the last listing, if it was at least [`SETTLED`]
    /// ago.
    settled: Option<SystemTime>,
    /// The end of the last listing, and its duration.
    listed: Option<(Instant, Duration)>,
}

impl DirectoryWatcher {
    pub fn new(watching: WatchSettings) -> Self {
        DirectoryWatcher {
            watching,
            read_files: ReadFiles::new(Instance::ONLY),
            changed: BadRecords::new(OnError::DeadLetter),
            found: VecDeque::new(),
            at_hand: None,
            looked_at: None,
            settled: None,
            listed: None,
        }
    }

    /// Lists the files of the directory that belong to this instance.
    fn list(&self) -> Result<Marks> {
        let folder = &self.watching.path;
        let failed = |error| cannot_read(folder, error);
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if !is_complete(&name, self.watching.suffix.as_deref())
                || !self.read_files.owns(name.as_bytes())
            {
                continue;
            }
            match fs::metadata(entry.path()) {
                Ok(metadata) if metadata.is_file() => {
                    files.insert(name.as_bytes().to_vec(), FileIdentity::of(&metadata));
                }
                Ok(_) => {}
                // The file was removed, or is a dangling link.
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(cannot_read(&entry.path(), error)),
            }
        }
        Ok(files)
    }

    /// Polls the directory: records new files, forgets removed files, and reports changed files.
    fn poll_directory(&mut self) -> Result<()> {
        let began = Instant::now();
        let folder = &self.watching.path;
        let metadata = fs::metadata(folder).map_err(|error| cannot_read(folder, error))?;
        let modified = metadata.modified().ok();
        if modified.is_some() && modified == self.settled && self.rests() {
            return Ok(());
        }
        let is_settled = modified
            .and_then(|modified| SystemTime::now().duration_since(modified).ok())
            .is_some_and(|age| age > SETTLED);
        let files = self.list()?;
        self.settled = modified.filter(|_| is_settled);
        let is_known = self.is_known_directory(&metadata, &files);
        self.compare(&files, is_known)?;
        let at_hand = self.at_hand.as_ref().map(|(name, _)| name);
        let read = self.read_files.read();
        self.found = files
            .into_keys()
            .filter(|name| !read.contains_key(name) && Some(name) != at_hand)
            .collect();
        self.listed = Some((Instant::now(), began.elapsed()));
        Ok(())
    }

    /// Returns true if an unchanged directory need not be listed yet.
    fn rests(&self) -> bool {
        self.listed
            .is_some_and(|(at, took)| at.elapsed() < took * REST_FACTOR)
    }

    /// Compares the files already read with `files`, the files now in the directory.
    fn compare(&mut self, files: &Marks, is_known: bool) -> Result<()> {
        let mut forgotten = Vec::new();
        let mut renewed = Vec::new();
        let mut unknown: Vec<_> = files
            .iter()
            .filter(|(name, _)| !self.read_files.read().contains_key(*name))
            .collect();
        for (name, mark) in self.read_files.read() {
            let Some(now) = files.get(name) else {
                // A missing file in another directory does not mean that it was removed.
                if is_known {
                    forgotten.push(name.clone());
                }
                continue;
            };
            let path = self.path_of(name);
            let change = match mark.compare(now, &path) {
                // Removed meanwhile; the next poll notices.
                Err(error) if is_missing(&error) => Change::Unchanged,
                compared => compared.map_err(|error| cannot_read(&path, error))?,
            };
            match change {
                Change::Unchanged => {}
                Change::Touched => renewed.push((name.clone(), mark.touched(now))),
                Change::Altered => {
                    self.report_change(&path, mark.length(), now.length())?;
                    renewed.push((name.clone(), with_content(&path, *now)));
                }
                Change::Replaced => {
                    forgotten.push(name.clone());
                    unknown.push((name, now));
                }
            }
        }
        renewed.extend(self.renamed(&unknown)?);
        forgotten
            .iter()
            .for_each(|name| self.read_files.forget(name));
        for (name, mark) in renewed {
            self.read_files.add(name, mark);
        }
        Ok(())
    }

    /// Returns the names in `unknown` of files already read under another name: the inode and the
    /// content are the same.
    fn renamed(
        &self,
        unknown: &[(&Vec<u8>, &FileIdentity)],
    ) -> Result<Vec<(Vec<u8>, FileIdentity)>> {
        let mut renamed = Vec::new();
        if unknown.is_empty() {
            return Ok(renamed);
        }
        let read = self.read_files.read().values();
        let read: HashMap<_, _> = read.map(|mark| (mark.inode(), mark)).collect();
        for (name, now) in unknown {
            let Some(mark) = read.get(&now.inode()).filter(|mark| mark.is_one_with(now)) else {
                continue;
            };
            let path = self.path_of(name);
            match mark.compare(now, &path) {
                Ok(Change::Unchanged | Change::Touched) => {
                    renamed.push(((*name).clone(), mark.touched(now)));
                }
                Ok(Change::Altered | Change::Replaced) => {}
                // Removed meanwhile; the next poll notices.
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(cannot_read(&path, error)),
            }
        }
        Ok(renamed)
    }

    /// Reports a file that was changed after it was read.
    fn report_change(&self, path: &Path, before: u64, now: u64) -> Result<()> {
        let change = match before == now {
            true => "its content has changed since it was read".to_string(),
            false => format!("it had {before} bytes when it was read, and has {now} by now"),
        };
        let reason =
            format!("{change}: the change is not read; rename whole files into the directory");
        // Standard error may be closed; the dead letter has the same text.
        let _ = writeln!(io::stderr().lock(), "ardea: {}: {reason}", path.display());
        self.changed
            .report(|| path.display().to_string(), Vec::new, reason)
    }

    /// Returns true if this is the directory of the files in the state. A directory with another
    /// identity, for example after a new mount, counts if it contains one of these files.
    fn is_known_directory(&mut self, metadata: &Metadata, files: &Marks) -> bool {
        let id = DirectoryId {
            device: metadata.dev(),
            inode: metadata.ino(),
        };
        let known = self.read_files.read();
        let has_known = || {
            let mut names = known.iter();
            names.any(|(name, mark)| files.get(name).is_some_and(|now| mark.is_of_same(now)))
        };
        let is_known = self.read_files.directory == Some(id) || known.is_empty() || has_known();
        if is_known {
            self.read_files.directory = Some(id);
        }
        is_known
    }

    fn path_of(&self, name: &[u8]) -> PathBuf {
        self.watching.path.join(OsStr::from_bytes(name))
    }

    /// Returns the time until the next poll.
    fn rest(&self) -> Duration {
        let since = self.looked_at.map(|looked_at| looked_at.elapsed());
        since.map_or(Duration::ZERO, |since| {
            self.watching.interval.saturating_sub(since)
        })
    }
}

/// Returns the identity of a file with a hash of its content, or `mark` if the content cannot be
/// read.
fn with_content(path: &Path, mark: FileIdentity) -> FileIdentity {
    let read =
        open_at_once(path).and_then(|file| FileIdentity::of_read(&file, Some(mark.length())));
    read.map_or(mark, |read| read.touched(&mark))
}

impl Supply for DirectoryWatcher {
    fn init(&mut self, context: &InstanceContext) {
        self.read_files = ReadFiles::new(context.instance);
        self.changed.attach(context);
    }

    fn start(&mut self) -> Result<()> {
        if self.read_files.directory.is_some() {
            return Ok(());
        }
        let path = &self.watching.path;
        if !fs::metadata(path)
            .map_err(|error| cannot_read(path, error))?
            .is_dir()
        {
            let what = format!("cannot watch {}", path.display());
            return Err(Error::new(ErrorCode::InvalidConfig, what)
                .because("it is no directory")
                .hint("name a directory, or have a file that grows read by `follow`"));
        }
        self.poll_directory()?;
        self.looked_at = Some(Instant::now());
        if self.watching.only_new {
            for (name, mark) in self.list()? {
                let mark = with_content(&self.path_of(&name), mark);
                self.read_files.add(name, mark);
            }
            self.found.clear();
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Next> {
        if let Some((name, mark, reached)) = self.read_files.take_begun() {
            let path = self.path_of(&name);
            self.at_hand = Some((name, Some(mark)));
            return Ok(Next::File(path, Some(reached)));
        }
        while let Some(name) = self.found.pop_front() {
            let path = self.path_of(&name);
            match fs::metadata(&path) {
                Ok(metadata) if metadata.is_file() => {
                    self.at_hand = Some((name, None));
                    return Ok(Next::File(path, None));
                }
                Ok(_) => {}
                // A file removed before it was begun is skipped.
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(cannot_read(&path, error)),
            }
        }
        let rest = self.rest();
        if rest.is_zero() {
            self.poll_directory()?;
            self.looked_at = Some(Instant::now());
        }
        let pause = if self.found.is_empty() {
            rest
        } else {
            Duration::ZERO
        };
        Ok(Next::Wait(pause.min(LONGEST_PAUSE)))
    }

    fn begun(&mut self, mark: Option<FileIdentity>) {
        if let Some((_, known)) = &mut self.at_hand {
            *known = mark.or(*known);
        }
    }

    fn stopped(&mut self, input: &mut Input, is_whole: bool) {
        if let Some((_, known)) = &mut self.at_hand {
            *known = input.mark_of_read(is_whole).or(*known);
        }
    }

    fn end(&mut self, _: &Path) {
        if let Some((name, Some(mark))) = self.at_hand.take() {
            self.read_files.add(name, mark);
        }
    }

    fn is_at_end(&self) -> bool {
        false
    }

    fn forgets(&self) -> Option<&'static str> {
        None
    }

    fn states(&self) -> Vec<StateShape> {
        ReadFiles::states()
    }

    fn take_snapshot(
        &mut self,
        snapshot: SnapshotRequest,
        at_hand: Option<(&Path, &FilePosition)>,
    ) -> Result<()> {
        let reached = at_hand.map(|(_, reached)| reached);
        let at_hand = self.at_hand.as_ref().zip(reached);
        let at_hand = at_hand
            .and_then(|((name, mark), reached)| mark.map(|mark| (name.as_slice(), mark, reached)));
        self.read_files.take_snapshot(snapshot, at_hand)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.read_files.write_snapshot(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.read_files.restore(state)
    }

    fn on_restored(&mut self) -> Result<()> {
        Ok(())
    }

    fn commit(&mut self, epoch: Epoch) {
        self.read_files.commit(epoch);
    }
}
