//! A pipeline of 150 stages, as used by payment processors, and its end-to-end latency.
//!
//! `ardea bench stages` measures the same pipeline under controlled conditions.

use std::time::UNIX_EPOCH;

use ardea::core::Boundedness;
use ardea::prelude::*;
use serde::{Deserialize, Serialize};

use crate::arguments::Arguments;
use crate::time_limit::with_time_limit;

/// The number of stages of a payment.
pub const STAGES: u64 = 150;
/// The largest sum of payments of an account, in cents.
pub const LIMIT: u64 = 100_000;

/// A payment in the pipeline.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Debug)]
pub struct Payment {
    /// The number of the payment.
    pub id: u64,
    /// The account that pays.
    pub account: u64,
    /// The amount in cents.
    pub cents: u64,
    /// The number of stages passed.
    pub passed: u64,
    /// The first stage that refused the payment, if any.
    pub refused_by: Option<u64>,
}

impl Payment {
    /// Creates the payment with this number.
    pub fn new(id: u64) -> Payment {
        let (account, cents) = (id * 7 % 1_000, id * 31 % 50_000);
        Payment {
            id,
            account,
            cents,
            passed: 0,
            refused_by: None,
        }
    }

    fn pass(mut self, stage: u64, is_refused: bool) -> Payment {
        self.passed += 1;
        self.refused_by = self.refused_by.or(is_refused.then_some(stage));
        self
    }
}

/// Adds all stages to `from`, in a loop.
pub fn stages<B: Boundedness>(from: Stream<Payment, B, Timed>) -> Stream<Payment, B, Timed> {
    (1..=STAGES).fold(from, |payments, stage| match stage % 30 {
        // All payments of an account share a limit.
        0 => payments.key_by(|payment| payment.account).map_stateful(
            format!("limit {stage}"),
            || 0,
            move |spent, _, payment| {
                *spent += payment.cents;
                payment.pass(stage, *spent > LIMIT)
            },
        ),
        // Each payment is checked by itself.
        _ => payments.map(move |payment| {
            let is_refused = payment.id % 1_000 == stage;
            payment.pass(stage, is_refused)
        }),
    })
}

/// Builds the job for these arguments; see the catalogue for their meaning.
pub(crate) fn build(args: &[String]) -> Result<Pipeline> {
    let mut args = Arguments::new("payments", args);
    let rate = args.count("--rate", 1_000)?;
    let seconds = args.count("--seconds", 10)?;
    args.finish()?;
    let percentiles = quantiles_relative(|ms: &f64| *ms, [0.5, 0.99, 1.0], 0.01)?;
    let p = Pipeline::new("payments");
    let source = generate::at_rate(rate, Payment::new).limit(rate.saturating_mul(seconds));
    let source = with_time_limit(source.build(), Duration::from_secs(seconds));
    stages(p.read_from(source).with_source_time())
        // The event time of a payment is its due time: the wait before the first stage is included.
        .map_timed(|_, due| ms_since(due))
        .window_all(Window::tumbling(Duration::from_secs(1)))
        .aggregate("latencies", (count(), percentiles))
        .map(|second| {
            let (payments, [median, p99, worst]) =
                (second.value.0, second.value.1.unwrap_or_default());
            format!("{payments} payments: median {median:.2}, 99% {p99:.2}, worst {worst:.2} ms")
        })
        .write_to(stdout::lines().build());
    Ok(p)
}

fn ms_since(due: Timestamp) -> f64 {
    let now = UNIX_EPOCH.elapsed().unwrap_or_default();
    (now.as_micros() as f64 - due.as_micros() as f64) / 1000.0
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    #[test]
    fn every_payment_passes_all_stages_as_it_would_in_a_loop() {
        let payments: Vec<Payment> = (0..5_000).map(Payment::new).collect();
        let p = Pipeline::new("payments");
        let passed = stages(
            p.read_from(collections::items(payments.clone()))
                .with_timestamps(
                    |payment| Timestamp::from_millis(payment.id as i64),
                    WatermarkPolicy::in_order(),
                ),
        )
        .collect();
        p.run().unwrap();

        let mut spent: HashMap<(u64, u64), u64> = HashMap::new();
        let mut is_refused = |payment: &Payment, stage: u64| {
            if !stage.is_multiple_of(30) {
                return payment.id % 1_000 == stage;
            }
            let spent = spent.entry((stage, payment.account)).or_default();
            *spent += payment.cents;
            *spent > LIMIT
        };
        let expected: Vec<Payment> = payments
            .into_iter()
            .map(|payment| {
                let refused_by = (1..=STAGES)
                    .filter(|stage| is_refused(&payment, *stage))
                    .min();
                Payment {
                    passed: STAGES,
                    refused_by,
                    ..payment
                }
            })
            .collect();
        let passed = passed.take_sorted();
        let refusing: HashSet<bool> = passed
            .iter()
            .filter_map(|p| p.refused_by)
            .map(|stage| stage % 30 == 0)
            .collect();
        assert_eq!(refusing.len(), 2, "both kinds of stages refuse some");
        assert_eq!(passed, expected);
    }
}
