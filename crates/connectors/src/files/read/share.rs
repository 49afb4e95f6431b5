//! Which files an instance has still to read, and how that outlives it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ardea_core::instance_state::{self as kept, Siblings};
use ardea_core::{
    Cut, CutDraft, CutWriter, Epoch, GoneKeys, Instance, Progress, RestoredState, Result,
    StateShape,
};
use serde::{Deserialize, Serialize};

use crate::files::fingerprint::Fingerprint;
use crate::place::Place;

/// The name of the state that says how many instances there were.
const INSTANCES: &str = "instances";
/// The name of the state with an entry for each file that is not read to its end.
const FILES: &str = "files";

/// How far a file has been read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::files) struct Reached {
    /// Whether it is compressed.
    pub is_packed: bool,
    #[serde(flatten)]
    pub place: Place,
    /// The file's identity; states of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Fingerprint>,
}

/// A file to read, and how far an earlier life came in it.
type ToRead = (PathBuf, Option<Reached>);

/// The files that an instance has still to read, in order.
///
/// What was listed when the job began is handed over, file by file, so that the list stays what it was. Where another number of instances
/// goes on, what is left is dealt out anew.
#[derive(Debug)]
pub(super) struct Share {
    instance: Instance,
    files: Vec<ToRead>,
    /// Behind the one that is being read.
    next: usize,
    /// Files that have been read to their end since the last commit.
    gone: GoneKeys,
    draft: CutDraft,
    /// Files of the cut that have still to be written.
    unwritten: Range<usize>,
    siblings: Siblings<u32>,
    restored: BTreeMap<u32, Vec<ToRead>>,
}

impl Share {
    /// What it remembers.
    pub fn states() -> Vec<StateShape> {
        [INSTANCES, FILES].map(StateShape::own).into()
    }

    pub fn new(instance: Instance) -> Self {
        Share {
            instance,
            files: Vec::new(),
            next: 0,
            gone: GoneKeys::default(),
            draft: CutDraft::default(),
            unwritten: 0..0,
            siblings: Siblings::default(),
            restored: BTreeMap::new(),
        }
    }

    /// These are to be read.
    pub fn set(&mut self, files: Vec<PathBuf>) {
        self.files = files.into_iter().map(|file| (file, None)).collect();
        self.next = 0;
    }

    /// Those that have still to be read.
    pub fn left(&self) -> impl Iterator<Item = &Path> {
        let left = self.files[self.next..].iter();
        left.map(|(file, _)| file.as_path())
    }

    pub fn is_empty(&self) -> bool {
        self.next >= self.files.len()
    }

    /// The next file, which is being read from now on.
    pub fn begin_next(&mut self) -> Option<ToRead> {
        let next = self.files.get(self.next).cloned()?;
        self.next += 1;
        Some(next)
    }

    /// A file has been read to its end.
    pub fn end(&mut self, file: &Path) {
        self.gone.note(self.key(file));
    }

    fn key(&self, file: &Path) -> Vec<u8> {
        kept::key_of(self.instance.index, file.as_os_str().as_bytes())
    }

    /// A cut is taken, `at_hand` being the file that is being read.
    pub fn take_cut(&mut self, cut: Cut, at_hand: Option<(&Path, &Reached)>) -> Result<()> {
        let index = self.instance.index;
        let chunk = self.draft.begin();
        kept::put(chunk, INSTANCES, (index, &[]), &self.instance.parallelism)?;
        if let Some((file, reached)) = at_hand {
            let file = file.as_os_str().as_bytes();
            kept::put(chunk, FILES, (index, file), reached)?;
        }
        if !cut.is_full() {
            for key in self.gone.iter() {
                let key = |out: &mut Vec<u8>| {
                    out.extend_from_slice(key);
                    Ok(())
                };
                chunk.write_removed(FILES, None, key)?;
            }
        }
        self.gone.freeze(cut.epoch);
        // Those that have not been begun have not changed.
        let all = self.next..self.files.len();
        self.unwritten = if cut.is_full() { all } else { 0..0 };
        Ok(())
    }

    /// Writes the cut that was taken.
    pub fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        let drafted = self.draft.write(writer)?;
        if !drafted.done {
            return Ok(drafted);
        }
        let mut made = drafted.made;
        while writer.has_room() {
            let Some((file, reached)) = self.unwritten.next().and_then(|at| self.files.get(at))
            else {
                return Ok(Progress::DONE);
            };
            let file = file.as_os_str().as_bytes();
            kept::put(writer.chunk(), FILES, (self.instance.index, file), reached)?;
            made = true;
        }
        Ok(Progress {
            made,
            done: self.unwritten.is_empty(),
        })
    }

    pub fn commit(&mut self, epoch: Epoch) {
        self.gone.commit(epoch);
    }

    pub fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            match entry.state {
                INSTANCES => self.siblings.take(&entry)?,
                FILES => {
                    let (instance, file) = kept::written_by(&entry)?;
                    let file = PathBuf::from(OsStr::from_bytes(file));
                    let of = self.restored.entry(instance).or_default();
                    of.push((file, kept::value(&entry)?));
                }
                _ => return Err(RestoredState::unknown(&entry)),
            }
        }
        Ok(())
    }

    /// Goes on where all had come to; false if nothing was remembered.
    pub fn resume(&mut self) -> Result<bool> {
        let Some(all) = self.siblings.all(|count| *count)? else {
            return Ok(false);
        };
        let mut restored = std::mem::take(&mut self.restored);
        let is_same = all.len() == self.instance.parallelism as usize;
        self.next = 0;
        self.files = if is_same {
            restored.remove(&self.instance.index).unwrap_or_default()
        } else {
            let mut left: Vec<_> = restored.into_values().flatten().collect();
            left.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            let left = (0..).zip(left);
            let own = left.filter(|(number, _)| self.instance.owns(*number));
            own.map(|(_, file)| file).collect()
        };
        // As they were listed: by name, and what had been begun is the first.
        self.files.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(true)
    }
}
