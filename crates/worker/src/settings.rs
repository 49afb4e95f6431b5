//! The settings of a worker.

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
use ardea_network::exchange::{LinkConfig, RingSize};

/// The definitions of the settings under `worker`. A worker also uses the settings under `node` and
/// `metrics`.
pub static WORKER_SETTINGS: &[Setting] = &[
    Setting {
        key: "worker.bind",
        kind: Kind::Text,
        default: "",
        about: "the address that a worker listens at, if it differs from the one by which other hosts reach it",
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
        default: "auto",
        about: "the transport between the containers of a job: auto, shm, uds, tcp, or a custom one",
        trades: "auto uses shared memory within a host and TCP between hosts; shm (shared memory) and uds (Unix sockets) are for containers of one host only; all containers of a job use the same",
    },
    Setting {
        key: "worker.ring_size",
        kind: Kind::Bytes {
            least: 0,
            most: RingSize::MAX.bytes(),
        },
        default: "0",
        about: "the size of the shared memory for each direction between two containers of a host, rounded up to a power of two; 0 starts with 256 KiB and follows the observed messages",
        trades: "larger lets a sender run further ahead of a busy receiver, smaller stays in the processor's cache",
    },
    Setting {
        key: "worker.heartbeat",
        kind: Kind::Duration {
            least: Duration::from_millis(50),
            most: Duration::from_secs(1),
        },
        default: "500ms",
        about: "the interval of a worker's heartbeats to the job's leader; a worker without a heartbeat for 3 s is restarted",
        trades: "shorter detects dead workers sooner where the network does not report them, and costs more messages",
    },
    Setting {
        key: "worker.master_silence",
        kind: Kind::Duration {
            least: Duration::from_millis(100),
            most: Duration::from_secs(600),
        },
        default: "3s",
        about: "the time without a message of the job's leader after which a worker looks for another leader",
        trades: "shorter finds a new leader sooner, longer tolerates a busy one",
    },
    Setting {
        key: "worker.peer_silence",
        kind: Kind::Duration {
            least: Duration::from_millis(100),
            most: Duration::from_secs(600),
        },
        default: "2s",
        about: "the time without a heartbeat after which a connection to another worker is closed",
        trades: "shorter detects an unreachable host sooner, longer tolerates a busy one; the end of a process is detected at once",
    },
    Setting {
        key: "worker.leave_within",
        kind: Kind::Duration {
            least: Duration::ZERO,
            most: Duration::from_secs(600),
        },
        default: "5s",
        about: "the maximum time for which a worker that is asked to end processes the records in flight",
        trades: "longer loses less, if the scheduler waits that long",
    },
    Setting {
        key: "worker.instance_restarts",
        kind: Kind::Count {
            least: 0,
            most: 1_000_000,
        },
        default: "20",
        about: "the maximum number of consecutive restarts of a failed instance, before its container ends with the error; 0 disables restarts",
        trades: "more tolerates temporary errors, fewer shows permanent ones sooner; only for topologies and for instances in processes of their own",
    },
];

/// The parsed settings of a worker.
#[derive(Clone, Debug)]
pub(crate) struct WorkerConfig {
    pub(crate) node: NodeConfig,
    pub(crate) metrics: MetricsConfig,
    pub(crate) bind: Option<String>,
    pub(crate) ports: RangeInclusive<u16>,
    pub(crate) transport: String,
    /// The size of rings in shared memory; `None` if it follows the observed messages.
    pub(crate) ring_size: Option<RingSize>,
    pub(crate) agent: AgentConfig,
    pub(crate) peer_silence: Duration,
    pub(crate) leave_within: Duration,
    pub(crate) instance_restarts: u32,
}

impl WorkerConfig {
    /// Parses the worker's settings among a job's settings; others are ignored. Unless the number
    /// of threads is set, the container's resources limit it.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for an invalid value.
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
            ring_size: match resolved.bytes("worker.ring_size")? {
                0 => None,
                bytes => Some(RingSize::of_bytes(bytes)),
            },
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

    /// Returns the settings of the connections to other containers.
    pub(crate) fn link(&self) -> LinkConfig {
        let heartbeat_interval = self.peer_silence / 8;
        LinkConfig {
            // A thread that gathers sends no heartbeats.
            latency: self.node.latency.min(heartbeat_interval),
            silence_timeout: self.peer_silence,
            heartbeat_interval,
            ..LinkConfig::default()
        }
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
        // A host has many containers. With pinned threads, all of them would use the same core
        // first.
        node.pin = false;
    }
    Ok(node)
}

/// Checks the form of the worker's ports and listen address before a worker starts. Not checked:
/// whether the address belongs to the host, a port is free, or the transport exists. Succeeds if
/// the schema, as in a benchmark, lacks [`WORKER_SETTINGS`].
///
/// # Errors
/// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for the first invalid
/// setting, with the source of its value.
pub fn check_settings(resolved: &Resolved) -> Result<()> {
    if resolved.value("worker.ports").is_none() {
        return Ok(());
    }
    ports(resolved)?;
    bind(resolved).map(drop)
}

/// Parses `worker.bind`, the listen address: an IP address or a host name, without a port. Returns
/// `None` if it is empty; the worker then listens at its host's address.
fn bind(resolved: &Resolved) -> Result<Option<String>> {
    let key = "worker.bind";
    let text = resolved.text(key)?;
    if text.is_empty() {
        return Ok(None);
    }
    let in_brackets = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    // A link-local address may end with a zone.
    let is_v6 = |text: &str| {
        let address = text.split_once('%').map_or(text, |(address, _)| address);
        address.parse::<Ipv6Addr>().is_ok()
    };
    let is_plain = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    let is_right = match in_brackets {
        Some(address) => is_v6(address),
        // IPv4 addresses are valid names.
        None => is_v6(text) || text.chars().all(is_plain),
    };
    match is_right {
        true => Ok(Some(text.to_string())),
        false => Err(resolved.refuse(key, "it is neither an address nor the name of a host")),
    }
}

fn ports(resolved: &Resolved) -> Result<RangeInclusive<u16>> {
    let key = "worker.ports";
    let text = resolved.text(key)?;
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let read = |port: &str| port.trim().parse::<u16>();
    match (read(first), read(last)) {
        (Ok(first), Ok(last)) if first <= last && (first > 0 || last == 0) => Ok(first..=last),
        _ => Err(resolved.refuse(key, "it is neither a port nor a range such as 7400-7499")),
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
    fn a_long_latency_budget_does_not_hold_back_heartbeats() {
        let link = config(&[("latency", "1s")], 1000).unwrap().link();
        assert_eq!(link.latency, link.heartbeat_interval);
        assert!(link.latency * 4 <= link.silence_timeout, "{link:?}");
        let short = config(&[("latency", "1ms")], 1000).unwrap().link();
        assert_eq!(short.latency, Duration::from_millis(1));
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
            let told = error.hint_text().unwrap();
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
