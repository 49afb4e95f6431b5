//! The files of a directory as they appear.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use ardea_core::{
    BadRecords, Cut, CutWriter, Epoch, Error, ErrorCode, Instance, InstanceContext, OnError,
    Progress, RestoredState, Result, StateShape,
};

use super::memory::{DirectoryId, Marks, Memory};
use crate::files::fingerprint::{Change, Mark};
use crate::files::follow::is_missing;
use crate::files::list::{cannot_read, is_complete};
use crate::files::open::{Input, open_at_once};
use crate::files::read::share::Reached;
use crate::files::read::supply::{Next, Supply};

/// The longest that a call waits for files.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The age from which on the time of a directory's last change tells that nothing has changed since. Some file systems
/// count in whole seconds.
const SETTLED: Duration = Duration::from_secs(2);

/// The least time between two listings of a directory that has not changed, as a multiple of the
/// time that one takes. Files that grow in place do not change the directory.
const REST_FACTOR: u32 = 20;

/// The settings of a watched directory.
#[derive(Clone, Debug)]
pub(super) struct Watching {
    pub path: PathBuf,
    pub suffix: Option<String>,
    pub interval: Duration,
    pub only_new: bool,
}

/// Looks for files in a directory now and then, and gives each once.
pub(super) struct Watched {
    watching: Watching,
    memory: Memory,
    /// Dead letters for files that were changed after they had been read.
    changed: BadRecords,
    /// Files that were found and have not been begun, in the order of their names.
    found: VecDeque<Vec<u8>>,
    /// The file at hand.
    at_hand: Option<(Vec<u8>, Option<Mark>)>,
    looked_at: Option<Instant>,
    /// The time of the directory's last change when it was looked at, if that was settled.
    settled: Option<SystemTime>,
    /// The end of the last listing, and the time that it took.
    listed: Option<(Instant, Duration)>,
}

impl Watched {
    pub fn new(watching: Watching) -> Self {
        Watched {
            watching,
            memory: Memory::new(Instance::ONLY),
            changed: BadRecords::new(OnError::DeadLetter),
            found: VecDeque::new(),
            at_hand: None,
            looked_at: None,
            settled: None,
            listed: None,
        }
    }

    /// Lists the directory's files that belong to this instance.
    fn list(&self) -> Result<Marks> {
        let folder = &self.watching.path;
        let failed = |error| cannot_read(folder, error);
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if !is_complete(&name, self.watching.suffix.as_deref())
                || !self.memory.owns(name.as_bytes())
            {
                continue;
            }
            match fs::metadata(entry.path()) {
                Ok(metadata) if metadata.is_file() => {
                    files.insert(name.as_bytes().to_vec(), Mark::of(&metadata));
                }
                Ok(_) => {}
                // It went, or is a link to nothing.
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(cannot_read(&entry.path(), error)),
            }
        }
        Ok(files)
    }

    /// Looks which files there are: notes new ones, forgets those that have vanished, and reports
    /// those that have changed.
    fn look(&mut self) -> Result<()> {
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
        let read = self.memory.read();
        self.found = files
            .into_keys()
            .filter(|name| !read.contains_key(name) && Some(name) != at_hand)
            .collect();
        self.listed = Some((Instant::now(), began.elapsed()));
        Ok(())
    }

    /// Returns true if a directory that has not changed need not be listed yet.
    fn rests(&self) -> bool {
        self.listed
            .is_some_and(|(at, took)| at.elapsed() < took * REST_FACTOR)
    }

    /// Compares the files that were read with those of the directory.
    fn compare(&mut self, files: &Marks, is_known: bool) -> Result<()> {
        let mut forgotten = Vec::new();
        let mut renewed = Vec::new();
        let mut unknown: Vec<_> = files
            .iter()
            .filter(|(name, _)| !self.memory.read().contains_key(*name))
            .collect();
        for (name, mark) in self.memory.read() {
            let Some(now) = files.get(name) else {
                // In another directory nothing is known of the files of this one.
                if is_known {
                    forgotten.push(name.clone());
                }
                continue;
            };
            let path = self.path_of(name);
            let change = match mark.compare(now, &path) {
                // It went meanwhile, which the next look notices.
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
        forgotten.iter().for_each(|name| self.memory.forget(name));
        for (name, mark) in renewed {
            self.memory.add(name, mark);
        }
        Ok(())
    }

    /// The files under names that are new to them: the same inode with the content that was read
    /// under another name.
    fn renamed(&self, unknown: &[(&Vec<u8>, &Mark)]) -> Result<Vec<(Vec<u8>, Mark)>> {
        let mut renamed = Vec::new();
        if unknown.is_empty() {
            return Ok(renamed);
        }
        let read = self.memory.read().values();
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
                // It went meanwhile, which the next look notices.
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(cannot_read(&path, error)),
            }
        }
        Ok(renamed)
    }

    /// Reports a file that was changed after it had been read, which was not complete then.
    fn report_change(&self, path: &Path, before: u64, now: u64) -> Result<()> {
        let change = match before == now {
            true => "its content has changed since it was read".to_string(),
            false => format!("it had {before} bytes when it was read, and has {now} by now"),
        };
        let reason =
            format!("{change}: the change is not read; rename whole files into the directory");
        // Standard error may be closed; the dead letter says the same.
        let _ = writeln!(io::stderr().lock(), "ardea: {}: {reason}", path.display());
        self.changed
            .report(|| path.display().to_string(), Vec::new, reason)
    }

    /// Returns true if the directory is the one with the remembered files. A directory of another identity, mounted again
    /// for example, counts as that one if it has one of the files.
    fn is_known_directory(&mut self, metadata: &Metadata, files: &Marks) -> bool {
        let id = DirectoryId {
            device: metadata.dev(),
            inode: metadata.ino(),
        };
        let known = self.memory.read();
        let has_known = || {
            let mut names = known.iter();
            names.any(|(name, mark)| files.get(name).is_some_and(|now| mark.is_of_same(now)))
        };
        let is_known = self.memory.directory == Some(id) || known.is_empty() || has_known();
        if is_known {
            self.memory.directory = Some(id);
        }
        is_known
    }

    fn path_of(&self, name: &[u8]) -> PathBuf {
        self.watching.path.join(OsStr::from_bytes(name))
    }

    /// The time until the directory is to be looked at again.
    fn rest(&self) -> Duration {
        let since = self.looked_at.map(|looked_at| looked_at.elapsed());
        since.map_or(Duration::ZERO, |since| {
            self.watching.interval.saturating_sub(since)
        })
    }
}

/// The mark of a file with its content; `mark` if that can't be read.
fn with_content(path: &Path, mark: Mark) -> Mark {
    let read = open_at_once(path).and_then(|file| Mark::of_read(&file, Some(mark.length())));
    read.map_or(mark, |read| read.touched(&mark))
}

impl Supply for Watched {
    fn init(&mut self, context: &InstanceContext) {
        self.memory = Memory::new(context.instance);
        self.changed.attach(context);
    }

    fn start(&mut self) -> Result<()> {
        if self.memory.directory.is_some() {
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
        self.look()?;
        self.looked_at = Some(Instant::now());
        if self.watching.only_new {
            for (name, mark) in self.list()? {
                let mark = with_content(&self.path_of(&name), mark);
                self.memory.add(name, mark);
            }
            self.found.clear();
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Next> {
        if let Some((name, mark, reached)) = self.memory.take_begun() {
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
                // One that went before it was begun is none of those to read.
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(cannot_read(&path, error)),
            }
        }
        let rest = self.rest();
        if rest.is_zero() {
            self.look()?;
            self.looked_at = Some(Instant::now());
        }
        let pause = if self.found.is_empty() {
            rest
        } else {
            Duration::ZERO
        };
        Ok(Next::Wait(pause.min(LONGEST_PAUSE)))
    }

    fn begun(&mut self, mark: Option<Mark>) {
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
            self.memory.add(name, mark);
        }
    }

    fn is_at_end(&self) -> bool {
        false
    }

    fn forgets(&self) -> Option<&'static str> {
        None
    }

    fn states(&self) -> Vec<StateShape> {
        Memory::states()
    }

    fn take_cut(&mut self, cut: Cut, at_hand: Option<(&Path, &Reached)>) -> Result<()> {
        let reached = at_hand.map(|(_, reached)| reached);
        let at_hand = self.at_hand.as_ref().zip(reached);
        let at_hand = at_hand
            .and_then(|((name, mark), reached)| mark.map(|mark| (name.as_slice(), mark, reached)));
        self.memory.take_cut(cut, at_hand)
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        self.memory.write_cut(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.memory.restore(state)
    }

    fn on_restored(&mut self) -> Result<()> {
        Ok(())
    }

    fn commit(&mut self, epoch: Epoch) {
        self.memory.commit(epoch);
    }
}
