//! Due times of records at a steady rate.

use crate::sequence_splits::NumberRun;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// The due times of successive records, computed without a division per record and without drift.
///
/// **Invariant:** record `index` is due `nanos + carry / rate` nanoseconds after the start, and
/// `carry < rate`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    pub index: u64,
    pub nanos: u64,
    carry: u64,
    index_step: u64,
    nanos_step: u64,
    carry_step: u64,
    rate: u64,
}

impl Schedule {
    /// Returns the due times of record `index` and then of every `step`-th.
    pub fn at(rate: u64, index: u64, step: u64) -> Schedule {
        let split = |records: u64| {
            let scaled = u128::from(records) * NANOS_PER_SECOND;
            let rate = u128::from(rate);
            // The quotient fits for some five hundred years.
            ((scaled / rate) as u64, (scaled % rate) as u64)
        };
        let (nanos, carry) = split(index);
        let (nanos_step, carry_step) = split(step);
        Schedule {
            index,
            nanos,
            carry,
            index_step: step,
            nanos_step,
            carry_step,
            rate,
        }
    }

    /// Continues with the numbers of `run`. Costs nothing if they follow the previous numbers.
    #[inline]
    pub fn seek(&mut self, run: NumberRun) {
        if (self.index, self.index_step) != (run.first, run.step) {
            *self = Schedule::at(self.rate, run.first, run.step);
        }
    }

    #[inline]
    pub fn advance(&mut self) {
        self.index += self.index_step;
        self.nanos += self.nanos_step;
        let (carry, wrapped) = self.carry.overflowing_add(self.carry_step);
        if wrapped || carry >= self.rate {
            self.carry = carry.wrapping_sub(self.rate);
            self.nanos += 1;
        } else {
            self.carry = carry;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn due_times_are_exact_and_split_over_instances(
            rate in 1u64..5_000_000_000, parallelism in 1u32..5, steps in 0u64..300
        ) {
            for index in 0..parallelism {
                let mut due = Schedule::at(rate, index.into(), parallelism.into());
                for _ in 0..steps {
                    due.advance();
                }
                prop_assert_eq!(due.index, u64::from(index) + steps * u64::from(parallelism));
                let exact = u128::from(due.index) * NANOS_PER_SECOND / u128::from(rate);
                prop_assert_eq!(u128::from(due.nanos), exact);
            }
        }
    }
}
