//! The group size: the least that keeps the share of coordination within bounds.
//!
//! Multiplicative increase above the upper bound, additive decrease below the lower one
//! (Venkataraman et al., "Drizzle: Fast and Adaptable Stream Processing at Scale", SOSP 2017,
//! section 3.4).

use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};

/// The largest number of micro-batches in a group.
const MAX_GROUP_SIZE: u32 = 1 << 16;

/// The settings of a [`GroupTuner`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TunerConfig {
    /// The share of coordination below which groups become smaller.
    pub lower: f64,
    /// The share of coordination above which groups become larger.
    pub upper: f64,
    /// The factor of an increase.
    pub factor: u32,
    /// The number of micro-batches of a decrease.
    pub decrement: u32,
    /// The weight of the newest group in the average, from zero to one.
    pub smoothing: f64,
    /// The size of the first group.
    pub initial: u32,
    /// The least size.
    pub min: u32,
    /// The greatest size.
    pub max: u32,
}

impl Default for TunerConfig {
    fn default() -> Self {
        TunerConfig {
            lower: 0.05,
            upper: 0.10,
            factor: 2,
            decrement: 1,
            smoothing: 0.3,
            initial: 2,
            min: 1,
            max: 1_000,
        }
    }
}

impl TunerConfig {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if bounds are not in order, or a group may be empty.
    pub fn check(&self) -> Result<()> {
        let bounds_are_in_order = 0.0 <= self.lower && self.lower < self.upper && self.upper < 1.0;
        let sizes_are_in_order = 1 <= self.min
            && self.min <= self.initial
            && self.initial <= self.max
            && self.max <= MAX_GROUP_SIZE;
        let is_smoothed = 0.0 < self.smoothing && self.smoothing <= 1.0;
        if bounds_are_in_order && sizes_are_in_order && is_smoothed && self.factor >= 2 {
            return Ok(());
        }
        Err(
            Error::new(ErrorCode::InvalidConfig, "invalid tuning of groups")
                .because(format!("{self:?}"))
                .hint("0 <= lower < upper < 1, 1 <= min <= initial <= max <= 65536, factor >= 2, 0 < smoothing <= 1"),
        )
    }
}

/// The tuner of the group size.
///
/// A change of the size starts a new average, since the old one describes groups of another size.
/// So one slow group causes one increase at most, and a decrease does not overshoot.
#[derive(Clone, Debug)]
pub struct GroupTuner {
    config: TunerConfig,
    size: u32,
    averaged_share: Option<f64>,
}

impl GroupTuner {
    /// Creates a tuner.
    ///
    /// # Errors
    /// As [`TunerConfig::check`].
    pub fn new(config: TunerConfig) -> Result<Self> {
        config.check()?;
        Ok(GroupTuner {
            config,
            size: config.initial,
            averaged_share: None,
        })
    }

    /// Returns the number of micro-batches of the next group.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Records a group of `size` micro-batches that took `total`, of which `coordination` was not
    /// spent on tasks. Groups of another size than the present one do not count, since they were
    /// planned before the last change.
    pub fn on_group(&mut self, size: u32, coordination: Duration, total: Duration) {
        if size != self.size || total.is_zero() {
            return;
        }
        let share = (coordination.as_secs_f64() / total.as_secs_f64()).clamp(0.0, 1.0);
        let averaged = match self.averaged_share {
            Some(before) => before + self.config.smoothing * (share - before),
            None => share,
        };
        self.averaged_share = Some(averaged);
        let TunerConfig { min, max, .. } = self.config;
        if averaged > self.config.upper {
            self.size = size.saturating_mul(self.config.factor).clamp(min, max);
        } else if averaged < self.config.lower {
            self.size = size.saturating_sub(self.config.decrement).clamp(min, max);
        }
        if self.size != size {
            self.averaged_share = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The cost of coordination: `fixed` for each group and `each` for each of its micro-batches.
    #[derive(Clone, Copy, Debug)]
    struct Cost {
        batch: Duration,
        fixed: Duration,
        each: Duration,
    }

    impl Cost {
        fn share(self, size: u32) -> f64 {
            let coordination = self.fixed + self.each * size;
            coordination.as_secs_f64() / (self.batch * size).as_secs_f64()
        }

        /// Runs `groups` groups; the coordination of the group `stalled` takes a second longer.
        /// Returns the number of increases.
        fn run(self, tuner: &mut GroupTuner, groups: u32, stalled: Option<u32>) -> usize {
            let mut increases = 0;
            for group in 0..groups {
                let size = tuner.size();
                let stall = match stalled == Some(group) {
                    true => Duration::from_secs(1),
                    false => Duration::ZERO,
                };
                let coordination = self.fixed + self.each * size + stall;
                tuner.on_group(size, coordination, self.batch * size + stall);
                increases += usize::from(tuner.size() > size);
            }
            increases
        }
    }

    fn tuner() -> GroupTuner {
        GroupTuner::new(TunerConfig::default()).unwrap()
    }

    /// A cost for which some size keeps the bounds.
    fn cost() -> impl Strategy<Value = Cost> {
        let millis = Duration::from_millis;
        (5_u64..1_000, 1_u64..500, 0_u64..40).prop_map(move |(batch, fixed, per_mille)| Cost {
            batch: millis(batch),
            fixed: millis(fixed),
            each: millis(batch) * u32::try_from(per_mille).unwrap() / 1_000,
        })
    }

    proptest! {
        #[test]
        fn the_share_settles_within_the_bounds_in_fifteen_groups(cost in cost()) {
            let mut tuner = tuner();
            cost.run(&mut tuner, 15, None);
            let size = tuner.size();
            let share = cost.share(size);
            prop_assert!(share <= 0.10 || size == 1_000, "{size}: {share}");
            // A size below the bounds is on its way down.
            cost.run(&mut tuner, 1_000, None);
            let (size, share) = (tuner.size(), cost.share(tuner.size()));
            prop_assert!(share >= 0.05 || size == 1, "{size}: {share}");
            cost.run(&mut tuner, 1, None);
            prop_assert_eq!(tuner.size(), size);
        }

        #[test]
        fn a_stall_of_a_second_causes_one_increase_at_most(cost in cost(), at in 0_u32..40) {
            let (mut stalled, mut smooth) = (tuner(), tuner());
            cost.run(&mut stalled, 30, None);
            cost.run(&mut smooth, 30, None);
            let with = cost.run(&mut stalled, 60, Some(at));
            let without = cost.run(&mut smooth, 60, None);
            prop_assert!(with <= without + 1);
        }

        #[test]
        fn any_measurement_leaves_the_size_within_its_limits(
            groups in prop::collection::vec((0_u64..5_000, 0_u64..5_000), 0..100)
        ) {
            let mut tuner = tuner();
            for (coordination, total) in groups {
                let micros = Duration::from_micros;
                tuner.on_group(tuner.size(), micros(coordination), micros(total));
                prop_assert!((1..=1_000).contains(&tuner.size()));
            }
        }
    }

    #[test]
    fn short_micro_batches_settle_at_larger_groups_than_long_ones() {
        // The cost of Drizzle's own scheduler, estimated from its figure of tuned sizes.
        let settled = |batch| {
            let millis = Duration::from_millis;
            let mut tuner = tuner();
            let cost = Cost {
                batch: millis(batch),
                fixed: millis(108),
                each: millis(5),
            };
            cost.run(&mut tuner, 15, None);
            tuner.size()
        };
        assert_eq!((settled(100), settled(250)), (32, 8));
    }

    #[test]
    fn groups_of_an_earlier_size_do_not_count() {
        let mut tuner = tuner();
        let second = Duration::from_secs(1);
        tuner.on_group(2, second, second);
        assert_eq!(tuner.size(), 4);
        tuner.on_group(2, second, second);
        assert_eq!(tuner.size(), 4);
    }

    #[test]
    fn settings_without_a_valid_size_are_refused() {
        type Set = fn(&mut TunerConfig);
        let wrong: [Set; 5] = [
            |config| config.min = 0,
            |config| config.initial = 2_000,
            |config| config.lower = 0.5,
            |config| config.smoothing = 0.0,
            |config| config.factor = 1,
        ];
        for set in wrong {
            let mut config = TunerConfig::default();
            assert!(config.check().is_ok());
            set(&mut config);
            let error = config.check().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig);
        }
    }
}
