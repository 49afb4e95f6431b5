//! What is left in slices when the machine goes on elsewhere: handing it over, and laying it out anew.

use std::collections::VecDeque;

use ardea_core::{CutWriter, Progress, Result};

use super::{ENTRIES_PER_CALL, KeptOf, OpenOf, ResultOf, Slider, Stage, forget};
use crate::KeyedFold;
use crate::window::Firing;
use crate::window::kept_slices::{Kept, Places};
use crate::window::lag::{Lag, first_window};
use crate::window::revisions::Revisions;
use crate::window::spec::Slice;
use crate::window::told::Told;

/// How many keys one call computes windows for that partitions owe which lag behind.
const KEYS_CAUGHT_UP_PER_CALL: u32 = 16;

impl<F: KeyedFold> Slider<F> {
    /// Whether partitions that lag behind have windows to emit before `target`.
    pub(super) fn owes_before(&self, target: Slice) -> bool {
        let until = target.min(self.frontier);
        self.lag.as_ref().is_some_and(|lag| lag.at < until)
    }

    /// Emits those windows, some keys in a call. When all have come up to the frontier, nobody lags behind any more.
    pub(super) fn catch_up(
        &mut self,
        fold: &F,
        open: &OpenOf<F>,
        target: Slice,
        (pending, kept): (&mut VecDeque<ResultOf<F>>, Kept<'_, F>),
    ) {
        let Some(mut lag) = self.lag.take() else {
            return;
        };
        let until = target.min(self.frontier);
        let slots = self.index.slots() as u32;
        let after = slots.min(lag.next + KEYS_CAUGHT_UP_PER_CALL);
        for slot in lag.next..after {
            if let Some(windows) = lag.owed(self.index.key(slot), until) {
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
            self.drop_what_lagged(open, kept);
        }
    }

    /// Drops the slices before those of the window at the frontier, which only partitions that lagged behind needed.
    fn drop_what_lagged(&mut self, open: &OpenOf<F>, kept: Kept<'_, F>) {
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

    /// Everything of this state has come back: finds out what the first window is that has not been emitted. The slices follow, by
    /// [`restore`](Self::restore).
    pub(crate) fn lay_out(&mut self, told: &Told, kept: &mut KeptOf<F>) {
        kept.lay_out(&self.spec, told);
        let (now, furthest) = (told.now(), Lag::<F::Out>::furthest(&self.spec, told));
        // A slice with several tables has been closed, though perhaps not for any partition that is here.
        let closed = kept.restored().filter(|((_, number), _)| *number > 0);
        let closed = closed.map(|((slice, _), _)| slice.saturating_add(1));
        self.frontier = closed.fold(furthest, Slice::max);
        self.kept_from = self.spec.first_kept(now);
        if first_window(&self.spec, now) < self.frontier {
            self.lag = Some(Box::new(Lag::new(&self.spec, told)));
        }
    }

    /// Lays out slices that have come back, some entries in a call; whether all.
    pub(crate) fn restore(&mut self, fold: &F, open: &mut OpenOf<F>, kept: &mut KeptOf<F>) -> bool {
        let mut left = ENTRIES_PER_CALL;
        while left > 0 {
            if let Stage::Freezing { table, part, next } =
                std::mem::replace(&mut self.stage, Stage::Next)
            {
                let at = (table, part, next);
                self.stage = self.freeze(fold, open, at, &mut left, Some(kept));
                continue;
            }
            match kept.take_restored() {
                None => {
                    // What was frozen here is known to the windows that were emitted.
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

    /// From now on what it remembers has to survive it.
    pub(crate) fn survive(&mut self) {
        self.survives = true;
    }

    /// Writes on at the cut of the slices.
    pub(crate) fn write_cut(
        &mut self,
        open: &mut OpenOf<F>,
        kept: &mut KeptOf<F>,
        writer: &mut CutWriter<'_>,
    ) -> Result<Progress> {
        let places = Places {
            open,
            moving: &mut self.stage,
            frozen: &mut self.frozen,
            index: &self.index,
        };
        kept.write_cut(places, writer)
    }

    /// Forgets what is gone and no cut needs any more, so much in a call.
    pub(crate) fn release(&mut self, open: &mut OpenOf<F>, kept: &mut KeptOf<F>) -> Progress {
        kept.release(open, &mut self.frozen, &mut self.index)
    }
}
