//! The files that an instance has not finished reading, and their snapshots.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ardea_core::instance_state::{self as kept, PeerInstances};
use ardea_core::{
    Epoch, Instance, Progress, RemovedKeys, RestoredState, Result, SmallSnapshot, SnapshotRequest,
    SnapshotWriter, StateShape,
};
use serde::{Deserialize, Serialize};

use crate::files::fingerprint::Fingerprint;
use crate::stream_position::StreamPosition;

/// The name of the state with the number of instances.
const INSTANCES: &str = "instances";
/// The name of the state with an entry for each unfinished file.
const FILES: &str = "files";

/// The position reached in a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::files) struct FilePosition {
    /// True if the file is compressed.
    pub is_packed: bool,
    #[serde(flatten)]
    pub place: StreamPosition,
    /// The identity of the file; `None` in states of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Fingerprint>,
}

/// A file to read, and the position that an earlier attempt reached in it.
type ToRead = (PathBuf, Option<FilePosition>);

/// The files that an instance has not finished reading, in order.
///
/// The snapshot contains the files listed at the start of the job, so a restore does not list them
/// again. After a rescale the remaining files are redistributed.
#[derive(Debug)]
pub(super) struct FileSplits {
    instance: Instance,
    files: Vec<ToRead>,
    /// The index after the current file.
    next: usize,
    /// The keys of files read to their end since the last commit.
    gone: RemovedKeys,
    draft: SmallSnapshot,
    /// The range of files still to be written into the snapshot.
    unwritten: Range<usize>,
    siblings: PeerInstances<u32>,
    restored: BTreeMap<u32, Vec<ToRead>>,
}

impl FileSplits {
    /// Returns the shapes of its states.
    pub fn states() -> Vec<StateShape> {
        [INSTANCES, FILES].map(StateShape::own).into()
    }

    pub fn new(instance: Instance) -> Self {
        FileSplits {
            instance,
            files: Vec::new(),
            next: 0,
            gone: RemovedKeys::default(),
            draft: SmallSnapshot::default(),
            unwritten: 0..0,
            siblings: PeerInstances::default(),
            restored: BTreeMap::new(),
        }
    }

    /// Sets the files to read.
    pub fn set(&mut self, files: Vec<PathBuf>) {
        self.files = files.into_iter().map(|file| (file, None)).collect();
        self.next = 0;
    }

    /// Returns the files that have not been begun.
    pub fn left(&self) -> impl Iterator<Item = &Path> {
        let left = self.files[self.next..].iter();
        left.map(|(file, _)| file.as_path())
    }

    pub fn is_empty(&self) -> bool {
        self.next >= self.files.len()
    }

    /// Returns the next file, which becomes the current one.
    pub fn begin_next(&mut self) -> Option<ToRead> {
        let next = self.files.get(self.next).cloned()?;
        self.next += 1;
        Some(next)
    }

    /// Records that a file was read to its end.
    pub fn end(&mut self, file: &Path) {
        self.gone.add(self.key(file));
    }

    fn key(&self, file: &Path) -> Vec<u8> {
        kept::key_of(self.instance.index, file.as_os_str().as_bytes())
    }

    /// Takes a snapshot; `at_hand` is the current file.
    pub fn take_snapshot(
        &mut self,
        snapshot: SnapshotRequest,
        at_hand: Option<(&Path, &FilePosition)>,
    ) -> Result<()> {
        let index = self.instance.index;
        let chunk = self.draft.begin();
        kept::put(chunk, INSTANCES, (index, &[]), &self.instance.parallelism)?;
        if let Some((file, reached)) = at_hand {
            let file = file.as_os_str().as_bytes();
            kept::put(chunk, FILES, (index, file), reached)?;
        }
        if !snapshot.is_full() {
            for key in self.gone.iter() {
                let key = |out: &mut Vec<u8>| {
                    out.extend_from_slice(key);
                    Ok(())
                };
                chunk.write_removed(FILES, None, key)?;
            }
        }
        self.gone.freeze(snapshot.epoch);
        // An increment omits files that have not been begun, since they have not changed.
        let all = self.next..self.files.len();
        self.unwritten = if snapshot.is_full() { all } else { 0..0 };
        Ok(())
    }

    /// Writes the snapshot taken last.
    pub fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
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

    /// Continues from the restored state; returns false if there is none.
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
        // In listing order, by name; a file already begun comes first.
        self.files.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(true)
    }
}
