//! The payments, and the stages of the pipeline.
//!
//! The job `payments` of the examples (`examples/src/payments.rs`) is the same pipeline, as a user
//! of the library writes it.

use ardea_core::Boundedness;
use ardea_pipeline::{Stream, Timed};
use serde::{Deserialize, Serialize};

/// Every stage whose number is a multiple of this is keyed by the account.
const KEYED_EVERY: u32 = 30;
/// The number of accounts.
const ACCOUNTS: u64 = 1_000;
/// The total spending of an account, in cents, above which a keyed stage refuses.
const LIMIT: u64 = 100_000;

/// A payment in the pipeline.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Debug)]
pub(crate) struct Payment {
    id: u64,
    account: u64,
    cents: u64,
    passed: u32,
    /// The number of stages that have refused it.
    refused: u32,
}

impl Payment {
    pub(crate) fn new(id: u64) -> Self {
        Payment {
            id,
            account: id * 7 % ACCOUNTS,
            cents: id * 31 % 50_000,
            passed: 0,
            refused: 0,
        }
    }

    fn pass(mut self, is_refused: bool) -> Self {
        self.passed += 1;
        self.refused += u32::from(is_refused);
        self
    }

    pub(crate) fn digest(&self) -> u64 {
        self.id ^ u64::from(self.passed) << 32 ^ u64::from(self.refused) << 48
    }
}

/// Adds `stages` stages, one after the other.
pub(crate) fn pass_stages<B: Boundedness>(
    from: Stream<Payment, B, Timed>,
    stages: u32,
) -> Stream<Payment, B, Timed> {
    (1..=stages).fold(from, |payments, stage| {
        if stage % KEYED_EVERY == 0 {
            payments.key_by(|payment| payment.account).map_stateful(
                format!("limit {stage}"),
                || 0,
                |spent, _, payment: Payment| {
                    *spent += payment.cents;
                    payment.pass(*spent > LIMIT)
                },
            )
        } else {
            payments.map(move |payment| {
                let is_refused = payment.id % ACCOUNTS == u64::from(stage);
                payment.pass(is_refused)
            })
        }
    })
}

#[cfg(test)]
mod tests {
    use ardea_pipeline::Pipeline;

    use super::*;

    #[test]
    fn a_payment_passes_every_stage_and_is_refused_by_some() {
        let p = Pipeline::new("stages");
        let payments =
            ardea_connectors::collections::items((0..20_000).map(Payment::new).collect::<Vec<_>>());
        let source = p.read_from(payments).with_source_time();
        let passed = pass_stages(source, 65).collect();
        p.run().unwrap();
        let passed = passed.take_sorted();
        assert_eq!(passed.len(), 20_000);
        assert!(passed.iter().all(|payment| payment.passed == 65));
        // Refused by a stateless stage, by both keyed stages, or by all three.
        let most = passed.iter().map(|payment| payment.refused).max();
        assert_eq!(most, Some(3));
    }
}
