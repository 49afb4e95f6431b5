//! The records of one key that wait for others in an interval join.

use std::collections::VecDeque;
use std::time::Duration;

use ardea_core::{Timestamp, Watermark};

use crate::Output;
use crate::join::JoinInterval;
use crate::keyed::TimerSet;

/// The records of a key that may still meet others, each side in order of time, then of coming.
pub(crate) struct Sides<L, R> {
    left: VecDeque<Kept<L>>,
    right: VecDeque<Kept<R>>,
    /// The key's entry in the set of ends.
    pub(crate) end: Option<Timestamp>,
}

struct Kept<T> {
    record: T,
    time: Timestamp,
    matched: bool,
}

impl<L, R> Default for Sides<L, R> {
    fn default() -> Self {
        Sides {
            left: VecDeque::new(),
            right: VecDeque::new(),
            end: None,
        }
    }
}

/// Puts a record in its place in order of time; at the end, usually.
fn keep<T>(side: &mut VecDeque<Kept<T>>, kept: Kept<T>) {
    let place = match side.back() {
        Some(last) if last.time > kept.time => {
            side.partition_point(|other| other.time <= kept.time)
        }
        _ => side.len(),
    };
    side.insert(place, kept);
}

/// The records of a side with times from `first` to `last`.
fn within<T>(
    side: &mut VecDeque<Kept<T>>,
    first: Timestamp,
    last: Timestamp,
) -> impl Iterator<Item = &mut Kept<T>> {
    let start = side.partition_point(|kept| kept.time < first);
    side.range_mut(start..)
        .take_while(move |kept| kept.time <= last)
}

/// The time from which on a record that can meet others up to `last` is of no use.
fn end_after(last: Timestamp) -> Timestamp {
    last + Duration::from_micros(1)
}

impl<L, R> Sides<L, R> {
    /// Pairs a left record with those kept of the right side; keeps it if more may come.
    pub(crate) fn left<U>(
        &mut self,
        (record, time): (L, Timestamp),
        interval: &JoinInterval,
        watermark: Watermark,
        join: impl Fn(&L, Option<&R>) -> Option<U>,
        output: &mut Output<'_, U>,
    ) {
        let mut matched = false;
        for other in within(
            &mut self.right,
            interval.first_right(time),
            interval.last_right(time),
        ) {
            if let Some(pair) = join(&record, Some(&other.record)) {
                output.emit(pair, time.max(other.time));
                matched = true;
            }
        }
        if end_after(interval.last_right(time)) > watermark.0 {
            keep(
                &mut self.left,
                Kept {
                    record,
                    time,
                    matched,
                },
            );
        } else if !matched && let Some(single) = join(&record, None) {
            output.emit(single, time);
        }
    }

    /// Pairs a right record with those kept of the left side; keeps it if more may come.
    pub(crate) fn right<U>(
        &mut self,
        (record, time): (R, Timestamp),
        interval: &JoinInterval,
        watermark: Watermark,
        join: impl Fn(&L, Option<&R>) -> Option<U>,
        output: &mut Output<'_, U>,
    ) {
        for other in within(
            &mut self.left,
            interval.first_left(time),
            interval.last_left(time),
        ) {
            if let Some(pair) = join(&other.record, Some(&record)) {
                output.emit(pair, time.max(other.time));
                other.matched = true;
            }
        }
        if end_after(interval.last_left(time)) > watermark.0 {
            keep(
                &mut self.right,
                Kept {
                    record,
                    time,
                    matched: false,
                },
            );
        }
    }

    /// Forgets what can meet nothing any more, as far as there is room for left records without a match. Returns whether
    /// there was.
    pub(crate) fn forget<U>(
        &mut self,
        interval: &JoinInterval,
        watermark: Watermark,
        join: impl Fn(&L, Option<&R>) -> Option<U>,
        output: &mut Output<'_, U>,
    ) -> bool {
        let over = |last: Timestamp| end_after(last) <= watermark.0;
        while self
            .right
            .front()
            .is_some_and(|kept| over(interval.last_left(kept.time)))
        {
            self.right.pop_front();
        }
        while self
            .left
            .front()
            .is_some_and(|kept| over(interval.last_right(kept.time)))
        {
            if output.is_full() {
                return false;
            }
            let Some(kept) = self.left.pop_front() else {
                break;
            };
            if !kept.matched
                && let Some(single) = join(&kept.record, None)
            {
                // An interval that reaches beyond all time ends with the last of it.
                let last = interval.last_right(kept.time).min(Timestamp::LAST_EVENT);
                output.emit(single, kept.time.max(last));
            }
        }
        true
    }

    /// The time from which on the first record can be forgotten; `None` if there is none.
    fn next_end(&self, interval: &JoinInterval) -> Option<Timestamp> {
        let left = self
            .left
            .front()
            .map(|kept| end_after(interval.last_right(kept.time)));
        let right = self
            .right
            .front()
            .map(|kept| end_after(interval.last_left(kept.time)));
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
