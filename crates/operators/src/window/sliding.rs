//! Sliding and tumbling windows.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

use ardea_core::{
    Cut, CutWriter, Epoch, Inbox, InstanceContext, Ordinal, Outbox, Processor, Progress,
    RestoredState, Result, StateShape, Waker, Watermark,
};

use super::early::{EarlyClock, TakeEarly};
use super::intake::Intake;
use super::kept_slices::KeptSlices;
use super::result_time;
use super::slider::{Advance, KeptOf, ResultOf, Slider, WINDOWS_PER_CALL};
use super::spec::{Slice, WindowSpec};
use super::told::TOLD;
use crate::KeyedFold;
use crate::keyed::{KeptAs, STATE, unless_kept};

/// Aggregates each key over windows of event time; emits a [`WindowResult`](crate::WindowResult) for each key that has a
/// record in a window.
///
/// * A record costs one lookup and one update, however long the window and however short its slide. A slide costs time
///   in proportion to the keys in the slices that come and go and in the window.
/// * Windows come in order of their ends, once the watermark has reached them; the keys of a window in an order of their
///   own that does not depend on chance. A key without a record in a window has no result for it.
/// * Late records (see [`WindowSpec`]) of input *i* go to output *i* + 1, if the vertex has one, as they came. They are
///   counted in any case.
/// * With an allowed lateness, corrections ([`Firing::Update`](crate::Firing::Update)) come at the first watermark
///   after the late records, one for each window and key that they changed, before the results of newer windows.
/// * With a trigger ([`FoldOne::early`](crate::FoldOne::early)), early results come as it says.
///
/// Fed with [`Partial`](crate::Partial)s through a [`FoldPartials`](crate::FoldPartials), it is the second of two
/// stages, after [`SliceCombineP`](crate::SliceCombineP).
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use ardea_aggregate::count;
/// use ardea_core::supplier;
/// use ardea_operators::{FoldOne, SlidingWindowP, WindowSpec};
///
/// let windows = WindowSpec::sliding(Duration::from_secs(10), Duration::from_millis(500))?;
/// let bids = Arc::new(FoldOne::new(|bid: &(u64, u64)| bid.0, count()));
/// let hot_auctions = supplier(move || SlidingWindowP::new(windows, Arc::clone(&bids)));
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub struct SlidingWindowP<F: KeyedFold> {
    spec: WindowSpec,
    fold: Arc<F>,
    intake: Intake<F>,
    slider: Slider<F>,
    /// Corrections and early results that wait for room.
    pending: VecDeque<ResultOf<F>>,
    early: Option<EarlyClock>,
    /// How slices and the trigger's states are written where they have to survive it.
    codecs: Option<Codecs<F>>,
    kept: Option<Box<KeptOf<F>>>,
    /// Whether it is known where to go on, of what comes back.
    is_laid_out: bool,
    waker: Waker,
    /// The frontier when a watermark was last passed on.
    told: Slice,
}

/// How slices and the trigger's states are written.
type Codecs<F> = (
    KeptAs<<F as KeyedFold>::Key, <F as KeyedFold>::Acc>,
    KeptAs<<F as KeyedFold>::Key, <F as KeyedFold>::State>,
);

impl<F: KeyedFold> SlidingWindowP<F> {
    /// Aggregates by `fold` over the windows of `spec`.
    pub fn new(spec: WindowSpec, fold: Arc<F>) -> Self {
        SlidingWindowP {
            spec,
            fold,
            intake: Intake::new(spec),
            slider: Slider::new(spec),
            pending: VecDeque::new(),
            early: None,
            codecs: None,
            kept: None,
            is_laid_out: false,
            waker: Waker::none(),
            told: Slice::MIN,
        }
    }

    /// Says how keys, accumulators and the states of the trigger are written, so that its windows survive it.
    ///
    /// The keys of a window then may come in another order in another life.
    pub fn kept_as(
        mut self,
        slices: KeptAs<F::Key, F::Acc>,
        triggers: KeptAs<F::Key, F::State>,
    ) -> Self {
        self.codecs = Some((slices, triggers));
        self
    }

    /// Emits pending results as far as there is room; whether none is left.
    fn flush(&mut self, outbox: &mut Outbox) -> Result<bool> {
        if !self.pending.is_empty() {
            let mut lane = outbox.lane::<ResultOf<F>>(Ordinal::FIRST)?;
            let fitting = lane.room().min(self.pending.len());
            for result in self.pending.drain(..fitting) {
                let time = result_time(result.end);
                lane.push(result, time);
            }
        }
        Ok(self.pending.is_empty())
    }

    /// Emits all that `watermark` closes, as far as there is room.
    fn emit_closed(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        if outbox.lanes() > 0 && !outbox.has_room(Ordinal::FIRST) {
            return Ok(Progress::NONE);
        }
        loop {
            if !self.flush(outbox)? {
                return Ok(Progress::MADE);
            }
            let (open, pending) = (&mut self.intake.open, &mut self.pending);
            let at = (watermark, self.kept.as_deref_mut());
            match self.slider.advance(&self.fold, open, at, outbox, pending)? {
                Advance::Done => return Ok(Progress::DONE),
                Advance::Full => return Ok(Progress::MADE),
                Advance::Paused if self.pending.is_empty() => return Ok(Progress::MADE),
                Advance::Paused => {}
            }
        }
    }

    /// While one watermark closes many windows, tells those behind how far they have come, every [`WINDOWS_PER_CALL`] windows: else windows of windows
    /// would keep all results until the last.
    fn tell_progress(&mut self, outbox: &mut Outbox) {
        let frontier = self.slider.frontier();
        if self.told == Slice::MIN {
            self.told = frontier;
        }
        if frontier.saturating_sub(self.told) >= WINDOWS_PER_CALL {
            self.told = frontier;
            let end = Watermark(self.spec.end_of(frontier - 1));
            // Several windows may end at the end of time, and that has come when all of them have.
            if end < Watermark::END {
                outbox.watermark(end);
            }
        }
    }

    /// Asks to be called when the next early results are due, or have room.
    fn ask_to_be_woken(&self, outbox: &mut Outbox) {
        if let Some(early) = &self.early
            && let Some(deadline) = early.deadline(!self.pending.is_empty())
        {
            outbox.wake_at(deadline);
        }
    }
}

impl<F: KeyedFold> Processor for SlidingWindowP<F> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.intake.late.attach(context);
        self.waker = context.waker.clone();
        if F::EARLY {
            self.early = Some(EarlyClock::new(
                context.clock.clone(),
                self.fold.wake_period(),
            ));
        }
        if let Some((slices, triggers)) = &self.codecs
            && context.guarantee.keeps_state()
            && self.kept.is_none()
        {
            self.kept = Some(Box::new(KeptSlices::new(&self.spec, slices.clone())));
            self.slider.survive();
            if F::EARLY {
                self.slider.triggers.survive(triggers.clone());
            }
        }
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !F::EARLY {
            let kept = self.kept.as_deref_mut();
            return self.intake.take(&self.fold, input, (inbox, outbox), kept);
        }
        if self.flush(outbox)? {
            let SlidingWindowP {
                fold,
                intake,
                slider,
                pending,
                kept,
                ..
            } = self;
            let take = TakeEarly {
                fold: &**fold,
                intake,
                slider,
                pending,
                kept: kept.as_deref_mut(),
                input,
                inbox,
                outbox,
            };
            fold.visit(input, take)?;
            self.flush(outbox)?;
        }
        self.ask_to_be_woken(outbox);
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        if self.intake.late.told.has_heard(watermark) {
            outbox.watermark(watermark);
            self.ask_to_be_woken(outbox);
            return Ok(Progress::DONE);
        }
        let progress = self.emit_closed(watermark, outbox)?;
        if progress.done {
            self.intake.late.advance(watermark);
            outbox.watermark(watermark);
            self.told = self.slider.frontier();
            self.intake.open.close_before(self.told);
        } else {
            self.tell_progress(outbox);
        }
        self.ask_to_be_woken(outbox);
        Ok(progress)
    }

    /// The end of the input closes all windows, as its watermark has done before if it came.
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.emit_closed(Watermark::END, outbox)
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        if self.flush(outbox)?
            && let Some(early) = &mut self.early
        {
            early.ask(
                &*self.fold,
                &self.intake.open,
                &mut self.slider,
                &mut self.pending,
            );
            self.flush(outbox)?;
        }
        self.ask_to_be_woken(outbox);
        Ok(())
    }

    /// Nothing waits beyond the end of an epoch: no early result, and no round of asking for them.
    fn on_epoch(&mut self, _: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        let made = outbox.lanes() == 0 || outbox.has_room(Ordinal::FIRST);
        let is_settled = |window: &Self| {
            let is_asking = window.early.as_ref().is_some_and(EarlyClock::is_asking);
            window.pending.is_empty() && !is_asking
        };
        if !is_settled(self) {
            self.on_wake(outbox)?;
        }
        Ok(Progress {
            made,
            done: is_settled(self),
        })
    }

    fn forgets(&self) -> Option<&'static str> {
        unless_kept(self.codecs.as_ref())
    }

    fn states(&self) -> Vec<StateShape> {
        let Some((slices, triggers)) = &self.codecs else {
            return Vec::new();
        };
        let mut states = vec![
            slices.shape(self.spec.name_of_slices()),
            StateShape::own(TOLD),
        ];
        if F::EARLY {
            states.push(triggers.shape(STATE));
        }
        states
    }

    fn take_cut(&mut self, cut: Cut) -> Result<()> {
        if let Some(kept) = &mut self.kept {
            self.intake.late.told.take_cut(cut.epoch);
            kept.take_cut(cut);
            self.slider.triggers.take_cut(cut)?;
        }
        Ok(())
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        let Some(kept) = &mut self.kept else {
            return Ok(Progress::DONE);
        };
        self.intake.late.told.write_cut(writer)?;
        let slices = self.slider.write_cut(&mut self.intake.open, kept, writer)?;
        match slices.done {
            true => self.slider.triggers.write_cut(writer),
            false => Ok(slices),
        }
    }

    fn on_epoch_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        let Some(kept) = &mut self.kept else {
            return Ok(Progress::DONE);
        };
        kept.commit(epoch);
        let triggers = self.slider.triggers.commit(epoch)?;
        Ok(triggers | self.slider.release(&mut self.intake.open, kept))
    }

    fn on_epoch_given_up(&mut self, epoch: Epoch) -> Result<Progress> {
        let Some(kept) = &mut self.kept else {
            return Ok(Progress::DONE);
        };
        kept.give_up(epoch);
        let triggers = self.slider.triggers.give_up(epoch);
        Ok(triggers | self.slider.release(&mut self.intake.open, kept))
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            match &mut self.kept {
                Some(_) if entry.state == TOLD => self.intake.late.told.restore(&entry)?,
                Some(kept) if kept.is_named(entry.state) => kept.restore(&entry)?,
                _ => self.slider.triggers.restore(&entry)?,
            }
        }
        Ok(())
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        let Some(kept) = &mut self.kept else {
            return Ok(Progress::DONE);
        };
        if !self.is_laid_out {
            self.intake.late.restored();
            self.slider.lay_out(&self.intake.late.told, kept);
            self.is_laid_out = true;
        }
        let is_whole = self.slider.restore(&self.fold, &mut self.intake.open, kept);
        if is_whole && F::EARLY {
            // There is no outbox here to ask to be woken for the next round.
            self.waker.wake();
        }
        self.told = self.slider.frontier();
        Ok(Progress::done_if(is_whole))
    }

    fn hand_over(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn take_over(&mut self, memory: Box<dyn Any + Send>) -> bool {
        let Ok(before) = memory.downcast::<Self>() else {
            return false;
        };
        let before = *before;
        self.intake = before.intake;
        self.intake.late.told.taken_over();
        self.slider = before.slider;
        self.kept = before.kept;
        if let Some(kept) = &mut self.kept {
            kept.taken_over();
        }
        self.told = before.told;
        true
    }
}
