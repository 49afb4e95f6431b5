//! The settings of elasticity.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use ardea_config::{Kind, Resolved, Resolver, Schema, Setting};
use ardea_core::{Error, Result};

use super::NO_ELASTICITY;

const PERCENT: Kind = Kind::Count {
    least: 1,
    most: 100,
};

const INSTANCES: Kind = Kind::Count {
    least: 1,
    most: 100_000,
};

/// The settings of elasticity.
pub static ELASTICITY_SETTINGS: &[Setting] = &[
    Setting {
        key: "elasticity.policy",
        kind: Kind::Text,
        default: NO_ELASTICITY,
        about: "on a cluster, the policy that changes the size of the job while it runs: none, utilization (instances by load), hosts (a container on each host), or one of a program's own",
        trades: "the job uses machines that come, and fewer at quiet times; each change restarts a job with a guarantee from a checkpoint",
    },
    Setting {
        key: "elasticity.window",
        kind: Kind::Duration {
            least: Duration::from_secs(1),
            most: Duration::from_secs(3_600),
        },
        default: "30s",
        about: "with elasticity: the time over which loads are averaged, and the least time between two changes",
        trades: "shorter follows the load sooner, longer ignores short peaks",
    },
    Setting {
        key: "elasticity.target_percent",
        kind: PERCENT,
        default: "70",
        about: "with elasticity.policy=utilization: the busy time of a step, in percent, for which its instances are counted after a change",
        trades: "higher needs fewer instances, lower leaves room for peaks and for catching up after failures",
    },
    Setting {
        key: "elasticity.high_percent",
        kind: PERCENT,
        default: "85",
        about: "with elasticity.policy=utilization: the busy time above which a step gets more instances",
        trades: "higher changes the job less often, lower prevents backpressure earlier",
    },
    Setting {
        key: "elasticity.low_percent",
        kind: PERCENT,
        default: "30",
        about: "with elasticity.policy=utilization: the busy time below which a step loses instances",
        trades: "higher gives machines back earlier, lower changes the job less often",
    },
    Setting {
        key: "elasticity.least_instances",
        kind: INSTANCES,
        default: "1",
        about: "with elasticity.policy=utilization: the minimum number of instances of a step",
        trades: "more are ready for a sudden load, fewer cost less at quiet times",
    },
    Setting {
        key: "elasticity.most_instances",
        kind: INSTANCES,
        default: "16",
        about: "with elasticity.policy=utilization: the maximum number of instances of a step",
        trades: "more carry a higher load, fewer limit the costs",
    },
];

/// The configuration of elasticity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ElasticityConfig {
    /// The name of the policy.
    pub policy: String,
    /// The time over which loads are averaged.
    pub window: Duration,
    /// The busy time for which instances are counted, in percent.
    pub target_percent: u32,
    /// The busy time above which a vertex gets more instances, in percent.
    pub high_percent: u32,
    /// The busy time below which a vertex loses instances, in percent.
    pub low_percent: u32,
    /// The minimum number of instances of a vertex.
    pub least_instances: NonZeroU32,
    /// The maximum number of instances of a vertex.
    pub most_instances: NonZeroU32,
}

impl Default for ElasticityConfig {
    /// Returns the defaults of [`ELASTICITY_SETTINGS`].
    fn default() -> Self {
        ElasticityConfig {
            policy: NO_ELASTICITY.into(),
            window: Duration::from_secs(30),
            target_percent: 70,
            high_percent: 85,
            low_percent: 30,
            least_instances: NonZeroU32::MIN,
            most_instances: NonZeroU32::new(16).unwrap_or(NonZeroU32::MIN),
        }
    }
}

impl ElasticityConfig {
    /// Reads the settings of a job definition.
    ///
    /// # Errors
    /// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for an invalid value, or bounds that
    /// are not in order.
    pub fn by(settings: &BTreeMap<String, String>) -> Result<Self> {
        let schema = Schema::of(ELASTICITY_SETTINGS);
        let known = settings.iter();
        let known = known.filter(|(key, _)| schema.find(key).is_some());
        let flags = known.map(|(key, value)| format!("{key}={value}"));
        ElasticityConfig::from_settings(&Resolver::new(&schema).flags(flags).resolve()?)
    }

    /// Reads the resolved settings.
    ///
    /// # Errors
    /// As [`by`](Self::by).
    pub fn from_settings(resolved: &Resolved) -> Result<Self> {
        let number =
            |key: &str| Ok::<_, Error>(u32::try_from(resolved.count(key)?).unwrap_or(u32::MAX));
        let instances =
            |key: &str| Ok::<_, Error>(NonZeroU32::new(number(key)?).unwrap_or(NonZeroU32::MIN));
        let config = ElasticityConfig {
            policy: resolved.text("elasticity.policy")?.into(),
            window: resolved.duration("elasticity.window")?,
            target_percent: number("elasticity.target_percent")?,
            high_percent: number("elasticity.high_percent")?,
            low_percent: number("elasticity.low_percent")?,
            least_instances: instances("elasticity.least_instances")?,
            most_instances: instances("elasticity.most_instances")?,
        };
        if let Some((key, why, hint)) = config.disorder() {
            return Err(resolved.refuse(key, why).hint(hint));
        }
        Ok(config)
    }

    /// Returns the setting that is not in order with the others, the reason, and a hint. Such
    /// bounds would change a job again and again.
    fn disorder(&self) -> Option<(&'static str, String, &'static str)> {
        let target = self.target_percent;
        if self.low_percent >= target {
            let why = format!("it is not below elasticity.target_percent={target}");
            let hint = "set the target above the low percentage";
            return Some(("elasticity.low_percent", why, hint));
        }
        if self.high_percent < target {
            let why = format!("it is below elasticity.target_percent={target}");
            let hint = "set the target up to the high percentage";
            return Some(("elasticity.high_percent", why, hint));
        }
        let most = self.most_instances;
        (self.least_instances > most).then(|| {
            let why = format!("it is above elasticity.most_instances={most}");
            let hint = "set the least number up to the most";
            ("elasticity.least_instances", why, hint)
        })
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    fn by(settings: &[(&str, &str)]) -> Result<ElasticityConfig> {
        let settings = settings.iter();
        let settings = settings.map(|(key, value)| (key.to_string(), value.to_string()));
        ElasticityConfig::by(&settings.collect())
    }

    #[test]
    fn the_settings_of_a_job_have_the_documented_defaults() {
        assert_eq!(
            by(&[("guarantee", "none")]).unwrap(),
            ElasticityConfig::default()
        );
        let config = by(&[
            ("elasticity.policy", "utilization"),
            ("elasticity.window", "5s"),
        ])
        .unwrap();
        assert_eq!(
            (&*config.policy, config.window.as_secs()),
            ("utilization", 5)
        );
    }

    #[test]
    fn bounds_that_are_not_in_order_are_refused() {
        for wrong in [
            &[("elasticity.low_percent", "70")][..],
            &[("elasticity.target_percent", "90")],
            &[("elasticity.target_percent", "101")],
            &[("elasticity.least_instances", "17")],
            &[("elasticity.most_instances", "0")],
        ] {
            let error = by(wrong).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{wrong:?}");
        }
    }
}
