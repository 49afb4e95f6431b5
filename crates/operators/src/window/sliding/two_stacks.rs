//! Sliding aggregation without deduction, for one key.

use std::collections::VecDeque;

use crate::KeyedFold;
use crate::window::spec::Slice;

/// The aggregate over a sliding window of slices, for aggregates that cannot deduct.
///
/// Two stacks (Tangwongsan, Hirzel, Schneider, Wu: "General incremental sliding-window
/// aggregation", VLDB 2015), here the two parts of one queue. The *back* holds new slices and their
/// total. The *front* holds, for each older slice, the aggregate from it to the newest slice of the
/// front. The window's aggregate is that of the oldest front slice combined with the back's total.
/// When the front is empty, the back is turned into the front in place, from its newest slice on.
/// Each slice is combined three times in all, independent of the window's length.
///
/// Turning a long back takes long. To spread this over time, each key has its own phase: time is
/// divided into blocks as long as the window, and the back is turned when a slice of a later block
/// arrives.
#[derive(Clone, Debug)]
pub(crate) struct TwoStacks<A> {
    /// The front, then the back; the oldest slice first.
    slices: VecDeque<(Slice, A)>,
    /// The number of slices in the front.
    front: usize,
    /// The total of the back; `None` if it is empty.
    back_total: Option<A>,
}

impl<A> Default for TwoStacks<A> {
    fn default() -> Self {
        TwoStacks {
            slices: VecDeque::new(),
            front: 0,
            back_total: None,
        }
    }
}

impl<A: Clone> TwoStacks<A> {
    /// Returns true if no slice is in the window.
    pub(crate) fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// Adds `acc`, the aggregate of `slice` or a part of it. Takes amortized constant time if
    /// `slice` is the newest, otherwise time linear in the number of slices. `block` returns the
    /// block of a slice (see [`TwoStacks`]).
    pub(crate) fn enter<F>(&mut self, fold: &F, slice: Slice, acc: &A, block: impl Fn(Slice) -> i64)
    where
        F: KeyedFold<Acc = A>,
    {
        match self.slices.back() {
            Some((newest, _)) if slice <= *newest => return self.enter_late(fold, slice, acc),
            Some((newest, _)) if self.front == 0 && block(*newest) < block(slice) => {
                self.turn(fold)
            }
            _ => {}
        }
        self.add_to_back_total(fold, acc);
        if self.slices.len() == self.slices.capacity() {
            // Grown by a quarter instead of doubled, as there may be very many stacks, and a stack
            // retains its size.
            self.slices.reserve_exact(self.slices.len() / 4 + 2);
        }
        self.slices.push_back((slice, acc.clone()));
    }

    /// Adds a part of a slice that is not the newest.
    fn enter_late<F: KeyedFold<Acc = A>>(&mut self, fold: &F, slice: Slice, acc: &A) {
        let at = self.slices.partition_point(|entry| entry.0 < slice);
        let has_slice = self.slices.get(at).is_some_and(|entry| entry.0 == slice);
        if at < self.front {
            // All aggregates that begin at or before the slice change.
            for entry in self.slices.range_mut(..at + usize::from(has_slice)) {
                fold.combine(&mut entry.1, acc);
            }
            if !has_slice {
                let mut own = acc.clone();
                fold.combine(&mut own, &self.slices[at].1);
                self.slices.insert(at, (slice, own));
                self.front += 1;
            }
            return;
        }
        self.add_to_back_total(fold, acc);
        match has_slice {
            true => fold.combine(&mut self.slices[at].1, acc),
            false => self.slices.insert(at, (slice, acc.clone())),
        }
    }

    fn add_to_back_total<F: KeyedFold<Acc = A>>(&mut self, fold: &F, acc: &A) {
        match &mut self.back_total {
            Some(total) => fold.combine(total, acc),
            none => *none = Some(acc.clone()),
        }
    }

    /// Drops all slices before `first`.
    pub(crate) fn leave_before<F: KeyedFold<Acc = A>>(&mut self, fold: &F, first: Slice) {
        while self.slices.front().is_some_and(|oldest| oldest.0 < first) {
            if self.front == 0 {
                self.turn(fold);
            }
            self.slices.pop_front();
            self.front -= 1;
        }
    }

    /// Returns the result of all slices in the window.
    pub(crate) fn result<F: KeyedFold<Acc = A>>(&self, fold: &F) -> F::Out {
        let front = self.slices.front().filter(|_| self.front > 0);
        match (front, &self.back_total) {
            (Some((_, front)), Some(back)) => {
                let mut total = front.clone();
                fold.combine(&mut total, back);
                fold.finish(&total)
            }
            (Some((_, total)), None) | (None, Some(total)) => fold.finish(total),
            (None, None) => fold.finish(&fold.create()),
        }
    }

    /// Turns the back into the front.
    fn turn<F: KeyedFold<Acc = A>>(&mut self, fold: &F) {
        debug_assert_eq!(self.front, 0, "the front is used up first");
        let slices = self.slices.make_contiguous();
        for at in (1..slices.len()).rev() {
            let (older, newer) = slices.split_at_mut(at);
            fold.combine(&mut older[at - 1].1, &newer[0].1);
        }
        self.front = slices.len();
        self.back_total = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FoldOne;
    use ardea_aggregate::max;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_result_is_that_of_all_slices_in_the_window(
            steps in prop::collection::vec((0i64..3, 0i64..8, any::<u32>()), 1..200),
            length in 1i64..8,
            phase in 0i64..8,
        ) {
            let fold = FoldOne::new(|_: &u32| (), max(|v: &u32| *v));
            let mut stacks = TwoStacks::default();
            let mut plain: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
            let mut window = 0;
            for (ahead, behind, value) in steps {
                window += ahead;
                plain = plain.split_off(&(window - length + 1));
                stacks.leave_before(&fold, window - length + 1);
                let slice = window - behind.min(length - 1);
                plain.entry(slice).or_default().push(value);
                stacks.enter(&fold, slice, &Some(value), |s| (s - phase).div_euclid(length));
                prop_assert_eq!(stacks.result(&fold), plain.values().flatten().copied().max());
            }
            stacks.leave_before(&fold, window + 1);
            prop_assert!(stacks.is_empty());
        }
    }
}
