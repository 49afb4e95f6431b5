//! Garbage collection: old checkpoints, their blocks, and files of unfinished writes.

use std::collections::HashSet;
use std::sync::Arc;

use ardea_core::Result;

use super::{CheckpointStore, Shared};
use crate::store::file_name::{FileName, StoredName, WriterToken};
use crate::store::manifest::Manifest;
use crate::store::{CheckpointId, FileEntry, FileState};

/// The result of a collection or a sweep.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Collected {
    /// The removed checkpoints, oldest first.
    pub checkpoints: Vec<CheckpointId>,
    /// The number of removed blocks and unfinished files.
    pub files: usize,
    /// The bytes of the removed files.
    pub bytes: u64,
}

impl CheckpointStore {
    /// Removes all checkpoints except the newest [`keep`](super::StoreConfig::keep) and those that
    /// are open in this process. Then removes the blocks that no remaining checkpoint refers to,
    /// and the blocks of obsolete compactions.
    ///
    /// A damaged manifest, with all blocks that it may refer to, is retained until
    /// [`keep`](super::StoreConfig::keep) newer checkpoints exist. The caller must hold the
    /// [checkpoint](CheckpointStore::checkpoint) that a job was restored from until the job has
    /// made another one.
    ///
    /// # Errors
    /// Those of [`ObjectStore::remove`](crate::store::ObjectStore::remove). The remaining
    /// checkpoints are intact; a later call or [`sweep`](Self::sweep) completes the removal.
    pub fn collect(&self) -> Result<Collected> {
        let shared = &*self.shared;
        let _work = shared.work();
        shared.learn_unread();
        let (old, damaged) = shared.take_old();
        let unreferred = std::mem::take(&mut shared.state().unreferred);
        if old.is_empty() && damaged.is_empty() && unreferred.is_empty() {
            return Ok(Collected::default());
        }
        let mut checkpoints: Vec<_> = old.iter().map(|manifest| manifest.checkpoint).collect();
        checkpoints.extend(&damaged);
        checkpoints.sort_unstable();
        let files: Vec<_> = checkpoints
            .iter()
            .map(|id| (StoredName::Manifest(*id).file(), FileState::Whole))
            .collect();
        // Manifests are removed first, and durably, so that a checkpoint with a manifest is
        // complete.
        if let Err(error) = shared.folder.remove(&files) {
            let mut state = shared.state();
            state.kept.extend(
                old.into_iter()
                    .map(|manifest| (manifest.checkpoint, manifest)),
            );
            state.unreferred.extend(unreferred);
            return Err(error);
        }
        let needed = {
            let mut state = shared.state();
            for id in &damaged {
                state.damaged.remove(id);
            }
            drop(state);
            shared.needed()
        };
        let mut seen = HashSet::new();
        let blocks = old.iter().flat_map(|manifest| manifest.blocks());
        let unneeded: Vec<FileEntry> = blocks
            .chain(&unreferred)
            .filter(|block| seen.insert(block.file.as_str()))
            .filter_map(|block| {
                let listed = FileEntry {
                    name: block.name()?,
                    state: FileState::Whole,
                    bytes: u64::from(block.bytes),
                };
                (!needed.has(&listed.name)).then_some(listed)
            })
            .collect();
        shared.remove(checkpoints, unneeded)
    }

    /// Removes unreferenced files of checkpoints before `floor`: blocks of aborted epochs, of dead
    /// writers and of incomplete compactions, and unfinished files. Files with other names are
    /// never removed.
    ///
    /// The caller guarantees that no valid writer is working for a checkpoint before `floor`.
    /// Suitable values are the successor of the last committed or aborted checkpoint, and
    /// [`CheckpointId::start_of`] the present or the next generation. Files that are written later
    /// for earlier generations are removed by the next call. A deposed leader removes no file of
    /// its successor, which has [begun](Self::begin_generation) its generation before any
    /// compaction.
    ///
    /// Costs one listing of the folder.
    ///
    /// # Errors
    /// Those of the store. Some of the files may have been removed then.
    pub fn sweep(&self, floor: CheckpointId) -> Result<Collected> {
        let shared = &*self.shared;
        let _work = shared.work();
        shared.resolve_doubtful()?;
        shared.learn_unread();
        let listed = shared.folder.list()?;
        let listed: Vec<_> = listed
            .into_iter()
            .filter_map(|file| Some((StoredName::parse(&file.name)?, file)))
            .collect();
        // Checkpoints that this store has not read are valid too.
        for (stored, file) in &listed {
            if let (StoredName::Manifest(id), FileState::Whole) = (stored, file.state)
                && !shared.knows(*id)
            {
                shared.learn(*id)?;
            }
        }
        // The set is computed after the listing, so that it covers all listed files.
        let needed = shared.needed();
        let is_left = |(stored, file): &(StoredName, FileEntry)| {
            let is_needed = match (stored, file.state) {
                (StoredName::Manifest(_), FileState::Whole) => true,
                (StoredName::Manifest(_), FileState::Unfinished(_)) => false,
                (StoredName::Block(block), FileState::Whole) => {
                    needed.has(&file.name) || needed.writers.contains(&block.writer)
                }
                (StoredName::Block(block), FileState::Unfinished(_)) => {
                    needed.writers.contains(&block.writer)
                }
            };
            stored.checkpoint() < floor && !is_needed
        };
        let left = listed.into_iter().filter(is_left).map(|(_, file)| file);
        shared.remove(Vec::new(), left.collect())
    }
}

/// The files that must be retained.
struct ReferencedFiles {
    /// The blocks that checkpoints refer to.
    blocks: HashSet<String>,
    /// The writers of compactions in progress.
    writers: HashSet<WriterToken>,
    /// The newest checkpoint with an unusable manifest, which may refer to any file that is not
    /// newer.
    unknown: Option<CheckpointId>,
}

impl ReferencedFiles {
    fn has(&self, name: &FileName) -> bool {
        let may_be_referred_to = || match (StoredName::parse(name), self.unknown) {
            (Some(stored), Some(unknown)) => stored.checkpoint() <= unknown,
            _ => false,
        };
        self.blocks.contains(name.as_str()) || may_be_referred_to()
    }
}

impl Shared {
    fn needed(&self) -> ReferencedFiles {
        let state = self.state();
        let blocks = state.kept.values().flat_map(|manifest| manifest.blocks());
        ReferencedFiles {
            blocks: blocks.map(|block| block.file.clone()).collect(),
            writers: state.folding.values().copied().collect(),
            unknown: state.damaged.keys().next_back().copied(),
        }
    }

    /// Removes the checkpoints beyond the retained number from the known state and returns them, so
    /// that they are no longer opened. Also returns the unusable manifests that are older than all
    /// retained checkpoints.
    fn take_old(&self) -> (Vec<Arc<Manifest>>, Vec<CheckpointId>) {
        let mut state = self.state();
        let keep = self.config.keep.max(1);
        // Checkpoints of a succeeding leader do not count here: the successor may still need an
        // older checkpoint.
        let oldest = state.own_newest.and_then(|newest| {
            let own = state.kept.range(..=newest);
            own.rev().nth(keep - 1).map(|(id, _)| *id)
        });
        let Some(oldest) = oldest else {
            return (Vec::new(), Vec::new());
        };
        let is_old = |id: &CheckpointId, manifest: &Arc<Manifest>| {
            *id < oldest && Arc::strong_count(manifest) == 1
        };
        let old: Vec<_> = state
            .kept
            .iter()
            .filter(|(id, manifest)| is_old(id, manifest))
            .map(|(id, _)| *id)
            .collect();
        let damaged = state.damaged.range(..oldest).map(|(id, _)| *id).collect();
        let old = old.iter().filter_map(|id| state.kept.remove(id)).collect();
        (old, damaged)
    }

    fn remove(&self, checkpoints: Vec<CheckpointId>, files: Vec<FileEntry>) -> Result<Collected> {
        let collected = Collected {
            checkpoints,
            files: files.len(),
            bytes: files.iter().map(|file| file.bytes).sum(),
        };
        let files: Vec<_> = files
            .into_iter()
            .map(|file| (file.name, file.state))
            .collect();
        self.folder.remove(&files)?;
        Ok(collected)
    }
}
