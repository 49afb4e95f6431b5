//! Accounts and payments: a job with a state of configurable size, of which each record changes a
//! small part.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ardea_core::{Instance, Parallelism, Source, Timestamp, Unbounded, supplier};
use ardea_pipeline::{Pipeline, Stream, Timed};
use serde::{Deserialize, Serialize};

use super::source::{SignalledSourceP, Task};
use super::watch::ResultObserver;
use crate::rows::EventRows;

/// Accounts are visited in steps of this prime, so that each comes once before any comes again.
const JUMP: u64 = 1_610_612_741;

/// The maximum number of accounts; its product with the step fits in 64 bits.
pub(crate) const MOST_ACCOUNTS: u64 = 1_000_000_000;

/// The number of additional numbers in an account; with them it has about a hundred bytes.
const NUMBERS: usize = 10;

/// Event time between watermarks.
const STRIDE: Duration = Duration::from_millis(10);

/// A record of the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Payment {
    pub(crate) account: u64,
    /// The time it was due, in microseconds since 1970; zero if it only opens the account.
    due: i64,
}

/// The state of an account.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Account {
    payments: u64,
    numbers: [u64; NUMBERS],
}

/// The output for a payment: the account, and the number of the payment in it, from one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) account: u64,
    pub(crate) number: u64,
    due: i64,
}

impl Receipt {
    /// Returns the time at which the payment was due.
    pub(crate) fn due(&self) -> Timestamp {
        Timestamp::from_micros(self.due)
    }
}

impl Account {
    fn new() -> Self {
        Account {
            payments: 0,
            numbers: [0; NUMBERS],
        }
    }

    /// Applies a payment. Returns its receipt, or `None` if it only opens the account.
    fn take(&mut self, payment: Payment, watch: &ResultObserver) -> Option<Receipt> {
        let Payment { account, due } = payment;
        if due == 0 {
            // Pseudo-random numbers do not compress.
            self.numbers = std::array::from_fn(|at| scattered(account + ((at as u64) << 32)));
            watch.filled.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.payments += 1;
        let at = self.payments as usize % NUMBERS;
        self.numbers[at] = self.numbers[at].wrapping_add(due as u64);
        Some(Receipt {
            account,
            number: self.payments,
            due,
        })
    }
}

/// Returns a pseudo-random number (the last steps of splitmix64).
fn scattered(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A sequence of payments: first one that opens each account, then one to each account in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Payments {
    pub(crate) accounts: u64,
    instance: Instance,
}

impl Payments {
    pub(crate) fn to(accounts: u64) -> Self {
        Payments {
            accounts,
            instance: Instance::ONLY,
        }
    }

    /// Returns the account of this instance's record with this number.
    fn account(&self, index: u64) -> u64 {
        let number = index * u64::from(self.instance.parallelism) + u64::from(self.instance.index);
        // Hashed, so that keys are not small numbers.
        scattered(number % self.accounts * JUMP % self.accounts)
    }
}

impl EventRows for Payments {
    type Row = Payment;

    fn of_instance(&self, instance: Instance) -> Self {
        Payments { instance, ..*self }
    }

    fn fill(
        &self,
        run: Range<u64>,
        _: i64,
        time: impl Fn(u64) -> Timestamp,
        rows: &mut Vec<Payment>,
        times: &mut Vec<Timestamp>,
    ) {
        for index in run {
            let time = time(index);
            rows.push(Payment {
                account: self.account(index),
                due: time.as_micros(),
            });
            times.push(time);
        }
    }
}

/// A job with a state for each account.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Accounts {
    pub(crate) accounts: u64,
    /// Payments a second over all sources.
    pub(crate) rate: u64,
    /// The time for which payments are due.
    pub(crate) long: Duration,
    /// The number of sources, and of stateful instances.
    pub(crate) instances: u32,
}

impl Accounts {
    fn task(&self) -> Task {
        Task {
            fill: self.accounts,
            ..Task::at_rate(self.rate, self.long, STRIDE)
        }
    }

    /// Returns the account of each payment that is due, over all sources.
    pub(crate) fn paid(&self) -> Vec<u64> {
        let (rows, task) = (Payments::to(self.accounts), self.task());
        let paid = (0..self.instances).flat_map(|index| {
            let instance = Instance {
                index,
                parallelism: self.instances,
            };
            let own = rows.of_instance(instance);
            (0..task.of_instance(instance).count).map(move |index| own.account(index))
        });
        paid.collect()
    }

    /// Adds the sources and the stateful step to the pipeline, and returns the stream of receipts.
    pub(crate) fn receipts(
        &self,
        p: &Pipeline,
        watch: &Arc<ResultObserver>,
    ) -> Stream<Receipt, Unbounded, Timed> {
        let (rows, task) = (Payments::to(self.accounts), self.task());
        let source = Arc::clone(watch);
        let make = supplier(move || SignalledSourceP::new(rows, task, Arc::clone(&source)));
        let payments = Source::<Payment, Unbounded>::new("payments", make);
        let many = as_many(self.instances);
        let keeps = Arc::clone(watch);
        let take =
            move |account: &mut Account, _: &u64, payment: Payment| account.take(payment, &keeps);
        p.read_from(payments.parallelism(many))
            .with_source_time()
            .key_by(|payment: &Payment| payment.account)
            .flat_map_stateful("accounts", Account::new, take)
            .parallelism(many)
    }
}

/// Returns a parallelism of exactly `count` instances.
pub(crate) fn as_many(count: u32) -> Parallelism {
    let count = std::num::NonZeroU32::new(count);
    count.map_or(Parallelism::ONE, Parallelism::Exactly)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_account_is_visited_once_before_any_is_again() {
        for (accounts, parallelism) in [(1, 1), (10, 1), (1_000, 3), (997, 2)] {
            let mut visited = BTreeSet::new();
            for index in 0..parallelism {
                let rows = Payments::to(accounts).of_instance(Instance { index, parallelism });
                let numbers = (u64::from(index)..accounts).step_by(parallelism as usize);
                for (at, _) in (0..).zip(numbers) {
                    assert!(visited.insert(rows.account(at)), "{accounts} {parallelism}");
                }
            }
            assert_eq!(visited.len() as u64, accounts);
        }
    }

    #[test]
    fn an_account_counts_its_payments_and_not_its_opening() {
        let watch = ResultObserver::new(false).unwrap();
        let mut account = Account::new();
        let payment = |due| Payment { account: 7, due };
        assert_eq!(account.take(payment(0), &watch), None);
        let numbers = [5, 6].map(|due| account.take(payment(due), &watch).unwrap().number);
        assert_eq!(numbers, [1, 2]);
        assert_eq!(watch.filled.load(Ordering::Relaxed), 1);
    }
}
