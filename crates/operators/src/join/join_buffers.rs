//! The buffered records of one key of an interval join.

use std::collections::VecDeque;
use std::time::Duration;

use ardea_core::{Key, Timestamp, Watermark};
use ardea_state::TimerSet;

use crate::Output;
use crate::join::JoinInterval;
use crate::join::join_changelog::SideChangelog;
use crate::join::join_state_codec::{Restored, Side};

/// The records of a key that may still match, per side in order of time, then of arrival.
pub(crate) struct JoinBuffers<L, R> {
    pub(super) left: VecDeque<BufferedRecord<L>>,
    pub(super) right: VecDeque<BufferedRecord<R>>,
    /// The key's entry in the set of expiry times.
    pub(crate) end: Option<Timestamp>,
    /// The generation of the last added, matched or removed record.
    pub(super) changed: u32,
    /// The generation of the last snapshot whose scan has reached this key.
    pub(super) reached: u32,
}

/// A buffered record.
pub(crate) struct BufferedRecord<T> {
    pub(super) record: T,
    pub(super) time: Timestamp,
    /// The position of the record in the order of arrival.
    pub(super) stamp: Stamp,
    /// The generation of the record's first match; zero if unmatched.
    pub(super) matched: u32,
}

/// The position of a record's arrival: the generation (the interval between two snapshots), and the
/// number within the generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Stamp {
    pub(crate) generation: u32,
    pub(crate) number: u32,
}

/// The interval and watermark that decide matches and expiry.
#[derive(Clone, Copy)]
pub(crate) struct JoinBounds<'a> {
    pub(crate) interval: &'a JoinInterval,
    pub(crate) watermark: Watermark,
}

impl JoinBounds<'_> {
    /// Returns true if a record that can only match times up to `last` has expired.
    fn is_over(self, last: Timestamp) -> bool {
        end_after(last) <= self.watermark.0
    }
}

impl<L, R> Default for JoinBuffers<L, R> {
    fn default() -> Self {
        JoinBuffers {
            left: VecDeque::new(),
            right: VecDeque::new(),
            end: None,
            changed: 0,
            reached: 0,
        }
    }
}

impl<T> BufferedRecord<T> {
    /// Returns the sort key of the record within its side: time, then stamp.
    pub(super) fn place(&self) -> (Timestamp, Stamp) {
        (self.time, self.stamp)
    }
}

/// Inserts a new record in order of time, usually at the end.
fn keep<T>(side: &mut VecDeque<BufferedRecord<T>>, waiting: BufferedRecord<T>) {
    let place = match side.back() {
        Some(last) if last.time > waiting.time => {
            side.partition_point(|other| other.time <= waiting.time)
        }
        _ => side.len(),
    };
    side.insert(place, waiting);
}

/// Inserts a restored record. Stamps give the order of records with equal times.
fn put_back<T>(side: &mut VecDeque<BufferedRecord<T>>, waiting: BufferedRecord<T>) {
    let place = match side.back() {
        Some(last) if last.place() > waiting.place() => {
            side.partition_point(|other| other.place() < waiting.place())
        }
        _ => side.len(),
    };
    side.insert(place, waiting);
}

/// Returns the records of a side with times from `first` to `last`.
fn within<T>(
    side: &mut VecDeque<BufferedRecord<T>>,
    first: Timestamp,
    last: Timestamp,
) -> impl Iterator<Item = &mut BufferedRecord<T>> {
    let start = side.partition_point(|waiting| waiting.time < first);
    side.range_mut(start..)
        .take_while(move |waiting| waiting.time <= last)
}

/// Returns the time at which a record expires that can only match times up to `last`.
fn end_after(last: Timestamp) -> Timestamp {
    last + Duration::from_micros(1)
}

impl<L, R> JoinBuffers<L, R> {
    /// Inserts a restored record.
    pub(super) fn put_back(&mut self, waiting: Restored<L, R>) {
        match waiting {
            Side::Left(waiting) => put_back(&mut self.left, waiting),
            Side::Right(waiting) => put_back(&mut self.right, waiting),
        }
    }

    /// Pairs a left record with the buffered right records. Buffers the left record if it can still
    /// match.
    pub(crate) fn left<K: Key, U>(
        &mut self,
        (record, time): (L, Timestamp),
        terms: JoinBounds<'_>,
        join: impl Fn(&L, Option<&R>) -> Option<U>,
        book: &mut SideChangelog<'_, K, L, R>,
        output: &mut Output<'_, U>,
    ) {
        let interval = terms.interval;
        let mut matched = 0;
        for other in within(
            &mut self.right,
            interval.first_right(time),
            interval.last_right(time),
        ) {
            if let Some(pair) = join(&record, Some(&other.record)) {
                output.emit(pair, time.max(other.time));
                matched = book.generation();
            }
        }
        if !terms.is_over(interval.last_right(time)) {
            let stamp = book.record_added(&mut self.changed);
            let waiting = BufferedRecord {
                record,
                time,
                stamp,
                matched,
            };
            keep(&mut self.left, waiting);
        } else if matched == 0
            && let Some(single) = join(&record, None)
        {
            output.emit(single, time);
        }
    }

    /// Pairs a right record with the buffered left records. Buffers the right record if it can
    /// still match.
    pub(crate) fn right<K: Key, U>(
        &mut self,
        (record, time): (R, Timestamp),
        terms: JoinBounds<'_>,
        join: impl Fn(&L, Option<&R>) -> Option<U>,
        book: &mut SideChangelog<'_, K, L, R>,
        output: &mut Output<'_, U>,
    ) {
        let interval = terms.interval;
        for other in within(
            &mut self.left,
            interval.first_left(time),
            interval.last_left(time),
        ) {
            if let Some(pair) = join(&other.record, Some(&record)) {
                output.emit(pair, time.max(other.time));
                if other.matched == 0 {
                    book.record_matched(&mut self.changed, self.reached, other);
                    other.matched = book.generation();
                }
            }
        }
        if !terms.is_over(interval.last_left(time)) {
            let stamp = book.record_added(&mut self.changed);
            let waiting = BufferedRecord {
                record,
                time,
                stamp,
                matched: 0,
            };
            keep(&mut self.right, waiting);
        }
    }

    /// Removes expired records while there is room for unmatched left records. Returns true if
    /// there was room for all.
    pub(crate) fn forget<K: Key, U>(
        &mut self,
        terms: JoinBounds<'_>,
        join: impl Fn(&L, Option<&R>) -> Option<U>,
        book: &mut SideChangelog<'_, K, L, R>,
        output: &mut Output<'_, U>,
    ) -> bool {
        let interval = terms.interval;
        while let Some(waiting) = self
            .right
            .pop_front_if(|waiting| terms.is_over(interval.last_left(waiting.time)))
        {
            book.record_removed(self.reached, Side::Right(&waiting));
        }
        while self
            .left
            .front()
            .is_some_and(|waiting| terms.is_over(interval.last_right(waiting.time)))
        {
            if output.is_full() {
                return false;
            }
            let Some(waiting) = self.left.pop_front() else {
                break;
            };
            book.record_removed(self.reached, Side::Left(&waiting));
            if waiting.matched == 0
                && let Some(single) = join(&waiting.record, None)
            {
                // The end of an interval beyond the maximum event time is that maximum.
                let last = interval.last_right(waiting.time).min(Timestamp::LAST_EVENT);
                output.emit(single, waiting.time.max(last));
            }
        }
        true
    }

    /// Returns the time at which the first record expires; `None` if there are no records.
    fn next_end(&self, interval: &JoinInterval) -> Option<Timestamp> {
        let left = self
            .left
            .front()
            .map(|waiting| end_after(interval.last_right(waiting.time)));
        let right = self
            .right
            .front()
            .map(|waiting| end_after(interval.last_left(waiting.time)));
        left.into_iter().chain(right).min()
    }
}

/// Updates the key's entry in the set of expiry times.
pub(crate) fn reschedule<L, R>(
    slot: u32,
    sides: &mut JoinBuffers<L, R>,
    interval: &JoinInterval,
    ends: &mut TimerSet<Timestamp>,
) {
    let end = sides.next_end(interval);
    if end == sides.end {
        return;
    }
    if let Some(old) = sides.end {
        ends.clear(slot, old);
    }
    if let Some(new) = end {
        ends.set(slot, new);
    }
    sides.end = end;
}
