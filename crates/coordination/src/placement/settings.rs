//! The settings of placement by traffic.

use std::collections::BTreeMap;
use std::time::Duration;

use ardea_config::{Kind, Resolved, Resolver, Schema, Setting};
use ardea_core::Result;

use crate::packing::{BALANCE_KEY, GROUPS_KEY, PackingConfig};

/// The settings of placement by traffic.
pub static PLACEMENT_SETTINGS: &[Setting] = &[
    Setting {
        key: "placement.mode",
        kind: Kind::Choice(&["off", "propose", "apply"]),
        default: "off",
        about: "on a cluster, what happens when the measured traffic makes another placement better while the job runs: off (it is not compared), propose (it is reported), apply (instances move)",
        trades: "less traffic between hosts; each change restarts a job with a guarantee from a checkpoint",
    },
    Setting {
        key: "placement.rates",
        kind: Kind::Text,
        default: "",
        about: "with cluster.packing=traffic: records a second over edges of the job, such as lines>words=20000,words>counts=90000; others are assumed",
        trades: "a first placement for the traffic that the job will have",
    },
    Setting {
        key: BALANCE_KEY,
        kind: Kind::Count {
            least: 0,
            most: 100,
        },
        default: "10",
        about: "with placement by traffic: the percentage by which the load of a host may exceed its share",
        trades: "higher leaves less traffic between hosts, lower loads them more evenly",
    },
    Setting {
        key: GROUPS_KEY,
        kind: Kind::CountOrAuto {
            least: 1,
            most: 1_000_000,
        },
        default: "auto",
        about: "with placement by traffic: the number of groups up to which instances are merged before they are assigned to hosts",
        trades: "fewer plan large jobs sooner, more find better placements",
    },
    Setting {
        key: "placement.window",
        kind: Kind::Duration {
            least: Duration::from_secs(1),
            most: Duration::from_secs(3_600),
        },
        default: "1m",
        about: "with placement.mode: the time over which traffic is averaged; three windows in a row must agree",
        trades: "shorter follows the traffic sooner, longer ignores short peaks",
    },
    Setting {
        key: "placement.margin_percent",
        kind: Kind::Count {
            least: 1,
            most: 100,
        },
        default: "20",
        about: "with placement.mode: the percentage of the traffic between hosts that a change must save",
        trades: "higher changes the job less often, lower saves more traffic",
    },
    Setting {
        key: "placement.cooldown",
        kind: Kind::Duration {
            least: Duration::ZERO,
            most: Duration::from_secs(86_400),
        },
        default: "10m",
        about: "with placement.mode: the least time between two changes or proposals, within which the saved records must exceed the cost of the moves",
        trades: "longer changes the job less often, shorter follows the traffic",
    },
    Setting {
        key: "placement.move_cost",
        kind: Kind::Count {
            least: 0,
            most: 1_000_000_000_000,
        },
        default: "100000",
        about: "with placement.mode: the cost of moving an instance, in records that cross hosts",
        trades: "higher moves instances only for much traffic, as suits large state",
    },
];

/// The treatment of better placements while a job runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PlacementMode {
    /// Placements are not compared.
    #[default]
    Off,
    /// A better placement is reported.
    Propose,
    /// A better placement is carried out.
    Apply,
}

/// The configuration of placement by traffic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacementConfig {
    /// The treatment of better placements.
    pub mode: PlacementMode,
    /// The declared rates, in the form of [`TrafficRates::declare`](super::TrafficRates::declare).
    pub rates: String,
    /// The balance factor, in percent.
    pub balance_percent: u32,
    /// The number of groups at which consolidation stops; `None` chooses it by the hosts.
    pub groups: Option<u32>,
    /// The time over which traffic is averaged.
    pub window: Duration,
    /// The part of the traffic between hosts that a change must save, in percent.
    pub margin_percent: u32,
    /// The least time between two changes.
    pub cooldown: Duration,
    /// The cost of moving an instance, in records.
    pub move_cost: u64,
}

impl Default for PlacementConfig {
    /// Returns the defaults of [`PLACEMENT_SETTINGS`].
    fn default() -> Self {
        PlacementConfig {
            mode: PlacementMode::Off,
            rates: String::new(),
            balance_percent: 10,
            groups: None,
            window: Duration::from_secs(60),
            margin_percent: 20,
            cooldown: Duration::from_secs(600),
            move_cost: 100_000,
        }
    }
}

impl PlacementConfig {
    /// Reads the settings of a job definition.
    ///
    /// # Errors
    /// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for an invalid value.
    pub fn by(settings: &BTreeMap<String, String>) -> Result<Self> {
        let schema = Schema::of(PLACEMENT_SETTINGS);
        let known = settings.iter();
        let known = known.filter(|(key, _)| schema.find(key).is_some());
        let flags = known.map(|(key, value)| format!("{key}={value}"));
        PlacementConfig::from_settings(&Resolver::new(&schema).flags(flags).resolve()?)
    }

    /// Reads the resolved settings.
    ///
    /// # Errors
    /// As [`by`](Self::by).
    pub fn from_settings(resolved: &Resolved) -> Result<Self> {
        // The maxima of the settings fit.
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Ok(PlacementConfig {
            mode: match resolved.choice("placement.mode")? {
                "propose" => PlacementMode::Propose,
                "apply" => PlacementMode::Apply,
                _ => PlacementMode::Off,
            },
            rates: resolved.text("placement.rates")?.into(),
            balance_percent: small(resolved.count(BALANCE_KEY)?),
            groups: resolved.count_or_auto(GROUPS_KEY)?.map(small),
            window: resolved.duration("placement.window")?,
            margin_percent: small(resolved.count("placement.margin_percent")?),
            cooldown: resolved.duration("placement.cooldown")?,
            move_cost: resolved.count("placement.move_cost")?,
        })
    }

    /// Writes the options of the packing policy `traffic` that differ from their defaults into a
    /// packing configuration.
    pub fn write_into(&self, packing: &mut PackingConfig) {
        let extra = &mut packing.extra;
        if self.balance_percent != PlacementConfig::default().balance_percent {
            extra.insert(BALANCE_KEY.into(), self.balance_percent.to_string());
        }
        if let Some(groups) = self.groups {
            extra.insert(GROUPS_KEY.into(), groups.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;

    fn by(settings: &[(&str, &str)]) -> Result<PlacementConfig> {
        let settings = settings.iter();
        let settings = settings.map(|(key, value)| (key.to_string(), value.to_string()));
        PlacementConfig::by(&settings.collect())
    }

    #[test]
    fn the_settings_of_a_job_have_the_documented_defaults() {
        let none = by(&[("guarantee", "none")]).unwrap();
        assert_eq!(none, PlacementConfig::default());
        let mut packing = PackingConfig::default();
        none.write_into(&mut packing);
        assert_eq!(packing, PackingConfig::default());
        let config = by(&[
            ("placement.mode", "apply"),
            (GROUPS_KEY, "7"),
            (BALANCE_KEY, "5"),
        ])
        .unwrap();
        assert_eq!(
            (config.mode, config.groups),
            (PlacementMode::Apply, Some(7))
        );
        config.write_into(&mut packing);
        assert_eq!(packing.extra[GROUPS_KEY], "7");
        assert_eq!(packing.extra[BALANCE_KEY], "5");
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for wrong in [
            ("placement.mode", "on"),
            (GROUPS_KEY, "0"),
            (BALANCE_KEY, "101"),
            ("placement.margin_percent", "0"),
            ("placement.window", "0s"),
        ] {
            let error = by(&[wrong]).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig, "{wrong:?}");
        }
    }
}
