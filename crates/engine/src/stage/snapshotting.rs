//! The snapshots of a stage: taking them, writing them while processing continues, and handling the
//! outcome of epochs.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Epoch, Error, InstanceContext, Progress, Result, SnapshotRequest, SnapshotWriter,
    StateChunk, Waker, Watermark,
};

use super::{Kind, Phase, ProcessorStage, restored_watermarks};
use crate::snapshotting::{
    EpochOutcome, InstanceName, RecordCounts, SnapshotAbort, SnapshotReport, SnapshotSink,
};
use crate::stage::restoring::Restoring;

/// Approximate size of a chunk when it is delivered, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;
/// Maximum number of bytes that a processor writes per call, which takes about ten microseconds.
const CALL_BYTES: usize = 4 * 1024;

/// Maximum time by which snapshot work extends a slice: writing snapshots, and delivering epoch
/// outcomes before the next epoch ends.
pub(crate) const SNAPSHOT_SLICE: Duration = Duration::from_micros(100);
/// Maximum ratio between the time for records and the time for snapshots.
const MAX_RECORD_RATIO: u32 = 8;
/// Interval after which the ratio for an incomplete snapshot is halved.
const HURRIES_AFTER: Duration = Duration::from_millis(500);

/// Maximum number of halvings of the ratio.
const MOST_HURRY: u32 = 3;

/// The urgency of snapshot work, which determines the pause between two slices for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlicePacer {
    /// Epoch outcomes have to be delivered at once.
    Immediate,
    /// Epoch outcomes that did not fit into a slice are left.
    Outcomes,
    /// A snapshot is being written; with the time since it was taken.
    Writing(Duration),
}

impl SlicePacer {
    /// Returns the pause between two snapshot slices of length `slice`, depending on whether the
    /// thread has other work. The pause shrinks with the age of an incomplete snapshot, so that it
    /// is complete before too many epochs are due.
    pub(crate) fn pause(self, slice: Duration, has_leisure: bool) -> Duration {
        let hurry = match self {
            SlicePacer::Immediate => return Duration::ZERO,
            SlicePacer::Outcomes => MOST_HURRY,
            SlicePacer::Writing(since) => {
                let halvings = since.as_millis() / HURRIES_AFTER.as_millis();
                halvings.min(MOST_HURRY.into()) as u32
            }
        };
        match has_leisure {
            // The core is left to the threads of the network and of checkpoint storage.
            true if hurry == 0 => slice / 2,
            true => Duration::ZERO,
            false => slice * (MAX_RECORD_RATIO >> hurry),
        }
    }
}

/// The snapshots of one stage.
pub(crate) struct SnapshotState {
    pub(super) name: InstanceName,
    sink: Option<Arc<dyn SnapshotSink>>,
    /// Wakes the tasklet only; no callback of the processor follows.
    pub(super) waker: Waker,
    /// The snapshot that is being written.
    writing: Option<Writing>,
    /// The buffer of entries; reused for the next snapshot if it was not delivered.
    chunk: Option<StateChunk>,
    /// The latest epoch whose commit was passed to the processor.
    pub(super) committed: Option<Epoch>,
    /// Outcomes not passed to the processor yet, in order.
    outcomes: VecDeque<EpochOutcome>,
    /// True if no call has tried to deliver the latest outcomes yet.
    has_news: bool,
    /// The latest epoch that has ended here.
    ended: Epoch,
    last: LastSnapshotState,
    /// True if the instance must end here, and may go on in another process.
    is_leaving: bool,
    /// A permanent error of the latest snapshot, which fails the job.
    failure: Option<Error>,
    /// True if all snapshots are full.
    is_always_full: bool,
    pub(super) restoring: Option<Restoring>,
}

/// A snapshot that is being written.
struct Writing {
    snapshot: SnapshotRequest,
    /// The watermark that the runtime writes to the snapshot; `None` when it is written.
    watermark: Option<Watermark>,
    taken_at: Duration,
    counted: RecordCounts,
    entries: u64,
    bytes: u64,
}

/// The state of an ended stage's last snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LastSnapshotState {
    NotTaken,
    /// To be taken when the previous snapshot is written or aborted; the state does not change
    /// until then.
    Wanted,
    /// Being written, or waiting for its commit.
    HoldsOn(Epoch),
    Over,
}

impl SnapshotState {
    /// Creates the snapshot state of an instance that delivers its snapshots to `sink` and is
    /// restored by `restoring`.
    pub(crate) fn new(
        name: InstanceName,
        sink: Option<Arc<dyn SnapshotSink>>,
        waker: Waker,
        restoring: Option<Restoring>,
        ended: Epoch,
    ) -> Self {
        SnapshotState {
            name,
            sink,
            waker,
            writing: None,
            chunk: None,
            committed: None,
            outcomes: VecDeque::new(),
            has_news: false,
            ended,
            last: LastSnapshotState::NotTaken,
            is_leaving: false,
            failure: None,
            is_always_full: false,
            restoring,
        }
    }

    /// Sets whether all snapshots are full.
    pub(crate) fn always_full(mut self, is_always_full: bool) -> Self {
        self.is_always_full = is_always_full;
        self
    }

    /// Takes the snapshot of `epoch`. An earlier snapshot that is still being written is cancelled.
    fn take(
        &mut self,
        (epoch, is_last): (Epoch, bool),
        state: &mut dyn Checkpointed,
        context: &InstanceContext,
        watermark: Option<Watermark>,
    ) {
        let Some(sink) = self.sink.clone() else {
            return;
        };
        self.abandon(SnapshotAbort::Superseded);
        let since = self.committed.filter(|_| {
            let wants_all = sink.wants_all(&self.name, epoch);
            !wants_all && !self.is_always_full
        });
        let snapshot = SnapshotRequest {
            epoch,
            since,
            is_last,
        };
        let now = context.clock.now();
        let taken = state.take_snapshot(snapshot);
        context.metrics.count_snapshot_taken();
        context
            .metrics
            .count_snapshot_work(context.clock.now() - now);
        match taken {
            Ok(()) => {
                self.writing = Some(Writing {
                    snapshot,
                    watermark,
                    taken_at: now,
                    counted: RecordCounts::from(&context.metrics.snapshot()),
                    entries: 0,
                    bytes: 0,
                });
            }
            Err(error) => {
                let error = self.failed(error);
                sink.abort(&self.name, snapshot, SnapshotAbort::Failed(error));
            }
        }
    }

    /// Returns the error of a snapshot with the name of the instance. A permanent error is kept, to
    /// fail the job: no later checkpoint could succeed.
    fn failed(&mut self, error: Error) -> Error {
        let error = self.named(error);
        if error.is_permanent() {
            self.failure = Some(error.clone());
        }
        error
    }

    /// Cancels the snapshot that is being written, if any.
    fn abandon(&mut self, why: SnapshotAbort) {
        let Some(writing) = self.writing.take() else {
            return;
        };
        if let Some(chunk) = &mut self.chunk {
            chunk.clear();
        }
        if let Some(sink) = &self.sink {
            sink.abort(&self.name, writing.snapshot, why);
        }
    }

    fn named(&self, error: Error) -> Error {
        error.in_vertex(&self.name.vertex, self.name.instance.index)
    }

    /// Queues the outcome of an epoch.
    fn queue_outcome(&mut self, fate: EpochOutcome) {
        if let (EpochOutcome::Aborted(epoch), Some(writing)) = (fate, &self.writing)
            && writing.snapshot.epoch <= epoch
            && !writing.snapshot.is_last
        {
            self.abandon(SnapshotAbort::Superseded);
        }
        self.outcomes.push_back(fate);
        self.has_news = true;
    }

    /// Passes outcomes to the processor until the processor is not done, or until the time `until`;
    /// returns true if anything moved.
    fn deliver_outcomes(
        &mut self,
        state: &mut dyn Checkpointed,
        context: &InstanceContext,
        until: Duration,
    ) -> Result<bool> {
        let mut moved = false;
        self.has_news = false;
        while let Some(fate) = self.outcomes.front().copied() {
            let progress = match fate {
                EpochOutcome::Committed(epoch) => state.on_checkpoint_committed(epoch)?,
                EpochOutcome::Aborted(epoch) => state.on_checkpoint_aborted(epoch)?,
            };
            moved |= progress.made | progress.done;
            if progress.done {
                self.outcome_delivered(fate, state);
            } else if !progress.made || context.clock.now() >= until {
                break;
            }
        }
        Ok(moved)
    }

    fn outcome_delivered(&mut self, fate: EpochOutcome, state: &mut dyn Checkpointed) {
        self.outcomes.pop_front();
        if let EpochOutcome::Committed(epoch) = fate {
            self.committed = self.committed.max(Some(epoch));
            if let Some(sink) = &self.sink {
                sink.commit_processed(&self.name, epoch);
            }
            self.release_if_done(state);
        }
    }

    /// Lets an ended stage go when its last snapshot is written and, if required, committed.
    fn release_if_done(&mut self, state: &mut dyn Checkpointed) {
        if let LastSnapshotState::HoldsOn(epoch) = self.last
            && self.writing.is_none()
            && (self.committed >= Some(epoch) || !state.awaits_commit())
        {
            self.last = LastSnapshotState::Over;
            if let Some(sink) = &self.sink {
                sink.instance_ended(&self.name);
            }
        }
    }

    /// Writes entries until the snapshot is complete, there is no room, or the time `until`;
    /// returns true if anything moved.
    fn write(
        &mut self,
        state: &mut dyn Checkpointed,
        context: &InstanceContext,
        until: Duration,
    ) -> bool {
        let mut moved = false;
        while self.writing.is_some() {
            let Some(progress) = self.write_some(state) else {
                break;
            };
            match progress {
                Err(error) => {
                    let error = self.failed(error);
                    self.abandon(SnapshotAbort::Failed(error));
                }
                Ok(progress) if progress.done => self.finish(context),
                Ok(progress) if !progress.made => break,
                Ok(_) => {}
            }
            moved = true;
            if context.clock.now() >= until {
                break;
            }
        }
        if self.writing.is_none() {
            self.release_if_done(state);
        }
        moved
    }

    /// Calls the processor once to write entries; `None` if there is no room.
    fn write_some(&mut self, state: &mut dyn Checkpointed) -> Option<Result<Progress>> {
        let (sink, writing) = (self.sink.as_ref()?, self.writing.as_mut()?);
        if self.chunk.is_none() {
            self.chunk = sink.buffer(&self.name, &self.waker);
        }
        let chunk = self.chunk.as_mut()?;
        let before = (chunk.len(), chunk.byte_len());
        if let Some(watermark) = writing.watermark.take() {
            let mut writer = SnapshotWriter::new(chunk, usize::MAX);
            let told = (writing.snapshot.epoch, watermark);
            if let Err(error) = restored_watermarks::write(&mut writer, self.name.instance, told) {
                return Some(Err(error));
            }
        }
        let limit = chunk.byte_len() + CALL_BYTES;
        let progress = state.write_snapshot(&mut SnapshotWriter::new(chunk, limit));
        writing.entries += (chunk.len() - before.0) as u64;
        writing.bytes += (chunk.byte_len() - before.1) as u64;
        let is_full = chunk.byte_len() >= CHUNK_BYTES;
        if is_full && matches!(&progress, Ok(progress) if !progress.done) {
            let full = self.chunk.take()?;
            sink.take(&self.name, writing.snapshot, full);
        }
        Some(progress)
    }

    /// Completes the snapshot.
    fn finish(&mut self, context: &InstanceContext) {
        let (Some(sink), Some(writing)) = (&self.sink, self.writing.take()) else {
            return;
        };
        let report = SnapshotReport {
            snapshot: writing.snapshot,
            entries: writing.entries,
            bytes: writing.bytes,
            took: context.clock.now() - writing.taken_at,
            counted: writing.counted,
        };
        let metrics = &context.metrics;
        metrics.count_snapshot(report.entries, report.bytes, report.took);
        sink.finish(&self.name, report, self.chunk.take().unwrap_or_default());
    }

    /// Returns the latest epoch that has ended here if its snapshot is written, and the stage has
    /// not ended and is not leaving.
    pub(super) fn resumable_epoch(&self) -> Option<Epoch> {
        let is_written = self.writing.is_none() && self.restoring.is_none();
        let goes_on = self.last == LastSnapshotState::NotTaken && !self.is_leaving;
        (is_written && goes_on && self.sink.is_some()).then_some(self.ended)
    }

    fn has_work(&self) -> bool {
        self.writing.is_some()
            || !self.outcomes.is_empty()
            || self.last == LastSnapshotState::Wanted
            || self.failure.is_some()
    }
}

impl ProcessorStage {
    /// Enables snapshots.
    pub(crate) fn with_snapshots(mut self, desk: SnapshotState) -> Self {
        self.snapshots = Some(Box::new(desk));
        self
    }

    /// Returns true if the stage takes snapshots.
    pub(crate) fn has_snapshots(&self) -> bool {
        self.snapshots.is_some()
    }

    /// Takes the snapshot of an epoch that has ended.
    pub(super) fn take_snapshot(&mut self, epoch: Epoch) {
        let watermark = self.snapshot_watermark();
        if let Some(desk) = &mut self.snapshots {
            desk.ended = epoch;
            let at = (epoch, false);
            desk.take(at, self.code.state(), &self.context, watermark);
            self.is_at_snapshot = true;
        }
    }

    /// Passes outcomes of earlier epochs to the processor before the next epoch ends. Otherwise the
    /// next increment would repeat changes that have just been committed, perhaps all state.
    pub(super) fn deliver_outcomes_before_epoch(&mut self) -> Result<()> {
        let Some(desk) = self
            .snapshots
            .as_mut()
            .filter(|desk| !desk.outcomes.is_empty())
        else {
            return Ok(());
        };
        let until = self.context.clock.now() + SNAPSHOT_SLICE;
        let told = desk.deliver_outcomes(self.code.state(), &self.context, until);
        told.map(drop)
    }

    /// Requests the last snapshot of an ended stage, unless it moves to another process.
    pub(super) fn take_last_snapshot(&mut self) {
        let is_leaving = self.is_dismissed;
        if let Some(desk) = &mut self.snapshots
            && !is_leaving
            && !desk.is_leaving
            && desk.sink.is_some()
        {
            desk.last = LastSnapshotState::Wanted;
        }
        self.take_wanted_snapshot();
    }

    fn take_wanted_snapshot(&mut self) {
        let watermark = self.snapshot_watermark();
        if let Some(desk) = &mut self.snapshots
            && desk.last == LastSnapshotState::Wanted
            && desk.writing.is_none()
        {
            let epoch = desk.ended.next();
            let at = (epoch, true);
            desk.take(at, self.code.state(), &self.context, watermark);
            desk.last = LastSnapshotState::HoldsOn(epoch);
            desk.release_if_done(self.code.state());
        }
    }

    /// Returns the processor's watermark, which the runtime stores in the snapshot.
    fn snapshot_watermark(&self) -> Option<Watermark> {
        let is_step = self.kind == Kind::Step;
        Some(self.watermark).filter(|watermark| is_step && *watermark > Watermark::NONE)
    }

    /// Sets whether the instance is leaving: another process may go on with its state.
    pub(crate) fn set_leaving(&mut self, is_leaving: bool) {
        if let Some(desk) = &mut self.snapshots {
            desk.is_leaving = is_leaving;
        }
    }

    /// Queues the outcome of an epoch.
    pub(crate) fn hear(&mut self, fate: EpochOutcome) {
        if let Some(desk) = &mut self.snapshots {
            desk.queue_outcome(fate);
        }
    }

    /// Returns true if there are entries to write or outcomes to deliver.
    #[inline]
    pub(crate) fn has_snapshot_work(&self) -> bool {
        self.snapshots.as_ref().is_some_and(|desk| desk.has_work())
    }

    /// Returns true if the stage has ended, and its last snapshot is not complete yet.
    pub(super) fn holds_on(&self) -> bool {
        self.snapshots.as_ref().is_some_and(|desk| {
            matches!(desk.last, LastSnapshotState::HoldsOn(_)) || desk.has_work()
        })
    }

    /// Returns true if the next action of the stage is to end an epoch. Outcomes of earlier epochs
    /// must be delivered first.
    #[inline]
    pub(crate) fn ends_epoch(&self) -> bool {
        matches!(self.phase, Phase::Epoch(_))
    }

    /// Returns the urgency of the stage's snapshot work; `None` if there is nothing to do.
    pub(crate) fn pace_of_snapshots(&self, now: Duration) -> Option<SlicePacer> {
        let desk = self.snapshots.as_ref().filter(|desk| desk.has_work())?;
        let writing = desk.writing.as_ref();
        Some(match desk.outcomes.is_empty() {
            _ if desk.has_news => SlicePacer::Immediate,
            false => SlicePacer::Outcomes,
            true => SlicePacer::Writing(writing.map_or(Duration::ZERO, |writing| {
                now.saturating_sub(writing.taken_at)
            })),
        })
    }

    /// Delivers outcomes and writes snapshots until about the time `until`; returns true if
    /// anything moved.
    ///
    /// # Errors
    /// Those of the processor for an outcome; a permanent error of its snapshot.
    pub(crate) fn tend_snapshots(&mut self, until: Duration) -> Result<bool> {
        let Some(desk) = self.snapshots.as_mut().filter(|desk| desk.has_work()) else {
            return Ok(false);
        };
        // An error here does not concern a record, but the pending records remain.
        let at = mem::take(&mut self.at);
        let start = self.context.clock.now();
        let told = desk.deliver_outcomes(self.code.state(), &self.context, until)?;
        let wrote = desk.write(self.code.state(), &self.context, until);
        self.take_wanted_snapshot();
        if let Some(error) = self.snapshots.as_mut().and_then(|desk| desk.failure.take()) {
            return Err(error);
        }
        let took = self.context.clock.now() - start;
        self.context.metrics.count_snapshot_work(took);
        self.at = at;
        Ok(told | wrote)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_that_waits_for_long_is_in_a_hurry_and_records_still_have_half_of_the_time() {
        let slice = Duration::from_micros(100);
        let pauses = |pace: SlicePacer| [true, false].map(|leisure| pace.pause(slice, leisure));
        let after = |millis| pauses(SlicePacer::Writing(Duration::from_millis(millis)));
        assert_eq!(after(0), [slice / 2, slice * 8]);
        assert_eq!(after(500), [Duration::ZERO, slice * 4]);
        assert_eq!(after(1_999), [Duration::ZERO, slice]);
        assert_eq!(after(60_000), [Duration::ZERO, slice]);
        assert_eq!(pauses(SlicePacer::Outcomes), [Duration::ZERO, slice]);
        assert_eq!(pauses(SlicePacer::Immediate), [Duration::ZERO; 2]);
    }
}
