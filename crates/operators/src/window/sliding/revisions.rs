//! Results of single keys: corrections by late records, and early results.

use std::ops::RangeInclusive;

use super::two_stacks::TwoStacks;
use crate::KeyedFold;
use crate::window::spec::{Slice, WindowSpec};

/// Changes by late records to windows already emitted.
#[derive(Default)]
pub(crate) struct Revisions {
    changed: Vec<(u32, Slice)>,
}

impl Revisions {
    /// Adds records of `slice` for the keys at `slots`.
    pub(crate) fn changed(&mut self, slice: Slice, slots: &[u32]) {
        self.changed.extend(slots.iter().map(|slot| (*slot, slice)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changed.is_empty()
    }

    /// Returns the windows to recompute, as disjoint ranges by slot. `emitted` returns the range of
    /// emitted windows of a slot, from the first to before the second.
    pub(crate) fn take(
        &mut self,
        spec: &WindowSpec,
        emitted: impl Fn(u32) -> (Slice, Slice),
    ) -> Vec<(u32, RangeInclusive<Slice>)> {
        self.changed.sort_unstable();
        let mut ranges: Vec<(u32, RangeInclusive<Slice>)> = Vec::new();
        for (slot, slice) in self.changed.drain(..) {
            let (kept_from, emitted_before) = emitted(slot);
            let first = slice.max(kept_from);
            let last = spec
                .last_window_of(slice)
                .min(emitted_before.saturating_sub(1));
            match ranges.last_mut() {
                _ if first > last => {}
                Some((same, range)) if *same == slot && first <= *range.end() => {
                    *range = *range.start()..=last.max(*range.end());
                }
                _ => ranges.push((slot, first..=last)),
            }
        }
        ranges
    }
}

/// Yields, in any order, the result of each window in `windows` that contains a slice in `slices`.
/// The slices belong to one key.
///
/// Costs a few combines per slice and one per window, independent of a window's length. Windows
/// without slices cost nothing.
pub(crate) fn sweep<F: KeyedFold>(
    fold: &F,
    spec: &WindowSpec,
    mut slices: Vec<(Slice, F::Acc)>,
    windows: RangeInclusive<Slice>,
    mut yield_result: impl FnMut(Slice, F::Out),
) {
    slices.sort_by_key(|entry| entry.0);
    let mut slices = slices.into_iter().peekable();
    let mut stacks = TwoStacks::default();
    let mut window = *windows.start();
    loop {
        if stacks.is_empty() {
            let Some((slice, _)) = slices.peek() else {
                return;
            };
            window = window.max(*slice);
        }
        if window > *windows.end() {
            return;
        }
        while let Some((slice, acc)) = slices.next_if(|entry| entry.0 <= window) {
            stacks.enter(fold, slice, &acc, |_| 0);
        }
        stacks.leave_before(fold, spec.first_slice_of(window));
        if !stacks.is_empty() {
            yield_result(window, stacks.result(fold));
        }
        window += 1;
    }
}
