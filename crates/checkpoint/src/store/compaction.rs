//! Compaction: several layers of a vertex' state are merged into one, while the job and other
//! operations continue.
//!
//! Committed checkpoints are never changed. The compacted layer waits for the next commit, whose
//! manifest refers to it instead of the input layers. The old blocks are removed when no checkpoint
//! refers to them.
//!
//! The names of the new blocks contain the id of the next checkpoint. A deposed leader
//! [sweeps](crate::store::CheckpointStore::sweep) only files of earlier checkpoints, so it never
//! removes the new blocks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

use ardea_core::{Error, ErrorCode, Result};

use crate::store::block::BlockRef;
use crate::store::checkpoint_store::Shared;
use crate::store::layer::{CompactedLayer, Layer, to_fold};
use crate::store::merge::{Merge, MergeFilter};
use crate::store::partitions::Space;
use crate::store::writer::{BlockFiles, Run};
use crate::store::{Checkpoint, CheckpointId};

/// A compaction of several layers of a vertex' state, executed in [steps](Self::step).
///
/// The checkpoint that it reads is not garbage-collected meanwhile. If the value is dropped before
/// the end, a later [sweep](crate::store::CheckpointStore::sweep) removes the blocks written so
/// far.
#[derive(Debug)]
pub struct Compaction {
    shared: Arc<Shared>,
    checkpoint: Checkpoint,
    hold: Option<CompactionGuard>,
    vertex: String,
    layers: Range<usize>,
    files: BlockFiles,
    /// The states still to be merged.
    todo: Vec<(String, Space)>,
    at_work: Option<(Merge, Run, String)>,
    states: BTreeMap<String, Vec<BlockRef>>,
    failed: Option<Error>,
}

/// The progress of a [`Compaction`] after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompactionProgress {
    /// Further steps are required.
    More,
    /// Complete: the next checkpoint will refer to the compacted layer.
    Done,
}

/// A guard that prevents a second compaction of the vertex, and the sweep of the new blocks.
#[derive(Debug)]
pub(crate) struct CompactionGuard {
    shared: Weak<Shared>,
    vertex: String,
}

impl Drop for CompactionGuard {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.state().end_fold(&self.vertex);
        }
    }
}

/// A compacted layer that waits for the next commit.
#[derive(Debug)]
pub(crate) struct Finished {
    pub folded: CompactedLayer,
    hold: CompactionGuard,
}

impl Finished {
    pub fn vertex(&self) -> &str {
        &self.hold.vertex
    }
}

impl Compaction {
    /// Begins a compaction of `checkpoint`, the newest one, if one is due.
    pub(crate) fn begin(shared: &Arc<Shared>, checkpoint: Checkpoint) -> Option<Self> {
        let (vertex, layers) = choose(shared, &checkpoint)?;
        let chain = &checkpoint.layers(&vertex)[layers.clone()];
        let folder = Arc::clone(&shared.folder);
        let wanted_by = shared.state().folds_for();
        let files = BlockFiles::new(folder, &shared.job, &vertex, wanted_by);
        if !shared.state().begin_fold(&vertex, files.writer()) {
            return None;
        }
        let hold = CompactionGuard {
            shared: Arc::downgrade(shared),
            vertex: vertex.clone(),
        };
        let mut names: Vec<&String> = chain.iter().flat_map(|layer| layer.states.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let both = |name: &&String| Space::ALL.map(|space| ((*name).clone(), space));
        let todo = names.iter().flat_map(both).collect();
        Some(Compaction {
            shared: Arc::clone(shared),
            hold: Some(hold),
            layers,
            files,
            todo,
            at_work: None,
            states: BTreeMap::new(),
            failed: None,
            vertex,
            checkpoint,
        })
    }

    /// Returns the vertex whose state is compacted.
    pub fn vertex(&self) -> &str {
        &self.vertex
    }

    /// Returns the number of layers to merge.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Reads and writes about `budget` bytes, or less if the compaction is done before. Works with
    /// whole blocks, so a step can exceed `budget` by one or two blocks per layer.
    ///
    /// # Errors
    /// `CheckpointDamaged` if a block is damaged:
    /// [`wants_full`](crate::store::CheckpointStore::wants_full) then requests a full snapshot of
    /// the vertex. Those of the store. After an error every further call returns the same error:
    /// drop the value, and begin another compaction later. Checkpoints are not affected.
    pub fn step(&mut self, budget: u64) -> Result<CompactionProgress> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let worked = self.work(budget).and_then(|progress| {
            self.files.flush()?;
            if progress == CompactionProgress::Done {
                self.finish();
            }
            Ok(progress)
        });
        if let Err(error) = &worked {
            if error.code() == ErrorCode::CheckpointDamaged {
                self.shared.state().unfoldable.insert(self.vertex.clone());
            }
            self.failed = Some(error.clone());
        }
        worked
    }

    fn work(&mut self, budget: u64) -> Result<CompactionProgress> {
        let mut spent = 0;
        while spent < budget.max(1) {
            if self.at_work.is_none() && !self.begin_state() {
                return Ok(CompactionProgress::Done);
            }
            spent += self.one_entry()?;
        }
        Ok(CompactionProgress::More)
    }

    /// Begins to merge the next state. Returns false if all states are done.
    fn begin_state(&mut self) -> bool {
        let Some((state, space)) = self.todo.pop() else {
            return false;
        };
        let slots = match space {
            Space::Partitions => 0..ardea_core::PARTITION_COUNT,
            Space::Instances => 0..u32::MAX,
        };
        let wanted = MergeFilter {
            job: &self.shared.job,
            vertex: &self.vertex,
            state: &state,
            space,
            slots,
            keep_removed: true,
        };
        let folder = Arc::clone(&self.shared.folder);
        let layers = &self.checkpoint.layers(&self.vertex)[self.layers.clone()];
        let merge = Merge::new(folder, layers, wanted);
        let run = Run::new(&state, space, self.shared.config.blocks.block_bytes);
        self.at_work = Some((merge, run, state));
        true
    }

    /// Copies one entry. Returns the bytes of blocks read and written for it.
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
            // The tombstone is dropped, since no older entry exists that it must hide.
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
        let layers = &self.checkpoint.layers(&self.vertex)[self.layers.clone()];
        let folded = CompactedLayer {
            from: layers.iter().map(|layer| layer.from).collect(),
            is_oldest: self.layers.start == 0,
            states: std::mem::take(&mut self.states),
        };
        self.shared.state().finish_fold(Finished { folded, hold });
    }

    /// Returns the checkpoint whose layers are compacted.
    pub fn checkpoint(&self) -> CheckpointId {
        self.checkpoint.id()
    }
}

/// Among the vertices due for compaction, returns the one with the most layers, and the range of
/// layers to merge.
fn choose(shared: &Shared, checkpoint: &Checkpoint) -> Option<(String, Range<usize>)> {
    let state = shared.state();
    let free = |vertex: &&str| !state.is_folding(vertex) && !state.unfoldable.contains(*vertex);
    let vertex = checkpoint
        .vertices()
        .filter(free)
        .max_by_key(|vertex| checkpoint.layers(vertex).len())?;
    let bytes: Vec<u64> = checkpoint.layers(vertex).iter().map(Layer::bytes).collect();
    let layers = to_fold(&bytes, shared.config.most_layers)?;
    Some((vertex.to_string(), layers))
}
