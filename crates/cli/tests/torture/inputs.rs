//! The inputs of the job: events that follow from a seed and their numbers, in the order of their
//! times.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::random::SeededRandom;

/// The interval between two events of an input, in milliseconds of event time and of the clock.
pub const STEP_MILLIS: i64 = 20;

/// The number of keys.
const KEYS: u64 = 30;

/// The distance of the last event of an input from all others, in milliseconds: all timers and
/// windows are due by then.
const FAR: i64 = 3_600_000;

/// One of the two inputs: orders come in a file, payments in a topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    Orders,
    Payments,
}

/// An order or a payment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// The number of the event in its input.
    pub number: u64,
    /// The time of the event in milliseconds.
    pub millis: i64,
    pub key: u32,
    pub amount: i64,
}

impl Event {
    /// Returns the event with the number `number`.
    pub fn of(seed: u64, input: Input, number: u64) -> Self {
        let salt = match input {
            Input::Orders => 0x0bde,
            Input::Payments => 0xfa1d,
        };
        let mut dice = SeededRandom::of(SeededRandom::of(seed ^ (salt << 48)).roll() ^ number);
        // Some keys are more frequent than others.
        let key = dice.below(KEYS).min(dice.below(KEYS));
        Event {
            number,
            millis: number as i64 * STEP_MILLIS + dice.below(STEP_MILLIS as u64) as i64,
            key: key as u32,
            amount: dice.below(1_000) as i64 - 200,
        }
    }

    /// Returns the first `count` events of an input.
    pub fn all(seed: u64, input: Input, count: u64) -> Vec<Event> {
        (0..count)
            .map(|number| Event::of(seed, input, number))
            .collect()
    }

    /// Returns the event that ends an input of `count` events.
    pub fn end(count: u64) -> Self {
        Event {
            number: u64::MAX,
            millis: count as i64 * STEP_MILLIS + FAR,
            key: u32::MAX,
            amount: 0,
        }
    }

    pub fn is_end(&self) -> bool {
        self.number == u64::MAX
    }

    /// Parses a line.
    pub fn parse(line: &str) -> Result<Self, String> {
        let wrong = || format!("{line:?} is no event");
        let fields: Vec<&str> = line.split(',').collect();
        let [number, millis, key, amount] = fields[..] else {
            return Err(wrong());
        };
        Ok(Event {
            number: number.parse().map_err(|_| wrong())?,
            millis: millis.parse().map_err(|_| wrong())?,
            key: key.parse().map_err(|_| wrong())?,
            amount: amount.parse().map_err(|_| wrong())?,
        })
    }
}

/// The event as a line.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event {
            number,
            millis,
            key,
            amount,
        } = self;
        write!(f, "{number},{millis},{key},{amount}")
    }
}

/// Returns the region of a key.
pub fn region(key: u32) -> String {
    format!("r{}", key % 4)
}

/// Returns the table of regions: one line per key.
pub fn regions() -> String {
    let lines = (0..KEYS as u32).map(|key| format!("{key},{}\n", region(key)));
    lines.collect()
}

/// Tests of the inputs.
pub mod promises {
    use super::*;

    pub fn events_follow_from_seed_and_number_and_lie_in_the_order_of_their_times() {
        let orders = Event::all(7, Input::Orders, 2_000);
        assert_eq!(orders, Event::all(7, Input::Orders, 2_000));
        assert_ne!(orders, Event::all(8, Input::Orders, 2_000));
        assert_ne!(orders, Event::all(7, Input::Payments, 2_000));
        assert!(orders.windows(2).all(|two| two[0].millis < two[1].millis));
        assert!(orders.last().unwrap().millis < Event::end(2_000).millis);
        let keys = (0..KEYS as u32).filter(|key| orders.iter().any(|event| event.key == *key));
        assert_eq!(keys.count() as u64, KEYS);
    }

    pub fn an_event_is_read_as_it_was_written_and_nothing_else_is_one() {
        for event in Event::all(3, Input::Payments, 100) {
            assert_eq!(Event::parse(&event.to_string()), Ok(event));
        }
        let end = Event::end(5);
        assert!(Event::parse(&end.to_string()).unwrap().is_end());
        for wrong in ["", "1,2,3", "1,2,3,4,5", "1,2,x,4"] {
            assert!(Event::parse(wrong).is_err(), "{wrong}");
        }
    }
}
