//! Placement by traffic: planning time, and the traffic between hosts compared with round robin,
//! METIS and the optimum.

mod job_graphs;
mod monitor;

use std::time::{Duration, Instant};

use ardea_coordination::placement::{
    BalanceFactor, HostCapacity, PlacementError, TrafficGraph, assign, round_robin,
};
use ardea_core::Result;
use serde_json::{Value, json};

use crate::bounds::{check_range, refused};
use crate::flags::size;
use crate::report::{Field, Report, fields, rounded};
use crate::{noise, python};

use job_graphs::{RandomJobs, least_cut};

/// The parameters of `ardea bench placement`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct PlacementParams {
    /// Number of instances of each job
    #[arg(long, value_name = "N", value_parser = size, default_value = "2000")]
    pub instances: usize,
    /// Number of hosts
    #[arg(long, value_name = "N", value_parser = size, default_value = "100")]
    pub hosts: usize,
    /// Number of random jobs
    #[arg(long, value_name = "N", value_parser = size, default_value = "10")]
    pub jobs: usize,
    /// Number of random jobs of at most 12 instances that are compared with the optimum
    #[arg(long, value_name = "N", value_parser = size, default_value = "100")]
    pub small_jobs: usize,
    /// Percentage by which the load of a host may exceed its share
    #[arg(long, value_name = "PERCENT", default_value = "10")]
    pub balance: u32,
    /// Seed of the random jobs
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
    /// Measure the cost of counting records between instances too
    #[arg(long)]
    pub monitor: bool,
}

impl PlacementParams {
    fn check(&self) -> Result<()> {
        check_range("--instances", self.instances, 2..=20_000)?;
        check_range("--hosts", self.hosts, 1..=1_000)?;
        check_range("--jobs", self.jobs, 1..=10_000)?;
        check_range("--small-jobs", self.small_jobs, 0..=10_000)?;
        check_range("--balance", self.balance, 0..=100)
    }

    fn fields(&self) -> Vec<Field> {
        fields!(self; instances, hosts, jobs, small_jobs, balance, seed, monitor)
    }
}

/// The cuts of one job.
struct CutReport {
    total: u64,
    placed: u64,
    dealt: u64,
    metis: Option<u64>,
    planned_in: Duration,
}

/// Runs the benchmark; `progress` receives status texts.
///
/// Each random job is a graph of steps with parallel instances. Its traffic between hosts is
/// compared with that of round robin and, if the Python package `pymetis` is installed, with a
/// partition by METIS under the same balance factor.
///
/// # Errors
/// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the parameters are invalid.
pub fn run(params: &PlacementParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    let noise = noise::measure_noise(1, Duration::from_secs(1))?;
    let mut jobs = RandomJobs::new(params.seed);
    let mut cuts = Vec::new();
    for number in 1..=params.jobs {
        progress(&format!("placing job {number} of {}", params.jobs));
        let graph = jobs.of_size(params.instances).map_err(placement_error)?;
        cuts.push(cuts_of(&graph, params)?);
    }
    progress("comparing small jobs with the optimum");
    let (mut found, mut optimal, mut in_turn) = (0, 0, 0);
    for number in 0..params.small_jobs {
        let graph = jobs.of_size(6 + number % 7).map_err(placement_error)?;
        let hosts = vec![HostCapacity(1); 2 + number % 2];
        let balance = BalanceFactor(params.balance);
        if let Some(best) = least_cut(&graph, hosts.len(), params.balance) {
            optimal += best;
            found += graph.cut(&assign(&graph, &hosts, balance, None).map_err(placement_error)?);
            let dealt = round_robin(&graph, &hosts, balance).map_err(placement_error)?;
            in_turn += graph.cut(&dealt);
        }
    }
    let mut figures = figures(&cuts);
    figures.extend([
        ("over_optimum_percent", excess(found, optimal)),
        ("small_saved_percent", saved(found, in_turn)),
        ("optimum_saved_percent", saved(optimal, in_turn)),
    ]);
    if params.monitor {
        figures.extend(monitor::figures(progress)?);
    }
    figures.push(("noise_max_ms", json!(noise.max_ms)));
    Ok(Report {
        bench: "placement",
        parameters: params.fields(),
        figures,
    })
}

fn placement_error(error: PlacementError) -> ardea_core::Error {
    refused(error.to_string())
}

fn cuts_of(graph: &TrafficGraph, params: &PlacementParams) -> Result<CutReport> {
    let hosts = vec![HostCapacity(1); params.hosts];
    let balance = BalanceFactor(params.balance);
    let begin = Instant::now();
    let placed = assign(graph, &hosts, balance, None).map_err(placement_error)?;
    let planned_in = begin.elapsed();
    let dealt = round_robin(graph, &hosts, balance).map_err(placement_error)?;
    Ok(CutReport {
        total: graph.total_traffic(),
        placed: graph.cut(&placed),
        dealt: graph.cut(&dealt),
        metis: by_metis(graph, params).map(|hosts| graph.cut(&hosts)),
        planned_in,
    })
}

fn figures(cuts: &[CutReport]) -> Vec<Field> {
    let sum = |of: fn(&CutReport) -> u64| -> u64 { cuts.iter().map(of).sum() };
    let (placed, dealt, total) = (sum(|it| it.placed), sum(|it| it.dealt), sum(|it| it.total));
    let metis: Option<u64> = cuts.iter().map(|it| it.metis).sum();
    let mut times: Vec<Duration> = cuts.iter().map(|it| it.planned_in).collect();
    times.sort_unstable();
    let millis = |time: Option<&Duration>| {
        time.map(|time| rounded(time.as_secs_f64() * 1e3, 1e2))
            .into()
    };
    let worse = cuts.iter().filter(|it| it.placed > it.dealt).count();
    vec![
        ("plan_ms", millis(times.get(times.len() / 2))),
        ("plan_max_ms", millis(times.last())),
        ("between_hosts_percent", percent(placed, total)),
        ("round_robin_between_hosts_percent", percent(dealt, total)),
        ("saved_of_round_robin_percent", saved(placed, dealt)),
        ("jobs_worse_than_round_robin", json!(worse)),
        (
            "over_metis_percent",
            metis.map_or(Value::Null, |metis| excess(placed, metis)),
        ),
    ]
}

fn percent(part: u64, all: u64) -> Value {
    match all {
        0 => Value::Null,
        all => json!(rounded(part as f64 / all as f64 * 100.0, 1e2)),
    }
}

/// Returns the percentage of the traffic of round robin that a placement saves.
fn saved(placed: u64, dealt: u64) -> Value {
    percent(dealt - placed.min(dealt), dealt)
}

fn excess(found: u64, other: u64) -> Value {
    match other {
        0 => Value::Null,
        other => json!(rounded((found as f64 / other as f64 - 1.0) * 100.0, 1e2)),
    }
}

/// The program that reads a graph from the file that its argument names, and prints the host of
/// each task.
const METIS: &str = r#"
import json, sys
import pymetis
graph = json.load(open(sys.argv[1]))
starts, neighbours, weights = [0], [], []
for task in graph["neighbours"]:
    for other, weight in task:
        neighbours.append(other)
        weights.append(weight)
    starts.append(len(neighbours))
options = pymetis.Options(ufactor=max(1, graph["balance"] * 10), seed=1)
_, hosts = pymetis.part_graph(graph["hosts"], xadj=starts, adjncy=neighbours,
    vweights=graph["loads"], eweights=weights, options=options)
print(json.dumps(list(hosts)))
"#;

/// Returns the host of each task by METIS; `None` without the package.
fn by_metis(graph: &TrafficGraph, params: &PlacementParams) -> Option<Vec<usize>> {
    let tasks = 0..graph.len();
    let neighbours: Vec<_> = tasks.map(|task| graph.neighbours(task)).collect();
    let given = json!({
        "neighbours": neighbours,
        "loads": graph.loads(),
        "hosts": params.hosts,
        "balance": params.balance,
    });
    let file = tempfile::NamedTempFile::new().ok()?;
    std::fs::write(file.path(), given.to_string()).ok()?;
    let hosts = python::run(METIS, [file.path()])?;
    serde_json::from_value(hosts).ok()
}
