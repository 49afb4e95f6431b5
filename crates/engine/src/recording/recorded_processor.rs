//! A processor whose calls are recorded.

use std::mem;
use std::time::Duration;

use ardea_core::{
    Checkpointed, Epoch, Error, ErrorCode, Guarantee, Inbox, InstanceContext, MarkerDeferral,
    MicroBatch, Ordinal, Outbox, Processor, Progress, RestoredState, Result, SnapshotRequest,
    SnapshotWriter, SourceControl, StateChunk, StateShape, Watermark,
};

use super::events::RecordedEvent;
use super::instance_recorder::InstanceRecorder;

/// Approximate size of a part of a state, in bytes.
const STATE_BYTES: usize = 1 << 20;
/// Size of a part of a state that is written for a checkpoint, in bytes.
const CALL_BYTES: usize = 4 << 10;
/// Maximum number of calls in a row in which a snapshot makes no progress.
const IDLE_CALLS: u32 = 1_000;

/// The state with which segments start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SegmentRenewal {
    /// The recorder's own snapshot at the end of a micro-batch, in a job without checkpoints.
    OwnSnapshots,
    /// The snapshots of the job's checkpoints.
    Checkpoints,
    /// The state cannot be saved: there is only the first segment.
    Never,
}

impl SegmentRenewal {
    /// Returns the renewal for a new processor.
    pub(super) fn of(processor: &mut dyn Processor, has_checkpoints: bool) -> Self {
        if processor.unsaved_state().is_some() {
            return SegmentRenewal::Never;
        }
        match has_checkpoints {
            true => SegmentRenewal::Checkpoints,
            // A commit has effects outside the job.
            false if processor.state().awaits_commit() => SegmentRenewal::Never,
            false => SegmentRenewal::OwnSnapshots,
        }
    }
}

/// A processor that records its inputs, its outputs and, now and then, its state.
pub(crate) struct RecordedProcessor {
    inner: Box<dyn Processor>,
    recorder: InstanceRecorder,
    renewal: SegmentRenewal,
    /// The latest epoch in a job without checkpoints: those of the recorder's own snapshots, and
    /// those of the job.
    own_epoch: Epoch,
    /// True if the latest callback is not done.
    is_in_callback: bool,
    /// True if a wake-up came during a callback.
    owes_wake: bool,
    /// True during a call, and after a panic in one.
    is_in_call: bool,
    /// True while the snapshot of a checkpoint is written to the recording as well.
    copies_snapshot: bool,
    /// The latest answer of the processor's state.
    awaits_commit: bool,
}

impl RecordedProcessor {
    pub(super) fn new(
        inner: Box<dyn Processor>,
        recorder: InstanceRecorder,
        renewal: SegmentRenewal,
    ) -> Self {
        RecordedProcessor {
            inner,
            recorder,
            renewal,
            own_epoch: Epoch(0),
            is_in_callback: false,
            owes_wake: false,
            is_in_call: false,
            copies_snapshot: false,
            awaits_commit: false,
        }
    }

    /// Handles the end of a micro-batch. If a segment is due, ends an epoch before, and takes a
    /// snapshot after it. Returns true if done, else it must be called again when the outbox is
    /// empty.
    ///
    /// # Errors
    /// Errors of the processor, and those of writing a file.
    pub(crate) fn end_batch(&mut self, batch: MicroBatch, outbox: &mut Outbox) -> Result<bool> {
        let is_own = self.renewal == SegmentRenewal::OwnSnapshots;
        let renews = is_own && (self.is_in_callback || self.recorder.needs_segment());
        if renews && !self.end_own_epoch(outbox)?.done {
            return Ok(false);
        }
        self.recorder.end_batch(batch)?;
        if renews {
            self.begin_own_segment()?;
        }
        Ok(true)
    }

    /// Ends the next epoch in a job without checkpoints.
    fn end_own_epoch(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if !self.is_in_callback {
            self.own_epoch = self.own_epoch.next();
        }
        let epoch = self.own_epoch;
        let event = RecordedEvent::Epoch(epoch);
        let progress =
            self.until_done(event, outbox, |inner, outbox| inner.on_epoch(epoch, outbox))?;
        if progress.done && mem::take(&mut self.owes_wake) {
            outbox.wake_at(Duration::ZERO);
        }
        Ok(progress)
    }

    /// Starts a segment with a snapshot of the whole state. Without one, there is no further
    /// segment.
    fn begin_own_segment(&mut self) -> Result<()> {
        let Ok(state) = snapshot_of(self.inner.state(), self.own_epoch) else {
            self.renewal = SegmentRenewal::Never;
            return Ok(());
        };
        self.recorder.begin_segment(Some(self.own_epoch))?;
        for chunk in state {
            self.recorder.state(chunk)?;
        }
        self.recorder.end_state()?;
        if !self.recorder.is_active() {
            // The state is larger than all that may be retained.
            self.renewal = SegmentRenewal::Never;
        }
        Ok(())
    }

    /// Calls the processor, and records its output.
    fn call<R>(
        &mut self,
        outbox: &mut Outbox,
        run: impl FnOnce(&mut dyn Processor, &mut Outbox) -> Result<R>,
    ) -> Result<R> {
        let before = InstanceRecorder::mark(outbox);
        self.is_in_call = true;
        let result = run(&mut *self.inner, outbox);
        self.is_in_call = false;
        let recorded = self.recorder.output(outbox, &before);
        match &result {
            Ok(_) => recorded?,
            Err(error) => self.fail(&error.to_string()),
        }
        result
    }

    /// Calls a callback that is called until it returns done, and records the first of its calls.
    fn until_done(
        &mut self,
        event: RecordedEvent,
        outbox: &mut Outbox,
        run: impl FnOnce(&mut dyn Processor, &mut Outbox) -> Result<Progress>,
    ) -> Result<Progress> {
        if !mem::replace(&mut self.is_in_callback, true) {
            self.recorder.note(event)?;
        }
        let progress = self.call(outbox, run)?;
        self.is_in_callback = !progress.done;
        Ok(progress)
    }

    /// Records a failure. The job fails anyway, so that errors are ignored.
    fn fail(&mut self, why: &str) {
        let noted = self.recorder.note(RecordedEvent::Failed(why.into()));
        let _ = noted.and_then(|()| self.recorder.flush());
    }
}

/// Takes a snapshot of a whole state, and commits it.
///
/// # Errors
/// Errors of the state, and a snapshot that makes no progress.
pub(super) fn snapshot_of(state: &mut dyn Checkpointed, epoch: Epoch) -> Result<Vec<StateChunk>> {
    state.take_snapshot(SnapshotRequest::full(epoch))?;
    let (mut all, mut chunk) = (Vec::new(), StateChunk::default());
    let mut idle_calls = 0;
    let mut until_done = |progress: Progress| {
        idle_calls = match progress.made {
            true => 0,
            false => idle_calls + 1,
        };
        match idle_calls > IDLE_CALLS {
            true => Err(Error::new(
                ErrorCode::UserError,
                "a snapshot makes no progress",
            )),
            false => Ok(progress.done),
        }
    };
    while !until_done(state.write_snapshot(&mut SnapshotWriter::new(&mut chunk, STATE_BYTES))?)? {
        if chunk.byte_len() >= STATE_BYTES {
            all.push(mem::take(&mut chunk));
        }
    }
    while !until_done(state.on_checkpoint_committed(epoch)?)? {}
    all.push(chunk);
    Ok(all)
}

impl Processor for RecordedProcessor {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        if self.renewal != SegmentRenewal::OwnSnapshots {
            return self.inner.init(context);
        }
        // The processor tracks changes of its state for snapshots.
        self.inner.init(&InstanceContext {
            guarantee: Guarantee::ExactlyOnce,
            ..context.clone()
        })
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        self.recorder.input(input, inbox)?;
        self.call(outbox, |inner, outbox| inner.process(input, inbox, outbox))
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        let event = RecordedEvent::Watermark(watermark);
        self.until_done(event, outbox, |inner, outbox| {
            inner.on_watermark(watermark, outbox)
        })
    }

    fn on_epoch(&mut self, epoch: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        if self.renewal == SegmentRenewal::OwnSnapshots {
            return self.end_own_epoch(outbox);
        }
        let event = RecordedEvent::Epoch(epoch);
        self.until_done(event, outbox, |inner, outbox| inner.on_epoch(epoch, outbox))
    }

    fn on_batch_end(&mut self, batch: MicroBatch, outbox: &mut Outbox) -> Result<Progress> {
        self.call(outbox, |inner, outbox| inner.on_batch_end(batch, outbox))
    }

    fn on_edge_done(&mut self, input: Ordinal, outbox: &mut Outbox) -> Result<Progress> {
        let event = RecordedEvent::EdgeDone(input);
        self.until_done(event, outbox, |inner, outbox| {
            inner.on_edge_done(input, outbox)
        })
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let event = RecordedEvent::Complete;
        let progress = self.until_done(event, outbox, |inner, outbox| inner.complete(outbox))?;
        if progress.done {
            self.recorder.note(RecordedEvent::End)?;
            self.recorder.flush()?;
        }
        Ok(progress)
    }

    fn catch_up(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.inner.catch_up(outbox)
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        // At the end of a micro-batch, while an own epoch is in progress.
        if self.is_in_callback {
            self.owes_wake = true;
            return Ok(());
        }
        self.call(outbox, |inner, outbox| inner.on_wake(outbox))
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        // Each epoch starts a segment, also without state.
        let is_stateful = self.inner.checkpointed().is_some();
        match is_stateful || self.renewal == SegmentRenewal::Checkpoints {
            true => Some(self),
            false => None,
        }
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        self.inner.source_control()
    }

    fn marker_deferral(&mut self) -> Option<&mut dyn MarkerDeferral> {
        self.inner.marker_deferral()
    }

    fn unsaved_state(&self) -> Option<&'static str> {
        self.inner.unsaved_state()
    }

    fn close(&mut self) {
        if mem::take(&mut self.is_in_call) {
            self.fail("a panic");
        }
        // The job may end for another reason, so that an error is ignored.
        let _ = self.recorder.flush();
        self.inner.close();
    }
}

/// The state of the processor. It is always restored before the first record.
impl Checkpointed for RecordedProcessor {
    fn states(&mut self) -> Vec<StateShape> {
        self.inner.state().states()
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        let state = self.inner.state();
        state.take_snapshot(snapshot)?;
        self.awaits_commit = state.awaits_commit();
        let is_start = snapshot.is_full() && !snapshot.is_last;
        self.copies_snapshot = is_start && self.renewal == SegmentRenewal::Checkpoints;
        match self.copies_snapshot {
            true => self.recorder.begin_segment(Some(snapshot.epoch)),
            false => Ok(()),
        }
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        if !self.copies_snapshot {
            return self.inner.state().write_snapshot(writer);
        }
        let mut chunk = StateChunk::default();
        let mut own = SnapshotWriter::new(&mut chunk, CALL_BYTES);
        let progress = self.inner.state().write_snapshot(&mut own)?;
        chunk.entries().try_for_each(|entry| writer.copy(entry))?;
        for (state, before) in chunk.outdated() {
            writer.outdate(state, before)?;
        }
        self.recorder.state(chunk)?;
        if progress.done {
            self.copies_snapshot = false;
            self.recorder.end_state()?;
        }
        Ok(progress)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.inner.state().restore(state)
    }

    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        self.inner.state().on_restored(epoch)
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        let state = self.inner.state();
        let progress = state.on_checkpoint_committed(epoch);
        self.awaits_commit = state.awaits_commit();
        progress
    }

    fn on_checkpoint_aborted(&mut self, epoch: Epoch) -> Result<Progress> {
        self.inner.state().on_checkpoint_aborted(epoch)
    }

    fn awaits_commit(&self) -> bool {
        self.awaits_commit
    }
}
