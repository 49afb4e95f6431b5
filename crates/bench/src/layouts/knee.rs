//! The rate at which a topology is limited by backpressure, and the latency around it.

use std::path::{Path, PathBuf};

use ardea_config::parse_count;
use ardea_core::Result;
use serde_json::Value;

use super::params::{HostLayout, LayoutPacking, LayoutTransport, TopologyKind, TopologyParams};
use super::run::LayoutRun;
use crate::bounds::{check_rate, refused};
use crate::chart::{Axis, Chart, Scale, Series, write_table};
use crate::cluster::HostNamespaces;
use crate::peer;
use crate::report::{Field, Report};

/// The least part of the offered rate that a sustained run achieves.
const SUSTAINED: f64 = 0.97;

/// The columns of the table.
const COLUMNS: [&str; 10] = [
    "rate",
    "position",
    "offered_per_s",
    "tuples_per_s",
    "mean_ms",
    "p50_ms",
    "p99_ms",
    "cpu_seconds",
    "peer_mean_ms",
    "peer_p99_ms",
];

/// The parameters of `ardea bench knee`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct KneeParams {
    /// Topology
    #[arg(long, value_enum, default_value_t = TopologyKind::Throughput)]
    pub topology: TopologyKind,
    /// Hosts and workers; several hosts need root and a checkout
    #[arg(long, value_name = "LAYOUT", default_value = "1N2W")]
    pub layout: HostLayout,
    /// Messages a second in the first run, over all spouts; the rate doubles until backpressure
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "1000")]
    pub from: u64,
    /// The highest rate
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "10_000_000")]
    pub until: u64,
    /// Number of runs that halve the distance between the last sustained rate and the first limited
    /// one
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=10))]
    pub refine: u32,
    /// Run this program at each rate too, with --rate and --seconds; its last line is a JSON object
    /// of figures
    #[arg(long, value_name = "PROGRAM")]
    pub peer: Option<PathBuf>,
    /// The topology and its measurement.
    #[command(flatten)]
    pub run: TopologyParams,
}

impl KneeParams {
    fn check(&self) -> Result<()> {
        check_rate(self.from, "messages")?;
        check_rate(self.until, "messages")?;
        if self.from > self.until {
            return Err(refused("--from is above --until"));
        }
        self.run.check()
    }
}

/// The search for the highest sustained rate: the rate doubles until a run is limited, then the
/// distance between the two rates is halved.
#[derive(Debug)]
struct RateSearch {
    until: u64,
    refinements: u32,
    sustained: Option<u64>,
    limited: Option<u64>,
}

impl RateSearch {
    /// Records the result of a run, and returns the rate of the next one.
    fn on(&mut self, rate: u64, is_sustained: bool) -> Option<u64> {
        match is_sustained {
            true => self.sustained = self.sustained.max(Some(rate)),
            false => self.limited = Some(self.limited.map_or(rate, |it| it.min(rate))),
        }
        match (self.sustained, self.limited) {
            (Some(rate), None) if rate < self.until => Some((2 * rate).min(self.until)),
            (Some(below), Some(above)) if self.refinements > 0 => {
                self.refinements -= 1;
                let middle = below + (above - below) / 2;
                (middle > below).then_some(middle)
            }
            _ => None,
        }
    }

    /// Returns the position of a rate relative to the knee, which is the highest sustained rate.
    fn position(&self, rate: u64) -> &'static str {
        match self.sustained {
            Some(knee) if rate == knee => "knee",
            Some(knee) if rate < knee => "before",
            _ => "beyond",
        }
    }
}

/// Runs the topology at increasing rates until backpressure limits it. Each result is passed to
/// `report` at the end, with its position: before, at or beyond the knee.
///
/// # Errors
/// As [`run_layouts`](super::run_layouts); there is no result without the hosts.
pub fn run_knee(
    params: &KneeParams,
    progress: &mut dyn FnMut(&str),
    report: &mut dyn FnMut(Report) -> Result<()>,
) -> Result<()> {
    params.check()?;
    let hosts = params.layout.hosts;
    let namespaces = (hosts > 1).then(|| HostNamespaces::new(hosts as usize));
    let namespaces = namespaces.transpose()?;
    let mut search = RateSearch {
        until: params.until,
        refinements: params.refine,
        sustained: None,
        limited: None,
    };
    let (mut next, mut reports) = (Some(params.from), Vec::new());
    while let Some(rate) = next {
        progress(&format!("{rate} messages a second"));
        let run = LayoutRun {
            topology: params.topology,
            layout: params.layout,
            transport: LayoutTransport::Auto,
            packing: LayoutPacking::RoundRobin,
            rate,
            reassign: None,
            params: &params.run,
        };
        let result = run.measure("knee", namespaces.as_ref(), false, progress)?;
        let figure = |name: &str| result.report.figure(name).as_f64().unwrap_or(0.0);
        let is_sustained = figure("tuples_per_s") >= SUSTAINED * figure("offered_per_s");
        next = search.on(rate, is_sustained);
        let mut done = result.report;
        if let Some(program) = &params.peer {
            progress("running the peer");
            done.figures.extend(peer_figures(params, program, rate)?);
        }
        reports.push((rate, done));
    }
    reports.sort_by_key(|(rate, _)| *rate);
    for (rate, done) in &mut reports {
        let position = search.position(*rate);
        done.figures.push(("position", position.into()));
        report(done.clone())?;
    }
    let Some(folder) = &params.run.folder else {
        return Ok(());
    };
    let topology = params.topology.name();
    let chart = chart(topology, search.sustained, &reports);
    chart.write(&folder.join(format!("knee-{topology}.svg")))?;
    let table = folder.join(format!("knee-{topology}.md"));
    let rows: Vec<Value> = reports.iter().map(|(_, done)| done.to_json()).collect();
    write_table(&table, &COLUMNS, rows.iter())
}

/// Returns the latencies of another system at the same rate.
fn peer_figures(params: &KneeParams, program: &Path, rate: u64) -> Result<[Field; 4]> {
    let seconds = params.run.duration.as_secs().max(1).to_string();
    let options = ["--rate", &rate.to_string(), "--seconds", &seconds];
    let figures = peer::figures(program, &options, "p50_ms")?;
    let names = [
        ("peer_system", "system"),
        ("peer_mean_ms", "mean_ms"),
        ("peer_p50_ms", "p50_ms"),
        ("peer_p99_ms", "p99_ms"),
    ];
    Ok(names.map(|(name, field)| (name, figures[field].clone())))
}

/// Returns the chart of latencies by rate.
fn chart(topology: &str, knee: Option<u64>, reports: &[(u64, Report)]) -> Chart {
    let names = ["mean_ms", "p50_ms", "p99_ms", "peer_mean_ms", "peer_p99_ms"];
    let series = names.into_iter().map(|name| {
        let points = reports.iter().filter_map(|(rate, report)| {
            let latency = report.figure(name).as_f64()?;
            Some((*rate as f64, latency))
        });
        Series {
            name: name.trim_end_matches("_ms").replace('_', " "),
            points: points.collect(),
            circled: None,
        }
    });
    Chart {
        title: format!("Latency of the topology {topology} by its rate"),
        x: Axis::new("messages a second", Scale::Log(10.0)),
        y: Axis::new("latency, ms", Scale::Log(10.0)),
        names: Vec::new(),
        marks: knee
            .map(|rate| (rate as f64, "knee".into()))
            .into_iter()
            .collect(),
        series: series.filter(|series| !series.points.is_empty()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_doubles_until_a_run_is_limited_and_is_then_halved_in() {
        let mut search = RateSearch {
            until: 1_000_000,
            refinements: 3,
            sustained: None,
            limited: None,
        };
        let (mut next, mut rates) = (Some(1_000), Vec::new());
        while let Some(rate) = next {
            rates.push(rate);
            next = search.on(rate, rate <= 5_300);
        }
        assert_eq!(rates, [1_000, 2_000, 4_000, 8_000, 6_000, 5_000, 5_500]);
        assert_eq!(search.position(5_000), "knee");
        assert_eq!(search.position(4_000), "before");
        assert_eq!(search.position(5_500), "beyond");
    }

    #[test]
    fn a_search_ends_at_the_highest_rate_and_if_no_rate_is_sustained() {
        let search = || RateSearch {
            until: 1_500,
            refinements: 3,
            sustained: None,
            limited: None,
        };
        let mut all = search();
        assert_eq!(all.on(1_000, true), Some(1_500));
        assert_eq!(all.on(1_500, true), None);
        let mut none = search();
        assert_eq!(none.on(1_000, false), None);
        assert_eq!(none.position(1_000), "beyond");
    }
}
