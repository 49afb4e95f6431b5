//! The running aggregate of the current window, for all keys.

use super::two_stacks::TwoStacks;
use crate::KeyedFold;
use crate::window::spec::Slice;

/// Each key's aggregate over the slices of the current window, in columns by slot.
///
/// Slices enter when they are closed, and leave when the window has passed them. If the aggregate
/// deducts, a key costs one combine and one deduct per slice; otherwise its slices are stored in
/// [`TwoStacks`].
pub(crate) struct Running<A> {
    columns: Columns<A>,
    slices_per_window: i64,
    live_keys: usize,
}

enum Columns<A> {
    /// A total, and the number of slice parts in it. A slot without parts has an empty total.
    Totals {
        totals: Vec<A>,
        parts: Vec<u32>,
    },
    Stacks(Vec<TwoStacks<A>>),
}

impl<A: Clone> Running<A> {
    /// Creates the aggregate for windows of `slices_per_window` slices.
    pub(crate) fn new<F: KeyedFold<Acc = A>>(slices_per_window: i64) -> Self {
        let columns = if F::DEDUCTS {
            Columns::Totals {
                totals: Vec::new(),
                parts: Vec::new(),
            }
        } else {
            Columns::Stacks(Vec::new())
        };
        Running {
            columns,
            slices_per_window,
            live_keys: 0,
        }
    }

    /// Returns the number of keys in the window.
    pub(crate) fn live_keys(&self) -> usize {
        self.live_keys
    }

    /// Returns true if the key at `slot` is in the window.
    pub(crate) fn holds(&self, slot: u32) -> bool {
        match &self.columns {
            Columns::Totals { parts, .. } => parts[slot as usize] > 0,
            Columns::Stacks(stacks) => !stacks[slot as usize].is_empty(),
        }
    }

    /// Returns the length of the columns.
    pub(crate) fn slots(&self) -> usize {
        match &self.columns {
            Columns::Totals { parts, .. } => parts.len(),
            Columns::Stacks(stacks) => stacks.len(),
        }
    }

    /// Extends the columns to `slots`.
    pub(crate) fn grow<F: KeyedFold<Acc = A>>(&mut self, fold: &F, slots: usize) {
        match &mut self.columns {
            Columns::Totals { totals, parts } => {
                if parts.len() < slots {
                    totals.resize_with(slots, || fold.create());
                    parts.resize(slots, 0);
                }
            }
            Columns::Stacks(stacks) => {
                if stacks.len() < slots {
                    stacks.resize_with(slots, TwoStacks::default);
                }
            }
        }
    }

    /// Adds a part of `slice` to the window: `accs[i]` for the key at `slots[i]`. The columns must
    /// be long enough.
    pub(crate) fn enter<F>(&mut self, fold: &F, slice: Slice, slots: &[u32], accs: &[A])
    where
        F: KeyedFold<Acc = A>,
    {
        let mut new = 0;
        match &mut self.columns {
            Columns::Totals { totals, parts } => {
                for (slot, acc) in slots.iter().zip(accs) {
                    let slot = *slot as usize;
                    new += usize::from(parts[slot] == 0);
                    parts[slot] += 1;
                    fold.combine(&mut totals[slot], acc);
                }
            }
            Columns::Stacks(stacks) => {
                let length = self.slices_per_window;
                for (slot, acc) in slots.iter().zip(accs) {
                    let phase = i64::from(*slot) % length;
                    let stack = &mut stacks[*slot as usize];
                    new += usize::from(stack.is_empty());
                    let block = |slice: Slice| slice.saturating_sub(phase).div_euclid(length);
                    stack.enter(fold, slice, acc, block);
                }
            }
        }
        self.live_keys += new;
    }

    /// Removes a part of `slice` from the window, and calls `emptied` for the slots without
    /// remaining parts. All earlier slices have left.
    pub(crate) fn leave<F>(
        &mut self,
        fold: &F,
        slice: Slice,
        slots: &[u32],
        accs: &[A],
        mut emptied: impl FnMut(u32),
    ) where
        F: KeyedFold<Acc = A>,
    {
        let mut gone = 0;
        match &mut self.columns {
            Columns::Totals { totals, parts } => {
                for (slot, acc) in slots.iter().zip(accs) {
                    let at = *slot as usize;
                    parts[at] -= 1;
                    if parts[at] > 0 {
                        fold.deduct(&mut totals[at], acc);
                    } else {
                        // Created again instead of deducted, which discards rounding errors.
                        totals[at] = fold.create();
                        gone += 1;
                        emptied(*slot);
                    }
                }
            }
            Columns::Stacks(stacks) => {
                for slot in slots {
                    let stack = &mut stacks[*slot as usize];
                    if stack.is_empty() {
                        continue; // Removed together with another part of the same slice.
                    }
                    stack.leave_before(fold, slice.saturating_add(1));
                    if stack.is_empty() {
                        gone += 1;
                        emptied(*slot);
                    }
                }
            }
        }
        self.live_keys -= gone;
    }

    /// Returns the result of a live slot.
    pub(crate) fn result<F: KeyedFold<Acc = A>>(&self, fold: &F, slot: usize) -> F::Out {
        match &self.columns {
            Columns::Totals { totals, .. } => fold.finish(&totals[slot]),
            Columns::Stacks(stacks) => stacks[slot].result(fold),
        }
    }

    /// Yields `(slot, result)` of live slots from `first` on, at most `limit`. Returns the slot to
    /// continue from.
    pub(crate) fn results<F: KeyedFold<Acc = A>>(
        &self,
        fold: &F,
        first: usize,
        limit: usize,
        mut yield_result: impl FnMut(usize, F::Out),
    ) -> usize {
        let mut left = limit;
        let mut slot = first;
        match &self.columns {
            Columns::Totals { totals, parts } => {
                while slot < parts.len() && left > 0 {
                    if parts[slot] > 0 {
                        yield_result(slot, fold.finish(&totals[slot]));
                        left -= 1;
                    }
                    slot += 1;
                }
            }
            Columns::Stacks(stacks) => {
                while slot < stacks.len() && left > 0 {
                    if !stacks[slot].is_empty() {
                        yield_result(slot, stacks[slot].result(fold));
                        left -= 1;
                    }
                    slot += 1;
                }
            }
        }
        slot
    }
}
