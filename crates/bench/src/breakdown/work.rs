//! The job's events, and its user-defined functions.

use std::hint::black_box;
use std::time::Duration;

use ardea_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::usage::thread_cpu_time;

/// The length of an aggregation window.
pub(super) const WINDOW: Duration = Duration::from_secs(1);
/// The number of events in a second of event time.
const EVENTS_A_SECOND: u64 = 100_000;
const CAMPAIGNS: u64 = 1_000;

/// A user's interaction with an advertisement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    View,
    Click,
    Purchase,
}

/// A record of the topic, encoded as JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Event {
    campaign: u32,
    kind: Kind,
    amount: u32,
}

/// Returns the event `i`.
pub(super) fn event(i: u64) -> Event {
    let scattered = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    Event {
        campaign: (scattered % CAMPAIGNS) as u32,
        kind: [Kind::View, Kind::Click, Kind::Purchase][(i % 3) as usize],
        amount: (scattered % 97) as u32,
    }
}

/// Returns the event time of event `i`.
pub(super) fn time(i: u64) -> Timestamp {
    Timestamp::from_secs(1_700_000_000) + Duration::from_micros(i * (1_000_000 / EVENTS_A_SECOND))
}

/// Returns true if the filter accepts the event, as it does for a third of the events.
pub(super) fn is_wanted(event: &Event) -> bool {
    event.kind == Kind::View
}

/// Returns the key of the aggregation.
pub(super) fn campaign(event: &Event) -> u32 {
    event.campaign
}

/// Returns the value to sum.
pub(super) fn amount(event: &Event) -> u64 {
    event.amount.into()
}

/// Returns the CPU time of the user's functions for `records` events, measured in a plain loop.
/// Within the job the calls are too short to be timed one by one.
pub(super) fn replayed(records: u64) -> Duration {
    const SAMPLE: u64 = 100_000;
    let events: Vec<Event> = (0..SAMPLE).map(event).collect();
    let rounds = records.div_ceil(SAMPLE);
    let mut sums = vec![0u64; CAMPAIGNS as usize];
    let before = thread_cpu_time();
    for _ in 0..rounds {
        for event in black_box(&events) {
            if is_wanted(event) {
                sums[campaign(event) as usize] += amount(event);
            }
        }
        black_box(&mut sums);
    }
    let spent = thread_cpu_time().saturating_sub(before);
    spent.mul_f64(records as f64 / (rounds * SAMPLE) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_the_events_is_wanted_and_json_keeps_them() {
        let wanted = (0..3000).filter(|i| is_wanted(&event(*i))).count();
        assert_eq!(wanted, 1000);
        let json = serde_json::to_vec(&event(7)).unwrap();
        assert_eq!(serde_json::from_slice::<Event>(&json).unwrap(), event(7));
    }
}
