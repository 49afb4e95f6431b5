//! An iteration over the times of a schedule, with a division for each millisecond of event time
//! instead of one for each event.

use std::ops::Range;

use crate::Schedule;

/// The times of a schedule's events, one after the other or in runs that share a millisecond.
///
/// ```
/// use ardea_nexmark::{EventClock, Schedule};
///
/// let mut clock = EventClock::new(Schedule::new(-1, 3_000)?, 0);
/// assert_eq!(clock.tick(), -1);
/// assert_eq!(clock.run(100), (1..3, -1)); // two more in this millisecond
/// assert_eq!(clock.run(2), (3..5, 0));
/// # Ok::<(), ardea_nexmark::NexmarkError>(())
/// ```
#[derive(Debug, Clone)]
pub struct EventClock {
    schedule: Schedule,
    next: u64,
    /// The time of the events before `next_change`.
    date_time: i64,
    /// The first event with a later time.
    next_change: u64,
}

impl EventClock {
    /// Returns a clock whose next event is `index`.
    pub fn new(schedule: Schedule, index: u64) -> Self {
        Self {
            schedule,
            next: index,
            date_time: i64::MIN,
            next_change: index,
        }
    }

    /// Returns the index of the next event.
    #[inline]
    pub fn next_index(&self) -> u64 {
        self.next
    }

    /// Returns the time of the next event, in milliseconds since the epoch.
    #[inline]
    pub fn next_ms(&mut self) -> i64 {
        if self.next >= self.next_change {
            (self.date_time, self.next_change) = next_millisecond(self.schedule, self.next);
        }
        self.date_time
    }

    /// Returns the time of the next event, and advances to the one after it.
    #[inline]
    pub fn tick(&mut self) -> i64 {
        let date_time = self.next_ms();
        self.next += 1;
        date_time
    }

    /// Returns the next events that share a millisecond, up to `most`, with that millisecond, and
    /// advances past them. Such events can be generated in a loop without a branch.
    #[inline]
    pub fn run(&mut self, most: u64) -> (Range<u64>, i64) {
        let date_time = self.next_ms();
        let run = self.next..self.next_change.min(self.next.saturating_add(most));
        self.next = run.end;
        (run, date_time)
    }
}

/// Returns the time of event `index`, and the first event with a later one. It takes values, not
/// the clock, so that the clock can stay in registers.
#[cold]
#[inline(never)]
fn next_millisecond(schedule: Schedule, index: u64) -> (i64, u64) {
    let date_time = schedule.date_time_ms(index);
    (
        date_time,
        schedule.first_index_at(date_time.saturating_add(1)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ticks_and_runs_give_every_event_the_time_of_its_schedule(
            first_ms in -10_000_i64..10_000,
            rate in 1_u64..5_000_000,
            first in 0_u64..1_000_000,
            steps in proptest::collection::vec(0_u64..3_000, 1..60),
        ) {
            let schedule = Schedule::new(first_ms, rate).unwrap();
            let mut clock = EventClock::new(schedule, first);
            let mut index = first;
            for most in steps {
                prop_assert_eq!(clock.next_index(), index);
                prop_assert_eq!(clock.next_ms(), schedule.date_time_ms(index));
                if most == 0 {
                    prop_assert_eq!(clock.tick(), schedule.date_time_ms(index));
                    index += 1;
                    continue;
                }
                let (run, date_time) = clock.run(most);
                prop_assert!(run.start == index && run.end > index && run.end - index <= most);
                prop_assert_eq!(schedule.date_time_ms(run.start), date_time);
                prop_assert_eq!(schedule.date_time_ms(run.end - 1), date_time);
                index = run.end;
            }
        }
    }
}
