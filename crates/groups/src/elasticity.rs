//! The number of workers: policies that follow the load of groups.

use std::fmt;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};

use super::message::GroupId;

/// The load of a group that has ended.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GroupLoad {
    /// The group.
    pub group: GroupId,
    /// The time from the end of the previous group.
    pub duration: Duration,
    /// The number of workers, without those that leave.
    pub workers: u32,
    /// The number of tasks that a worker can run at a time.
    pub worker_threads: u32,
    /// The time of all tasks together.
    pub busy: Duration,
}

impl GroupLoad {
    /// Returns the share of the workers' time in which tasks ran.
    pub fn utilization(&self) -> f64 {
        let threads = f64::from(self.workers) * f64::from(self.worker_threads);
        let available = self.duration.as_secs_f64() * threads;
        match available > 0.0 {
            true => self.busy.as_secs_f64() / available,
            false => 0.0,
        }
    }
}

/// A request for another number of workers, with the load that led to it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ScalingDecision {
    /// The number of workers.
    pub wanted: u32,
    /// The load.
    pub load: GroupLoad,
}

impl fmt::Display for ScalingDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ScalingDecision { wanted, load } = self;
        write!(
            f,
            "{wanted} workers instead of {}: their utilization was {:.0} % in group {}",
            load.workers,
            load.utilization() * 100.0,
            load.group.0
        )
    }
}

/// A policy for the number of workers. The leader calls it at the end of each group.
///
/// A policy that follows the time of day:
///
/// ```
/// use ardea_groups::{ElasticityPolicy, GroupLoad};
///
/// /// Twice as many workers for the busy half of every two thousand groups.
/// #[derive(Debug)]
/// struct ByGroup(u32);
///
/// impl ElasticityPolicy for ByGroup {
///     fn wanted_workers(&mut self, load: &GroupLoad) -> u32 {
///         match load.group.0 % 2_000 < 1_000 {
///             true => self.0 * 2,
///             false => self.0,
///         }
///     }
/// }
/// ```
pub trait ElasticityPolicy: fmt::Debug + Send {
    /// Returns the wanted number of workers after a group. The present number requests nothing.
    fn wanted_workers(&mut self, load: &GroupLoad) -> u32;
}

/// A policy that never changes the number of workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FixedWorkers;

impl ElasticityPolicy for FixedWorkers {
    fn wanted_workers(&mut self, load: &GroupLoad) -> u32 {
        load.workers
    }
}

/// The settings of [`TargetUtilization`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct UtilizationConfig {
    /// The utilization after a change.
    pub target: f64,
    /// The utilization below which workers are released.
    pub lower: f64,
    /// The utilization above which workers are requested.
    pub upper: f64,
    /// The least number of workers.
    pub min: u32,
    /// The greatest number of workers.
    pub max: u32,
    /// The number of consecutive groups on one side of the bounds before a change.
    pub groups: u32,
}

impl Default for UtilizationConfig {
    fn default() -> Self {
        UtilizationConfig {
            target: 0.6,
            lower: 0.3,
            upper: 0.8,
            min: 1,
            max: 64,
            groups: 3,
        }
    }
}

impl UtilizationConfig {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if the bounds are not in order, or no number of workers is
    /// allowed.
    pub fn check(&self) -> Result<()> {
        let bounds_are_in_order = 0.0 <= self.lower
            && self.lower < self.target
            && self.target < self.upper
            && self.upper.is_finite();
        if bounds_are_in_order && 1 <= self.min && self.min <= self.max && self.groups >= 1 {
            return Ok(());
        }
        Err(
            Error::new(ErrorCode::InvalidConfig, "invalid target of utilization")
                .because(format!("{self:?}"))
                .hint("0 <= lower < target < upper, 1 <= min <= max, groups >= 1"),
        )
    }
}

/// A policy that keeps the utilization of workers within bounds.
///
/// It changes the number when the utilization was on one side of the bounds for some groups in
/// succession. So a single busy or idle group has no effect.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TargetUtilization {
    config: UtilizationConfig,
    /// True if the last groups were above the bounds.
    is_above: bool,
    /// The number of groups in succession on that side.
    outside: u32,
}

impl TargetUtilization {
    /// Creates the policy.
    ///
    /// # Errors
    /// As [`UtilizationConfig::check`].
    pub fn new(config: UtilizationConfig) -> Result<Self> {
        config.check()?;
        Ok(TargetUtilization {
            config,
            is_above: false,
            outside: 0,
        })
    }
}

impl ElasticityPolicy for TargetUtilization {
    fn wanted_workers(&mut self, load: &GroupLoad) -> u32 {
        let UtilizationConfig {
            target,
            lower,
            upper,
            min,
            max,
            groups,
        } = self.config;
        let utilization = load.utilization();
        let is_above = utilization > upper;
        if !is_above && utilization >= lower {
            self.outside = 0;
            return load.workers.clamp(min, max);
        }
        if is_above != self.is_above {
            self.outside = 0;
        }
        self.is_above = is_above;
        self.outside += 1;
        if self.outside < groups {
            return load.workers.clamp(min, max);
        }
        self.outside = 0;
        // The conversion saturates.
        let wanted = (f64::from(load.workers) * utilization / target).ceil() as u32;
        wanted.clamp(min, max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the load of `busy` workers' time on `workers` workers.
    fn load(busy: f64, workers: u32) -> GroupLoad {
        GroupLoad {
            group: GroupId(1),
            duration: SECOND,
            workers,
            worker_threads: 2,
            busy: SECOND.mul_f64(busy * 2.0),
        }
    }

    fn policy() -> TargetUtilization {
        TargetUtilization::new(UtilizationConfig::default()).unwrap()
    }

    #[test]
    fn workers_follow_a_load_that_lasts_and_not_a_single_group() {
        let mut policy = policy();
        assert_eq!(policy.wanted_workers(&load(4.0, 4)), 4);
        assert_eq!(policy.wanted_workers(&load(2.0, 4)), 4);
        for wanted in [4, 4, 7] {
            assert_eq!(policy.wanted_workers(&load(4.0, 4)), wanted);
        }
        for wanted in [7, 7, 2] {
            assert_eq!(policy.wanted_workers(&load(1.0, 7)), wanted);
        }
        let decision = ScalingDecision {
            wanted: 2,
            load: load(1.0, 4),
        };
        let text = "2 workers instead of 4: their utilization was 25 % in group 1";
        assert_eq!(decision.to_string(), text);
    }

    #[test]
    fn fixed_workers_stay() {
        assert_eq!(FixedWorkers.wanted_workers(&load(100.0, 3)), 3);
    }

    proptest! {
        #[test]
        fn a_constant_load_settles_within_the_limits(busy in 0.0..200.0_f64, begin in 1_u32..64) {
            let (mut policy, mut workers) = (policy(), begin);
            for _ in 0..20 {
                workers = policy.wanted_workers(&load(busy, workers));
                prop_assert!((1..=64).contains(&workers));
            }
            let settled = workers;
            for _ in 0..20 {
                workers = policy.wanted_workers(&load(busy, workers));
                prop_assert_eq!(workers, settled);
            }
            let utilization = load(busy, settled).utilization();
            prop_assert!(utilization <= 0.8 || settled == 64);
            prop_assert!(utilization >= 0.3 || settled == 1);
        }
    }

    #[test]
    fn settings_without_order_are_refused() {
        type Set = fn(&mut UtilizationConfig);
        let wrong: [Set; 5] = [
            |config| config.lower = 0.7,
            |config| config.upper = f64::NAN,
            |config| config.min = 0,
            |config| config.max = 0,
            |config| config.groups = 0,
        ];
        for set in wrong {
            let mut config = UtilizationConfig::default();
            set(&mut config);
            let error = TargetUtilization::new(config).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig);
        }
    }
}
