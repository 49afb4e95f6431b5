//! The rate of latency markers, at sources and at steps that pass them on.

use std::mem;
use std::time::Duration;

/// Interval between the latency markers of a source. A step that receives
/// the markers of several sources drops most of them, and passes on about one in this interval.
const INTERVAL: Duration = Duration::from_millis(100);

/// Rate limiter of one stage's latency markers. Without the limit, markers of many instances would
/// multiply from step to step.
#[derive(Debug, Default)]
pub(super) struct LatencyMarkerInterval {
    /// The time from which the next marker may be sent.
    due: Duration,
    /// True if a source has to send a marker.
    is_owed: bool,
}

impl LatencyMarkerInterval {
    /// Makes a marker due if its time has come. Called by a source at the beginning of a slice.
    #[inline]
    pub(super) fn check_due(&mut self, now: Duration) {
        if now >= self.due {
            self.due = now + INTERVAL;
            self.is_owed = true;
        }
    }

    /// Takes the flag that a marker has to be sent.
    pub(super) fn take_owed(&mut self) -> bool {
        mem::take(&mut self.is_owed)
    }

    /// Returns true if a step passes on a marker that has arrived. A marker may come up to half an
    /// interval early, so that a step with a single source passes on all markers.
    pub(super) fn passes(&mut self, now: Duration) -> bool {
        let is_time = now + INTERVAL / 2 >= self.due;
        if is_time {
            self.due = now.max(self.due) + INTERVAL;
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
            let mut pace = LatencyMarkerInterval::default();
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
        let mut pace = LatencyMarkerInterval::default();
        let mut sent = 0;
        for at in 0..1_000 {
            pace.check_due(Duration::from_millis(at));
            sent += usize::from(pace.take_owed());
        }
        assert_eq!(sent, 10);
    }
}
