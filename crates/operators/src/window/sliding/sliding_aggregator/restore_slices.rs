//! Hand-over and restore of the slices of a sliding aggregator.

use std::collections::VecDeque;

use ardea_core::{Progress, Result, SnapshotWriter};

use super::{AggregatorPhase, ENTRIES_PER_CALL, OpenOf, SlidingAggregator, WindowStateOf, forget};
use crate::KeyedFold;
use crate::window::result::{Firing, ResultOf};
use crate::window::sliding::revisions::Revisions;
use crate::window::spec::Slice;
use crate::window::state::partition_lag::{PartitionLag, first_window};
use crate::window::state::partition_watermarks::PartitionWatermarks;
use crate::window::state::window_state::{SliceIndex, WindowStateRef};

/// The maximum number of keys per call whose missing windows are computed for partitions that are
/// behind.
const KEYS_CAUGHT_UP_PER_CALL: u32 = 16;

impl<F: KeyedFold> SlidingAggregator<F> {
    /// Returns true if partitions that are behind have windows to emit before `target`.
    pub(super) fn owes_before(&self, target: Slice) -> bool {
        let until = target.min(self.frontier);
        self.lag.as_ref().is_some_and(|lag| lag.at < until)
    }

    /// Emits the windows that some partitions have missed, some keys per call. The lag ends when
    /// all partitions have reached the frontier.
    pub(super) fn catch_up(
        &mut self,
        fold: &F,
        open: &OpenOf<F>,
        target: Slice,
        (pending, kept): (&mut VecDeque<ResultOf<F>>, WindowStateRef<'_, F>),
    ) {
        let Some(mut lag) = self.lag.take() else {
            return;
        };
        let until = target.min(self.frontier);
        let slots = self.index.slots() as u32;
        let after = slots.min(lag.next + KEYS_CAUGHT_UP_PER_CALL);
        for slot in lag.next..after {
            if let Some(windows) = lag.missing_windows(self.index.key(slot), until) {
                self.compute(fold, slot, windows, &mut lag.results);
            }
        }
        lag.next = after;
        if after < slots {
            self.lag = Some(lag);
            return;
        }
        (lag.at, lag.next) = (until, 0);
        self.add_results(std::mem::take(&mut lag.results), Firing::OnTime, pending);
        if until < self.frontier {
            self.lag = Some(lag);
        } else if !self.spec.allows_lateness() {
            self.drop_lag_slices(open, kept);
        }
    }

    /// Drops slices before those of the window at the frontier, which only partitions that were
    /// behind needed.
    fn drop_lag_slices(&mut self, open: &OpenOf<F>, kept: WindowStateRef<'_, F>) {
        let first = self.spec.first_slice_of(self.frontier);
        for position in self.frozen.range(Slice::MIN..first) {
            for slot in &self.frozen.part(position).slots {
                if !self.running.holds(*slot) {
                    let (index, triggers) = (&mut self.index, &mut self.triggers);
                    forget::<F>(index, triggers, open, *slot, false);
                }
            }
        }
        self.drop_before(first, kept);
    }

    /// Determines the first window that has not been emitted. Must be called after all entries of
    /// this state were read. The slices are then restored by [`restore`](Self::restore).
    pub(crate) fn lay_out(&mut self, told: &PartitionWatermarks, kept: &mut WindowStateOf<F>) {
        kept.lay_out(&self.spec, told);
        let (now, furthest) = (
            told.now(),
            PartitionLag::<F::Out>::furthest(&self.spec, told),
        );
        // A slice with several tables has been closed, though perhaps not for any partition of this
        // instance.
        let closed = kept.restored().filter(|((_, number), _)| *number > 0);
        let closed = closed.map(|((slice, _), _)| slice.saturating_add(1));
        self.frontier = closed.fold(furthest, Slice::max);
        self.kept_from = self.spec.first_kept(now);
        if first_window(&self.spec, now) < self.frontier {
            self.lag = Some(Box::new(PartitionLag::new(&self.spec, told)));
        }
    }

    /// Restores slices, some entries per call. Returns true if all are restored.
    pub(crate) fn restore(
        &mut self,
        fold: &F,
        open: &mut OpenOf<F>,
        kept: &mut WindowStateOf<F>,
    ) -> bool {
        let mut left = ENTRIES_PER_CALL;
        while left > 0 {
            if let AggregatorPhase::Freezing { table, part, next } =
                std::mem::replace(&mut self.stage, AggregatorPhase::Next)
            {
                let at = (table, part, next);
                self.stage = self.freeze(fold, open, at, &mut left, Some(kept));
                continue;
            }
            match kept.take_restored() {
                None => {
                    // Windows already emitted contain the slices frozen here.
                    self.revisions = Revisions::default();
                    open.close_before(self.frontier);
                    return true;
                }
                Some((table, is_pending)) if is_pending || table.slice >= self.frontier => {
                    open.restore(table, is_pending);
                }
                Some((table, _)) => {
                    open.reserve(table.number);
                    self.stage = self.start_freezing(table);
                }
            }
        }
        false
    }

    /// Enables checkpoints of the state.
    pub(crate) fn enable_checkpoints(&mut self) {
        self.survives = true;
    }

    /// Writes the next part of the snapshot of the slices.
    pub(crate) fn write_snapshot(
        &mut self,
        open: &mut OpenOf<F>,
        kept: &mut WindowStateOf<F>,
        writer: &mut SnapshotWriter<'_>,
    ) -> Result<Progress> {
        let moving = match &mut self.stage {
            AggregatorPhase::Freezing { table, .. }
            | AggregatorPhase::EmittingTable { table, .. } => Some(table),
            _ => None,
        };
        let places = SliceIndex {
            open,
            moving,
            frozen: &mut self.frozen,
            index: &self.index,
        };
        kept.write_snapshot(places, writer)
    }

    /// Releases dropped slices that no snapshot needs, some per call.
    pub(crate) fn release(
        &mut self,
        open: &mut OpenOf<F>,
        kept: &mut WindowStateOf<F>,
    ) -> Progress {
        kept.release(open, &mut self.frozen, &mut self.index)
    }
}
