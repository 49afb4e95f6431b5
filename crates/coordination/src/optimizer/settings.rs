//! The settings of the optimizer.

use std::collections::BTreeMap;
use std::time::Duration;

use ardea_config::{Kind, Resolved, Resolver, Schema, Setting};
use ardea_core::Result;

use crate::elasticity::ElasticityConfig;

/// The settings of the optimizer.
pub static OPTIMIZER_SETTINGS: &[Setting] = &[
    Setting {
        key: "optimizer.mode",
        kind: Kind::Choice(&["off", "propose", "apply"]),
        default: "off",
        about: "on a cluster, what happens when the measured work shows how the job could run better: off (it is not measured), propose (it is reported with the figures), apply (what the leader can change is changed)",
        trades: "a job that fits its load; each change restarts a job with a guarantee from a checkpoint",
    },
    Setting {
        key: "optimizer.window",
        kind: Kind::Duration {
            least: Duration::from_secs(1),
            most: Duration::from_secs(3_600),
        },
        default: "20s",
        about: "with optimizer.mode: the time over which work is averaged; three windows in a row must agree",
        trades: "shorter follows the load sooner, longer ignores short peaks",
    },
    Setting {
        key: "optimizer.cooldown",
        kind: Kind::Duration {
            least: Duration::ZERO,
            most: Duration::from_secs(86_400),
        },
        default: "10m",
        about: "with optimizer.mode=apply: the least time between two changes",
        trades: "longer changes the job less often, shorter follows the load",
    },
];

/// The treatment of findings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OptimizerMode {
    /// Nothing is measured.
    #[default]
    Off,
    /// Findings are reported.
    Propose,
    /// The leader carries out the changes that it can, and reports the others.
    Apply,
}

/// The configuration of the optimizer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptimizerConfig {
    /// The treatment of findings.
    pub mode: OptimizerMode,
    /// The time over which work is averaged.
    pub window: Duration,
    /// The least time between two changes.
    pub cooldown: Duration,
    /// The bounds of the parallelism.
    pub elasticity: ElasticityConfig,
}

impl Default for OptimizerConfig {
    /// Returns the defaults of [`OPTIMIZER_SETTINGS`].
    fn default() -> Self {
        OptimizerConfig {
            mode: OptimizerMode::Off,
            window: Duration::from_secs(20),
            cooldown: Duration::from_secs(600),
            elasticity: ElasticityConfig::default(),
        }
    }
}

impl OptimizerConfig {
    /// Reads the settings of a job definition.
    ///
    /// # Errors
    /// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for an invalid value.
    pub fn by(settings: &BTreeMap<String, String>) -> Result<Self> {
        let schema = Schema::of(OPTIMIZER_SETTINGS);
        let known = settings.iter();
        let known = known.filter(|(key, _)| schema.find(key).is_some());
        let flags = known.map(|(key, value)| format!("{key}={value}"));
        let resolved = Resolver::new(&schema).flags(flags).resolve()?;
        let elasticity = ElasticityConfig::by(settings)?;
        OptimizerConfig::of(&resolved, elasticity)
    }

    fn of(resolved: &Resolved, elasticity: ElasticityConfig) -> Result<Self> {
        Ok(OptimizerConfig {
            mode: match resolved.choice("optimizer.mode")? {
                "propose" => OptimizerMode::Propose,
                "apply" => OptimizerMode::Apply,
                _ => OptimizerMode::Off,
            },
            window: resolved.duration("optimizer.window")?,
            cooldown: resolved.duration("optimizer.cooldown")?,
            elasticity,
        })
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    fn by(settings: &[(&str, &str)]) -> Result<OptimizerConfig> {
        let settings = settings.iter();
        let settings = settings.map(|(key, value)| (key.to_string(), value.to_string()));
        OptimizerConfig::by(&settings.collect())
    }

    #[test]
    fn the_settings_of_a_job_have_the_documented_defaults() {
        assert_eq!(by(&[]).unwrap(), OptimizerConfig::default());
        let config = by(&[
            ("optimizer.mode", "apply"),
            ("elasticity.most_instances", "3"),
        ])
        .unwrap();
        assert_eq!(config.mode, OptimizerMode::Apply);
        assert_eq!(config.elasticity.most_instances.get(), 3);
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for wrong in [("optimizer.mode", "on"), ("optimizer.window", "0s")] {
            let error = by(&[wrong]).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{wrong:?}");
        }
    }
}
