//! The expected results of the job, computed from the same events by loops over lists, without the
//! engine.

use std::collections::BTreeMap;

use crate::inputs::{Event, region};
use crate::job::{NEAR_MILLIS, PAIRED_MILLIS, RATED_EVERY_MILLIS, RATED_MILLIS, SILENT_MILLIS};

/// All lines of each output, sorted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outputs {
    pub pairs: Vec<String>,
    pub near: Vec<String>,
    pub rates: Vec<String>,
    pub silences: Vec<String>,
    pub balances: Vec<String>,
}

impl Outputs {
    /// Returns the expected results of these events.
    pub fn expected(orders: &[Event], payments: &[Event]) -> Self {
        let mut outputs = Outputs {
            pairs: pairs(orders, payments),
            near: near(orders, payments),
            rates: rates(orders),
            silences: silences(payments),
            balances: balances(orders, payments),
        };
        outputs.sort();
        outputs
    }

    pub fn sort(&mut self) {
        for (_, lines) in self.all_mut() {
            lines.sort_unstable();
        }
    }

    /// Returns each output with its name.
    pub fn all(&self) -> [(&'static str, &Vec<String>); 5] {
        [
            ("pairs", &self.pairs),
            ("near", &self.near),
            ("rates", &self.rates),
            ("silences", &self.silences),
            ("balances", &self.balances),
        ]
    }

    fn all_mut(&mut self) -> [(&'static str, &mut Vec<String>); 5] {
        [
            ("pairs", &mut self.pairs),
            ("near", &mut self.near),
            ("rates", &mut self.rates),
            ("silences", &mut self.silences),
            ("balances", &mut self.balances),
        ]
    }
}

fn pairs(orders: &[Event], payments: &[Event]) -> Vec<String> {
    let mut by_second: BTreeMap<(i64, u32), Vec<u64>> = BTreeMap::new();
    for payment in payments {
        let second = payment.millis.div_euclid(PAIRED_MILLIS);
        let group = by_second.entry((second, payment.key)).or_default();
        group.push(payment.number);
    }
    let mut lines = Vec::new();
    for order in orders {
        let second = order.millis.div_euclid(PAIRED_MILLIS);
        for payment in by_second.get(&(second, order.key)).into_iter().flatten() {
            let start = second * PAIRED_MILLIS;
            lines.push(format!("pair {start} {} {payment}", order.number));
        }
    }
    lines
}

fn near(orders: &[Event], payments: &[Event]) -> Vec<String> {
    let mut lines = Vec::new();
    for order in orders {
        let first = payments.partition_point(|payment| payment.millis < order.millis);
        for payment in &payments[first..] {
            if payment.millis > order.millis + NEAR_MILLIS {
                break;
            }
            if payment.key == order.key {
                lines.push(format!("near {} {}", order.number, payment.number));
            }
        }
    }
    lines
}

fn rates(orders: &[Event]) -> Vec<String> {
    let mut windows: BTreeMap<(i64, String), (u64, i64)> = BTreeMap::new();
    for order in orders {
        // The ends of all windows that contain the order.
        let mut end = (order.millis.div_euclid(RATED_EVERY_MILLIS) + 1) * RATED_EVERY_MILLIS;
        while end - RATED_MILLIS <= order.millis {
            let (count, sum) = windows.entry((end, region(order.key))).or_default();
            *count += 1;
            *sum += order.amount;
            end += RATED_EVERY_MILLIS;
        }
    }
    let line = |((end, region), (count, sum))| format!("rate {region} {end} {count} {sum}");
    windows.into_iter().map(line).collect()
}

fn silences(payments: &[Event]) -> Vec<String> {
    let mut last: BTreeMap<u32, i64> = BTreeMap::new();
    let mut lines = Vec::new();
    let silent = |key: u32, since: i64| format!("silent {key} {}", since + SILENT_MILLIS);
    for payment in payments {
        if let Some(before) = last.insert(payment.key, payment.millis)
            && payment.millis >= before + SILENT_MILLIS
        {
            lines.push(silent(payment.key, before));
        }
    }
    // At the end all keys are silent.
    lines.extend(last.into_iter().map(|(key, since)| silent(key, since)));
    lines
}

fn balances(orders: &[Event], payments: &[Event]) -> Vec<String> {
    let mut keys: BTreeMap<u32, (u64, i64)> = BTreeMap::new();
    for event in orders.iter().chain(payments) {
        let (count, sum) = keys.entry(event.key).or_default();
        *count += 1;
        *sum += event.amount;
    }
    let line = |(key, (count, sum))| format!("balance {key} {count} {sum}");
    keys.into_iter().map(line).collect()
}

/// Tests of the oracle, with results computed by hand.
pub mod promises {
    use super::*;

    fn event(number: u64, millis: i64, key: u32, amount: i64) -> Event {
        Event {
            number,
            millis,
            key,
            amount,
        }
    }

    pub fn pairs_are_of_one_key_and_second_and_what_is_near_of_one_key_and_300_ms() {
        let orders = [
            event(0, 900, 1, 5),
            event(1, 1_000, 1, 5),
            event(2, 1_100, 2, 5),
        ];
        let payments = [
            event(0, 899, 1, 1),
            event(1, 1_200, 1, 1),
            event(2, 1_201, 1, 1),
            event(3, 1_400, 2, 1),
        ];
        let mut seen = Outputs::expected(&orders, &payments);
        assert_eq!(
            seen.pairs,
            [
                "pair 0 0 0",
                "pair 1000 1 1",
                "pair 1000 1 2",
                "pair 1000 2 3"
            ]
        );
        assert_eq!(seen.near, ["near 0 1", "near 1 1", "near 1 2", "near 2 3"]);
        let before = seen.clone();
        seen.sort();
        assert_eq!(seen, before);
    }

    pub fn rates_are_of_all_windows_that_hold_an_order() {
        let orders = [event(0, 499, 1, 5), event(1, 500, 5, 7)];
        assert_eq!(
            Outputs::expected(&orders, &[]).rates,
            [
                "rate r1 1000 2 12",
                "rate r1 1500 2 12",
                "rate r1 2000 2 12",
                "rate r1 2500 1 7",
                "rate r1 500 1 5",
            ]
        );
    }

    pub fn a_key_is_silent_when_no_payment_came_for_long_enough_and_at_the_end() {
        let payments = [
            event(0, 0, 1, 1),
            event(1, 1_499, 1, 1),
            event(2, 2_999, 1, 1),
            event(3, 3_000, 2, 1),
        ];
        // A payment at the very moment is too late: the timer is due by then.
        let seen = Outputs::expected(&[], &payments).silences;
        assert_eq!(seen, ["silent 1 2999", "silent 1 4499", "silent 2 4500"]);
    }

    pub fn balances_are_of_orders_and_payments() {
        let seen = Outputs::expected(
            &[event(0, 1, 4, 10)],
            &[event(0, 2, 4, -3), event(1, 3, 6, 1)],
        );
        assert_eq!(seen.balances, ["balance 4 2 7", "balance 6 1 1"]);
    }
}
