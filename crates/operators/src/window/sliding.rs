//! Sliding and tumbling windows.
//!
//! * `sliding_aggregator`: closes slices, and slides the window over them;
//! * `running`: the aggregate of the current window (totals, or `two_stacks` where the aggregate
//!   does not deduct);
//! * `revisions`: revised and early results of single keys;
//! * `slice_combine`: the first of two stages.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

use ardea_core::{
    Checkpointed, Epoch, Inbox, InstanceContext, Ordinal, Outbox, Processor, Progress,
    RestoredState, Result, SnapshotRequest, SnapshotWriter, StateShape, Waker, Watermark,
};
use ardea_state::{STATE, StateCodecs, unsaved_without};

use crate::KeyedFold;
use crate::window::result::{ResultOf, result_time};
use crate::window::slice_assigner::SliceAssigner;
use crate::window::spec::{Slice, WindowSpec};
use crate::window::state::partition_watermarks::WATERMARK_STATE;
use crate::window::state::window_state::WindowState;
use crate::window::triggers::early::{EarlyClock, TakeEarly};

mod revisions;
mod running;
mod slice_combine;
pub(super) mod sliding_aggregator;
mod two_stacks;

#[cfg(test)]
mod tests;

pub use slice_combine::SliceCombineP;

use sliding_aggregator::{Advance, SlidingAggregator, WINDOWS_PER_CALL, WindowStateOf};

/// Aggregates each key over event-time windows. Emits a [`WindowResult`](crate::WindowResult) for
/// each key with a record in a window.
///
/// * A record costs one lookup and one update, independent of length and slide. A slide costs time
///   in proportion to the keys in the slices that enter and leave, and in the window.
/// * Windows are emitted in order of their ends, once the watermark has reached the end. The order
///   of keys within a window is deterministic. A key without a record in a window has no result for
///   that window.
/// * Late records (see [`WindowSpec`]) of input *i* are sent to output *i* + 1, if the vertex has
///   one. They are always counted.
/// * With an allowed lateness, corrections ([`Firing::Update`](crate::Firing::Update)) are emitted
///   at the first watermark after the late records, one for each changed window and key, before the
///   results of newer windows.
/// * With a trigger ([`FoldOne::early`](crate::FoldOne::early)), early results are emitted when the
///   trigger fires.
///
/// With a [`FoldPartials`](crate::FoldPartials) as the fold, it reads [`Partial`](crate::Partial)s
/// and is the second of two stages, after [`SliceCombineP`](crate::SliceCombineP).
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
    assigner: SliceAssigner<F>,
    aggregator: SlidingAggregator<F>,
    /// Corrections and early results that wait for room.
    pending: VecDeque<ResultOf<F>>,
    early: Option<EarlyClock>,
    /// The serializers of slices and trigger states. `None` if they are not checkpointed.
    codecs: Option<Codecs<F>>,
    kept: Option<Box<WindowStateOf<F>>>,
    /// True once the restored slices have been laid out.
    is_laid_out: bool,
    waker: Waker,
    /// The frontier at the last forwarded watermark.
    forwarded: Slice,
}

/// The serializers of slices and trigger states.
type Codecs<F> = (
    StateCodecs<<F as KeyedFold>::Key, <F as KeyedFold>::Acc>,
    StateCodecs<<F as KeyedFold>::Key, <F as KeyedFold>::State>,
);

impl<F: KeyedFold> SlidingWindowP<F> {
    /// Creates windows of `spec`, aggregated by `fold`.
    pub fn new(spec: WindowSpec, fold: Arc<F>) -> Self {
        SlidingWindowP {
            spec,
            fold,
            assigner: SliceAssigner::new(spec),
            aggregator: SlidingAggregator::new(spec),
            pending: VecDeque::new(),
            early: None,
            codecs: None,
            kept: None,
            is_laid_out: false,
            waker: Waker::none(),
            forwarded: Slice::MIN,
        }
    }

    /// Sets the serializers of keys, accumulators and trigger states, so that windows are
    /// checkpointed.
    ///
    /// With checkpoints, the order of keys within a window may differ after a restore, unless the
    /// job runs in micro-batches.
    pub fn with_codecs(
        mut self,
        slices: StateCodecs<F::Key, F::Acc>,
        triggers: StateCodecs<F::Key, F::State>,
    ) -> Self {
        self.codecs = Some((slices, triggers));
        self
    }

    /// Emits pending results while there is room. Returns true if none are left.
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

    /// Emits the windows that `watermark` closes while there is room.
    fn emit_closed(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        if outbox.lanes() > 0 && !outbox.has_room(Ordinal::FIRST) {
            return Ok(Progress::NONE);
        }
        loop {
            if !self.flush(outbox)? {
                return Ok(Progress::MADE);
            }
            let (open, pending) = (&mut self.assigner.open, &mut self.pending);
            let at = (watermark, self.kept.as_deref_mut());
            match self
                .aggregator
                .advance(&self.fold, open, at, outbox, pending)?
            {
                Advance::Done => return Ok(Progress::DONE),
                Advance::Full => return Ok(Progress::MADE),
                Advance::Paused if self.pending.is_empty() => return Ok(Progress::MADE),
                Advance::Paused => {}
            }
        }
    }

    /// Sends an intermediate watermark every [`WINDOWS_PER_CALL`] windows while one watermark
    /// closes many windows. Without it, downstream windows would buffer all results until the last
    /// one.
    fn send_progress(&mut self, outbox: &mut Outbox) {
        let frontier = self.aggregator.frontier();
        if self.forwarded == Slice::MIN {
            self.forwarded = frontier;
        }
        if frontier.saturating_sub(self.forwarded) >= WINDOWS_PER_CALL {
            self.forwarded = frontier;
            let end = Watermark(self.spec.end_of(frontier - 1));
            // Several windows may end at the end of time, which is reached only after all of them.
            if end < Watermark::END {
                outbox.watermark(end);
            }
        }
    }

    /// Requests a wake-up for the next early results, or for pending ones.
    fn request_wake(&self, outbox: &mut Outbox) {
        if let Some(early) = &self.early
            && let Some(deadline) = early.deadline(!self.pending.is_empty())
        {
            outbox.wake_at(deadline);
        }
    }
}

impl<F: KeyedFold> Processor for SlidingWindowP<F> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.assigner.late.attach(context);
        self.waker = context.waker.clone();
        if context.micro_batches.is_some() {
            self.aggregator.emit_in_order();
        }
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
            self.kept = Some(Box::new(WindowState::new(&self.spec, slices.clone())));
            self.aggregator.enable_checkpoints();
            if F::EARLY {
                self.aggregator.triggers.set_codecs(triggers.clone());
                self.aggregator.triggers.open(context)?;
            }
        }
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !F::EARLY {
            let kept = self.kept.as_deref_mut();
            return self.assigner.take(&self.fold, input, (inbox, outbox), kept);
        }
        if self.flush(outbox)? {
            let SlidingWindowP {
                fold,
                assigner: intake,
                aggregator: slider,
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
        self.request_wake(outbox);
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        if self
            .assigner
            .late
            .watermarks
            .is_already_processed(watermark)
        {
            outbox.watermark(watermark);
            self.request_wake(outbox);
            return Ok(Progress::DONE);
        }
        let progress = self.emit_closed(watermark, outbox)?;
        if progress.done {
            self.assigner.late.advance(watermark);
            outbox.watermark(watermark);
            self.forwarded = self.aggregator.frontier();
            self.assigner.open.close_before(self.forwarded);
        } else {
            self.send_progress(outbox);
        }
        self.request_wake(outbox);
        Ok(progress)
    }

    /// Closes all windows, in case no watermark at the end of time has closed them.
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.emit_closed(Watermark::END, outbox)
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        if self.flush(outbox)?
            && let Some(early) = &mut self.early
        {
            early.wake_triggers(
                &*self.fold,
                &self.assigner.open,
                &mut self.aggregator,
                &mut self.pending,
            );
            self.flush(outbox)?;
        }
        self.request_wake(outbox);
        Ok(())
    }

    /// Completes pending early results and the round of triggers before the end of an epoch.
    fn on_epoch(&mut self, _: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        let made = outbox.lanes() == 0 || outbox.has_room(Ordinal::FIRST);
        let is_settled = |window: &Self| {
            let is_asking = window.early.as_ref().is_some_and(EarlyClock::is_in_round);
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

    fn unsaved_state(&self) -> Option<&'static str> {
        unsaved_without(self.codecs.as_ref())
    }

    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self)
    }
}

impl<F: KeyedFold> Checkpointed for SlidingWindowP<F> {
    fn states(&mut self) -> Vec<StateShape> {
        let Some((slices, triggers)) = &self.codecs else {
            return Vec::new();
        };
        let mut states = vec![
            slices.shape(self.spec.name_of_slices()),
            StateShape::own(WATERMARK_STATE),
        ];
        if F::EARLY {
            states.push(triggers.shape(STATE));
        }
        states
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        if let Some(kept) = &mut self.kept {
            self.assigner.late.watermarks.take_snapshot(snapshot.epoch);
            kept.take_snapshot(snapshot);
            if F::EARLY {
                self.aggregator.triggers.take_snapshot(snapshot)?;
            }
        }
        Ok(())
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        let Some(kept) = &mut self.kept else {
            return Ok(Progress::DONE);
        };
        self.assigner.late.watermarks.write_snapshot(writer)?;
        let slices = self
            .aggregator
            .write_snapshot(&mut self.assigner.open, kept, writer)?;
        match slices.done {
            true if F::EARLY => self.aggregator.triggers.write_snapshot(writer),
            _ => Ok(slices),
        }
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        let Some(kept) = &mut self.kept else {
            return Ok(Progress::DONE);
        };
        kept.commit(epoch);
        let triggers = self.aggregator.triggers.on_checkpoint_committed(epoch)?;
        Ok(triggers | self.aggregator.release(&mut self.assigner.open, kept))
    }

    fn on_checkpoint_aborted(&mut self, epoch: Epoch) -> Result<Progress> {
        let Some(kept) = &mut self.kept else {
            return Ok(Progress::DONE);
        };
        kept.give_up(epoch);
        let triggers = self.aggregator.triggers.on_checkpoint_aborted(epoch)?;
        Ok(triggers | self.aggregator.release(&mut self.assigner.open, kept))
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        for entry in state {
            match &mut self.kept {
                Some(_) if entry.state == WATERMARK_STATE => {
                    self.assigner.late.watermarks.restore(&entry)?
                }
                Some(kept) if kept.is_named(entry.state) => kept.restore(&entry)?,
                _ => self.aggregator.triggers.restore_entry(&entry)?,
            }
        }
        Ok(())
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        let Some(kept) = &mut self.kept else {
            return Ok(Progress::DONE);
        };
        if !self.is_laid_out {
            self.assigner.late.restored();
            self.aggregator
                .lay_out(&self.assigner.late.watermarks, kept);
            self.is_laid_out = true;
        }
        let is_whole = self
            .aggregator
            .restore(&self.fold, &mut self.assigner.open, kept);
        if is_whole && F::EARLY {
            // There is no outbox here to schedule the next round.
            self.waker.wake();
        }
        self.forwarded = self.aggregator.frontier();
        Ok(Progress::done_if(is_whole))
    }

    fn take_over_state(&mut self, memory: Box<dyn Any + Send>) -> bool {
        let Ok(before) = memory.downcast::<Self>() else {
            return false;
        };
        let before = *before;
        self.assigner = before.assigner;
        self.assigner.late.watermarks.taken_over();
        self.aggregator = before.aggregator;
        self.kept = before.kept;
        if let Some(kept) = &mut self.kept {
            kept.taken_over();
        }
        self.forwarded = before.forwarded;
        true
    }
}
