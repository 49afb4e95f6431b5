//! The files of a directory as they appear.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use ardea_core::{
    BadRecords, Cut, CutWriter, Epoch, Error, ErrorCode, Instance, InstanceContext, OnError,
    Progress, RestoredState, Result, StateShape,
};

use super::memory::{DirectoryId, Marks, Memory};
use crate::files::fingerprint::Mark;
use crate::files::list::{cannot_read, is_complete};
use crate::files::read::share::Reached;
use crate::files::read::supply::{Next, Supply};

/// The longest that a call waits for files.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The age from which on the time of a directory's last change tells that nothing has changed since. Some file systems
/// count in whole seconds.
const SETTLED: Duration = Duration::from_secs(2);

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
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(cannot_read(&entry.path(), error)),
            }
        }
        Ok(files)
    }

    /// Looks which files there are: notes new ones, and forgets those that have vanished.
    fn look(&mut self) -> Result<()> {
        let folder = &self.watching.path;
        let metadata = fs::metadata(folder).map_err(|error| cannot_read(folder, error))?;
        let modified = metadata.modified().ok();
        if modified.is_some() && modified == self.settled {
            return Ok(());
        }
        let is_settled = modified
            .and_then(|modified| SystemTime::now().duration_since(modified).ok())
            .is_some_and(|age| age > SETTLED);
        let files = self.list()?;
        self.settled = modified.filter(|_| is_settled);
        let is_known = self.is_known_directory(&metadata, &files);
        let known = self.memory.read();
        let replaced: Vec<Vec<u8>> = known
            .iter()
            .filter(|(name, mark)| match files.get(*name) {
                Some(now) => !mark.is_of_same(now),
                // In another directory nothing is known of the files of this one.
                None => is_known,
            })
            .map(|(name, _)| name.clone())
            .collect();
        let grown: Vec<(Vec<u8>, Mark, u64)> = known
            .iter()
            .filter_map(|(name, mark)| {
                let now = files.get(name)?;
                let has_grown = mark.is_one_with(now) && mark.length() != now.length();
                has_grown.then(|| (name.clone(), *now, mark.length()))
            })
            .collect();
        replaced.iter().for_each(|name| self.memory.forget(name));
        for (name, now, length) in grown {
            self.report_change(&name, length, now.length())?;
            self.memory.add(name, now);
        }
        let at_hand = self.at_hand.as_ref().map(|(name, _)| name);
        let read = self.memory.read();
        self.found = files
            .into_keys()
            .filter(|name| !read.contains_key(name) && Some(name) != at_hand)
            .collect();
        Ok(())
    }

    /// Reports a file that was changed after it had been read, which was not complete then.
    fn report_change(&self, name: &[u8], before: u64, now: u64) -> Result<()> {
        let path = self.path_of(name);
        let reason = format!(
            "it had {before} bytes when it was read, and has {now} by now: the change is not read; rename whole files into the directory"
        );
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
            // One that went before it was begun is none of those to read.
            if fs::metadata(&path).is_ok_and(|metadata| metadata.is_file()) {
                self.at_hand = Some((name, None));
                return Ok(Next::File(path, None));
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

    fn end(&mut self, file: &Path) {
        let Some((name, Some(mark))) = self.at_hand.take() else {
            return;
        };
        // It may have grown while it was read, to where it was read to.
        let now = fs::metadata(file).map(|metadata| Mark::of(&metadata));
        let mark = now.ok().filter(|now| mark.is_one_with(now)).unwrap_or(mark);
        self.memory.add(name, mark);
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
