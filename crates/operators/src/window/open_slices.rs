//! The slices that records are still counted into.
//!
//! Each has a table of its own, from key to accumulator, so that a record costs one lookup and one update. The slice that
//! the last record fell into is kept at hand: a chunk that lies in it, as nearly all do, needs nothing else.

use std::borrow::Cow;
use std::collections::VecDeque;

use ardea_core::{Error, ErrorCode, Key, Ordinal, Result, Timestamp};

use super::kept_slices::Kept;
use super::spec::{Slice, WindowSpec};
use crate::keyed::Stamps;
use crate::keyed_table::Watch;
use crate::time::require_times;
use crate::{KeyTable, KeyedFold};

/// Emptied tables kept for slices to come.
const SPARE_TABLES: usize = 4;

/// One slice's keys and accumulators.
pub(crate) struct SliceTable<K, A> {
    pub(crate) slice: Slice,
    /// Zero, unless the slice had been closed when the table was begun: then one that no other table of the slice has.
    pub(crate) number: u32,
    pub(crate) keys: KeyTable<K, A>,
    /// Beside the keys, where cuts are taken.
    pub(crate) stamps: Stamps,
}

/// Which table of which slice.
pub(crate) type SliceId = (Slice, u32);

impl<K: Key, A> SliceTable<K, A> {
    pub(crate) fn new((slice, number): SliceId) -> Self {
        SliceTable {
            slice,
            number,
            keys: KeyTable::default(),
            stamps: Stamps::default(),
        }
    }

    pub(crate) fn id(&self) -> SliceId {
        (self.slice, self.number)
    }

    /// The accumulator of a key, which gets one if it has none, and is about to change.
    pub(crate) fn acc<F>(&mut self, fold: &F, key: Cow<'_, K>, kept: Kept<'_, F>) -> &mut A
    where
        F: KeyedFold<Key = K, Acc = A>,
    {
        let Some(kept) = kept else {
            return self.keys.get_or_insert(key, || fold.create()).1;
        };
        let id = self.id();
        let mut watch = kept.watch(id, &mut self.stamps);
        match self.keys.index().find(&key) {
            Some(slot) => watch.changes(slot, &key, &self.keys.values()[slot as usize]),
            None => watch.inserted(0),
        }
        self.keys.get_or_insert(key, || fold.create()).1
    }
}

/// A slice, with its first and last time.
struct OpenSlice<K, A> {
    first: Timestamp,
    last: Timestamp,
    table: SliceTable<K, A>,
    /// Whether it takes no more records. Then it was pending in another life, and what has been closed since in other instances than its
    /// own, and came together with it, may have its number: a key that is there must not be here as well.
    is_sealed: bool,
}

/// The slices that records are still counted into, in order of time.
pub(crate) struct OpenSlices<K, A> {
    spec: WindowSpec,
    open: VecDeque<OpenSlice<K, A>>,
    /// Where the slice at hand is in `open`.
    current: usize,
    /// The first and the last time of the slice at hand; the first is after the last if there is none.
    first: Timestamp,
    last: Timestamp,
    spare: Vec<SliceTable<K, A>>,
    /// Slices before this are closed, and opened again for a late record only.
    closed_before: Slice,
    /// How many have been opened again.
    reopened: u32,
}

impl<K: Key, A> OpenSlices<K, A> {
    pub(crate) fn new(spec: WindowSpec) -> Self {
        OpenSlices {
            spec,
            open: VecDeque::new(),
            current: 0,
            first: Timestamp::MAX,
            last: Timestamp::MIN,
            spare: Vec::new(),
            closed_before: Slice::MIN,
            reopened: 0,
        }
    }

    /// Slices before `limit` are closed.
    pub(crate) fn close_before(&mut self, limit: Slice) {
        self.closed_before = limit;
    }

    /// Refuses records whose time is in no slice, or in one that has not all its windows.
    pub(crate) fn require(&self, times: &[Timestamp], input: Ordinal, position: u64) -> Result<()> {
        require_times(times, input, position)?;
        let latest = self.spec.latest();
        let Some(index) = times.iter().position(|time| *time > latest) else {
            return Ok(());
        };
        let time = times[index];
        let what =
            format!("a record at {time} came to windows that would end after the end of time");
        Err(Error::new(ErrorCode::InvalidJob, what)
            .at_record(input.index(), position + index as u64)
            .hint("give it an earlier time, or the windows a slide of two microseconds or more"))
    }

    /// Whether all of `times` are in the slice at hand. One vectorised pass.
    #[inline]
    pub(crate) fn hold_in_current(&self, times: &[Timestamp]) -> bool {
        all_within(times, self.first, self.last)
    }

    /// Whether `time` is in the slice at hand.
    #[inline]
    pub(crate) fn current_holds(&self, time: Timestamp) -> bool {
        self.first <= time && time <= self.last
    }

    /// The table of the slice at hand; only after [`select`](Self::select) or a successful check.
    #[inline]
    pub(crate) fn current(&mut self) -> &mut SliceTable<K, A> {
        &mut self.open[self.current].table
    }

    /// Takes the slice of `time` at hand, and opens it if need be.
    #[inline]
    pub(crate) fn select(&mut self, time: Timestamp) {
        if !self.current_holds(time) {
            self.select_other(time);
        }
    }

    fn select_other(&mut self, time: Timestamp) {
        // A bisection by the slices' own times: the arithmetic of slices is needed only to open one.
        let after = self.open.partition_point(|open| open.first <= time);
        self.current = match after.checked_sub(1) {
            Some(found) if self.takes(found, time) => found,
            _ => {
                let slice = self.spec.slice_of(time);
                let spare = self.spare.pop();
                let mut table = spare.unwrap_or_else(|| SliceTable::new((slice, 0)));
                let is_again = slice < self.closed_before;
                self.reopened = self.reopened.wrapping_add(is_again.into());
                (table.slice, table.number) = (slice, if is_again { self.reopened } else { 0 });
                self.insert_at(after, table, false);
                after
            }
        };
        let current = &self.open[self.current];
        (self.first, self.last) = (current.first, current.last);
    }

    fn takes(&self, found: usize, time: Timestamp) -> bool {
        let open = &self.open[found];
        time <= open.last && !open.is_sealed
    }

    fn insert_at(&mut self, at: usize, table: SliceTable<K, A>, is_sealed: bool) {
        let (first, last) = (
            self.spec.first_of(table.slice),
            self.spec.last_of(table.slice),
        );
        let open = OpenSlice {
            first,
            last,
            table,
            is_sealed,
        };
        self.open.insert(at, open);
    }

    /// Puts a table back that comes from another life; one that is pending takes no more records. None is at hand afterwards.
    pub(crate) fn restore(&mut self, table: SliceTable<K, A>, is_pending: bool) {
        self.reopened = self.reopened.max(table.number);
        let id = table.id();
        let at = self.open.partition_point(|open| open.table.id() < id);
        self.insert_at(at, table, is_pending);
        (self.first, self.last) = (Timestamp::MAX, Timestamp::MIN);
    }

    /// This number of a table is in use.
    pub(crate) fn reserve(&mut self, number: u32) {
        self.reopened = self.reopened.max(number);
    }

    /// The first open slice.
    pub(crate) fn first_slice(&self) -> Option<Slice> {
        self.open.front().map(|open| open.table.slice)
    }

    /// The open slices and their tables, in order of time.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slice, &KeyTable<K, A>)> {
        self.open
            .iter()
            .map(|open| (open.table.slice, &open.table.keys))
    }

    /// The number of keys over all open slices.
    pub(crate) fn keys(&self) -> usize {
        self.open.iter().map(|open| open.table.keys.len()).sum()
    }

    /// The tables from this one on.
    pub(crate) fn tables_from(
        &mut self,
        from: SliceId,
    ) -> impl Iterator<Item = &mut SliceTable<K, A>> {
        let first = self.open.partition_point(|open| open.table.id() < from);
        self.open.range_mut(first..).map(|open| &mut open.table)
    }

    /// Takes out the first slice if it is before `limit`.
    pub(crate) fn pop_before(&mut self, limit: Slice) -> Option<SliceTable<K, A>> {
        if self.first_slice()? >= limit {
            return None;
        }
        if self.current == 0 {
            (self.first, self.last) = (Timestamp::MAX, Timestamp::MIN);
        } else {
            self.current -= 1;
        }
        self.open.pop_front().map(|open| open.table)
    }

    /// Takes a table back that [`pop_before`](Self::pop_before) gave out, to use its memory again.
    pub(crate) fn recycle(&mut self, mut table: SliceTable<K, A>) {
        if self.spare.len() < SPARE_TABLES {
            table.keys.clear();
            table.stamps.clear();
            self.spare.push(table);
        }
    }
}

/// Whether all `times` are from `first` to `last`; never if `first` is after `last`.
///
/// A time is in the range if neither its distance from the first nor to the last is negative. The two distances add up to
/// the length of the range, so that they can't both be wrong by an overflow. Subtractions and ors only, in one pass without
/// branches, run at several times a nanosecond on any processor; comparing 64-bit numbers is slower on older ones.
#[inline]
fn all_within(times: &[Timestamp], first: Timestamp, last: Timestamp) -> bool {
    let (first, last) = (first.as_micros(), last.as_micros());
    let mut signs = 0;
    for time in times {
        let time = time.as_micros();
        signs |= time.wrapping_sub(first) | last.wrapping_sub(time);
    }
    signs >= 0 && first <= last
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    proptest! {
        #[test]
        fn the_fast_check_is_the_plain_one(
            times in prop::collection::vec(
                prop_oneof![-5i64..5, Just(i64::MIN), Just(i64::MAX), any::<i64>()], 1..5
            ),
            first in prop_oneof![-5i64..5, Just(i64::MIN), Just(i64::MAX), any::<i64>()],
            length in prop_oneof![0i64..10, 0..i64::MAX],
        ) {
            let last = first.saturating_add(length);
            let times: Vec<_> = times.into_iter().map(at).collect();
            let plain = times.iter().all(|time| at(first) <= *time && *time <= at(last));
            prop_assert_eq!(all_within(&times, at(first), at(last)), plain);
            prop_assert!(!all_within(&times, Timestamp::MAX, Timestamp::MIN));
        }
    }

    #[test]
    fn slices_come_out_in_order_of_time_whatever_the_order_in() {
        let spec = WindowSpec::tumbling(Duration::from_micros(10)).unwrap();
        let mut open: OpenSlices<u64, u64> = OpenSlices::new(spec);
        for time in [35, 5, 12, 31, -3, 19, 5] {
            open.select(at(time));
            *open.current().keys.get_or_insert(Cow::Owned(0), || 0).1 += 1;
            assert!(open.current_holds(at(time)) && !open.current_holds(at(time + 10)));
        }
        let mut seen = Vec::new();
        while let Some(table) = open.pop_before(3) {
            let slice = table.slice;
            seen.push((slice, table.keys.values()[0]));
            open.recycle(table);
            assert!(
                !open.current_holds(at(slice * 10)),
                "what was taken out is not at hand"
            );
        }
        assert_eq!(seen, [(-1, 1), (0, 2), (1, 2)]);
        assert_eq!(open.first_slice(), Some(3));
        open.select(at(32));
        assert_eq!(open.current().keys.values(), [2]);
    }
}
