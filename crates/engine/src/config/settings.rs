//! The settings of a node in configuration files; [`NodeConfig`] documents them.

use std::num::NonZeroU64;
use std::time::Duration;

use ardea_config::{Kind, Resolved, Setting};
use ardea_core::{Edge, Result};

use crate::config::NodeConfig;
use crate::config::execution_mode::{self, ExecutionMode, MicroBatchConfig};
use crate::config::state_backend_config::{self, StateBackendConfig};

/// The settings of a node: one per field of [`NodeConfig`], with the field's name, and three for
/// the state backend.
///
/// The bounds keep mistakes such as `slice = "10m"` from stalling a node or exhausting memory. The
/// bounds do not apply to code that fills a [`NodeConfig`] itself.
///
/// ```
/// use ardea_config::{Resolver, Schema};
/// use ardea_engine::{NODE_SETTINGS, NodeConfig};
///
/// let schema = Schema::of(NODE_SETTINGS);
/// let resolved = Resolver::new(&schema).flags(["threads=1", "slice=50us"]).resolve()?;
/// let config = NodeConfig::from_settings(&resolved)?;
/// assert_eq!(config.slice.as_micros(), 50);
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub static NODE_SETTINGS: &[Setting] = &[
    Setting {
        key: "threads",
        kind: Kind::CountOrAuto {
            least: 1,
            most: 1024,
        },
        default: "auto",
        about: "cooperative threads; auto is one for each core that this process may use",
        trades: "fewer leave cores to other work",
    },
    Setting {
        key: "pin",
        kind: Kind::Flag,
        default: "true",
        about: "whether each cooperative thread stays on one core",
        trades: "steadier tail latencies, but another busy process on that core is noticeable",
    },
    Setting {
        key: "chunk_records",
        kind: Kind::Count {
            least: 1,
            most: 65_536,
        },
        default: "1024",
        about: "records per chunk",
        trades: "larger ones cost less per record, smaller ones stay in the L1 cache",
    },
    Setting {
        key: "queue_chunks",
        kind: Kind::Count {
            least: 1,
            most: 65_536,
        },
        default: "16",
        about: "chunks per queue between two tasklets",
        trades: "larger ones bridge pauses, smaller ones bound memory and latency",
    },
    Setting {
        key: "slice",
        kind: duration(Duration::from_micros(1), Duration::from_secs(1)),
        default: "100us",
        about: "how long a tasklet runs before others on its thread get their turn",
        trades: "longer ones cost less per record, shorter ones keep the latency of the others steady",
    },
    Setting {
        key: "spin",
        kind: duration(Duration::ZERO, Duration::from_secs(1)),
        default: "10us",
        about: "how long an idle thread spins before it sleeps",
        trades: "longer wakes faster and uses more CPU",
    },
    Setting {
        key: "idle_poll",
        kind: duration(Duration::from_micros(1), Duration::from_secs(60)),
        default: "10ms",
        about: "poll interval of a source that had no data and requested no wake-up",
        trades: "shorter finds new records sooner and uses more CPU",
    },
    Setting {
        key: "latency",
        kind: duration(Duration::ZERO, Edge::MAX_LATENCY),
        default: "500us",
        about: "how long a source or a network connection with few records gathers them",
        trades: "longer uses less CPU at low rates, 0 passes each record on at once",
    },
    Setting {
        key: "fuse",
        kind: Kind::Flag,
        default: "true",
        about: "whether processors joined by forward edges share a tasklet",
        trades: "switch off only to measure the gain",
    },
    state_backend_config::STORE,
    state_backend_config::FOLDER,
    state_backend_config::BESIDE,
    execution_mode::MODE,
    execution_mode::EPOCH,
    execution_mode::RECORDS,
    execution_mode::RECORD,
    execution_mode::RECORD_BYTES,
    execution_mode::KEPT_BYTES,
];

const fn duration(least: Duration, most: Duration) -> Kind {
    Kind::Duration { least, most }
}

impl NodeConfig {
    /// Creates the configuration from settings whose schema contains [`NODE_SETTINGS`].
    ///
    /// # Errors
    ///
    /// [`Internal`](ardea_core::ErrorCode::Internal) when the schema doesn't contain them;
    /// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) when a schema with other bounds
    /// allowed a zero.
    pub fn from_settings(resolved: &Resolved) -> Result<Self> {
        let threads = match resolved.count_or_auto("threads")? {
            Some(count) => positive(resolved, "threads", count)?,
            None => NodeConfig::default().threads,
        };
        Ok(NodeConfig {
            threads,
            pin: resolved.flag("pin")?,
            chunk_records: positive(resolved, "chunk_records", resolved.count("chunk_records")?)?,
            queue_chunks: positive(resolved, "queue_chunks", resolved.count("queue_chunks")?)?,
            slice: resolved.duration("slice")?,
            spin: resolved.duration("spin")?,
            idle_poll: resolved.duration("idle_poll")?,
            latency: resolved.duration("latency")?,
            fuse: resolved.flag("fuse")?,
            state: StateBackendConfig::from_settings(resolved)?,
            mode: ExecutionMode::from_settings(resolved)?,
            micro_batch: MicroBatchConfig::from_settings(resolved)?,
        })
    }
}

fn positive<T: TryFrom<NonZeroU64>>(resolved: &Resolved, key: &str, count: u64) -> Result<T> {
    NonZeroU64::new(count)
        .and_then(|count| T::try_from(count).ok())
        .ok_or_else(|| resolved.refuse(key, "it is zero, or more than this machine can count"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_config::{Resolver, Schema};
    use ardea_core::DEFAULT_CHUNK_RECORDS;

    /// Returns every field by name with its value; does not compile when a field is missing.
    fn fields(config: NodeConfig) -> Vec<(&'static str, String)> {
        macro_rules! list {
            ($($field:ident)*) => {{
                let NodeConfig { $($field),* } = config;
                vec![$((stringify!($field), format!("{:?}", $field))),*]
            }};
        }
        list!(threads pin chunk_records queue_chunks slice spin idle_poll latency fuse state mode micro_batch)
    }

    fn configured(flags: &[&str]) -> Result<NodeConfig> {
        let schema = Schema::of(NODE_SETTINGS);
        let resolved = Resolver::new(&schema)
            .flags(flags.iter().copied())
            .resolve()?;
        NodeConfig::from_settings(&resolved)
    }

    #[test]
    fn every_field_of_a_node_has_a_setting_and_no_setting_lacks_a_field() {
        let names: Vec<&str> = fields(NodeConfig::default())
            .iter()
            .map(|(name, _)| *name)
            .collect();
        let keys = NODE_SETTINGS.iter().map(|setting| setting.key);
        let mut keys: Vec<&str> = keys
            .map(|key| key.split_once('.').map_or(key, |(of, _)| of))
            .collect();
        keys.dedup();
        assert_eq!(names, keys);
    }

    #[test]
    fn the_book_names_the_default_of_the_records_in_a_chunk() {
        let book = include_str!("../../../../docs/tuning.md");
        let row = format!("| `chunk_records` | {DEFAULT_CHUNK_RECORDS} |");
        assert!(book.contains(&row), "docs/tuning.md should have {row}");
    }

    #[test]
    fn the_defaults_of_the_settings_are_the_defaults_of_a_node() {
        assert_eq!(
            fields(configured(&[]).unwrap()),
            fields(NodeConfig::default())
        );
    }

    #[test]
    fn a_setting_changes_its_own_field_and_no_other() {
        let before = fields(NodeConfig::default());
        for (key, text, value) in [
            ("threads", "1023", "1023"),
            ("pin", "off", "false"),
            ("chunk_records", "77", "77"),
            ("queue_chunks", "78", "78"),
            ("slice", "1ms", "1ms"),
            ("spin", "0", "0ns"),
            ("idle_poll", "2s", "2s"),
            ("fuse", "off", "false"),
            ("mode", "micro-batch", "MicroBatch"),
        ] {
            let flag = format!("{key}={text}");
            let after = fields(configured(&[flag.as_str()]).unwrap());
            for ((name, old), (_, new)) in before.iter().zip(&after) {
                let expected = if *name == key { value } else { old.as_str() };
                assert_eq!(new, expected, "{name} after {flag}");
            }
        }
    }

    #[test]
    fn values_that_would_halt_a_node_are_refused() {
        for flag in [
            "threads=0",
            "chunk_records=0",
            "queue_chunks=1_000_000_000_000",
            "slice=0",
            "slice=10m",
            "idle_poll=0s",
            "micro_batch.epoch=0",
            "micro_batch.records=0",
        ] {
            assert!(configured(&[flag]).is_err(), "{flag}");
        }
    }
}
