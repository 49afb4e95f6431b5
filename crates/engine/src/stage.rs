//! One processor of a tasklet, and where it is between its first record and its last.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ardea_core::{
    Epoch, Error, Inbox, InstanceContext, Marker, Ordinal, Outbox, Processor, Progress, Result,
    Timestamp, Watermark,
};

use crate::input::{Event, InputSet};
use crate::marks::MarkPace;

mod cutting;
mod going_on;
mod restoring;
mod returning;
mod told_before;

pub(crate) use cutting::{CUT_SLICE, CutDesk};
pub(crate) use restoring::Restoring;
use returning::Returning;

/// What comes of a request to drain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AtDrain {
    /// A source stops.
    Stops,
    /// It goes on until its input ends: a step, or a source that leads into an urgent input.
    GoesOn,
}

/// What a stage is for the runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Reads from outside; begins epochs, and may be paused. One that is kept back is not called before it may begin.
    Source {
        at_drain: AtDrain,
        is_kept_back: bool,
    },
    /// Reads what others wrote.
    Step,
    /// Writes what goes to another process. It is called when it is woken, as it has nothing to look for by itself.
    Sender,
    /// Reads what comes from another process; called as a source is, but no source.
    Receiver,
}

/// What a stage is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Reading records until a marker comes.
    Reading,
    /// Emitting what this watermark made final, until the processor is done with it.
    Watermark(Watermark),
    /// Ending this epoch, until the processor is done with it.
    Epoch(Epoch),
    /// Ending this input, until the processor is done with it; the last input's end leads on to `LastWatermark`.
    EdgeDone { input: Ordinal, last: bool },
    /// Emitting what the end of all time makes final, until the processor is done with it.
    LastWatermark,
    /// Emitting what is left (a source: all it has), until the processor is done.
    Completing,
    /// Nothing more comes out.
    Done,
}

/// Where a stage gets its input from.
pub(crate) enum Feed<'a> {
    /// The tasklet's queues.
    Queues(&'a mut InputSet),
    /// The stage before it.
    Before(&'a mut Stage),
}

/// One processor with its boxes.
pub(crate) struct Stage {
    processor: Box<dyn Processor>,
    pub(crate) context: InstanceContext,
    inboxes: Vec<Inbox>,
    pub(crate) outbox: Outbox,
    phase: Phase,
    /// The input whose records are being dealt with.
    at: Option<Ordinal>,
    /// Of the latest batch given to `process`: its first record's position, and its length.
    batch: (u64, usize),
    /// The latest watermark that the processor has been told.
    watermark: Watermark,
    kind: Kind,
    /// It is to end as if the job drained: a source that is not to run here any more, the end of an edge that is not needed.
    is_dismissed: bool,
    epochs_ended: u64,
    wake_at: Option<Duration>,
    /// Of the sending end of an edge: of so many beginnings the other end is to hear, its own and those of producers that come.
    owed_beginnings: u32,
    /// All inputs have.
    has_ended: bool,
    /// A deadline came while `on_wake` could not be called.
    owes_wake: bool,
    woken: Arc<AtomicBool>,
    marks: MarkPace,
    /// Present where cuts are taken.
    cuts: Option<Box<CutDesk>>,
    /// Nothing has come since the cut of the latest epoch was taken: what the processor remembers is what is in that.
    is_at_cut: bool,
    /// Present where it has begun before all of its state was back.
    returning: Option<Box<Returning>>,
}

impl Stage {
    /// A stage with this many inputs and outputs.
    pub(crate) fn new(
        processor: Box<dyn Processor>,
        context: InstanceContext,
        inputs: usize,
        outputs: usize,
        kind: Kind,
        woken: Arc<AtomicBool>,
    ) -> Self {
        Stage {
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
            // One that comes later has no part in the epochs before.
            epochs_ended: context.signals.epochs_asked(),
            wake_at: None,
            owed_beginnings: u32::from(kind == Kind::Sender),
            has_ended: false,
            owes_wake: false,
            processor,
            context,
            woken,
            marks: MarkPace::default(),
            cuts: None,
            is_at_cut: false,
            returning: None,
        }
    }

    /// A slice begins: of a source, whether a mark of latency is due.
    #[inline]
    pub(crate) fn begin_slice(&mut self, now: Duration) {
        if matches!(self.kind, Kind::Source { .. }) {
            self.marks.look(now);
        }
    }

    /// A mark has come: counts how long it took, and passes it on if none was for an interval.
    fn pass_mark(&mut self, born: Timestamp) -> Result<()> {
        let clock = &self.context.clock;
        // Clocks of hosts differ: what comes from the future took no time.
        let (now, took) = (clock.now(), clock.wall().since(born));
        self.context.metrics.count_latency(took);
        if self.marks.passes(now) {
            let goes_by_itself = self.processor.on_latency(born)?;
            if !goes_by_itself {
                self.outbox.marker(Marker::Latency(born));
            }
        }
        Ok(())
    }

    /// A source that was kept back may begin.
    pub(crate) fn begin(&mut self) {
        if let Kind::Source { is_kept_back, .. } = &mut self.kind {
            *is_kept_back = false;
        }
    }

    /// It is to end: a source without waiting for the end of its input, the end of an edge as soon as it holds nothing.
    pub(crate) fn dismiss(&mut self) {
        if self.kind != Kind::Step {
            self.is_dismissed = true;
        }
    }

    /// The end of an edge is needed after all, or again.
    pub(crate) fn recall(&mut self) {
        self.is_dismissed = false;
        if self.phase == Phase::Done && matches!(self.kind, Kind::Sender | Kind::Receiver) {
            self.phase = Phase::Completing;
        }
    }

    /// Its inputs had all ended, and then one has begun: possible for the sending end of an edge only.
    pub(crate) fn reopen(&mut self) {
        // Time begins anew with what comes now.
        self.watermark = Watermark::NONE;
        self.has_ended = false;
        match &mut self.phase {
            Phase::Completing => self.phase = Phase::Reading,
            Phase::EdgeDone { last, .. } => *last = false,
            _ => {}
        }
    }

    /// Of the sending end of an edge: producers are about to come, which the other end has to know.
    pub(crate) fn announce(&mut self) {
        self.owed_beginnings += 1;
    }

    /// Has so many inputs and outputs, if it had fewer.
    pub(crate) fn grow(&mut self, inputs: usize, outputs: usize) {
        if self.inboxes.len() < inputs {
            self.inboxes.resize_with(inputs, Inbox::default);
        }
        self.outbox.grow(outputs);
    }

    /// Of the sending end of an edge: what was gathered goes on its way.
    pub(crate) fn end_slice(&mut self) -> Result<()> {
        match self.kind {
            Kind::Sender => self.processor.on_slice_end(),
            _ => Ok(()),
        }
    }

    pub(crate) fn init(&mut self) -> Result<()> {
        self.processor.init(&self.context)
    }

    pub(crate) fn close(&mut self) {
        self.processor.close();
    }

    /// Whether it is a source that is kept back, and whether it is to end.
    pub(crate) fn standing(&self) -> (bool, bool) {
        let is_kept_back = matches!(
            self.kind,
            Kind::Source {
                is_kept_back: true,
                ..
            }
        );
        (is_kept_back, self.is_dismissed)
    }

    /// How many records it has that are in no queue.
    pub(crate) fn at_hand(&mut self) -> u64 {
        let read = self.inboxes.iter().map(Inbox::len).sum::<usize>();
        let lanes = 0..self.outbox.lanes();
        let written: usize = lanes.map(|lane| self.outbox.chunk_mut(lane).len()).sum();
        (read + written) as u64
    }

    /// Whether nothing more will come out of it and all that came has been moved on.
    pub(crate) fn is_finished(&self) -> bool {
        self.phase == Phase::Done && self.outbox.is_empty() && !self.holds_on()
    }

    /// When it is to be called again if nothing happens until then; `poll` is the time for those that named none.
    ///
    /// One whose output waits to be moved on is called when that has happened, not before: its deadline is kept till then.
    pub(crate) fn next_call(&self, poll: Duration) -> Option<Duration> {
        if !self.outbox.is_empty() || self.rests() {
            return None;
        }
        self.wake_at.or_else(|| self.holds_back().then_some(poll))
    }

    /// Whether it is a source that is not to be called at the moment.
    fn rests(&self) -> bool {
        let Kind::Source { is_kept_back, .. } = self.kind else {
            return false;
        };
        let is_paused = self.context.signals.is_paused() && !self.processor.pauses_itself();
        (is_kept_back || is_paused) && !self.is_drained()
    }

    /// Whether it is to end as if its input had.
    fn is_drained(&self) -> bool {
        match self.kind {
            // Asked once a call: what the processor sees is what is done here.
            Kind::Source { at_drain, .. } => {
                at_drain == AtDrain::Stops && self.context.signals.tell_draining()
                    || self.is_dismissed
            }
            _ => self.is_dismissed,
        }
    }

    /// Whether it has something to do and room for it, and still did not move: a silent source, or a processor that waits for
    /// something outside.
    fn holds_back(&self) -> bool {
        match self.phase {
            Phase::Reading => self.waiting_input().is_some(),
            Phase::Done => false,
            Phase::Completing => !matches!(self.kind, Kind::Sender | Kind::Receiver),
            _ => true,
        }
    }

    /// The input with records that the processor has not dealt with yet.
    fn waiting_input(&self) -> Option<Ordinal> {
        self.at
            .filter(|input| !self.inboxes[input.index()].is_empty())
    }

    /// Names the vertex and instance in an error.
    pub(crate) fn named(&self, error: Error) -> Error {
        error.in_vertex(&self.context.vertex, self.context.instance.index)
    }

    /// Names vertex, instance and, as far as it is known, the record in an error.
    ///
    /// A panic under a [`RecordGuard`](ardea_core::RecordGuard) tells the `index` in the batch. Without one, and for errors that
    /// don't say it themselves, it is the first record left in the inbox, as those removed have been dealt with. A batch that
    /// was emptied all the same doesn't tell, unless it was a single record.
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

    /// Does one thing, if the outbox has been moved on: a batch of records, or a call of the callback at hand.
    ///
    /// Says whether anything moved.
    pub(crate) fn step(&mut self, mut feed: Feed<'_>) -> Result<bool> {
        if !self.outbox.is_empty() {
            return Ok(false);
        }
        let woke = self.wake_if_due()?;
        if self.owed_beginnings > 0 {
            self.tell_beginning();
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

    /// Says that producers come, and then again how far time has come.
    fn tell_beginning(&mut self) {
        let is_between = matches!(self.phase, Phase::Reading | Phase::Completing);
        if is_between && self.waiting_input().is_none() {
            self.owed_beginnings -= 1;
            self.phase = Phase::Watermark(Watermark::NONE);
        }
    }

    /// Calls `on_wake` if the time for it has come, or a waker said so. A source is called anyway, and so is what has no records
    /// to expect; in the middle of another callback it is put off until that is done.
    fn wake_if_due(&mut self) -> Result<bool> {
        if matches!(self.kind, Kind::Source { .. } | Kind::Receiver) {
            self.wake_at = None;
            return Ok(false);
        }
        if let Some(deadline) = self.wake_at
            && deadline <= self.context.clock.now()
        {
            self.wake_at = None;
            self.owes_wake = true;
        }
        if self.phase != Phase::Reading {
            return Ok(false);
        }
        let woken = self.woken.load(Ordering::Acquire) && self.woken.swap(false, Ordering::AcqRel);
        if !(mem::take(&mut self.owes_wake) | woken) {
            return Ok(false);
        }
        // Not in the name of a record, but the records that wait are still there.
        let at = self.at.take();
        self.is_at_cut = false;
        self.processor.on_wake(&mut self.outbox)?;
        self.at = at;
        Ok(!self.outbox.is_empty())
    }

    fn read(&mut self, feed: &mut Feed<'_>) -> Result<bool> {
        if self.returning.is_some()
            && let Some(moved) = self.go_on_returning()
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

    /// For the stage behind: the next thing that came out of this one. Records travel by exchanging the full chunk of this
    /// stage's outbox for the emptied one of the next stage's inbox.
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
                self.context.metrics.note_watermark(watermark);
                Event::Watermark(watermark)
            }
            Marker::Idle => Event::Idle,
            Marker::EpochEnd(epoch) => Event::EpochEnd(epoch, Duration::ZERO),
            Marker::Latency(born) => Event::Latency(born),
            Marker::Done => Event::EdgeDone {
                input: Ordinal::FIRST,
                last: true,
            },
        })
    }

    fn accept(&mut self, event: Event) -> Result<bool> {
        // Taking an event is a move in itself: whoever sent it has room again.
        let Some(event) = self.holds_until_back(event) else {
            return Ok(true);
        };
        match event {
            Event::Chunk(input, chunk) => {
                self.context.metrics.count_in(chunk.len() as u64);
                self.inboxes[input.index()].fill(chunk);
                self.process(input)?;
                return Ok(true);
            }
            // Only what rises is told: queues see to it by themselves, but a chain does not.
            Event::Watermark(watermark) if watermark <= self.watermark => return Ok(true),
            Event::Watermark(watermark) => {
                self.watermark = watermark;
                if self.outbox.lanes() == 0 {
                    // What has outputs notes a watermark when it passes it on, so that a source and a step that makes its own
                    // count as well.
                    self.context.metrics.note_watermark(watermark);
                }
                self.phase = Phase::Watermark(watermark);
            }
            Event::Idle => {
                self.processor.on_idle();
                self.outbox.marker(Marker::Idle);
                return Ok(true);
            }
            Event::Latency(born) => {
                self.pass_mark(born)?;
                return Ok(true);
            }
            Event::EpochEnd(epoch, took) => {
                self.context.metrics.count_alignment(took);
                self.phase = Phase::Epoch(epoch);
                return Ok(true);
            }
            Event::EdgeDone { input, last } => self.phase = Phase::EdgeDone { input, last },
        }
        self.call()?;
        Ok(true)
    }

    fn process(&mut self, input: Ordinal) -> Result<bool> {
        self.is_at_cut = false;
        self.at = Some(input);
        let inbox = &mut self.inboxes[input.index()];
        let before = inbox.len();
        self.batch = (inbox.position(), before);
        self.processor.process(input, inbox, &mut self.outbox)?;
        if self.returning.is_some() {
            self.hurry();
        }
        Ok(self.inboxes[input.index()].len() != before || !self.outbox.is_empty())
    }

    /// Calls the callback at hand; when it is done, goes on to the next phase.
    fn call(&mut self) -> Result<bool> {
        self.is_at_cut = false;
        let outbox = &mut self.outbox;
        let (progress, next) = match self.phase {
            Phase::Watermark(watermark) => {
                let next = match self.has_ended {
                    // After a beginning that was told.
                    _ if watermark < self.watermark => Phase::Watermark(self.watermark),
                    true => Phase::Completing,
                    false => Phase::Reading,
                };
                (self.processor.on_watermark(watermark, outbox)?, next)
            }
            Phase::LastWatermark => (
                self.processor.on_watermark(Watermark::END, outbox)?,
                Phase::Completing,
            ),
            Phase::EdgeDone { input, last } => {
                let next = match last {
                    false => Phase::Reading,
                    // Of time the other end of an edge hears from each of its own producers.
                    true if self.kind == Kind::Sender => Phase::Completing,
                    true if self.watermark == Watermark::END => Phase::Completing,
                    true => Phase::LastWatermark,
                };
                (self.processor.on_edge_done(input, outbox)?, next)
            }
            Phase::Epoch(epoch) => return self.end_epoch(epoch),
            Phase::Completing => return self.complete(),
            Phase::Reading | Phase::Done => (Progress::NONE, self.phase),
        };
        if progress.done {
            self.has_ended |= matches!(self.phase, Phase::EdgeDone { last: true, .. });
            self.phase = next;
        }
        Ok(progress.made | progress.done)
    }

    fn end_epoch(&mut self, epoch: Epoch) -> Result<bool> {
        self.tell_news_of_epochs()?;
        let progress = self.processor.on_epoch(epoch, &mut self.outbox)?;
        if progress.done {
            self.take_cut(epoch);
            self.outbox.marker(Marker::EpochEnd(epoch));
            self.context.metrics.count_epoch();
            self.phase = match self.kind {
                Kind::Source { .. } => Phase::Completing,
                _ => Phase::Reading,
            };
        }
        Ok(progress.made | progress.done)
    }

    fn complete(&mut self) -> Result<bool> {
        let is_source = matches!(self.kind, Kind::Source { .. });
        if is_source && let Some(epoch) = self.context.signals.next_epoch(self.epochs_ended) {
            self.epochs_ended = epoch.0;
            self.phase = Phase::Epoch(epoch);
            return Ok(true);
        }
        if self.rests() {
            return Ok(false);
        }
        if self.marks.take_owed() {
            let born = self.context.clock.wall();
            self.outbox.marker(Marker::Latency(born));
            return Ok(true);
        }
        let drained = self.is_drained();
        let progress = if drained {
            self.processor.on_drain(&mut self.outbox)?
        } else {
            self.processor.complete(&mut self.outbox)?
        };
        if self.context.signals.is_cancelled() {
            // A source that stops because it was told to has not ended: what follows must not take it for the end of its input.
            return Ok(false);
        }
        if progress.done {
            if is_source && drained && !self.is_dismissed && !self.processor.is_at_end() {
                self.context.signals.note_drained();
            }
            self.phase = Phase::Done;
            self.take_last_cut();
            self.outbox.marker(Marker::Done);
        }
        Ok(progress.made | progress.done)
    }
}
