//! The parameters of `ardea bench layouts`, and those that `ardea bench knee` shares.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ardea_config::parse_count;
use ardea_core::Result;
use clap::ValueEnum;

use crate::bounds::{check_duration, check_positive, check_range, check_rate, check_threads};
use crate::flags::time;

/// The most layers of the topology `sol`, since each has its own figures.
const MOST_LAYERS: u32 = 32;
/// The most instances of a component.
const MOST_PARALLELISM: u32 = 256;
/// The most bytes of a message.
const MOST_BYTES: u32 = 1 << 20;
/// The most workers of a layout, on this machine.
const MOST_WORKERS: u32 = 32;

/// A topology of the papers.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum TopologyKind {
    /// Speed of light: layers of bolts that pass messages on
    Sol,
    /// Sentences, split into words, which are counted
    Words,
    /// A spout and a bolt that receives its messages
    Throughput,
}

impl TopologyKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            TopologyKind::Sol => "sol",
            TopologyKind::Words => "words",
            TopologyKind::Throughput => "throughput",
        }
    }
}

/// The transport between the workers of a host.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayoutTransport {
    /// Rings in shared memory
    Auto,
    /// TCP, as between hosts
    Tcp,
}

impl LayoutTransport {
    pub(super) fn name(self) -> &'static str {
        match self {
            LayoutTransport::Auto => "auto",
            LayoutTransport::Tcp => "tcp",
        }
    }
}

/// The packing policy of the topology.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayoutPacking {
    /// By traffic
    Traffic,
    /// In turn
    RoundRobin,
}

impl LayoutPacking {
    pub(super) fn name(self) -> &'static str {
        match self {
            LayoutPacking::Traffic => "traffic",
            LayoutPacking::RoundRobin => "round-robin",
        }
    }
}

/// Numbers of hosts and workers, such as `2N8W`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostLayout {
    /// The number of hosts.
    pub hosts: u32,
    /// The number of workers.
    pub workers: u32,
}

impl HostLayout {
    /// Returns the share of the traffic between workers that stays on its host, if each worker
    /// sends as much to each other one; `None` with one worker (the paper's table II).
    pub(super) fn inside_hosts(self) -> Option<f64> {
        let of_host = f64::from(self.workers) / f64::from(self.hosts);
        (self.workers > 1).then(|| (of_host - 1.0) / (f64::from(self.workers) - 1.0))
    }
}

impl fmt::Display for HostLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}N{}W", self.hosts, self.workers)
    }
}

impl FromStr for HostLayout {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let numbers = text.strip_suffix('W').and_then(|it| it.split_once('N'));
        let parsed = numbers.and_then(|(hosts, workers)| {
            Some(HostLayout {
                hosts: hosts.parse().ok()?,
                workers: workers.parse().ok()?,
            })
        });
        let is_even = |layout: &HostLayout| {
            (1..=layout.workers).contains(&layout.hosts)
                && layout.workers <= MOST_WORKERS
                && layout.workers.is_multiple_of(layout.hosts)
        };
        parsed.filter(is_even).ok_or_else(|| {
            format!(
                "give hosts and workers, such as 2N8W: the same number of workers on each host, at most {MOST_WORKERS}"
            )
        })
    }
}

/// The topology of a run, and the times of its measurement.
#[derive(clap::Args, Clone, Debug)]
pub struct TopologyParams {
    /// Instances of each component
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub parallelism: u32,
    /// Layers of bolts, for the topology sol
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub layers: u32,
    /// Bytes of a message, except for the topology words
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub bytes: u32,
    /// Time added to each message from another host
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "250us")]
    pub delay: Duration,
    /// Latency budget of edges; zero passes each message on at once
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "0s")]
    pub latency: Duration,
    /// Number of cooperative threads per worker
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u32,
    /// Duration of each measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "10s")]
    pub duration: Duration,
    /// Duration of the warm-up before each measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "3s")]
    pub warmup: Duration,
    /// Folder for a table and a chart of the results
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

impl TopologyParams {
    pub(super) fn check(&self) -> Result<()> {
        check_range("--parallelism", self.parallelism, 1..=MOST_PARALLELISM)?;
        check_range("--layers", self.layers, 1..=MOST_LAYERS)?;
        check_range("--bytes", self.bytes, 1..=MOST_BYTES)?;
        check_threads(self.threads)?;
        check_duration(self.duration)
    }
}

/// The parameters of `ardea bench layouts`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct LayoutsParams {
    /// Topology
    #[arg(long, value_enum, default_value_t = TopologyKind::Sol)]
    pub topology: TopologyKind,
    /// Hosts and workers of each run; several hosts need root and a checkout
    #[arg(
        long,
        value_name = "LAYOUT,…",
        value_delimiter = ',',
        default_value = "1N1W,1N2W,1N4W,2N2W,2N4W,2N8W,4N4W,4N8W,8N8W"
    )]
    pub layouts: Vec<HostLayout>,
    /// Messages a second, over all spouts
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "5000")]
    pub rate: u64,
    /// Transports within a host, each with its own runs
    #[arg(long, value_enum, value_delimiter = ',', default_value = "auto,tcp")]
    pub transport: Vec<LayoutTransport>,
    /// Packing policies, each with its own runs
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "traffic,round-robin"
    )]
    pub packing: Vec<LayoutPacking>,
    /// Pack in turn, and move instances by the measured traffic at about this time after the start
    #[arg(long, value_name = "DURATION", value_parser = time, conflicts_with = "packing")]
    pub reassign: Option<Duration>,
    /// The topology and its measurement.
    #[command(flatten)]
    pub run: TopologyParams,
}

impl LayoutsParams {
    pub(super) fn check(&self) -> Result<()> {
        check_rate(self.rate, "messages")?;
        if let Some(at) = self.reassign {
            check_positive("--reassign", at)?;
        }
        self.run.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_inside_hosts_are_those_of_the_papers_table() {
        let share = |text: &str| text.parse::<HostLayout>().unwrap().inside_hosts();
        let percent = |text: &str| share(text).map(|share| (share * 1e4).round() / 1e2);
        for (layout, expected) in [
            ("8N8W", 0.0),
            ("4N8W", 14.29),
            ("2N8W", 42.86),
            ("4N4W", 0.0),
            ("2N4W", 33.33),
            ("1N2W", 100.0),
        ] {
            assert_eq!(percent(layout), Some(expected), "{layout}");
        }
        assert_eq!(share("1N1W"), None);
    }

    #[test]
    fn a_layout_has_as_many_workers_on_each_host() {
        for wrong in ["2N", "0N1W", "2N1W", "2N3W", "aN2W", "1N99W", ""] {
            assert!(wrong.parse::<HostLayout>().is_err(), "{wrong}");
        }
        assert_eq!("2N8W".parse::<HostLayout>().unwrap().to_string(), "2N8W");
    }
}
