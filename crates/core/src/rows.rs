//! A typed batch of records with their event times.

use crate::Timestamp;

/// A batch of records and their event times, in two columns.
///
/// Stages that need only the records or only the times read one column; a map does not touch the
/// times. A record without event time has [`Timestamp::MIN`].
///
/// **Invariant:** both columns have the same length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows<T> {
    values: Vec<T>,
    times: Vec<Timestamp>,
}

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Rows {
            values: Vec::new(),
            times: Vec::new(),
        }
    }
}

impl<T> Rows<T> {
    /// Creates an empty batch with room for `capacity` records.
    pub fn with_capacity(capacity: usize) -> Self {
        Rows {
            values: Vec::with_capacity(capacity),
            times: Vec::with_capacity(capacity),
        }
    }

    /// Appends a record.
    #[inline]
    pub fn push(&mut self, value: T, time: Timestamp) {
        self.values.push(value);
        self.times.push(time);
    }

    /// Returns the number of records.
    #[inline]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns true if there is no record.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the records.
    #[inline]
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Returns the records for changes in place.
    #[inline]
    pub fn values_mut(&mut self) -> &mut [T] {
        &mut self.values
    }

    /// Returns the event time of each record.
    #[inline]
    pub fn times(&self) -> &[Timestamp] {
        &self.times
    }

    /// Returns the event times for changes in place.
    #[inline]
    pub fn times_mut(&mut self) -> &mut [Timestamp] {
        &mut self.times
    }

    /// Returns the records, and the event times for changes in place.
    #[inline]
    pub fn values_and_times_mut(&mut self) -> (&[T], &mut [Timestamp]) {
        (&self.values, &mut self.times)
    }

    /// Iterates over the records with their times.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&T, Timestamp)> {
        self.values.iter().zip(self.times.iter().copied())
    }

    /// Removes and yields up to `count` records from the front. Moves the remaining ones.
    #[inline]
    pub fn drain_front(
        &mut self,
        count: usize,
    ) -> impl ExactSizeIterator<Item = (T, Timestamp)> + '_ {
        let count = count.min(self.values.len());
        self.values.drain(..count).zip(self.times.drain(..count))
    }

    /// Removes all records but keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.values.clear();
        self.times.clear();
    }

    /// Drops up to `count` records from the front.
    pub fn discard_front(&mut self, count: usize) {
        let count = count.min(self.values.len());
        self.values.drain(..count);
        self.times.drain(..count);
    }

    /// Moves up to `count` records from the front of `other` to the end of this batch.
    pub fn append_front(&mut self, other: &mut Rows<T>, count: usize) {
        let count = count.min(other.len());
        if count == other.len() {
            self.values.append(&mut other.values);
            self.times.append(&mut other.times);
        } else {
            self.values.extend(other.values.drain(..count));
            self.times.extend(other.times.drain(..count));
        }
    }

    /// Appends `f(record)` with its time for up to `count` records from the front of `input`, and
    /// removes these records from `input`.
    ///
    /// One pass per column, which the compiler can vectorise.
    #[inline]
    pub fn extend_map<S>(&mut self, input: &mut Rows<S>, count: usize, f: impl FnMut(S) -> T) {
        let count = count.min(input.len());
        self.values.extend(input.values.drain(..count).map(f));
        self.times.extend_from_slice(&input.times[..count]);
        input.times.drain(..count);
    }

    /// Retains the records for which `keep` is true, in order. Linear, in place.
    ///
    /// If `keep` panics, some records may have changed places; none is lost or duplicated.
    #[inline]
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let (values, times) = (self.values.as_mut_slice(), self.times.as_mut_slice());
        let mut kept = 0;
        for read in 0..values.len().min(times.len()) {
            if keep(&values[read]) {
                // A swap, not a move: rejected records gather at the end and are dropped together.
                values.swap(kept, read);
                times.swap(kept, read);
                kept += 1;
            }
        }
        self.values.truncate(kept);
        self.times.truncate(kept);
    }

    /// Returns the least and the greatest event time, `None` without records.
    #[inline]
    pub fn time_range(&self) -> Option<(Timestamp, Timestamp)> {
        let first = *self.times.first()?;
        // Minimum and maximum in one vectorised pass.
        let (mut low, mut high) = (first, first);
        for &time in &self.times {
            low = low.min(time);
            high = high.max(time);
        }
        Some((low, high))
    }

    /// Reserves room for `additional` more records.
    pub fn reserve(&mut self, additional: usize) {
        self.values.reserve(additional);
        self.times.reserve(additional);
    }

    /// Appends to both columns at once: `fill` must leave them equally long.
    ///
    /// # Panics
    /// If `fill` leaves the columns with different lengths.
    #[inline]
    pub fn extend_columns(&mut self, fill: impl FnOnce(&mut Vec<T>, &mut Vec<Timestamp>)) {
        fill(&mut self.values, &mut self.times);
        assert_eq!(
            self.values.len(),
            self.times.len(),
            "each record has one time"
        );
    }
}

impl<T> Extend<(T, Timestamp)> for Rows<T> {
    fn extend<I: IntoIterator<Item = (T, Timestamp)>>(&mut self, records: I) {
        for (value, time) in records {
            self.push(value, time);
        }
    }
}

impl<T> FromIterator<(T, Timestamp)> for Rows<T> {
    fn from_iter<I: IntoIterator<Item = (T, Timestamp)>>(records: I) -> Self {
        let mut rows = Rows::default();
        rows.extend(records);
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[i64]) -> Rows<i64> {
        values
            .iter()
            .map(|&v| (v, Timestamp::from_secs(v)))
            .collect()
    }

    #[test]
    fn retain_keeps_each_record_with_its_own_time() {
        let mut batch = rows(&[1, 2, 3, 4, 5, 6]);
        batch.retain(|v| v % 2 == 0);
        assert_eq!(batch, rows(&[2, 4, 6]));
    }

    #[test]
    fn draining_part_leaves_the_rest_in_order() {
        let mut batch = rows(&[1, 2, 3]);
        assert_eq!(
            batch.drain_front(2).map(|(v, _)| v).collect::<Vec<_>>(),
            [1, 2]
        );
        assert_eq!(batch, rows(&[3]));
        assert_eq!(batch.drain_front(9).len(), 1);
    }

    #[test]
    fn a_dropped_drain_still_removes_what_it_promised() {
        let mut batch = rows(&[1, 2, 3]);
        drop(batch.drain_front(2));
        assert_eq!(batch, rows(&[3]));
    }

    #[test]
    fn mapping_part_of_a_batch_keeps_times_beside_values() {
        let mut input = rows(&[1, 2, 3]);
        let mut output = Rows::default();
        output.extend_map(&mut input, 2, |v| v * 10);
        assert_eq!(
            output.iter().collect::<Vec<_>>(),
            [
                (&10, Timestamp::from_secs(1)),
                (&20, Timestamp::from_secs(2))
            ]
        );
        assert_eq!(input, rows(&[3]));
    }

    #[test]
    fn the_time_range_spans_all_records() {
        assert_eq!(rows(&[]).time_range(), None);
        assert_eq!(
            rows(&[4, 1, 9]).time_range(),
            Some((Timestamp::from_secs(1), Timestamp::from_secs(9)))
        );
    }
}
