//! The restore of a stage's state at its start.

use std::time::Duration;

use ardea_core::{
    Checkpointed, Epoch, PartitionId, Progress, RestoredState, Result, StateChunk, Watermark,
};

use super::restored_watermarks::RestoredWatermarks;
use super::{Kind, Phase, ProcessorStage};
use crate::snapshotting::{RestoreReader, SnapshotRead};

/// Maximum number of entries per call of a processor.
const CALL_ENTRIES: usize = 256;

/// The restore of a stage, as far as it is not complete.
pub(crate) struct Restoring {
    reader: Box<dyn RestoreReader>,
    epoch: Epoch,
    chunk: StateChunk,
    /// The position of the next entry in the chunk.
    position: usize,
    has_all: bool,
    watermarks: RestoredWatermarks,
    way: RestoreMode,
    /// A buffer for requested partitions, empty between calls.
    wanted: Vec<PartitionId>,
}

/// The amount of state that is required before the processor starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RestoreMode {
    /// The mode is not selected yet.
    Unknown,
    /// All state.
    Whole,
    /// Entries without a partition; `has_base` is true if these are restored.
    Early { has_base: bool },
}

impl Restoring {
    /// Creates a restore of the state at the end of `epoch`.
    pub(crate) fn new(reader: Box<dyn RestoreReader>, epoch: Epoch) -> Self {
        Restoring {
            reader,
            epoch,
            chunk: StateChunk::default(),
            position: 0,
            has_all: false,
            watermarks: RestoredWatermarks::default(),
            way: RestoreMode::Unknown,
            wanted: Vec::new(),
        }
    }

    /// Returns true if the processor may start.
    fn has_enough(&self) -> bool {
        self.way == RestoreMode::Early { has_base: true }
    }

    /// Selects the restore mode, once: the state decides whether it can be restored by partition.
    fn choose(&mut self, state: &mut dyn Checkpointed, may_begin: bool) {
        if self.way != RestoreMode::Unknown {
            return;
        }
        let entries = self.reader.entries_by_partition().filter(|_| may_begin);
        let is_early =
            entries.is_some_and(|entries| state.partitions().enable_lazy_restore(entries));
        self.way = RestoreMode::Whole;
        if is_early {
            self.reader.read_by_partition();
            self.way = RestoreMode::Early { has_base: false };
        }
    }

    /// Requests the partitions that the processor waits for with priority.
    pub(super) fn hurry(&mut self, state: &mut dyn Checkpointed) {
        state
            .partitions()
            .take_requested_partitions(&mut self.wanted);
        if !self.wanted.is_empty() {
            self.reader.prioritize(&self.wanted);
            self.wanted.clear();
        }
    }
}

impl ProcessorStage {
    /// Restores state until about the time `until`. Done when all is restored, or enough to start.
    pub(crate) fn restore(&mut self, until: Duration) -> Result<Progress> {
        if self.lazy_restore.is_some() {
            let made = self.continue_lazy_restore(until)?;
            return Ok(Progress { made, done: true });
        }
        let mut made = false;
        loop {
            let progress = self.restore_some()?;
            made |= progress.made;
            if progress.done || self.begins_early() {
                return Ok(Progress { made, done: true });
            }
            if !progress.made || self.context.clock.now() >= until {
                return Ok(Progress { made, done: false });
            }
        }
    }

    /// Continues a lazy restore while records flow; returns true if anything moved.
    pub(crate) fn continue_lazy_restore(&mut self, until: Duration) -> Result<bool> {
        // An error here does not concern a record, but the pending records remain.
        let at = self.at.take();
        let mut made = false;
        loop {
            let progress = self.restore_some()?;
            made |= progress.made | progress.done;
            if progress.done || !progress.made || self.context.clock.now() >= until {
                break;
            }
        }
        self.at = at;
        Ok(made)
    }

    /// Starts a lazy restore if possible; returns true if it did.
    fn begins_early(&mut self) -> bool {
        let restoring = self
            .snapshots
            .as_ref()
            .and_then(|desk| desk.restoring.as_ref());
        let Some(restoring) = restoring.filter(|restoring| restoring.has_enough()) else {
            return false;
        };
        let told = restoring.watermarks.watermark_for(self.context.instance);
        self.lazy_restore = Some(Box::default());
        self.repeat_watermark(told);
        true
    }

    fn restore_some(&mut self) -> Result<Progress> {
        let had_all = Progress {
            made: false,
            done: true,
        };
        let Some(desk) = &mut self.snapshots else {
            return Ok(had_all);
        };
        let Some(restoring) = &mut desk.restoring else {
            return Ok(had_all);
        };
        restoring.choose(self.code.state(), self.restores_lazily);
        if restoring.has_all {
            if self
                .lazy_restore
                .as_ref()
                .is_some_and(|it| it.must_catch_up)
            {
                // Requires an outbox with room, see `continue_restore`.
                return Ok(Progress::NONE);
            }
            let watermark = restoring.watermarks.watermark_for(self.context.instance);
            let epoch = restoring.epoch;
            let progress = self.code.state().on_restored(epoch)?;
            if progress.done {
                desk.restoring = None;
                desk.committed = desk.committed.max(Some(epoch));
                match &mut self.lazy_restore {
                    Some(returning) => returning.is_over = true,
                    None => self.repeat_watermark(watermark),
                }
            }
            return Ok(progress);
        }
        if restoring.position < restoring.chunk.byte_len() {
            let before = restoring.position;
            let instance = self.context.instance;
            let (chunk, position) = (&restoring.chunk, &mut restoring.position);
            let mut state = RestoredState::new(chunk, position, instance, CALL_ENTRIES);
            self.code.state().restore(&mut state)?;
            let made = restoring.position > before;
            return Ok(Progress { made, done: false });
        }
        restoring.chunk.clear();
        restoring.position = 0;
        match restoring.reader.read(&mut restoring.chunk, &desk.waker)? {
            SnapshotRead::Pending => return Ok(Progress::NONE),
            SnapshotRead::Entries => restoring.watermarks.collect(&restoring.chunk),
            SnapshotRead::Base => restoring.way = RestoreMode::Early { has_base: true },
            SnapshotRead::Partition(partition) => {
                self.code
                    .state()
                    .partitions()
                    .on_partition_restored(partition)?;
                if let Some(returning) = &mut self.lazy_restore {
                    returning.must_catch_up = true;
                }
            }
            SnapshotRead::End => restoring.has_all = true,
        }
        Ok(Progress::MADE)
    }

    /// Repeats the watermark to the processor, before any other event.
    pub(super) fn repeat_watermark(&mut self, watermark: Option<Watermark>) {
        if self.kind == Kind::Step
            && let Some(watermark) = watermark
        {
            self.watermark = watermark;
            self.phase = Phase::Watermark(watermark);
        }
    }
}
