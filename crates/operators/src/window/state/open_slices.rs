//! Open slices, which receive records.
//!
//! Each slice has its own table from key to accumulator, so that a record costs one lookup and one
//! update. The slice of the last record is the *current* one. A chunk that lies within the current
//! slice, as nearly all do, needs no further lookup.

use std::borrow::Cow;
use std::collections::VecDeque;

use ardea_core::{Error, ErrorCode, Key, Ordinal, Result, Timestamp};
use ardea_state::ChangeListener;

use super::SliceId;
use super::window_state::WindowStateRef;
use crate::time::require_times;
use crate::window::spec::{Slice, WindowSpec};
use crate::{KeyTable, KeyedFold};
use ardea_state::ChangeStamps;

/// The maximum number of empty tables retained for reuse.
const SPARE_TABLES: usize = 4;

/// The keys and accumulators of a slice.
pub(crate) struct SliceTable<K, A> {
    pub(crate) slice: Slice,
    /// Zero if the table was created before the slice was closed; otherwise a number that is unique
    /// within the slice.
    pub(crate) number: u32,
    pub(crate) keys: KeyTable<K, A>,
    /// The change stamps of the entries, if snapshots are taken.
    pub(crate) stamps: ChangeStamps,
}

impl<K: Key, A> SliceTable<K, A> {
    pub(crate) fn new((slice, number): SliceId) -> Self {
        SliceTable {
            slice,
            number,
            keys: KeyTable::default(),
            stamps: ChangeStamps::default(),
        }
    }

    pub(crate) fn id(&self) -> SliceId {
        (self.slice, self.number)
    }

    /// Returns the accumulator of a key for an update. A missing key is inserted.
    pub(crate) fn acc<F>(
        &mut self,
        fold: &F,
        key: Cow<'_, K>,
        kept: WindowStateRef<'_, F>,
    ) -> &mut A
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

/// A slice with its first and last time.
struct OpenSlice<K, A> {
    first: Timestamp,
    last: Timestamp,
    table: SliceTable<K, A>,
    /// True if the table receives no more records. It was restored as pending, and a table frozen
    /// by another instance may have the same number after a rescale: a key of that table must not
    /// be added here.
    is_sealed: bool,
}

/// The open slices in order of time.
pub(crate) struct OpenSlices<K, A> {
    spec: WindowSpec,
    open: VecDeque<OpenSlice<K, A>>,
    /// The index of the current slice in `open`.
    current: usize,
    /// The first and last time of the current slice. `first` is after `last` if there is no current
    /// slice.
    first: Timestamp,
    last: Timestamp,
    spare: Vec<SliceTable<K, A>>,
    /// Slices before this one are closed, and are reopened only for late records.
    closed_before: Slice,
    /// The number of reopened slices.
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

    /// Closes slices before `limit`.
    pub(crate) fn close_before(&mut self, limit: Slice) {
        self.closed_before = limit;
    }

    /// Returns an error if a record has no event time, or one for which a window would end after
    /// the end of time.
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

    /// Returns true if all of `times` are in the current slice. One vectorized pass.
    #[inline]
    pub(crate) fn hold_in_current(&self, times: &[Timestamp]) -> bool {
        all_within(times, self.first, self.last)
    }

    /// Returns true if `time` is in the current slice.
    #[inline]
    pub(crate) fn current_holds(&self, time: Timestamp) -> bool {
        self.first <= time && time <= self.last
    }

    /// Returns the table of the current slice. Requires a preceding [`select`](Self::select) or a
    /// successful check.
    #[inline]
    pub(crate) fn current(&mut self) -> &mut SliceTable<K, A> {
        &mut self.open[self.current].table
    }

    /// Makes the slice of `time` the current one, and opens it if necessary.
    #[inline]
    pub(crate) fn select(&mut self, time: Timestamp) {
        if !self.current_holds(time) {
            self.select_other(time);
        }
    }

    fn select_other(&mut self, time: Timestamp) {
        // A binary search by the times of slices. The slice number is computed only to open a
        // slice.
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

    /// Adds a restored table. A pending table receives no more records. There is no current slice
    /// afterwards.
    pub(crate) fn restore(&mut self, table: SliceTable<K, A>, is_pending: bool) {
        self.reopened = self.reopened.max(table.number);
        let id = table.id();
        let at = self.open.partition_point(|open| open.table.id() < id);
        self.insert_at(at, table, is_pending);
        (self.first, self.last) = (Timestamp::MAX, Timestamp::MIN);
    }

    /// Marks a table number as used.
    pub(crate) fn reserve(&mut self, number: u32) {
        self.reopened = self.reopened.max(number);
    }

    /// Returns the first open slice.
    pub(crate) fn first_slice(&self) -> Option<Slice> {
        self.open.front().map(|open| open.table.slice)
    }

    /// Returns the open slices and their tables in order of time.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slice, &KeyTable<K, A>)> {
        self.open
            .iter()
            .map(|open| (open.table.slice, &open.table.keys))
    }

    /// Returns the number of keys over all open slices.
    pub(crate) fn keys(&self) -> usize {
        self.open.iter().map(|open| open.table.keys.len()).sum()
    }

    /// Returns the tables from `from` on.
    pub(crate) fn tables_from(
        &mut self,
        from: SliceId,
    ) -> impl Iterator<Item = &mut SliceTable<K, A>> {
        let first = self.open.partition_point(|open| open.table.id() < from);
        self.open.range_mut(first..).map(|open| &mut open.table)
    }

    /// Removes the first slice if it is before `limit`.
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

    /// Retains the memory of a table returned by [`pop_before`](Self::pop_before) for reuse.
    pub(crate) fn recycle(&mut self, mut table: SliceTable<K, A>) {
        if self.spare.len() < SPARE_TABLES {
            table.keys.clear();
            table.stamps.clear();
            self.spare.push(table);
        }
    }
}

/// Returns true if all `times` are from `first` to `last`; always false if `first` is after `last`.
///
/// A time is in the range if its distances from the first and to the last are both non-negative.
/// The distances add up to the length of the range, so they cannot both be wrong by overflow.
/// Subtractions and ors in one branch-free pass run at several times per nanosecond on any
/// processor; 64-bit comparisons are slower on older ones.
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
