//! Baselines: queries 0, 1, 2, 5, 7, 8 and 13 as plain single-threaded loops over the bench events.
//!
//! McSherry, Isard and Murray ("Scalability! But at what COST?", 2015) compare a system with a
//! competent program without it. These are such programs. They use dense arrays instead of hash
//! tables, take event time from the rows, and have no queues or threads. Generator and query are
//! inlined into one loop. Results are not stored but added to a [`checksum`](crate::checksum), as
//! an engine's sink does in the benchmark.
//!
//! ```
//! use ardea_nexmark::baseline::{self, Workload, WorkloadConfig};
//!
//! let config = WorkloadConfig { events: 1_000, keys: 50, ..WorkloadConfig::default() };
//! let workload = Workload::new(config)?;
//! let passed = baseline::q0(&workload);
//! assert_eq!((passed.events, passed.results), (1_000, 1_000));
//! # Ok::<(), ardea_nexmark::NexmarkError>(())
//! ```

mod record_wise;
mod windowed;

use std::time::Duration;

use crate::{BidRows, DEFAULT_KEYS, KEYS_MAX, NexmarkError, Schedule};

pub use record_wise::{q0, q1, q2, q13};
pub use windowed::{q5, q7, q8};

/// The outcome of a baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Baseline {
    /// The number of events read.
    pub events: u64,
    /// The number of results.
    pub results: u64,
    /// The wrapping sum of the results' digests, see [`checksum`](crate::checksum).
    pub checksum: u64,
}

impl Baseline {
    #[inline]
    fn add(&mut self, digest: u64) {
        self.results += 1;
        self.checksum = self.checksum.wrapping_add(digest);
    }
}

/// The events that a baseline reads, and the windows over which it computes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadConfig {
    /// The seed of the rows.
    pub seed: u64,
    /// The number of events.
    pub events: u64,
    /// The time of event 0, in milliseconds since the epoch.
    pub first_event_time_ms: i64,
    /// Events in a second of event time; at least 1.
    pub events_per_second: u64,
    /// The number of auctions or persons; 1 to [`KEYS_MAX`].
    pub keys: u64,
    /// The length of the windows of queries 5, 7 and 8.
    pub window: Duration,
    /// The slide of the windows of queries 5 and 8; must divide the window. Query 7 tumbles.
    pub slide: Duration,
}

impl Default for WorkloadConfig {
    fn default() -> Self {
        Self {
            seed: 1,
            events: 1_000_000,
            first_event_time_ms: 0,
            events_per_second: 1_000_000,
            keys: DEFAULT_KEYS,
            window: Duration::from_secs(10),
            slide: Duration::from_millis(500),
        }
    }
}

/// A validated [`WorkloadConfig`].
#[derive(Debug, Clone)]
pub struct Workload {
    seed: u64,
    events: u64,
    schedule: Schedule,
    keys: usize,
    window_ms: i64,
    slide_ms: i64,
}

impl Workload {
    /// Validates the settings.
    ///
    /// # Errors
    /// [`NexmarkError::Setting`] if a rate, a number of keys, a window or a slide is zero, a window
    /// or slide is not whole milliseconds or longer than a year, the slide does not divide the
    /// window, the keys are too many, or the events are so many in a window (over 2³² − 1) or in
    /// all windows that the 32-bit counts could overflow.
    pub fn new(config: WorkloadConfig) -> Result<Self, NexmarkError> {
        let schedule = Schedule::new(config.first_event_time_ms, config.events_per_second)?;
        if config.keys == 0 || config.keys > KEYS_MAX {
            return Err(NexmarkError::setting(
                "keys",
                config.keys,
                "it must be from 1 to 2^28",
            ));
        }
        let window_ms = whole_ms("window", config.window)?;
        let slide_ms = whole_ms("slide", config.slide)?;
        if window_ms % slide_ms != 0 {
            let rule = "it must divide the window without remainder";
            return Err(NexmarkError::setting(
                "slide",
                format!("{:?}", config.slide),
                rule,
            ));
        }
        let in_window = schedule.first_index_at(schedule.first_ms().saturating_add(window_ms));
        if in_window.min(config.events) > u64::from(u32::MAX) {
            let rule = "at this rate a window would hold more than 2^32 events; shorten it or lower the rate";
            return Err(NexmarkError::setting(
                "window",
                format!("{:?}", config.window),
                rule,
            ));
        }
        let last_ms = i128::from(schedule.date_time_ms(config.events));
        let span_ms = last_ms - i128::from(schedule.first_ms()) + 2 * i128::from(window_ms);
        if span_ms / i128::from(slide_ms) >= i128::from(u32::MAX)
            || last_ms > i128::from(i64::MAX / 2)
        {
            let rule = "the events would last for more than 2^32 slides; raise the rate or lengthen the slide";
            return Err(NexmarkError::setting("events", config.events, rule));
        }
        Ok(Self {
            seed: config.seed,
            events: config.events,
            schedule,
            keys: config.keys as usize,
            window_ms,
            slide_ms,
        })
    }

    /// Returns the bids of this workload, in order of event time.
    pub fn bids(&self) -> BidRows {
        BidRows::new(self.seed, self.keys as u64, self.schedule, 0..self.events)
    }

    fn events_only(&self) -> Baseline {
        Baseline {
            events: self.events,
            ..Baseline::default()
        }
    }
}

fn whole_ms(name: &'static str, length: Duration) -> Result<i64, NexmarkError> {
    const YEAR_MS: u128 = 366 * 24 * 60 * 60 * 1000;
    let length_ms = length.as_millis();
    if length_ms == 0 || length_ms > YEAR_MS || !length.subsec_nanos().is_multiple_of(1_000_000) {
        let rule = "it must be whole milliseconds, at least one, at most a year";
        return Err(NexmarkError::setting(name, format!("{length:?}"), rule));
    }
    Ok(length_ms as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_make_no_sense_are_refused_by_name() {
        let refused = |config| match Workload::new(config) {
            Err(NexmarkError::Setting { name, .. }) => name,
            other => panic!("{other:?}"),
        };
        let good = WorkloadConfig::default();
        assert_eq!(
            refused(WorkloadConfig {
                keys: 0,
                ..good.clone()
            }),
            "keys"
        );
        assert_eq!(
            refused(WorkloadConfig {
                keys: KEYS_MAX + 1,
                ..good.clone()
            }),
            "keys"
        );
        assert_eq!(
            refused(WorkloadConfig {
                events_per_second: 0,
                ..good.clone()
            }),
            "events_per_second"
        );
        assert_eq!(
            refused(WorkloadConfig {
                window: Duration::ZERO,
                ..good.clone()
            }),
            "window"
        );
        assert_eq!(
            refused(WorkloadConfig {
                window: Duration::MAX,
                ..good.clone()
            }),
            "window"
        );
        assert_eq!(
            refused(WorkloadConfig {
                slide: Duration::from_micros(1_500),
                ..good.clone()
            }),
            "slide"
        );
        assert_eq!(
            refused(WorkloadConfig {
                slide: Duration::from_secs(3),
                ..good.clone()
            }),
            "slide"
        );
        let crowded = WorkloadConfig {
            events: u64::MAX,
            events_per_second: 1 << 30,
            ..good.clone()
        };
        assert_eq!(refused(crowded), "window");
        let endless = WorkloadConfig {
            events: u64::MAX,
            events_per_second: 1_000,
            ..good
        };
        assert_eq!(refused(endless), "events");
    }
}
