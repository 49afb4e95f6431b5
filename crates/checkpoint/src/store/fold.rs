//! Folding: several layers of a vertex' state become one, beside everything else.
//!
//! A committed snapshot is never touched by it. What was folded waits until the next snapshot is committed, which refers to it instead of
//! to what it was made of; those blocks go when no snapshot refers to them any more.
//!
//! Its own blocks are named for that next snapshot. Whoever made snapshots before, and does not know yet that another goes on, [sweeps](crate::store::SnapshotStore::sweep)
//! what was written for those that it knows of: so it never removes what is folded here, and not referred to yet.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

use ardea_core::{Error, ErrorCode, Result};

use crate::store::block::BlockRef;
use crate::store::checkpoint_store::Shared;
use crate::store::layer::{Folded, Layer, to_fold};
use crate::store::merge::{Merge, Wanted};
use crate::store::partitions::Space;
use crate::store::writer::{BlockFiles, Run};
use crate::store::{Snapshot, SnapshotId};

/// Layers of a vertex' state on their way to become one: [step](Self::step) by step.
///
/// As long as it is held, the snapshot that it reads is not collected. Dropped before it is done it leaves blocks that a later
/// [sweep](crate::store::SnapshotStore::sweep) removes.
#[derive(Debug)]
pub struct Fold {
    shared: Arc<Shared>,
    snapshot: Snapshot,
    hold: Option<Hold>,
    vertex: String,
    layers: Range<usize>,
    files: BlockFiles,
    /// What is still to be merged.
    todo: Vec<(String, Space)>,
    at_work: Option<(Merge, Run, String)>,
    states: BTreeMap<String, Vec<BlockRef>>,
    failed: Option<Error>,
}

/// Whether a [`Fold`] is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FoldProgress {
    /// There is more to do.
    More,
    /// The next snapshot will refer to what was folded.
    Done,
}

/// Keeps a vertex from being folded twice, and what is written from being swept.
#[derive(Debug)]
pub(crate) struct Hold {
    shared: Weak<Shared>,
    vertex: String,
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.state().end_fold(&self.vertex);
        }
    }
}

/// A folded layer that waits for the next commit.
#[derive(Debug)]
pub(crate) struct Finished {
    pub folded: Folded,
    hold: Hold,
}

impl Finished {
    pub fn vertex(&self) -> &str {
        &self.hold.vertex
    }
}

impl Fold {
    /// Folds what is to be folded of this snapshot, the newest, if anything is.
    pub(crate) fn begin(shared: &Arc<Shared>, snapshot: Snapshot) -> Option<Self> {
        let (vertex, layers) = choose(shared, &snapshot)?;
        let chain = &snapshot.layers(&vertex)[layers.clone()];
        let folder = Arc::clone(&shared.folder);
        let wanted_by = shared.state().folds_for();
        let files = BlockFiles::new(folder, &shared.job, &vertex, wanted_by);
        if !shared.state().begin_fold(&vertex, files.writer()) {
            return None;
        }
        let hold = Hold {
            shared: Arc::downgrade(shared),
            vertex: vertex.clone(),
        };
        let mut names: Vec<&String> = chain.iter().flat_map(|layer| layer.states.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let both = |name: &&String| Space::ALL.map(|space| ((*name).clone(), space));
        let todo = names.iter().flat_map(both).collect();
        Some(Fold {
            shared: Arc::clone(shared),
            hold: Some(hold),
            layers,
            files,
            todo,
            at_work: None,
            states: BTreeMap::new(),
            failed: None,
            vertex,
            snapshot,
        })
    }

    /// The vertex whose state it is.
    pub fn vertex(&self) -> &str {
        &self.vertex
    }

    /// How many layers become one.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Works until it has read and written about `budget` bytes, or is done; reads and writes whole blocks, so it may be one or two of
    /// them more for each layer.
    ///
    /// # Errors
    /// `SnapshotDamaged`, if a block is: then [`wants_full`](crate::store::SnapshotStore::wants_full) asks for a full cut of the vertex, which
    /// needs nothing that is older. What the folder returns. After an error only that error: drop it, and begin another later. No
    /// snapshot is concerned by it.
    pub fn step(&mut self, budget: u64) -> Result<FoldProgress> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let worked = self.work(budget).and_then(|progress| {
            self.files.flush()?;
            if progress == FoldProgress::Done {
                self.finish();
            }
            Ok(progress)
        });
        if let Err(error) = &worked {
            if error.code() == ErrorCode::SnapshotDamaged {
                self.shared.state().unfoldable.insert(self.vertex.clone());
            }
            self.failed = Some(error.clone());
        }
        worked
    }

    fn work(&mut self, budget: u64) -> Result<FoldProgress> {
        let mut spent = 0;
        while spent < budget.max(1) {
            if self.at_work.is_none() && !self.begin_state() {
                return Ok(FoldProgress::Done);
            }
            spent += self.one_entry()?;
        }
        Ok(FoldProgress::More)
    }

    /// Goes on to the next state; false if all are done.
    fn begin_state(&mut self) -> bool {
        let Some((state, space)) = self.todo.pop() else {
            return false;
        };
        let slots = match space {
            Space::Partitions => 0..ardea_core::PARTITION_COUNT,
            Space::Instances => 0..u32::MAX,
        };
        let wanted = Wanted {
            job: &self.shared.job,
            vertex: &self.vertex,
            state: &state,
            space,
            slots,
            keep_removed: true,
        };
        let folder = Arc::clone(&self.shared.folder);
        let layers = &self.snapshot.layers(&self.vertex)[self.layers.clone()];
        let merge = Merge::new(folder, layers, wanted);
        let run = Run::new(&state, space, self.shared.config.blocks.block_bytes);
        self.at_work = Some((merge, run, state));
        true
    }

    /// Moves one entry; tells how many bytes of blocks were read and made for it.
    fn one_entry(&mut self) -> Result<u64> {
        let Some((merge, run, _)) = &mut self.at_work else {
            return Ok(0);
        };
        self.files.pace().step();
        let before = merge.read_bytes();
        let mut made = 0;
        let is_oldest = self.layers.start == 0;
        let is_there = match merge.next()? {
            None => false,
            // There is nothing older that it would hide.
            Some(entry) if is_oldest && entry.value.is_none() => true,
            Some(entry) => {
                made = run.push(&mut self.files, entry.slot, entry.key, entry.value)?;
                true
            }
        };
        let read = merge.read_bytes() - before;
        if !is_there && let Some((_, run, state)) = self.at_work.take() {
            let blocks = run.finish(&mut self.files)?;
            made = blocks.last().map_or(0, |block| u64::from(block.bytes));
            if !blocks.is_empty() {
                self.states.entry(state).or_default().extend(blocks);
            }
        }
        Ok(read + made)
    }

    fn finish(&mut self) {
        // Only once.
        let Some(hold) = self.hold.take() else {
            return;
        };
        let layers = &self.snapshot.layers(&self.vertex)[self.layers.clone()];
        let folded = Folded {
            from: layers.iter().map(|layer| layer.from).collect(),
            is_oldest: self.layers.start == 0,
            states: std::mem::take(&mut self.states),
        };
        self.shared.state().finish_fold(Finished { folded, hold });
    }

    /// The snapshot whose layers are folded.
    pub fn snapshot(&self) -> SnapshotId {
        self.snapshot.id()
    }
}

/// Of the vertices whose states are to be folded, that with the most layers, and which of them.
fn choose(shared: &Shared, snapshot: &Snapshot) -> Option<(String, Range<usize>)> {
    let state = shared.state();
    let free = |vertex: &&str| !state.is_folding(vertex) && !state.unfoldable.contains(*vertex);
    let vertex = snapshot
        .vertices()
        .filter(free)
        .max_by_key(|vertex| snapshot.layers(vertex).len())?;
    let bytes: Vec<u64> = snapshot.layers(vertex).iter().map(Layer::bytes).collect();
    let layers = to_fold(&bytes, shared.config.most_layers)?;
    Some((vertex.to_string(), layers))
}
