//! The files of a watched directory that have been read, and their snapshots.

use std::collections::BTreeMap;

use ardea_core::instance_state as kept;
use ardea_core::{
    Epoch, Instance, Progress, RemovedKeys, RestoredState, Result, SmallSnapshot, SnapshotRequest,
    SnapshotWriter, StateShape,
};
use serde::{Deserialize, Serialize};

use crate::files::fingerprint::FileIdentity;
use crate::files::read::splits::FilePosition;

/// The name of the state with an entry for each file that was read, completely or in part.
const FILES: &str = "files";
/// The name of the state with the identity of the directory.
const DIRECTORY: &str = "directory";

/// The state of a file in a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Entry {
    mark: FileIdentity,
    /// The position in the file; `None` once it was read to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reached: Option<FilePosition>,
}

/// The identity of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct DirectoryId {
    pub device: u64,
    pub inode: u64,
}

/// The identities of files by name, in bytes.
pub(super) type Marks = BTreeMap<Vec<u8>, FileIdentity>;

/// The files of a directory that an instance has read.
///
/// A file belongs to the instance that owns the hash of its name. So after a rescale each instance
/// selects its files from the snapshots of all former instances.
pub(super) struct ReadFiles {
    instance: Instance,
    /// The directory of the files; `None` before the first poll.
    pub directory: Option<DirectoryId>,
    read: Marks,
    /// Files that an earlier attempt has read in part.
    begun: BTreeMap<Vec<u8>, (FileIdentity, FilePosition)>,
    /// Keys of files read to their end (`added`) and of removed files (`gone`) since the last
    /// commit.
    added: RemovedKeys,
    gone: RemovedKeys,
    draft: SmallSnapshot,
    /// Entries still to be written into the snapshot.
    unwritten: Vec<(Vec<u8>, Entry)>,
}

impl ReadFiles {
    pub fn new(instance: Instance) -> Self {
        ReadFiles {
            instance,
            directory: None,
            read: Marks::new(),
            begun: BTreeMap::new(),
            added: RemovedKeys::default(),
            gone: RemovedKeys::default(),
            draft: SmallSnapshot::default(),
            unwritten: Vec::new(),
        }
    }

    pub fn states() -> Vec<StateShape> {
        [FILES, DIRECTORY].map(StateShape::own).into()
    }

    /// Returns true if a file of this name belongs to this instance.
    pub fn owns(&self, name: &[u8]) -> bool {
        self.instance.owns(xxhash_rust::xxh3::xxh3_64(name))
    }

    pub fn read(&self) -> &Marks {
        &self.read
    }

    /// Removes and returns a file that an earlier attempt has read in part.
    pub fn take_begun(&mut self) -> Option<(Vec<u8>, FileIdentity, FilePosition)> {
        let (name, (mark, reached)) = self.begun.pop_first()?;
        Some((name, mark, reached))
    }

    /// Adds a file that was read to its end.
    pub fn add(&mut self, name: Vec<u8>, mark: FileIdentity) {
        self.added.add(name.clone());
        self.read.insert(name, mark);
    }

    /// Removes a file that was deleted or replaced.
    pub fn forget(&mut self, name: &[u8]) {
        if self.read.remove(name).is_some() {
            self.gone.add(name.to_vec());
        }
    }

    /// Takes a snapshot; `at_hand` is the current file.
    pub fn take_snapshot(
        &mut self,
        snapshot: SnapshotRequest,
        at_hand: Option<(&[u8], FileIdentity, &FilePosition)>,
    ) -> Result<()> {
        let index = self.instance.index;
        let chunk = self.draft.begin();
        self.unwritten.clear();
        if let Some(directory) = &self.directory {
            kept::put(chunk, DIRECTORY, (index, &[]), directory)?;
        }
        let whole = |(name, mark): (&Vec<u8>, &FileIdentity)| {
            let entry = Entry {
                mark: *mark,
                reached: None,
            };
            (name.clone(), entry)
        };
        if snapshot.is_full() {
            let begun = self.begun.iter().map(|(name, (mark, reached))| {
                let entry = Entry {
                    mark: *mark,
                    reached: Some(reached.clone()),
                };
                (name.clone(), entry)
            });
            self.unwritten = self.read.iter().map(whole).chain(begun).collect();
        } else {
            let added = self.added.iter();
            let there = added.filter_map(|name| self.read.get_key_value(name));
            self.unwritten = there.map(whole).collect();
            let is_there = |name: &[u8]| {
                self.read.contains_key(name) || at_hand.is_some_and(|(other, ..)| other == name)
            };
            for name in self.gone.iter().filter(|name| !is_there(name)) {
                let key = |out: &mut Vec<u8>| {
                    out.extend_from_slice(&kept::key_of(index, name));
                    Ok(())
                };
                chunk.write_removed(FILES, None, key)?;
            }
        }
        if let Some((name, mark, reached)) = at_hand {
            let entry = Entry {
                mark,
                reached: Some(reached.clone()),
            };
            self.unwritten.push((name.to_vec(), entry));
        }
        self.added.freeze(snapshot.epoch);
        self.gone.freeze(snapshot.epoch);
        Ok(())
    }

    pub fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        let drafted = self.draft.write(writer)?;
        if !drafted.done {
            return Ok(drafted);
        }
        let mut made = drafted.made;
        while writer.has_room()
            && let Some((name, entry)) = self.unwritten.pop()
        {
            kept::put(writer.chunk(), FILES, (self.instance.index, &name), &entry)?;
            made = true;
        }
        Ok(Progress {
            made,
            done: self.unwritten.is_empty(),
        })
    }

    pub fn commit(&mut self, epoch: Epoch) {
        self.added.commit(epoch);
        self.gone.commit(epoch);
    }

    pub fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            let (_, name) = kept::written_by(&entry)?;
            match entry.state {
                DIRECTORY => self.directory = Some(kept::value(&entry)?),
                FILES if !self.owns(name) => {}
                FILES => {
                    let Entry { mark, reached } = kept::value(&entry)?;
                    match reached {
                        None => drop(self.read.insert(name.to_vec(), mark)),
                        Some(reached) => drop(self.begun.insert(name.to_vec(), (mark, reached))),
                    }
                }
                _ => return Err(RestoredState::unknown(&entry)),
            }
        }
        Ok(())
    }
}
