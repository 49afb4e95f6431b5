//! The settings of a worker, as people write them.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::ops::RangeInclusive;
use std::time::Duration;

use ardea_config::{Kind, Resolved, Resolver, Schema, Setting};
use ardea_coordination::control::AgentConfig;
use ardea_coordination::packing::Resources;
use ardea_core::Result;
use ardea_engine::{NODE_SETTINGS, NodeConfig};
use ardea_metrics::{METRICS_SETTINGS, MetricsConfig};

/// The settings under `worker`. A worker knows those of its node and of its metrics as well.
pub static WORKER_SETTINGS: &[Setting] = &[
    Setting {
        key: "worker.bind",
        kind: Kind::Text,
        default: "",
        about: "the address that a worker listens at, where that is not the one by which others reach its host",
        trades: "0.0.0.0 listens at all of the host's addresses; without a token only addresses of this machine are allowed",
    },
    Setting {
        key: "worker.ports",
        kind: Kind::Text,
        default: "0",
        about: "the ports that a worker may listen at, such as 7400-7499; 0 is any that is free",
        trades: "a range can be let through a firewall, and bounds the workers of a host",
    },
    Setting {
        key: "worker.transport",
        kind: Kind::Text,
        default: "tcp",
        about: "how the containers of a job reach each other: tcp, or one of your own",
        trades: "all containers of a job use the same",
    },
    Setting {
        key: "worker.heartbeat",
        kind: Kind::Duration {
            least: Duration::from_millis(50),
            most: Duration::from_secs(1),
        },
        default: "500ms",
        about: "how often a worker tells the job's master that it is still there; one that the master has not heard of for 3 s is started again",
        trades: "more often finds dead ones sooner where the network doesn't tell, and costs a message each time",
    },
    Setting {
        key: "worker.master_silence",
        kind: Kind::Duration {
            least: Duration::from_millis(100),
            most: Duration::from_secs(600),
        },
        default: "3s",
        about: "after how long without a word of the job's master a worker looks for another",
        trades: "shorter finds a new master sooner, longer bears a busy one",
    },
    Setting {
        key: "worker.peer_silence",
        kind: Kind::Duration {
            least: Duration::from_millis(100),
            most: Duration::from_secs(600),
        },
        default: "2s",
        about: "after how long without a sign of life a connection to another worker is given up",
        trades: "shorter notices a host that was cut off sooner, longer bears a busy one; a process that ends is noticed at once",
    },
    Setting {
        key: "worker.leave_within",
        kind: Kind::Duration {
            least: Duration::ZERO,
            most: Duration::from_secs(600),
        },
        default: "5s",
        about: "how long a worker that is asked to end lets what was read flow on, at most",
        trades: "longer loses less, where the scheduler waits as long",
    },
    Setting {
        key: "worker.instance_restarts",
        kind: Kind::Count {
            least: 0,
            most: 1_000_000,
        },
        default: "20",
        about: "how often in a row an instance that fails is started again by itself, before its container ends with the error; 0 is never",
        trades: "more rides out what mends itself, fewer shows sooner what does not; only for topologies and for instances in processes of their own",
    },
];

/// What a worker makes of its settings.
#[derive(Clone, Debug)]
pub(crate) struct WorkerConfig {
    pub(crate) node: NodeConfig,
    pub(crate) metrics: MetricsConfig,
    pub(crate) bind: Option<String>,
    pub(crate) ports: RangeInclusive<u16>,
    pub(crate) transport: String,
    pub(crate) agent: AgentConfig,
    pub(crate) peer_silence: Duration,
    pub(crate) leave_within: Duration,
    pub(crate) instance_restarts: u32,
}

impl WorkerConfig {
    /// From a job's settings: those that are not a worker's are let pass. What the container may use bounds the threads, unless
    /// they are set.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for a wrong value.
    pub(crate) fn of(settings: &BTreeMap<String, String>, resources: &Resources) -> Result<Self> {
        let schema = Schema::of(NODE_SETTINGS)
            .and(METRICS_SETTINGS)
            .and(WORKER_SETTINGS);
        let known = settings
            .iter()
            .filter(|(key, _)| schema.find(key).is_some());
        let flags = known.map(|(key, value)| format!("{key}={value}"));
        let resolved = Resolver::new(&schema).flags(flags).resolve()?;
        Ok(WorkerConfig {
            node: node_config(&resolved, settings, resources)?,
            metrics: MetricsConfig::from_settings(&resolved)?,
            bind: bind(&resolved)?,
            ports: ports(&resolved)?,
            transport: resolved.text("worker.transport")?.to_string(),
            agent: AgentConfig {
                heartbeat_every: resolved.duration("worker.heartbeat")?,
                silent_after: resolved.duration("worker.master_silence")?,
                ..AgentConfig::default()
            },
            peer_silence: resolved.duration("worker.peer_silence")?,
            leave_within: resolved.duration("worker.leave_within")?,
            instance_restarts: resolved.count("worker.instance_restarts")? as u32,
        })
    }
}

fn node_config(
    resolved: &Resolved,
    settings: &BTreeMap<String, String>,
    resources: &Resources,
) -> Result<NodeConfig> {
    let mut node = NodeConfig::from_settings(resolved)?;
    if resolved.count_or_auto("threads")?.is_none() {
        let cores = resources.cpu.0.div_ceil(1000).clamp(1, u64::from(u32::MAX));
        let cores = std::num::NonZeroU32::new(cores as u32);
        node.threads = cores.map_or(node.threads, |cores| cores.min(node.threads));
    }
    if !settings.contains_key("pin") {
        // A host has many containers: pinned, all of them would begin with the same core.
        node.pin = false;
    }
    Ok(node)
}

/// Whether the texts among [`WORKER_SETTINGS`] are of the right form, as far as that shows before a worker is there: not whether an address is
/// one of its host's, a port free, or a transport known. A schema without them, as of a benchmark, has their defaults.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for the first that is wrong, with where it was written.
pub fn check_settings(resolved: &Resolved) -> Result<()> {
    if resolved.value("worker.ports").is_none() {
        return Ok(());
    }
    ports(resolved)?;
    bind(resolved).map(drop)
}

/// The address to listen at, if it is not the host's: an IP address or a name, without a port.
fn bind(resolved: &Resolved) -> Result<Option<String>> {
    let key = "worker.bind";
    let text = resolved.text(key)?;
    if text.is_empty() {
        return Ok(None);
    }
    let in_brackets = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    // An address of a link has a zone behind it.
    let is_v6 = |text: &str| {
        let address = text.split_once('%').map_or(text, |(address, _)| address);
        address.parse::<Ipv6Addr>().is_ok()
    };
    let is_plain = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    let is_right = match in_brackets {
        Some(address) => is_v6(address),
        // Addresses of the fourth version look like names.
        None => is_v6(text) || text.chars().all(is_plain),
    };
    match is_right {
        true => Ok(Some(text.to_string())),
        false => Err(resolved.refuse(key, "it is no address and no name of a host")),
    }
}

fn ports(resolved: &Resolved) -> Result<RangeInclusive<u16>> {
    let key = "worker.ports";
    let text = resolved.text(key)?;
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let read = |port: &str| port.trim().parse::<u16>();
    match (read(first), read(last)) {
        (Ok(first), Ok(last)) if first <= last && (first > 0 || last == 0) => Ok(first..=last),
        _ => Err(resolved.refuse(key, "it is no port and no range such as 7400-7499")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_coordination::control::MembershipConfig;
    use ardea_coordination::packing::MilliCores;

    fn config(settings: &[(&str, &str)], cpu: u64) -> Result<WorkerConfig> {
        let settings = settings
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()));
        let resources = Resources {
            cpu: MilliCores(cpu),
            ..Resources::UNLIMITED
        };
        WorkerConfig::of(&settings.collect(), &resources)
    }

    #[test]
    fn a_container_has_no_more_threads_than_cores_unless_it_is_told_so() {
        assert_eq!(config(&[], 100).unwrap().node.threads.get(), 1);
        let told = config(&[("threads", "7")], 100).unwrap();
        assert_eq!(told.node.threads.get(), 7);
    }

    #[test]
    fn settings_of_others_are_let_pass_and_wrong_values_are_not() {
        config(&[("packing.cpu", "whatever")], 1000).unwrap();
        assert!(config(&[("worker.heartbeat", "soon")], 1000).is_err());
    }

    #[test]
    fn the_slowest_heartbeat_is_heard_long_before_a_master_wonders() {
        let master = MembershipConfig::default();
        let heartbeat = |text: &str| config(&[("worker.heartbeat", text)], 1000);
        let slowest = heartbeat("1s").unwrap().agent.heartbeat_every;
        assert!(slowest * 3 / 2 <= master.suspect_after && slowest * 3 <= master.dead_after);
        for wrong in ["1s1ms", "5s", "30s"] {
            let error = heartbeat(wrong).unwrap_err().to_string();
            assert!(error.contains("from 50ms to 1s"), "{error}");
        }
    }

    #[test]
    fn what_no_worker_could_start_with_is_seen_before_there_is_one() {
        let check = |flag: &str| {
            let schema = Schema::of(WORKER_SETTINGS);
            let resolved = Resolver::new(&schema).flags([flag]).resolve().unwrap();
            check_settings(&resolved)
        };
        for right in [
            "worker.bind=",
            "worker.bind=0.0.0.0",
            "worker.bind=[::]",
            "worker.bind=fe80::1%eth0",
            "worker.bind=quay-7.example",
            "worker.ports=7400-7499",
        ] {
            check(right).unwrap();
        }
        for (wrong, hint) in [
            ("worker.bind=10.0.0.7:7400", "worker.bind: the address"),
            ("worker.bind=http://quay", "worker.bind: the address"),
            ("worker.bind=[]", "worker.bind: the address"),
            ("worker.bind=[[::1]]", "worker.bind: the address"),
            ("worker.bind=::1]", "worker.bind: the address"),
            ("worker.bind=10.0.0.7%x", "worker.bind: the address"),
            ("worker.ports=7499-7400", "such as 7400-7499"),
            ("worker.ports=99999", "such as 7400-7499"),
        ] {
            let error = check(wrong).unwrap_err();
            assert!(error.message().contains("(from --set)"), "{error}");
            let told = error.what_next().unwrap();
            assert!(told.contains(hint), "{told}");
        }
        let none = Resolved::defaults(&Schema::of(&[])).unwrap();
        check_settings(&none).unwrap();
    }

    #[test]
    fn ports_are_one_or_a_range() {
        let ports = |text: &str| config(&[("worker.ports", text)], 1000).map(|it| it.ports);
        assert_eq!(ports("0").unwrap(), 0..=0);
        assert_eq!(ports("7400-7499").unwrap(), 7400..=7499);
        for wrong in ["7499-7400", "0-10", "many", "70000"] {
            let error = ports(wrong).unwrap_err().to_string();
            assert!(error.contains("worker.ports"), "{error}");
        }
    }
}
