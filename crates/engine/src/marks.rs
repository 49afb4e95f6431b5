//! When marks of latency are sent by a source, and passed on by a step.

use std::mem;
use std::time::Duration;

/// How often a source sends a mark. What comes from several sources is passed on about as often.
const EVERY: Duration = Duration::from_millis(100);

/// The pace of one stage's marks: without it those of many instances would multiply from step to step.
#[derive(Debug, Default)]
pub(crate) struct MarkPace {
    /// From when on the next is due.
    due: Duration,
    /// Of a source: one is to be sent.
    is_owed: bool,
}

impl MarkPace {
    /// Of a source, at the beginning of a slice: one is owed if it is time.
    #[inline]
    pub(crate) fn look(&mut self, now: Duration) {
        if now >= self.due {
            self.due = now + EVERY;
            self.is_owed = true;
        }
    }

    /// Whether one is owed; once.
    pub(crate) fn take_owed(&mut self) -> bool {
        mem::take(&mut self.is_owed)
    }

    /// Of a step to which one has come: whether it goes on. Up to half an interval early, so that of a single source's none is left out.
    pub(crate) fn passes(&mut self, now: Duration) -> bool {
        let is_time = now + EVERY / 2 >= self.due;
        if is_time {
            self.due = now.max(self.due) + EVERY;
        }
        is_time
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn of_a_crowd_of_marks_one_passes_in_half_an_interval_at_most_and_of_a_single_source_all() {
        let passed = |step: u64| {
            let mut pace = MarkPace::default();
            let times = (0..10_000).step_by(step as usize);
            times
                .filter(|at| pace.passes(Duration::from_millis(*at)))
                .count()
        };
        assert_eq!(passed(100), 100);
        assert!((100..=101).contains(&passed(1)), "{}", passed(1));
    }

    #[test]
    fn a_source_owes_one_an_interval() {
        let mut pace = MarkPace::default();
        let mut sent = 0;
        for at in 0..1_000 {
            pace.look(Duration::from_millis(at));
            sent += usize::from(pace.take_owed());
        }
        assert_eq!(sent, 10);
    }
}
