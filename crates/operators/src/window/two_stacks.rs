//! Sliding aggregation without deducting, for one key.

use super::spec::Slice;
use crate::KeyedFold;

/// The aggregate over a window of slices that slides, where what leaves can't be deducted.
///
/// Two stacks (Tangwongsan, Hirzel, Schneider: "General incremental sliding-window aggregation", VLDB 2015): the *back*
/// takes new slices and keeps their total; the *front* holds, for each older slice, the aggregate from it to the front's
/// newest. The window's aggregate is that of the front's oldest slice combined with the back's total. When the front is
/// empty the back is turned over to become it, so each slice is combined three times in all, however long the window.
///
/// Turning over a long back takes long. To keep all keys from doing so at the same time, each key has its own phase: time
/// is cut into blocks as long as the window, and a back is turned over when a slice of a later block comes.
#[derive(Clone, Debug)]
pub(crate) struct TwoStacks<A> {
    /// Aggregates from a slice to the front's newest, the oldest slice last.
    front: Vec<(Slice, A)>,
    /// Each slice's own aggregate, the newest last.
    back: Vec<(Slice, A)>,
    /// All of `back`.
    back_total: Option<A>,
}

impl<A> Default for TwoStacks<A> {
    fn default() -> Self {
        TwoStacks { front: Vec::new(), back: Vec::new(), back_total: None }
    }
}

impl<A: Clone> TwoStacks<A> {
    /// Whether no slice is in the window.
    pub(crate) fn is_empty(&self) -> bool {
        self.front.is_empty() && self.back.is_empty()
    }

    /// Takes in `acc`, the aggregate of `slice` or a part of it. Constant time amortised if `slice` is the newest or
    /// second to none in the back; else linear in the slices held. `block` is the slice's block of time, see above.
    pub(crate) fn enter<F>(&mut self, fold: &F, slice: Slice, acc: &A, block: impl Fn(Slice) -> i64)
    where
        F: KeyedFold<Acc = A>,
    {
        let newest_front = self.front.first().map(|entry| entry.0);
        if newest_front.is_some_and(|newest| slice <= newest) {
            self.enter_front(fold, slice, acc);
            return;
        }
        if let Some(last) = self.back.last()
            && self.front.is_empty()
            && block(last.0) < block(slice)
        {
            self.turn_over(fold);
        }
        match &mut self.back_total {
            Some(total) => fold.combine(total, acc),
            none => *none = Some(acc.clone()),
        }
        match self.back.binary_search_by_key(&slice, |entry| entry.0) {
            Ok(at) => fold.combine(&mut self.back[at].1, acc),
            Err(at) => self.back.insert(at, (slice, acc.clone())),
        }
    }

    /// Takes in a late part of a slice that is in the front's range: all aggregates that begin at or before it change.
    fn enter_front<F: KeyedFold<Acc = A>>(&mut self, fold: &F, slice: Slice, acc: &A) {
        // The front runs from the newest slice to the oldest.
        let newer = self.front.partition_point(|entry| entry.0 > slice);
        let has_slice = self.front.get(newer).is_some_and(|entry| entry.0 == slice);
        for entry in &mut self.front[newer..] {
            fold.combine(&mut entry.1, acc);
        }
        if !has_slice {
            let mut own = acc.clone();
            if let Some(next) = newer.checked_sub(1) {
                fold.combine(&mut own, &self.front[next].1);
            }
            self.front.insert(newer, (slice, own));
        }
    }

    /// Drops all slices before `first`.
    pub(crate) fn leave_before<F: KeyedFold<Acc = A>>(&mut self, fold: &F, first: Slice) {
        while self.front.pop_if(|entry| entry.0 < first).is_some() {}
        if self.front.is_empty() && self.back.first().is_some_and(|oldest| oldest.0 < first) {
            self.turn_over(fold);
            while self.front.pop_if(|entry| entry.0 < first).is_some() {}
        }
    }

    /// The result of all slices in the window; only if it is not empty.
    pub(crate) fn result<F: KeyedFold<Acc = A>>(&self, fold: &F) -> F::Out {
        match (self.front.last(), &self.back_total) {
            (Some((_, front)), Some(back)) => {
                let mut total = front.clone();
                fold.combine(&mut total, back);
                fold.finish(&total)
            }
            (Some((_, total)), None) | (None, Some(total)) => fold.finish(total),
            (None, None) => fold.finish(&fold.create()),
        }
    }

    /// The back becomes the front.
    fn turn_over<F: KeyedFold<Acc = A>>(&mut self, fold: &F) {
        debug_assert!(self.front.is_empty());
        self.back_total = None;
        while let Some((slice, mut acc)) = self.back.pop() {
            if let Some((_, newer)) = self.front.last() {
                fold.combine(&mut acc, newer);
            }
            self.front.push((slice, acc));
        }
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
