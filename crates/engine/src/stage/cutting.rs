//! The cuts of a stage: taking them, writing them while records go on, and hearing what came of them.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Cut, CutWriter, Epoch, Error, InstanceContext, Processor, Progress, Result, StateChunk, Waker,
    Watermark,
};

use super::{Kind, Phase, Stage, told_before};
use crate::cuts::{Counted, CutEnd, CutReport, CutSink, Fate, InstanceName};
use crate::stage::restoring::Restoring;

/// How many bytes a chunk has, about, when it is handed over.
const CHUNK_BYTES: usize = 64 * 1024;
/// How many bytes a processor may write in a call: those of some ten microseconds.
const CALL_BYTES: usize = 4 * 1024;

/// How long a slice may take longer for cuts, and for what came of epochs before the next one ends.
pub(crate) const CUT_SLICE: Duration = Duration::from_micros(100);
/// For how many times as long as a slice for cuts records go on in between, at the most.
const MOST_PATIENCE: u32 = 8;
/// After what time a cut that is not whole has half the patience.
const HURRIES_AFTER: Duration = Duration::from_millis(500);

/// How often that is halved, at the most.
const MOST_HURRY: u32 = 3;

/// How long it is from one slice for cuts to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// What came of an epoch is told at once.
    News,
    /// Not all of it could be told in a slice.
    Telling,
    /// A cut is being written, and was taken so long ago.
    Writing(Duration),
}

impl Pace {
    /// The time between two slices of this length, if nothing else moves on the thread, or if records wait. A cut that is not whole after
    /// long is in a hurry: it has to be before too many epochs are due.
    pub(crate) fn pause(self, slice: Duration, has_leisure: bool) -> Duration {
        let hurry = match self {
            Pace::News => return Duration::ZERO,
            Pace::Telling => MOST_HURRY,
            Pace::Writing(since) => {
                let halvings = since.as_millis() / HURRIES_AFTER.as_millis();
                halvings.min(MOST_HURRY.into()) as u32
            }
        };
        match has_leisure {
            // Others want the core as well: whoever moves frames, and writes what was cut.
            true if hurry == 0 => slice / 2,
            true => Duration::ZERO,
            false => slice * (MOST_PATIENCE >> hurry),
        }
    }
}

/// The cuts of one stage.
pub(crate) struct CutDesk {
    pub(super) name: InstanceName,
    sink: Option<Arc<dyn CutSink>>,
    /// Wakes the tasklet, and calls nothing of the processor.
    pub(super) waker: Waker,
    /// The cut that is being written.
    writing: Option<Writing>,
    /// What it is written to; kept from one cut to the next if it was not handed over.
    chunk: Option<StateChunk>,
    /// The latest epoch that the processor has been told is committed.
    pub(super) committed: Option<Epoch>,
    /// What the processor has not been told yet, in order.
    fates: VecDeque<Fate>,
    /// Whether the processor has not been called yet for one of them.
    has_news: bool,
    /// The latest epoch that has ended here.
    ended: Epoch,
    last: Last,
    /// It is to end here, and may go on elsewhere.
    is_leaving: bool,
    pub(super) restoring: Option<Restoring>,
}

/// A cut that is being written.
struct Writing {
    cut: Cut,
    /// The runtime's own part, until it is written.
    watermark: Option<Watermark>,
    taken_at: Duration,
    counted: Counted,
    entries: u64,
    bytes: u64,
}

/// How far a stage that has ended is with its last cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Last {
    NotTaken,
    /// It is taken when the one before is written, or not wanted any more: nothing changes until then.
    Wanted,
    /// It is being written, or the stage waits for it to be committed.
    HoldsOn(Epoch),
    Over,
}

impl CutDesk {
    /// For an instance that hands its cuts to `sink`, and first gets back what `restoring` brings.
    pub(crate) fn new(
        name: InstanceName,
        sink: Option<Arc<dyn CutSink>>,
        waker: Waker,
        restoring: Option<Restoring>,
        ended: Epoch,
    ) -> Self {
        CutDesk {
            name,
            sink,
            waker,
            writing: None,
            chunk: None,
            committed: None,
            fates: VecDeque::new(),
            has_news: false,
            ended,
            last: Last::NotTaken,
            is_leaving: false,
            restoring,
        }
    }

    /// Takes the cut of `epoch`. One that is still being written was not in time.
    fn take(
        &mut self,
        (epoch, is_last): (Epoch, bool),
        processor: &mut dyn Processor,
        context: &InstanceContext,
        watermark: Option<Watermark>,
    ) {
        let Some(sink) = self.sink.clone() else {
            return;
        };
        self.abandon(CutEnd::Superseded);
        let since = self.committed.filter(|_| {
            let wants_all = sink.wants_all(&self.name, epoch);
            !wants_all
        });
        let cut = Cut {
            epoch,
            since,
            is_last,
        };
        let now = context.clock.now();
        let taken = processor.take_cut(cut);
        context.metrics.count_cut_taken();
        context.metrics.count_cut_work(context.clock.now() - now);
        match taken {
            Ok(()) => {
                self.writing = Some(Writing {
                    cut,
                    watermark,
                    taken_at: now,
                    counted: Counted::from(&context.metrics.snapshot()),
                    entries: 0,
                    bytes: 0,
                });
            }
            Err(error) => sink.give_up(&self.name, cut, CutEnd::Failed(self.named(error))),
        }
    }

    /// If a cut is being written, it is not any more.
    fn abandon(&mut self, why: CutEnd) {
        let Some(writing) = self.writing.take() else {
            return;
        };
        if let Some(chunk) = &mut self.chunk {
            chunk.clear();
        }
        if let Some(sink) = &self.sink {
            sink.give_up(&self.name, writing.cut, why);
        }
    }

    fn named(&self, error: Error) -> Error {
        error.in_vertex(&self.name.vertex, self.name.instance.index)
    }

    /// What came of an epoch is to be told.
    fn hear(&mut self, fate: Fate) {
        if let (Fate::GivenUp(epoch), Some(writing)) = (fate, &self.writing)
            && writing.cut.epoch <= epoch
            && !writing.cut.is_last
        {
            self.abandon(CutEnd::Superseded);
        }
        self.fates.push_back(fate);
        self.has_news = true;
    }

    /// Tells the processor what came of epochs, until it says not now, or about this time; whether anything moved.
    fn tell(
        &mut self,
        processor: &mut dyn Processor,
        context: &InstanceContext,
        until: Duration,
    ) -> Result<bool> {
        let mut moved = false;
        self.has_news = false;
        while let Some(fate) = self.fates.front().copied() {
            let progress = match fate {
                Fate::Committed(epoch) => processor.on_epoch_committed(epoch)?,
                Fate::GivenUp(epoch) => processor.on_epoch_given_up(epoch)?,
            };
            moved |= progress.made | progress.done;
            if progress.done {
                self.was_told(fate, processor);
            } else if !progress.made || context.clock.now() >= until {
                break;
            }
        }
        Ok(moved)
    }

    fn was_told(&mut self, fate: Fate, processor: &dyn Processor) {
        self.fates.pop_front();
        if let Fate::Committed(epoch) = fate {
            self.committed = self.committed.max(Some(epoch));
            if let Some(sink) = &self.sink {
                sink.heard(&self.name, epoch);
            }
            self.let_go(processor);
        }
    }

    /// A stage that has ended may go when its last cut is written, and committed if it waits for that.
    fn let_go(&mut self, processor: &dyn Processor) {
        if let Last::HoldsOn(epoch) = self.last
            && self.writing.is_none()
            && (self.committed >= Some(epoch) || !processor.awaits_commit())
        {
            self.last = Last::Over;
            if let Some(sink) = &self.sink {
                sink.left(&self.name);
            }
        }
    }

    /// Writes on, until it is done, there is no room, or it is time to stop; whether anything moved.
    fn write(
        &mut self,
        processor: &mut dyn Processor,
        context: &InstanceContext,
        until: Duration,
    ) -> bool {
        let mut moved = false;
        while self.writing.is_some() {
            let Some(progress) = self.write_some(processor) else {
                break;
            };
            match progress {
                Err(error) => {
                    let error = self.named(error);
                    self.abandon(CutEnd::Failed(error));
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
            self.let_go(processor);
        }
        moved
    }

    /// Has the processor write once; nothing if there is no room.
    fn write_some(&mut self, processor: &mut dyn Processor) -> Option<Result<Progress>> {
        let (sink, writing) = (self.sink.as_ref()?, self.writing.as_mut()?);
        if self.chunk.is_none() {
            self.chunk = sink.buffer(&self.name, &self.waker);
        }
        let chunk = self.chunk.as_mut()?;
        let before = (chunk.len(), chunk.byte_len());
        if let Some(watermark) = writing.watermark.take() {
            let mut writer = CutWriter::new(chunk, usize::MAX);
            let told = (writing.cut.epoch, watermark);
            if let Err(error) = told_before::write(&mut writer, self.name.instance, told) {
                return Some(Err(error));
            }
        }
        let limit = chunk.byte_len() + CALL_BYTES;
        let progress = processor.write_cut(&mut CutWriter::new(chunk, limit));
        writing.entries += (chunk.len() - before.0) as u64;
        writing.bytes += (chunk.byte_len() - before.1) as u64;
        let is_full = chunk.byte_len() >= CHUNK_BYTES;
        if is_full && matches!(&progress, Ok(progress) if !progress.done) {
            let full = self.chunk.take()?;
            sink.take(&self.name, writing.cut, full);
        }
        Some(progress)
    }

    /// The cut is whole.
    fn finish(&mut self, context: &InstanceContext) {
        let (Some(sink), Some(writing)) = (&self.sink, self.writing.take()) else {
            return;
        };
        let report = CutReport {
            cut: writing.cut,
            entries: writing.entries,
            bytes: writing.bytes,
            took: context.clock.now() - writing.taken_at,
            counted: writing.counted,
        };
        let metrics = &context.metrics;
        metrics.count_cut(report.entries, report.bytes, report.took);
        sink.finish(&self.name, report, self.chunk.take().unwrap_or_default());
    }

    /// The latest epoch that has ended here, if its cut is written and the stage has neither ended nor is about to.
    pub(super) fn rests_behind(&self) -> Option<Epoch> {
        let is_written = self.writing.is_none() && self.restoring.is_none();
        let goes_on = self.last == Last::NotTaken && !self.is_leaving;
        (is_written && goes_on && self.sink.is_some()).then_some(self.ended)
    }

    fn has_work(&self) -> bool {
        self.writing.is_some() || !self.fates.is_empty() || self.last == Last::Wanted
    }
}

impl Stage {
    /// From now on takes cuts.
    pub(crate) fn with_cuts(mut self, desk: CutDesk) -> Self {
        self.cuts = Some(Box::new(desk));
        self
    }

    /// Whether it takes cuts.
    pub(crate) fn has_cuts(&self) -> bool {
        self.cuts.is_some()
    }

    /// An epoch has ended, and the processor is done with it.
    pub(super) fn take_cut(&mut self, epoch: Epoch) {
        let watermark = self.told_watermark();
        if let Some(desk) = &mut self.cuts {
            desk.ended = epoch;
            let at = (epoch, false);
            desk.take(at, &mut *self.processor, &self.context, watermark);
            self.is_at_cut = true;
        }
    }

    /// Before an epoch ends, tells what came of those before: what was committed a moment ago has not to be in the next cut again, and
    /// that may be everything.
    pub(super) fn tell_news_of_epochs(&mut self) -> Result<()> {
        let Some(desk) = self.cuts.as_mut().filter(|desk| !desk.fates.is_empty()) else {
            return Ok(());
        };
        let until = self.context.clock.now() + CUT_SLICE;
        let told = desk.tell(&mut *self.processor, &self.context, until);
        told.map(drop)
    }

    /// The stage has ended. If it is gone for good, what it leaves counts in all later epochs.
    pub(super) fn take_last_cut(&mut self) {
        let is_leaving = self.is_dismissed;
        if let Some(desk) = &mut self.cuts
            && !is_leaving
            && !desk.is_leaving
            && desk.sink.is_some()
        {
            desk.last = Last::Wanted;
        }
        self.take_wanted_cut();
    }

    fn take_wanted_cut(&mut self) {
        let watermark = self.told_watermark();
        if let Some(desk) = &mut self.cuts
            && desk.last == Last::Wanted
            && desk.writing.is_none()
        {
            let epoch = desk.ended.next();
            let at = (epoch, true);
            desk.take(at, &mut *self.processor, &self.context, watermark);
            desk.last = Last::HoldsOn(epoch);
            desk.let_go(&*self.processor);
        }
    }

    /// What the processor has been told of time, which the runtime keeps for it.
    fn told_watermark(&self) -> Option<Watermark> {
        let is_step = self.kind == Kind::Step;
        Some(self.watermark).filter(|watermark| is_step && *watermark > Watermark::NONE)
    }

    /// It is to end here, or not after all: others may go on with what it remembers.
    pub(crate) fn set_leaving(&mut self, is_leaving: bool) {
        if let Some(desk) = &mut self.cuts {
            desk.is_leaving = is_leaving;
        }
    }

    /// What came of an epoch is to be told.
    pub(crate) fn hear(&mut self, fate: Fate) {
        if let Some(desk) = &mut self.cuts {
            desk.hear(fate);
        }
    }

    /// Whether there is something to write or to tell.
    #[inline]
    pub(crate) fn has_cut_work(&self) -> bool {
        self.cuts.as_ref().is_some_and(|desk| desk.has_work())
    }

    /// Whether it has ended, and what it leaves has not been handed over yet.
    pub(super) fn holds_on(&self) -> bool {
        self.cuts
            .as_ref()
            .is_some_and(|desk| matches!(desk.last, Last::HoldsOn(_)) || desk.has_work())
    }

    /// Whether what it does next is to end an epoch. Whatever came of epochs before that was said is to be heard first.
    #[inline]
    pub(crate) fn ends_epoch(&self) -> bool {
        matches!(self.phase, Phase::Epoch(_))
    }

    /// How often there is a slice for its cuts; none if there is nothing to write or to tell.
    pub(crate) fn pace_of_cuts(&self, now: Duration) -> Option<Pace> {
        let desk = self.cuts.as_ref().filter(|desk| desk.has_work())?;
        let writing = desk.writing.as_ref();
        Some(match desk.fates.is_empty() {
            _ if desk.has_news => Pace::News,
            false => Pace::Telling,
            true => Pace::Writing(writing.map_or(Duration::ZERO, |writing| {
                now.saturating_sub(writing.taken_at)
            })),
        })
    }

    /// Tells what came of epochs and writes on at a cut, until about this time; whether anything moved.
    pub(crate) fn tend_cuts(&mut self, until: Duration) -> Result<bool> {
        let Some(desk) = self.cuts.as_mut().filter(|desk| desk.has_work()) else {
            return Ok(false);
        };
        // Not in the name of a record, but the records that wait are still there.
        let at = mem::take(&mut self.at);
        let start = self.context.clock.now();
        let told = desk.tell(&mut *self.processor, &self.context, until)?;
        let wrote = desk.write(&mut *self.processor, &self.context, until);
        self.take_wanted_cut();
        let took = self.context.clock.now() - start;
        self.context.metrics.count_cut_work(took);
        self.at = at;
        Ok(told | wrote)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_cut_that_waits_for_long_is_in_a_hurry_and_records_still_have_half_of_the_time() {
        let slice = Duration::from_micros(100);
        let pauses = |pace: Pace| [true, false].map(|leisure| pace.pause(slice, leisure));
        let after = |millis| pauses(Pace::Writing(Duration::from_millis(millis)));
        assert_eq!(after(0), [slice / 2, slice * 8]);
        assert_eq!(after(500), [Duration::ZERO, slice * 4]);
        assert_eq!(after(1_999), [Duration::ZERO, slice]);
        assert_eq!(after(60_000), [Duration::ZERO, slice]);
        assert_eq!(pauses(Pace::Telling), [Duration::ZERO, slice]);
        assert_eq!(pauses(Pace::News), [Duration::ZERO; 2]);
    }
}
