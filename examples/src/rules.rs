//! A rule engine: alerts on card payments, in event time, with state and timers for each card.

use ardea::core::Boundedness;
use ardea::prelude::*;
use serde::{Deserialize, Serialize};

use crate::arguments::{Arguments, json_of};

const MINUTE: Duration = Duration::from_secs(60);
const TOO_MANY: &str = "more than three payments in a minute";
const NOT_SETTLED: &str = "a hold not settled within 15 minutes";

/// An action on a card.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Money was paid.
    Pay,
    /// Money was put on hold, to be settled within 15 minutes.
    Hold,
    /// The held money was paid.
    Settle,
}

/// An event of a card.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Event {
    /// The card.
    pub card: String,
    /// The time, in seconds since 1970.
    pub second: i64,
    /// The action.
    pub action: Action,
}

/// The violation of a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Debug)]
pub struct Alert {
    /// The time, in seconds since 1970.
    pub second: i64,
    /// The card.
    pub card: String,
    /// The violated rule.
    pub rule: &'static str,
}

/// The state of a card: the payments of the last minute, and the deadline of a hold.
#[derive(Default, Serialize, Deserialize)]
struct CardState {
    payments: Vec<Timestamp>,
    hold: Option<Timestamp>,
}

/// Alerts on a fourth payment within a minute, and on a hold that is not settled. The state of a
/// card expires after a day.
pub fn alerts<B: Boundedness>(events: Stream<Event, B, Timed>) -> Stream<Alert, B, Timed> {
    events.key_by(|event| event.card.clone()).process_with_ttl(
        "rules",
        24 * 60 * MINUTE,
        CardState::default,
        |card, name, event, time, context| match (event.action, card.hold) {
            (Action::Pay, _) => {
                card.payments.retain(|paid| time < *paid + MINUTE);
                card.payments.push(time);
                if card.payments.len() > 3 {
                    context.emit(Alert::new(name, time, TOO_MANY));
                }
            }
            (Action::Hold, None) => {
                card.hold = Some(time + 15 * MINUTE);
                context.set_event_timer(time + 15 * MINUTE);
            }
            // A settlement after the deadline may arrive before the timer fires, because watermarks
            // follow events.
            (Action::Settle, Some(deadline)) if time <= deadline => {
                card.hold = None;
                context.clear_event_timer(deadline);
            }
            (Action::Hold | Action::Settle, _) => {}
        },
        |card, name, time, context| {
            card.hold = None;
            context.emit(Alert::new(name, time, NOT_SETTLED));
        },
    )
}

impl Alert {
    fn new(card: &str, time: Timestamp, rule: &'static str) -> Alert {
        let (second, card) = (time.as_millis() / 1000, card.to_string());
        Alert { second, card, rule }
    }
}

/// Builds the job for these arguments; see the catalogue for their meaning.
pub(crate) fn build(args: &[String]) -> Result<Pipeline> {
    let mut args = Arguments::new("rules", args);
    let lag = args.duration("--out-of-order", Duration::from_secs(5))?;
    let file = args.file()?;
    args.finish()?;
    let p = Pipeline::new("rules");
    let time = |event: &Event| Timestamp::from_secs(event.second);
    // The rules depend on the order of a card's events.
    let events = p
        .read_from(json_of(&file).parallelism(1))
        .with_timestamps(time, WatermarkPolicy::out_of_order(lag));
    alerts(events).write_to(stdout::json_lines().build());
    Ok(p)
}

#[cfg(test)]
mod tests {
    use super::Action::{Hold, Pay, Settle};
    use super::*;

    fn alerts_of(events: &[(&str, i64, Action)]) -> Vec<Alert> {
        let event = |&(card, second, action): &(&str, i64, Action)| Event {
            card: card.to_string(),
            second,
            action,
        };
        let p = Pipeline::new("rules");
        let timed = p
            .read_from(collections::items(
                events.iter().map(event).collect::<Vec<_>>(),
            ))
            .with_timestamps(
                |e| Timestamp::from_secs(e.second),
                WatermarkPolicy::in_order(),
            );
        let alerts = alerts(timed).collect();
        p.run().unwrap();
        alerts.take_sorted()
    }

    fn alert(card: &str, second: i64, rule: &'static str) -> Alert {
        Alert::new(card, Timestamp::from_secs(second), rule)
    }

    #[test]
    fn a_fourth_payment_within_a_minute_is_one_too_many() {
        let pays = |seconds: [i64; 4]| seconds.map(|second| ("c", second, Pay));
        assert_eq!(alerts_of(&pays([0, 20, 40, 60])), []);
        assert_eq!(
            alerts_of(&pays([0, 20, 40, 59])),
            [alert("c", 59, TOO_MANY)]
        );
    }

    #[test]
    fn payments_of_different_cards_are_counted_apart() {
        assert_eq!(
            alerts_of(&[("a", 0, Pay), ("b", 0, Pay), ("a", 1, Pay), ("b", 1, Pay)]),
            []
        );
    }

    #[test]
    fn a_hold_that_is_not_settled_in_time_is_told_of_at_its_deadline() {
        let held = [
            ("a", 0, Hold),
            ("b", 10, Hold),
            ("b", 20, Settle),
            ("a", 2000, Settle),
            ("c", 2000, Hold),
        ];
        let expected = [alert("a", 900, NOT_SETTLED), alert("c", 2900, NOT_SETTLED)];
        assert_eq!(alerts_of(&held), expected);
    }
}
