//! Closed slices that are in the window, or may still be needed for corrections.

use std::collections::VecDeque;
use std::ops::Range;

use ardea_state::ChangeStamps;

use super::SliceId;
use crate::window::spec::Slice;

/// The maximum number of empty columns retained for reuse.
const SPARE_COLUMNS: usize = 4;
/// New columns have one spare place per this number of entries.
const ROOM_TO_SPARE: usize = 64;

/// The entries of a slice: accumulators by slot, in two columns.
///
/// A slice has one part when it is closed. Each later addition of late records adds another part.
pub(crate) struct Part<A> {
    pub(crate) slice: Slice,
    /// The number of the table from which the part was frozen.
    pub(crate) number: u32,
    pub(crate) slots: Vec<u32>,
    /// As long as `slots`, or empty if the accumulators are not needed any more.
    pub(crate) accs: Vec<A>,
    /// The change stamps of the table, if snapshots are taken.
    pub(crate) stamps: ChangeStamps,
    /// True if the columns are sorted by slot, so that a slot can be found.
    sorted: bool,
}

/// Closed slices in order of time.
pub(crate) struct FrozenSlices<A> {
    parts: VecDeque<Part<A>>,
    spare: Vec<(Vec<u32>, Vec<A>)>,
}

impl<A> FrozenSlices<A> {
    pub(crate) fn new() -> Self {
        FrozenSlices {
            parts: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// Returns columns for a part of `entries` keys with little spare room, as the columns may be
    /// retained for long.
    pub(crate) fn columns(
        &mut self,
        (slice, number): SliceId,
        entries: usize,
        with_accs: bool,
    ) -> Part<A> {
        let fits = |capacity: usize| capacity >= entries && capacity / 4 <= entries / 3;
        let fitting = self.spare.iter().position(|(slots, accs)| {
            fits(slots.capacity()) && (!with_accs || fits(accs.capacity()))
        });
        let (slots, accs) = match fitting {
            Some(position) => self.spare.swap_remove(position),
            None => {
                // Slightly larger than needed, so that the next slice with about as many keys fits.
                let room = entries + entries / ROOM_TO_SPARE;
                (
                    Vec::with_capacity(room),
                    Vec::with_capacity(if with_accs { room } else { 0 }),
                )
            }
        };
        Part {
            slice,
            number,
            slots,
            accs,
            stamps: ChangeStamps::default(),
            sorted: false,
        }
    }

    /// Adds a part after the earlier ones of its slice.
    pub(crate) fn push(&mut self, part: Part<A>) {
        let position = self.parts.partition_point(|other| other.id() <= part.id());
        self.parts.insert(position, part);
    }

    /// Returns the positions of the parts of `slices`.
    pub(crate) fn range(&self, slices: Range<Slice>) -> Range<usize> {
        let first = self.parts.partition_point(|part| part.slice < slices.start);
        let after = self.parts.partition_point(|part| part.slice < slices.end);
        first..after.max(first)
    }

    /// Returns the number of entries in all parts.
    pub(crate) fn entries(&self) -> usize {
        self.parts.iter().map(|part| part.slots.len()).sum()
    }

    /// Returns the part at `position`.
    pub(crate) fn part(&self, position: usize) -> &Part<A> {
        &self.parts[position]
    }

    /// Returns the parts from `from` on.
    pub(crate) fn parts_from(&mut self, from: SliceId) -> impl Iterator<Item = &mut Part<A>> {
        let first = self.parts.partition_point(|part| part.id() < from);
        self.parts.range_mut(first..)
    }

    /// Removes the first part if its slice is before `limit`.
    pub(crate) fn pop_before(&mut self, limit: Slice) -> Option<Part<A>> {
        (self.parts.front()?.slice < limit)
            .then(|| self.parts.pop_front())
            .flatten()
    }

    /// Retains the memory of a part returned by [`pop_before`](Self::pop_before) for reuse.
    pub(crate) fn recycle(&mut self, mut part: Part<A>) {
        if self.spare.len() == SPARE_COLUMNS {
            self.spare.remove(0);
        }
        part.slots.clear();
        part.accs.clear();
        self.spare.push((part.slots, part.accs));
    }

    /// Returns the accumulators of the key at `slot` in `slices`, with their slices, in order of
    /// time. Costs one binary search per slice; the first call also sorts the slice.
    pub(crate) fn of_key(
        &mut self,
        slot: u32,
        slices: Range<Slice>,
    ) -> impl Iterator<Item = (Slice, &A)> {
        let range = self.range(slices);
        for part in self.parts.range_mut(range.clone()) {
            part.sort();
        }
        self.parts.range(range).filter_map(move |part| {
            let position = part.slots.binary_search(&slot).ok()?;
            Some((part.slice, &part.accs[position]))
        })
    }
}

impl<A> Part<A> {
    pub(crate) fn id(&self) -> SliceId {
        (self.slice, self.number)
    }

    fn sort(&mut self) {
        if std::mem::replace(&mut self.sorted, true) {
            return;
        }
        if !self.stamps.is_empty() {
            let mut places: Vec<u32> = (0..self.slots.len() as u32).collect();
            places.sort_unstable_by_key(|place| self.slots[*place as usize]);
            self.stamps.reorder(places.into_iter());
        }
        let slots = std::mem::take(&mut self.slots);
        let accs = std::mem::take(&mut self.accs);
        let mut entries: Vec<_> = slots.into_iter().zip(accs).collect();
        entries.sort_unstable_by_key(|entry| entry.0);
        (self.slots, self.accs) = entries.into_iter().unzip();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(frozen: &mut FrozenSlices<u64>, slice: Slice, entries: &[(u32, u64)]) {
        let mut part = frozen.columns((slice, 0), entries.len(), true);
        for (slot, acc) in entries {
            part.slots.push(*slot);
            part.accs.push(*acc);
        }
        frozen.push(part);
    }

    #[test]
    fn a_key_is_found_in_all_parts_of_the_slices_asked_for() {
        let mut frozen = FrozenSlices::new();
        part(&mut frozen, 1, &[(7, 10), (3, 11)]);
        part(&mut frozen, 3, &[(9, 12), (7, 13), (1, 14)]);
        part(&mut frozen, 1, &[(7, 15)]);
        part(&mut frozen, 4, &[(7, 16)]);
        assert_eq!(
            frozen.of_key(7, 1..4).collect::<Vec<_>>(),
            [(1, &10), (1, &15), (3, &13)]
        );
        assert_eq!(frozen.of_key(2, 0..9).count(), 0);
    }

    #[test]
    fn columns_are_used_again_only_if_they_fit_closely() {
        let mut frozen = FrozenSlices::new();
        part(&mut frozen, 1, &[(1, 1); 100]);
        let used = frozen.pop_before(2).unwrap();
        frozen.recycle(used);
        assert!(
            frozen.columns((2, 0), 10, true).slots.capacity() < 100,
            "a small slice keeps little"
        );
        assert!(frozen.columns((2, 0), 90, true).slots.capacity() >= 100);
    }
}
