//! Effect of changing the number of workers of an exactly-once job while records flow.

mod load;

use std::num::NonZeroU32;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ardea_config::parse_count;
use ardea_core::Result;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::bounds::{MOST_PROCESSES, check_duration, check_range, check_rate, refused};
use crate::cluster::{
    Load, Order, Sample, TestCluster, WorkerConnections, merged, read_final_reports,
};
use crate::flags::time;
use crate::noise;
use crate::report::{Field, Report, Unit, fields, latency, machine_of, rounded, seconds};
use crate::usage::{Spent, Stopwatch, monotonic_nanos};

pub(crate) use load::{RescaleLoad, job};

/// Timeout for each step of the bench.
const WITHIN: Duration = Duration::from_secs(60);

/// Timeout for the final reports of workers.
const FINAL_REPORTS_TIMEOUT: Duration = Duration::from_secs(5);

/// The parameters of `ardea bench rescale`; its options have the same names.
#[derive(clap::Args, Clone, Debug)]
pub struct RescaleParams {
    /// Number of workers at the start and at the end
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub from: u32,
    /// Number of workers in between
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub to: u32,
    /// Records per second
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "500000")]
    pub rate: u64,
    /// Number of keys
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "10000")]
    pub keys: u64,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "3s")]
    pub warmup: Duration,
    /// Duration of the measurement; the job is rescaled after a third, and back after two thirds
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "15s")]
    pub duration: Duration,
    /// Checkpoint interval
    #[arg(long, value_name = "DURATION", value_parser = time, default_value = "1s")]
    pub checkpoint_interval: Duration,
}

/// The results of one run of the job.
struct Run {
    nanos: Histogram<u64>,
    /// The number of records seen; `None` if a worker sent no final report.
    seen: Option<u64>,
    out_of_step: u64,
    /// The time until each rescale was complete.
    settled: Vec<Duration>,
    /// The usage of all processes of the job and its cluster.
    spent: Spent,
    /// The sum of the peak resident memory of the workers.
    rss_mb: Option<f64>,
}

/// Runs the job twice: once it is rescaled and rescaled back, once it keeps its workers. `progress`
/// receives status texts.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the parameters are
/// invalid; errors of the cluster or the job.
pub fn run(params: &RescaleParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let (Some(from), Some(to)) = (NonZeroU32::new(params.from), NonZeroU32::new(params.to)) else {
        return Err(refused("a job needs at least one worker"));
    };
    if from == to {
        return Err(refused("nothing changes").hint("give different numbers to --from and --to"));
    }
    check_range("--keys", params.keys, 1..=u64::MAX)?;
    for (flag, workers) in [("--from", params.from), ("--to", params.to)] {
        check_range(flag, workers, 1..=MOST_PROCESSES)?;
    }
    check_rate(params.rate, "records")?;
    check_duration(params.duration)?;
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(1, params.duration)?;
    progress("without: a job that is not rescaled");
    let without = once(params, &[], progress)?;
    progress("with: the same job, rescaled and back");
    let with = once(params, &[to, from], progress)?;
    let mut figures = figures(params, &with, &without);
    figures.extend(machine_of(with.spent, with.rss_mb, noise));
    Ok(Report {
        bench: "rescale",
        parameters: fields!(
            params; from, to, rate, keys, warmup, duration, checkpoint_interval
        ),
        figures,
    })
}

/// Returns the number of records of a run.
fn records(params: &RescaleParams) -> u64 {
    let wanted = (params.warmup + params.duration).as_secs_f64() * params.rate as f64;
    wanted.ceil() as u64
}

/// Runs the job once, rescaled to each number of workers in `steps` in turn.
fn once(
    params: &RescaleParams,
    steps: &[NonZeroU32],
    progress: &mut dyn FnMut(&str),
) -> Result<Run> {
    let folder = tempfile::tempdir().map_err(|error| {
        let what = "cannot make a folder for checkpoints";
        ardea_core::Error::new(ardea_core::ErrorCode::WriteFailed, what).because(error)
    })?;
    let time = ardea_config::duration::format_duration;
    let settings = [
        format!("job.containers={}", params.from),
        "threads=1".into(),
        "guarantee=exactly-once".into(),
        format!("checkpoints.folder={}", folder.path().display()),
        format!("checkpoints.every={}", time(params.checkpoint_interval)),
    ];
    let ground = TestCluster::new(1, &settings)?;
    let gathering = WorkerConnections::in_folder(ground.folder())?;
    let most = params.from.max(params.to);
    let load = RescaleLoad {
        sources: params.from,
        counters: most.saturating_mul(2),
        rate: params.rate,
        records: records(params),
        keys: params.keys,
    };
    let load = Load::rescale(gathering.path().to_path_buf(), load);
    let submission = ground.submit("rescale", &load)?;
    let meanwhile = Stopwatch::begin();
    ground.wait_until_running(&submission.job, WITHIN)?;
    gathering.wait_for(params.from as usize, WITHIN)?;
    let start = monotonic_nanos();
    gathering.order(Order::Begin {
        start,
        from: start + params.warmup.as_nanos() as u64,
        until: u64::MAX,
    });
    progress("warming up");
    thread::sleep(params.warmup);
    let mut settled = Vec::new();
    for workers in steps {
        thread::sleep(params.duration / 3);
        progress(&format!("rescaling the job to {workers} workers"));
        let asked = Instant::now();
        ground.rescale(&submission.job, *workers)?;
        ground.wait_until_running(&submission.job, WITHIN)?;
        settled.push(asked.elapsed());
    }
    ground.wait_until_gone(&submission.job, params.duration + WITHIN)?;
    let wall = meanwhile.spent().wall;
    let workers = match steps.is_empty() {
        true => params.from,
        false => most,
    };
    let samples = final_reports(ground.folder(), workers as usize);
    let count = |name| samples.iter().map(|sample| sample.count(name)).sum::<u64>();
    let has_all = samples.len() >= workers as usize;
    let worked: u64 = samples.iter().map(|sample| sample.cpu_nanos).sum();
    Ok(Run {
        nanos: merged(&samples)?,
        seen: has_all.then(|| count("seen")),
        out_of_step: count("out_of_step"),
        settled,
        spent: Spent {
            wall,
            cpu: Duration::from_nanos(worked) + ground.host_cpu_time(),
        },
        rss_mb: samples.iter().map(|sample| sample.rss_mb).sum(),
    })
}

/// Reads the final reports of `workers` workers; fewer if the timeout expires.
fn final_reports(folder: &Path, workers: usize) -> Vec<Sample> {
    let deadline = Instant::now() + FINAL_REPORTS_TIMEOUT;
    loop {
        let samples = read_final_reports(folder);
        if samples.len() >= workers || Instant::now() >= deadline {
            return samples;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn figures(params: &RescaleParams, with: &Run, without: &Run) -> Vec<Field> {
    let most = |run: &Run| {
        let millis = run.nanos.max() as f64 / 1e6;
        (!run.nanos.is_empty()).then(|| rounded(millis, 1e3))
    };
    let tail = |run: &Run| {
        let millis = run.nanos.value_at_quantile(0.9999) as f64 / 1e6;
        (!run.nanos.is_empty()).then(|| rounded(millis, 1e3))
    };
    let slowest = with.settled.iter().max();
    let settle = slowest.map(|time| rounded(time.as_secs_f64() * 1e3, 1e1));
    let records = records(params);
    let lost = with.seen.map(|seen| records.saturating_sub(seen));
    let duplicated = with.seen.map(|seen| seen.saturating_sub(records));
    let mut figures: Vec<Field> = vec![
        ("duration_s", json!(seconds(with.spent.wall))),
        ("spike_ms", json!(most(with))),
        ("settle_ms", json!(settle)),
        // Rescaling restores from checkpoints, and does not measure the bytes moved.
        ("moved_bytes", Value::Null),
        ("lost", json!(lost)),
        ("duplicated", json!(duplicated)),
        ("out_of_step", json!(with.out_of_step)),
        ("without_max_ms", json!(most(without))),
        ("without_p9999_ms", json!(tail(without))),
    ];
    figures.extend(latency(&with.nanos, Unit::Millis));
    figures
}
