//! The files of a directory that have been read, and how that outlives an instance.

use std::collections::BTreeMap;

use ardea_core::instance_state as kept;
use ardea_core::{
    Cut, CutDraft, CutWriter, Epoch, GoneKeys, Instance, Progress, RestoredState, Result,
    StateShape,
};
use serde::{Deserialize, Serialize};

use crate::files::fingerprint::Mark;
use crate::files::read::share::Reached;

/// The name of the state with an entry for each file that has been read, wholly or in part.
const FILES: &str = "files";
/// The name of the state that tells the directory.
const DIRECTORY: &str = "directory";

/// The state of a file as it is handed over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Entry {
    mark: Mark,
    /// The place in the file; none once it has been read to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reached: Option<Reached>,
}

/// The identity of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct DirectoryId {
    pub device: u64,
    pub inode: u64,
}

/// Files by their names, which are bytes.
pub(super) type Marks = BTreeMap<Vec<u8>, Mark>;

/// The files of a directory that an instance has read.
///
/// A file belongs to the instance that owns the hash of its name, so another number of instances finds its own among
/// what all have written.
pub(super) struct Memory {
    instance: Instance,
    /// The directory in which they were; none before the first look.
    pub directory: Option<DirectoryId>,
    read: Marks,
    /// Files that an earlier life has read in part.
    begun: BTreeMap<Vec<u8>, (Mark, Reached)>,
    /// Keys of files that have been read to their end, and of those that are forgotten, since the last commit.
    added: GoneKeys,
    gone: GoneKeys,
    draft: CutDraft,
    /// Entries of a full cut that have still to be written.
    unwritten: Vec<(Vec<u8>, Entry)>,
}

impl Memory {
    pub fn new(instance: Instance) -> Self {
        Memory {
            instance,
            directory: None,
            read: Marks::new(),
            begun: BTreeMap::new(),
            added: GoneKeys::default(),
            gone: GoneKeys::default(),
            draft: CutDraft::default(),
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

    /// Takes out a file that an earlier life has read in part.
    pub fn take_begun(&mut self) -> Option<(Vec<u8>, Mark, Reached)> {
        let (name, (mark, reached)) = self.begun.pop_first()?;
        Some((name, mark, reached))
    }

    /// A file has been read to its end.
    pub fn add(&mut self, name: Vec<u8>, mark: Mark) {
        self.added.note(name.clone());
        self.read.insert(name, mark);
    }

    /// A file is not there any more, or another one has its name.
    pub fn forget(&mut self, name: &[u8]) {
        if self.read.remove(name).is_some() {
            self.gone.note(name.to_vec());
        }
    }

    /// A cut is taken, `at_hand` being the file that is being read.
    pub fn take_cut(&mut self, cut: Cut, at_hand: Option<(&[u8], Mark, &Reached)>) -> Result<()> {
        let index = self.instance.index;
        let chunk = self.draft.begin();
        self.unwritten.clear();
        if let Some(directory) = &self.directory {
            kept::put(chunk, DIRECTORY, (index, &[]), directory)?;
        }
        let whole = |(name, mark): (&Vec<u8>, &Mark)| {
            let entry = Entry {
                mark: *mark,
                reached: None,
            };
            (name.clone(), entry)
        };
        if cut.is_full() {
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
        self.added.freeze(cut.epoch);
        self.gone.freeze(cut.epoch);
        Ok(())
    }

    pub fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
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
