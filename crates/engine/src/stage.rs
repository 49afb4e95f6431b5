//! One processor of a tasklet with its position in the life cycle.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ardea_core::{
    Epoch, Error, Inbox, InstanceContext, Marker, MicroBatch, Ordinal, Outbox, OutboxRuntime,
    Progress, Result, Timestamp, Watermark,
};

use crate::channels::input::{Event, InputSet};
use crate::micro_batch::SourceBatches;

mod code;
mod edge_end;
mod latency_markers;
mod lazy_restore;
mod micro_batches;
mod restored_watermarks;
mod restoring;
mod snapshotting;
mod source;
mod state_handoff;

pub(crate) use code::{Callback, Code};
use latency_markers::LatencyMarkerInterval;
use lazy_restore::LazyRestore;
pub(crate) use restoring::Restoring;
pub(crate) use snapshotting::{SNAPSHOT_SLICE, SnapshotState};

/// The effect of a request to drain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DrainMode {
    /// The source stops.
    Stops,
    /// The stage runs until its input ends: a step, or a source upstream of an urgent input.
    GoesOn,
}

/// The role of a stage for the runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Reads from outside; starts barriers, and may be paused. A source that is held back is not
    /// called until it is [started](ProcessorStage::begin).
    Source {
        at_drain: DrainMode,
        is_kept_back: bool,
    },
    /// Processes records of other stages.
    Step,
    /// Sends records to another process. Called only when woken, since it polls nothing.
    Sender,
    /// Receives records from another process. Called like a source, but does not count as one.
    Receiver,
}

/// The current activity of a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Processing records until a marker arrives.
    Reading,
    /// Processing this watermark, until the processor is done with it.
    Watermark(Watermark),
    /// Ending this epoch, until the processor is done with it.
    Epoch(Epoch),
    /// Ending this micro-batch, until the processor has no output left; with the time since the
    /// first input's end.
    BatchEnd(MicroBatch, Duration),
    /// Ending this input, until the processor is done with it; after the last input `LastWatermark`
    /// follows.
    EdgeDone { input: Ordinal, last: bool },
    /// Processing the end watermark, until the processor is done with it.
    LastWatermark,
    /// Emitting the remaining results (a source: everything), until the processor is done.
    Completing,
    /// Ended.
    Done,
}

/// The source of a stage's input.
pub(crate) enum Feed<'a> {
    /// The tasklet's queues.
    Queues(&'a mut InputSet),
    /// The previous stage of the chain.
    Before(&'a mut ProcessorStage),
}

/// One processor with its inboxes and outbox.
pub(crate) struct ProcessorStage {
    code: Code,
    pub(crate) context: InstanceContext,
    inboxes: Vec<Inbox>,
    pub(crate) outbox: Outbox,
    phase: Phase,
    /// The input whose records are being processed.
    at: Option<Ordinal>,
    /// Position of the first record, and length, of the latest batch passed to `process`.
    batch: (u64, usize),
    /// The latest watermark passed to the processor.
    watermark: Watermark,
    kind: Kind,
    /// True if the processor is also called while the job is paused.
    pauses_itself: bool,
    /// True if the stage must end as if the job drained: a source that must not run here any more,
    /// or an end of an edge that is not needed.
    is_dismissed: bool,
    epochs_ended: u64,
    wake_at: Option<Duration>,
    /// Senders only: number of start markers still to be sent, one for the stream itself and one
    /// per announced change.
    owed_start_markers: u32,
    /// True if all inputs have ended.
    has_ended: bool,
    /// True if a deadline passed while `on_wake` could not be called.
    owes_wake: bool,
    woken: Arc<AtomicBool>,
    marks: LatencyMarkerInterval,
    /// True if the processor has handled the end of the micro-batch that is ending.
    has_ended_batch: bool,
    /// Present at a source in micro-batch mode.
    batches: Option<Box<SourceBatches>>,
    /// Present if snapshots are taken.
    snapshots: Option<Box<SnapshotState>>,
    /// True if the stage was not called since the latest snapshot, which thus equals its state.
    is_at_snapshot: bool,
    /// True if records may be processed before all state is restored.
    restores_lazily: bool,
    /// Present during and after a lazy restore.
    lazy_restore: Option<Box<LazyRestore>>,
}

impl ProcessorStage {
    /// Creates a stage with this number of inputs and outputs.
    pub(crate) fn new(
        mut code: Code,
        context: InstanceContext,
        inputs: usize,
        outputs: usize,
        kind: Kind,
        woken: Arc<AtomicBool>,
    ) -> Self {
        ProcessorStage {
            outbox: Outbox::new(outputs, context.chunk_records),
            inboxes: (0..inputs).map(|_| Inbox::default()).collect(),
            phase: match kind {
                Kind::Source { .. } | Kind::Receiver => Phase::Completing,
                Kind::Step | Kind::Sender => Phase::Reading,
            },
            kind,
            is_dismissed: false,
            at: None,
            batch: (0, 0),
            watermark: Watermark::NONE,
            // A stage that is added later has no part in earlier epochs.
            epochs_ended: context.signals.requested_epochs(),
            wake_at: None,
            owed_start_markers: u32::from(kind == Kind::Sender),
            has_ended: false,
            owes_wake: false,
            pauses_itself: code
                .processor()
                .is_some_and(|it| it.source().pauses_itself()),
            code,
            context,
            woken,
            marks: LatencyMarkerInterval::default(),
            has_ended_batch: false,
            batches: None,
            snapshots: None,
            is_at_snapshot: false,
            restores_lazily: kind == Kind::Step,
            lazy_restore: None,
        }
    }

    /// Starts a slice: checks whether a source has to send a latency marker.
    #[inline]
    pub(crate) fn begin_slice(&mut self, now: Duration) {
        if self.is_source() {
            self.marks.check_due(now);
            if let Some(batches) = &mut self.batches {
                batches.begin_slice(now);
            }
        }
    }

    /// Handles a latency marker: counts its latency, and passes it on unless one was passed on
    /// recently.
    fn pass_mark(&mut self, born: Timestamp) -> Result<()> {
        let clock = &self.context.clock;
        // Clocks of hosts differ: a marker from the future counts as zero.
        let (now, took) = (clock.now(), clock.wall().since(born));
        self.context.metrics.count_latency(took);
        if self.marks.passes(now) && !self.code.on_latency(born)? {
            self.outbox.marker(Marker::Latency(born));
        }
        Ok(())
    }

    /// Grows to at least this number of inputs and outputs.
    pub(crate) fn grow(&mut self, inputs: usize, outputs: usize) {
        if self.inboxes.len() < inputs {
            self.inboxes.resize_with(inputs, Inbox::default);
        }
        self.outbox.grow(outputs);
    }

    /// For the sending end of an edge: flushes batches.
    pub(crate) fn end_slice(&mut self) -> Result<()> {
        self.code.end_slice()
    }

    pub(crate) fn init(&mut self) -> Result<()> {
        self.code.init(&self.context)
    }

    pub(crate) fn close(&mut self) {
        self.code.close();
    }

    /// Returns the number of records in the stage's inboxes and outbox.
    pub(crate) fn pending_records(&mut self) -> u64 {
        let read = self.inboxes.iter().map(Inbox::len).sum::<usize>();
        let lanes = 0..self.outbox.lanes();
        let written: usize = lanes.map(|lane| self.outbox.chunk_mut(lane).len()).sum();
        (read + written) as u64
    }

    /// Returns true if there is output that was not taken yet.
    pub(crate) fn has_output(&self) -> bool {
        let has_signal =
            matches!(&self.code, Code::Receiving(receiving) if !receiving.signals.is_empty());
        has_signal || !self.outbox.is_empty()
    }

    /// Returns true if the stage has ended, and all its output has been taken.
    pub(crate) fn is_finished(&self) -> bool {
        self.phase == Phase::Done && !self.has_output() && !self.holds_on()
    }

    /// Returns the deadline of the next call without other events, `poll` by default. A stage whose
    /// output is not taken yet has no deadline: it is called when the output is taken.
    pub(crate) fn next_call(&self, poll: Duration) -> Option<Duration> {
        if self.has_output() {
            return None;
        }
        let own = self
            .wake_at
            .or_else(|| self.holds_back().then_some(poll))
            .filter(|_| !self.rests());
        own.into_iter().chain(self.batch_deadline()).min()
    }

    /// Returns true if the stage has something to do and room for it, but made no progress: an idle
    /// source, or a processor that waits for an external event.
    pub(crate) fn holds_back(&self) -> bool {
        match self.phase {
            Phase::Reading => self.waiting_input().is_some(),
            Phase::Done => false,
            Phase::Completing => !matches!(self.kind, Kind::Sender | Kind::Receiver),
            _ => true,
        }
    }

    /// Returns the deadline that the processor has requested.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.wake_at
    }

    /// Returns the input with records that the processor has not removed yet.
    fn waiting_input(&self) -> Option<Ordinal> {
        self.at
            .filter(|input| !self.inboxes[input.index()].is_empty())
    }

    /// Adds the vertex and instance to an error.
    pub(crate) fn named(&self, error: Error) -> Error {
        error.in_vertex(&self.context.vertex, self.context.instance.index)
    }

    /// Adds vertex, instance and, if known, the record to an error.
    ///
    /// `index` is the position in the batch, from a [`RecordGuard`](ardea_core::RecordGuard) of a
    /// panic. Otherwise the record is the first one left in the inbox, if there is one.
    pub(crate) fn place(&self, error: Error, index: Option<usize>) -> Error {
        let Some(input) = self.at else {
            return self.named(error);
        };
        let inbox = &self.inboxes[input.index()];
        let position = match (index, self.batch) {
            (Some(index), (start, _)) => Some(start + index as u64),
            (None, _) if !inbox.is_empty() => Some(inbox.position()),
            (None, (start, 1)) => Some(start),
            (None, _) => None,
        };
        let error = match position {
            Some(position) => error.at_record(input.index(), position),
            None => error,
        };
        self.named(error)
    }

    /// Performs one step if the outbox is empty: processes a batch of records, or calls the current
    /// callback. Returns true if anything moved.
    pub(crate) fn step(&mut self, mut feed: Feed<'_>) -> Result<bool> {
        if self.has_output() {
            return Ok(false);
        }
        let woke = self.wake_if_due()?;
        if self.owed_start_markers > 0 {
            self.send_start_marker();
        }
        let moved = match self.phase {
            Phase::Reading => self.read(&mut feed)?,
            Phase::Done => false,
            _ => self.call()?,
        };
        if let Some(deadline) = self.outbox.take_wake_at() {
            self.wake_at = Some(
                self.wake_at
                    .map_or(deadline, |earlier| earlier.min(deadline)),
            );
        }
        Ok(moved | woke)
    }

    /// Sends a start marker, and then the current watermark again.
    fn send_start_marker(&mut self) {
        let is_between = matches!(self.phase, Phase::Reading | Phase::Completing);
        if is_between && self.waiting_input().is_none() {
            self.owed_start_markers -= 1;
            self.phase = Phase::Watermark(Watermark::NONE);
        }
    }

    /// Calls `on_wake` if its deadline has passed or the waker was used. Not for sources and
    /// receivers, which are polled by `complete`. In the middle of another callback the call is
    /// deferred until that callback is done.
    fn wake_if_due(&mut self) -> Result<bool> {
        if self.reads_from_outside() {
            self.wake_at = None;
            return Ok(false);
        }
        if let Some(deadline) = self.wake_at
            && deadline <= self.context.clock.now()
        {
            self.wake_at = None;
            self.owes_wake = true;
        }
        if !matches!(self.phase, Phase::Reading | Phase::BatchEnd(..)) {
            return Ok(false);
        }
        let woken = self.woken.load(Ordering::Acquire) && self.woken.swap(false, Ordering::AcqRel);
        if !(mem::take(&mut self.owes_wake) | woken) {
            return Ok(false);
        }
        // An error here does not concern a record, but the pending records remain.
        let at = self.at.take();
        self.is_at_snapshot = false;
        self.code.on_wake(&mut self.outbox)?;
        self.at = at;
        Ok(!self.outbox.is_empty())
    }

    fn read(&mut self, feed: &mut Feed<'_>) -> Result<bool> {
        if self.lazy_restore.is_some()
            && let Some(moved) = self.continue_restore()
        {
            return moved;
        }
        if let Some(input) = self.waiting_input() {
            return self.process(input);
        }
        let event = match feed {
            Feed::Queues(inputs) => {
                if let Some(input) = self.at
                    && let Some(empty) = self.inboxes[input.index()].take_empty()
                {
                    inputs.give_back(input.index(), empty);
                }
                inputs.pull()
            }
            Feed::Before(stage) => stage.hand_over(&mut self.inboxes[0]),
        };
        self.at = None;
        let Some(event) = event else { return Ok(false) };
        self.accept(event)
    }

    /// For the next stage of the chain: returns the next output of this stage. A full chunk of this
    /// stage's outbox is swapped with the emptied one of the next stage's inbox.
    fn hand_over(&mut self, inbox: &mut Inbox) -> Option<Event> {
        if self.outbox.has_records(0) {
            let chunk = self
                .outbox
                .take_chunk(0, || inbox.take_empty().unwrap_or_default())?;
            self.context.metrics.count_out(chunk.len() as u64);
            return Some(Event::Chunk(Ordinal::FIRST, chunk));
        }
        Some(match self.outbox.take_marker(0)? {
            Marker::Watermark(watermark) => {
                self.context.metrics.record_watermark(watermark);
                Event::Watermark(watermark)
            }
            Marker::Idle => Event::Idle,
            Marker::Barrier(epoch) => Event::Barrier(epoch, Duration::ZERO),
            Marker::BatchEnd(batch) => Event::BatchEnd(batch, Duration::ZERO),
            Marker::Latency(born) => Event::Latency(born),
            Marker::Done => Event::EdgeDone {
                input: Ordinal::FIRST,
                last: true,
            },
        })
    }

    fn accept(&mut self, event: Event) -> Result<bool> {
        // Taking an event is progress: its sender has room again.
        let Some(event) = self.defer_until_restored(event) else {
            return Ok(true);
        };
        match event {
            Event::Chunk(input, chunk) => {
                self.context.metrics.count_in(chunk.len() as u64);
                self.inboxes[input.index()].fill(chunk);
                self.process(input)?;
                return Ok(true);
            }
            // Only rising watermarks are passed on; queues ensure that, but a chain does not.
            Event::Watermark(watermark) if watermark <= self.watermark => return Ok(true),
            Event::Watermark(watermark) => {
                self.watermark = watermark;
                if self.outbox.lanes() == 0 {
                    // A stage with outputs records a watermark when it emits it, so that watermarks
                    // of sources are included.
                    self.context.metrics.record_watermark(watermark);
                }
                self.phase = Phase::Watermark(watermark);
            }
            Event::Idle => {
                if !self.code.on_idle()? {
                    self.outbox.marker(Marker::Idle);
                }
                return Ok(true);
            }
            Event::Latency(born) => {
                self.pass_mark(born)?;
                return Ok(true);
            }
            Event::Barrier(epoch, took) => {
                self.context.metrics.count_alignment(took);
                self.phase = Phase::Epoch(epoch);
                return Ok(true);
            }
            Event::BatchEnd(batch, waited) => self.phase = Phase::BatchEnd(batch, waited),
            Event::EdgeDone { input, last } => self.phase = Phase::EdgeDone { input, last },
        }
        self.call()?;
        Ok(true)
    }

    fn process(&mut self, input: Ordinal) -> Result<bool> {
        self.is_at_snapshot = false;
        self.at = Some(input);
        let inbox = &mut self.inboxes[input.index()];
        let before = inbox.len();
        self.batch = (inbox.position(), before);
        self.code.process(input, inbox, &mut self.outbox)?;
        if self.lazy_restore.is_some() {
            self.hurry();
        }
        Ok(self.inboxes[input.index()].len() != before || !self.outbox.is_empty())
    }

    /// Calls the current callback; when it is done, advances to the next phase.
    fn call(&mut self) -> Result<bool> {
        if let Phase::BatchEnd(batch, waited) = self.phase {
            return self.end_batch_of_step(batch, waited);
        }
        self.is_at_snapshot = false;
        let outbox = &mut self.outbox;
        let (progress, next) = match self.phase {
            Phase::Watermark(watermark) => {
                let next = match self.has_ended {
                    // After a start marker.
                    _ if watermark < self.watermark => Phase::Watermark(self.watermark),
                    true => Phase::Completing,
                    false => Phase::Reading,
                };
                (
                    self.code.handle(Callback::Watermark(watermark), outbox)?,
                    next,
                )
            }
            Phase::LastWatermark => (
                self.code
                    .handle(Callback::Watermark(Watermark::END), outbox)?,
                Phase::Completing,
            ),
            Phase::EdgeDone { input, last } => {
                let next = match last {
                    false => Phase::Reading,
                    // The other end of an edge tracks the event time of each of its own producers.
                    true if self.kind == Kind::Sender => Phase::Completing,
                    true if self.watermark == Watermark::END => Phase::Completing,
                    true => Phase::LastWatermark,
                };
                (self.code.handle(Callback::EdgeDone(input), outbox)?, next)
            }
            Phase::Epoch(epoch) => return self.end_epoch(epoch),
            Phase::Completing => return self.complete(),
            Phase::Reading | Phase::BatchEnd(..) | Phase::Done => (Progress::NONE, self.phase),
        };
        if progress.done {
            self.has_ended |= matches!(self.phase, Phase::EdgeDone { last: true, .. });
            self.phase = next;
        }
        Ok(progress.made | progress.done)
    }

    fn end_epoch(&mut self, epoch: Epoch) -> Result<bool> {
        self.deliver_outcomes_before_epoch()?;
        let progress = self.code.handle(Callback::Epoch(epoch), &mut self.outbox)?;
        if progress.done {
            self.take_snapshot(epoch);
            self.outbox.marker(Marker::Barrier(epoch));
            self.context.metrics.count_epoch();
            if let Some(batches) = &mut self.batches {
                batches.end_epoch(epoch);
            }
            self.phase = match self.kind {
                Kind::Source { .. } => Phase::Completing,
                _ => Phase::Reading,
            };
        }
        Ok(progress.made | progress.done)
    }

    fn complete(&mut self) -> Result<bool> {
        let is_source = self.is_source();
        let awaits_batches = self.awaits_batches();
        if is_source
            && !self.repeats_batches()
            && let Some(epoch) = self.context.signals.next_epoch(self.epochs_ended)
        {
            if self.end_batch_of_source(true) {
                return Ok(true);
            }
            self.epochs_ended = epoch.0;
            self.phase = Phase::Epoch(epoch);
            return Ok(true);
        }
        if self.end_batch_of_source(false) {
            return Ok(true);
        }
        if self.rests() || awaits_batches {
            return Ok(false);
        }
        if self.marks.take_owed() {
            let born = self.context.clock.wall();
            self.outbox.marker(Marker::Latency(born));
            return Ok(true);
        }
        self.limit_batch();
        let drained = self.is_drained();
        let progress = self
            .code
            .complete(drained, &self.context, &mut self.outbox)?;
        if self.context.signals.is_cancelled() {
            // A source that stops because of a cancellation has not reached its end, and downstream
            // must not treat it so.
            return Ok(false);
        }
        self.hold_time(progress.done);
        if progress.done {
            let source = self.code.processor();
            let is_at_end = source.is_some_and(|source| source.source().is_at_end());
            if is_source && drained && !self.is_dismissed && !is_at_end {
                self.context.signals.set_drained();
            }
            self.phase = Phase::Done;
            self.take_last_snapshot();
            self.outbox.marker(Marker::Done);
        }
        Ok(progress.made | progress.done)
    }
}
