//! What is felt of it when a job that loses nothing is spread over other numbers of workers while records flow.

mod load;

use std::num::NonZeroU32;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::Result;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::bounds::{check_duration, check_rate, check_times, refused};
use crate::cluster::{Gathering, Ground, Load, Order, Sample, left_in, merged};
use crate::noise;
use crate::report::{Field, Report, Unit, latency, machine_of, rounded, seconds};
use crate::usage::{Meanwhile, Spent, monotonic_nanos};

pub(crate) use load::{RescaleLoad, job};

/// How long anything may take that is waited for.
const WITHIN: Duration = Duration::from_secs(60);

/// How long workers may take to say at the end what they have counted.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What `ardea bench rescale` can be asked for; the names are those of its flags.
#[derive(Clone, Debug)]
pub struct RescaleParams {
    /// How many workers the job has at first, and in the end.
    pub from: u32,
    /// How many it has in between.
    pub to: u32,
    /// Records a second.
    pub rate: u64,
    /// How many keys are counted.
    pub keys: u64,
    /// How long the job runs before anything counts.
    pub warmup: Duration,
    /// How long it runs then; it is rescaled after a third of that, and back after two.
    pub duration: Duration,
    /// How often an epoch ends.
    pub snapshot_interval: Duration,
}

impl Default for RescaleParams {
    fn default() -> Self {
        RescaleParams {
            from: 2,
            to: 3,
            rate: 500_000,
            keys: 10_000,
            warmup: Duration::from_secs(3),
            duration: Duration::from_secs(15),
            snapshot_interval: Duration::from_secs(1),
        }
    }
}

/// What came of one run of the job.
struct Run {
    nanos: Histogram<u64>,
    /// How many records were seen; unknown if a worker has not told at its end.
    seen: Option<u64>,
    out_of_step: u64,
    /// How long it took until the job was as it was to be, there and back.
    settled: Vec<Duration>,
    /// By all processes of the job and its cluster.
    spent: Spent,
    /// The sum of what each of the workers had resident at most.
    rss_mb: Option<f64>,
}

/// Runs the job twice: once it is rescaled and rescaled back, once it is left alone. `progress` is told what is going on.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the parameters make no sense; what keeps the cluster or the job
/// from running.
pub fn run(params: &RescaleParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let (Some(from), Some(to)) = (NonZeroU32::new(params.from), NonZeroU32::new(params.to)) else {
        return Err(
            refused("a job has one worker at least").hint("give --from and --to at least 1")
        );
    };
    if from == to {
        return Err(refused("nothing changes").hint("give --from and --to two numbers"));
    }
    if params.keys == 0 {
        return Err(refused("nothing is counted by no key").hint("give --keys at least 1"));
    }
    check_rate(params.rate, "records")?;
    check_duration(params.duration)?;
    check_times(&[
        ("--warmup", params.warmup),
        ("--duration", params.duration),
        ("--snapshot-interval", params.snapshot_interval),
    ])?;
    progress("listening to the machine's own noise");
    let noise = noise::listen(1, params.duration)?;
    progress("without: a job that is left alone");
    let without = once(params, &[], progress)?;
    progress("with: the same, rescaled and back");
    let with = once(params, &[to, from], progress)?;
    let mut figures = figures(params, &with, &without);
    figures.extend(machine_of(with.spent, with.rss_mb, noise));
    let time = ardea_config::duration::format_duration;
    Ok(Report {
        bench: "rescale",
        parameters: vec![
            ("from", json!(params.from)),
            ("to", json!(params.to)),
            ("rate", json!(params.rate)),
            ("keys", json!(params.keys)),
            ("warmup", json!(time(params.warmup))),
            ("duration", json!(time(params.duration))),
            ("snapshot_interval", json!(time(params.snapshot_interval))),
        ],
        figures,
    })
}

/// How many records there are.
fn records(params: &RescaleParams) -> u64 {
    let wanted = (params.warmup + params.duration).as_secs_f64() * params.rate as f64;
    wanted.ceil() as u64
}

/// One run, in which the job is spread over these numbers of workers, one after the other.
fn once(
    params: &RescaleParams,
    steps: &[NonZeroU32],
    progress: &mut dyn FnMut(&str),
) -> Result<Run> {
    let folder = tempfile::tempdir().map_err(|error| {
        let what = "cannot make a folder for snapshots";
        ardea_core::Error::new(ardea_core::ErrorCode::WriteFailed, what).because(error)
    })?;
    let time = ardea_config::duration::format_duration;
    let settings = [
        format!("job.containers={}", params.from),
        "threads=1".into(),
        "guarantee=exactly-once".into(),
        format!("snapshots.folder={}", folder.path().display()),
        format!("snapshots.every={}", time(params.snapshot_interval)),
    ];
    let ground = Ground::new(1, &settings)?;
    let gathering = Gathering::in_folder(ground.folder())?;
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
    let meanwhile = Meanwhile::begin();
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
        progress(&format!("spreading the job over {workers} workers"));
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
    let samples = last_words(ground.folder(), workers as usize);
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

/// What so many workers have left at their ends, as far as it comes.
fn last_words(folder: &Path, workers: usize) -> Vec<Sample> {
    let deadline = Instant::now() + LAST_WORDS;
    loop {
        let samples = left_in(folder);
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
        // State goes by way of snapshots, of which not only what moves is read.
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
