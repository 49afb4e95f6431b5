//! What goes: snapshots that are not kept, their blocks, and what was left of writing.

use std::collections::HashSet;
use std::sync::Arc;

use ardea_core::Result;

use super::{Shared, SnapshotStore};
use crate::store::file_name::{FileName, StoredName, WriterToken};
use crate::store::manifest::Manifest;
use crate::store::{FileState, Listed, SnapshotId};

/// What was removed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Collected {
    /// Snapshots, the oldest first.
    pub snapshots: Vec<SnapshotId>,
    /// Files of blocks, and what was left of writing files.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl SnapshotStore {
    /// Removes all snapshots but the newest [`keep`](super::StoreConfig::keep) and those that somebody of this process holds, then the
    /// blocks that no other refers to, and those that were folded for nothing.
    ///
    /// A damaged manifest is kept until as many newer snapshots are there as are kept; until then nobody knows what it refers to, and no
    /// block goes that it might. Hold the [snapshot](SnapshotStore::snapshot) from which a job was restored until it has another.
    ///
    /// # Errors
    /// What [`Folder::remove`](crate::store::Folder::remove) returns. Snapshots that are still told of are whole; what should have gone goes by a
    /// later call or [`sweep`](Self::sweep).
    pub fn collect(&self) -> Result<Collected> {
        let shared = &*self.shared;
        let _work = shared.work();
        shared.learn_unread();
        let (old, damaged) = shared.take_old();
        let unreferred = std::mem::take(&mut shared.state().unreferred);
        if old.is_empty() && damaged.is_empty() && unreferred.is_empty() {
            return Ok(Collected::default());
        }
        let mut snapshots: Vec<_> = old.iter().map(|manifest| manifest.snapshot).collect();
        snapshots.extend(&damaged);
        snapshots.sort_unstable();
        let files: Vec<_> = snapshots
            .iter()
            .map(|id| (StoredName::Manifest(*id).file(), FileState::Whole))
            .collect();
        // The manifests first, and durably: a snapshot that is there is whole.
        if let Err(error) = shared.folder.remove(&files) {
            let mut state = shared.state();
            state.kept.extend(
                old.into_iter()
                    .map(|manifest| (manifest.snapshot, manifest)),
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
        let unneeded: Vec<Listed> = blocks
            .chain(&unreferred)
            .filter(|block| seen.insert(block.file.as_str()))
            .filter_map(|block| {
                let listed = Listed {
                    name: block.name()?,
                    state: FileState::Whole,
                    bytes: u64::from(block.bytes),
                };
                (!needed.has(&listed.name)).then_some(listed)
            })
            .collect();
        shared.remove(snapshots, unneeded)
    }

    /// Removes what was begun for snapshots before `floor` and belongs to none that is there: blocks of epochs that were given up,
    /// of writers that died, and of folding that was not ended, and unfinished files. Nothing else: no file whose name is not exactly that
    /// of a part of a snapshot.
    ///
    /// The caller knows that nobody who counts writes for a snapshot before `floor` any more: it is what follows the snapshot that
    /// was committed last or given up last, or [`SnapshotId::start_of`] a generation that begins, or would begin next. What somebody of an
    /// earlier generation writes all the same, who has not heard of its end, goes with the next call. A caller that has been followed by
    /// another, and doesn't know it, takes nothing from that one, which has [said](Self::begin_generation) in which generation it goes on before it folded.
    ///
    /// Costs a listing of the folder.
    ///
    /// # Errors
    /// What the folder returns; some may be gone.
    pub fn sweep(&self, floor: SnapshotId) -> Result<Collected> {
        let shared = &*self.shared;
        let _work = shared.work();
        shared.resolve_doubtful()?;
        shared.learn_unread();
        let listed = shared.folder.list()?;
        let listed: Vec<_> = listed
            .into_iter()
            .filter_map(|file| Some((StoredName::parse(&file.name)?, file)))
            .collect();
        // A snapshot that this store has not heard of is one all the same.
        for (stored, file) in &listed {
            if let (StoredName::Manifest(id), FileState::Whole) = (stored, file.state)
                && !shared.knows(*id)
            {
                shared.learn(*id)?;
            }
        }
        // Looked at after the listing: what is listed and needed by then is known.
        let needed = shared.needed();
        let is_left = |(stored, file): &(StoredName, Listed)| {
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
            stored.snapshot() < floor && !is_needed
        };
        let left = listed.into_iter().filter(is_left).map(|(_, file)| file);
        shared.remove(Vec::new(), left.collect())
    }
}

/// What must stay.
struct Needed {
    /// Blocks that snapshots refer to.
    blocks: HashSet<String>,
    /// Who folds.
    writers: HashSet<WriterToken>,
    /// The newest of the snapshots whose manifests can't be read: they may refer to anything that is not newer.
    unknown: Option<SnapshotId>,
}

impl Needed {
    fn has(&self, name: &FileName) -> bool {
        let may_be_referred_to = || match (StoredName::parse(name), self.unknown) {
            (Some(stored), Some(unknown)) => stored.snapshot() <= unknown,
            _ => false,
        };
        self.blocks.contains(name.as_str()) || may_be_referred_to()
    }
}

impl Shared {
    fn needed(&self) -> Needed {
        let state = self.state();
        let blocks = state.kept.values().flat_map(|manifest| manifest.blocks());
        Needed {
            blocks: blocks.map(|block| block.file.clone()).collect(),
            writers: state.folding.values().copied().collect(),
            unknown: state.damaged.keys().next_back().copied(),
        }
    }

    /// Takes the snapshots that are not to be kept out of what is known, so that nobody asks for them any more; and tells the manifests
    /// that can't be used and are older than all that is kept.
    fn take_old(&self) -> (Vec<Arc<Manifest>>, Vec<SnapshotId>) {
        let mut state = self.state();
        let keep = self.config.keep.max(1);
        // What another has made since counts for nothing here: it keeps what it needs, and that may be older than the newest.
        let oldest = state.own_newest.and_then(|newest| {
            let own = state.kept.range(..=newest);
            own.rev().nth(keep - 1).map(|(id, _)| *id)
        });
        let Some(oldest) = oldest else {
            return (Vec::new(), Vec::new());
        };
        let is_old = |id: &SnapshotId, manifest: &Arc<Manifest>| {
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

    fn remove(&self, snapshots: Vec<SnapshotId>, files: Vec<Listed>) -> Result<Collected> {
        let collected = Collected {
            snapshots,
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
