//! The records of one key that wait for others in an interval join.

use std::collections::VecDeque;
use std::time::Duration;

use ardea_core::{Key, Timestamp, Watermark};

use crate::Output;
use crate::join::JoinInterval;
use crate::join::journal::Book;
use crate::join::kept_sides::{Restored, Side};
use crate::keyed::TimerSet;

/// The records of a key that may still meet others, each side in order of time, then of coming.
pub(crate) struct Sides<L, R> {
    pub(super) left: VecDeque<Waiting<L>>,
    pub(super) right: VecDeque<Waiting<R>>,
    /// The key's entry in the set of ends.
    pub(crate) end: Option<Timestamp>,
    /// The generation in which records came, met or went last.
    pub(super) changed: u32,
    /// The generation whose cut has come to this key.
    pub(super) reached: u32,
}

/// A record that waits.
pub(crate) struct Waiting<T> {
    pub(super) record: T,
    pub(super) time: Timestamp,
    /// When it came.
    pub(super) stamp: Stamp,
    /// The generation in which it met another first; zero if it has not.
    pub(super) matched: u32,
}

/// When a record came: in which generation, that is between which two cuts, and as which of that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Stamp {
    pub(crate) generation: u32,
    pub(crate) number: u32,
}

/// By what records meet, and are forgotten.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) interval: &'a JoinInterval,
    pub(crate) watermark: Watermark,
}

impl Terms<'_> {
    /// Whether a record is of no use any more that can meet others up to `last`.
    fn is_over(self, last: Timestamp) -> bool {
        end_after(last) <= self.watermark.0
    }
}

impl<L, R> Default for Sides<L, R> {
    fn default() -> Self {
        Sides {
            left: VecDeque::new(),
            right: VecDeque::new(),
            end: None,
            changed: 0,
            reached: 0,
        }
    }
}

impl<T> Waiting<T> {
    /// Its place in its side.
    pub(super) fn place(&self) -> (Timestamp, Stamp) {
        (self.time, self.stamp)
    }
}

/// Puts a record in its place in order of time; at the end, usually.
fn keep<T>(side: &mut VecDeque<Waiting<T>>, waiting: Waiting<T>) {
    let place = match side.back() {
        Some(last) if last.time > waiting.time => {
            side.partition_point(|other| other.time <= waiting.time)
        }
        _ => side.len(),
    };
    side.insert(place, waiting);
}

/// Puts a record back in its place, which stamps tell of those with equal times.
fn put_back<T>(side: &mut VecDeque<Waiting<T>>, waiting: Waiting<T>) {
    let place = match side.back() {
        Some(last) if last.place() > waiting.place() => {
            side.partition_point(|other| other.place() < waiting.place())
        }
        _ => side.len(),
    };
    side.insert(place, waiting);
}

/// The records of a side with times from `first` to `last`.
fn within<T>(
    side: &mut VecDeque<Waiting<T>>,
    first: Timestamp,
    last: Timestamp,
) -> impl Iterator<Item = &mut Waiting<T>> {
    let start = side.partition_point(|waiting| waiting.time < first);
    side.range_mut(start..)
        .take_while(move |waiting| waiting.time <= last)
}

/// The time from which on a record that can meet others up to `last` is of no use.
fn end_after(last: Timestamp) -> Timestamp {
    last + Duration::from_micros(1)
}

impl<L, R> Sides<L, R> {
    /// Puts a record back that was kept.
    pub(super) fn put_back(&mut self, waiting: Restored<L, R>) {
        match waiting {
            Side::Left(waiting) => put_back(&mut self.left, waiting),
            Side::Right(waiting) => put_back(&mut self.right, waiting),
        }
    }

    /// Pairs a left record with those kept of the right side; keeps it if more may come.
    pub(crate) fn left<K: Key, U>(
        &mut self,
        (record, time): (L, Timestamp),
        terms: Terms<'_>,
        join: impl Fn(&L, Option<&R>) -> Option<U>,
        book: &mut Book<'_, K, L, R>,
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
            let stamp = book.comes(&mut self.changed);
            let waiting = Waiting {
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

    /// Pairs a right record with those kept of the left side; keeps it if more may come.
    pub(crate) fn right<K: Key, U>(
        &mut self,
        (record, time): (R, Timestamp),
        terms: Terms<'_>,
        join: impl Fn(&L, Option<&R>) -> Option<U>,
        book: &mut Book<'_, K, L, R>,
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
                    book.meets(&mut self.changed, self.reached, other);
                    other.matched = book.generation();
                }
            }
        }
        if !terms.is_over(interval.last_left(time)) {
            let stamp = book.comes(&mut self.changed);
            let waiting = Waiting {
                record,
                time,
                stamp,
                matched: 0,
            };
            keep(&mut self.right, waiting);
        }
    }

    /// Forgets what can meet nothing any more, as far as there is room for left records without a match. Returns whether
    /// there was.
    pub(crate) fn forget<K: Key, U>(
        &mut self,
        terms: Terms<'_>,
        join: impl Fn(&L, Option<&R>) -> Option<U>,
        book: &mut Book<'_, K, L, R>,
        output: &mut Output<'_, U>,
    ) -> bool {
        let interval = terms.interval;
        while let Some(waiting) = self
            .right
            .pop_front_if(|waiting| terms.is_over(interval.last_left(waiting.time)))
        {
            book.goes(self.reached, Side::Right(&waiting));
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
            book.goes(self.reached, Side::Left(&waiting));
            if waiting.matched == 0
                && let Some(single) = join(&waiting.record, None)
            {
                // An interval that reaches beyond all time ends with the last of it.
                let last = interval.last_right(waiting.time).min(Timestamp::LAST_EVENT);
                output.emit(single, waiting.time.max(last));
            }
        }
        true
    }

    /// The time from which on the first record can be forgotten; `None` if there is none.
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

/// Brings the key's entry in the set of ends up to date.
pub(crate) fn reschedule<L, R>(
    slot: u32,
    sides: &mut Sides<L, R>,
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
