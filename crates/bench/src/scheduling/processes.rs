//! The job on a cluster of this machine: workers, their checkpoints and their leader are real.

use std::time::Duration;

use ardea_config::duration::format_duration;
use ardea_core::{Guarantee, Result};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::job::{BatchLoad, BatchRate};
use super::params::SchedulingParams;
use super::{notices_per_batch, per};
use crate::cluster::{DistributedRun, Kind, Load, hosts_for, job_settings, merged};
use crate::noise;
use crate::report::{Field, Report, machine_of, rounded, seconds};

/// The interval of checkpoints of a job that waits for them: the least that can be set.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// The messages of a checkpoint for each worker: the request, the acknowledgement, the commit and
/// its confirmation.
const MESSAGES_PER_CHECKPOINT: u64 = 4;

/// Returns the settings of a job with groups of this size.
pub(super) fn settings(params: &SchedulingParams, pace: BatchRate) -> Vec<String> {
    let every = match pace {
        BatchRate::PerCheckpoint(_) => SHORTEST_INTERVAL,
        BatchRate::Every(length) => length * params.group,
    };
    let folder = params.checkpoint_folder.as_deref();
    let size = (params.workers(), 1);
    let mut settings = job_settings(size, Guarantee::ExactlyOnce, every, folder);
    settings.push("mode=micro-batch".into());
    settings.extend(match pace {
        BatchRate::PerCheckpoint(_) => vec![
            "micro_batch.epoch=60s".to_string(),
            "micro_batch.records=1".to_string(),
        ],
        BatchRate::Every(length) => vec![format!("micro_batch.epoch={}", format_duration(length))],
    });
    settings
}

/// Returns the number of hosts.
pub(super) fn hosts(params: &SchedulingParams) -> usize {
    let folder = params.checkpoint_folder.as_deref();
    hosts_for(Guarantee::ExactlyOnce, folder)
}

pub(super) fn load(params: &SchedulingParams, pace: BatchRate) -> BatchLoad {
    BatchLoad {
        sources: params.workers() * params.slots,
        has_reducers: params.stages > 1,
        pace,
    }
}

pub(super) fn run(params: &SchedulingParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(params.workers(), params.duration)?;
    progress("starting a cluster");
    let pace = match params.micro_batch.first() {
        Some(length) => BatchRate::Every(*length),
        None => BatchRate::PerCheckpoint(params.group),
    };
    let size = (hosts(params), params.workers());
    let job = load(params, pace);
    let run = DistributedRun::start("scheduling", size, &settings(params, pace), |socket| {
        Load::new(socket, Kind::MicroBatches(job))
    })?;
    let plan = run.begin(params.warmup, params.duration, progress);
    let (measured, commits) = run.measure_with_epochs(&plan)?;
    let last = run.settle(0)?;
    run.end_job()?;
    let (batches, checkpoints) = (measured.count("results"), commits.committed());
    let (spent, hosts_cpu) = (measured.spent(), measured.hosts_cpu());
    let latency = merged(&last)?;
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let messages = checkpoints * MESSAGES_PER_CHECKPOINT * u64::from(params.workers());
    let all_cpu = (hosts_cpu + spent.cpu).as_secs_f64();
    let mut figures: Vec<Field> = vec![
        ("duration_s", json!(seconds(spent.wall))),
        ("batches", json!(batches)),
        (
            "batches_per_s",
            per(batches as f64, spent.wall.as_secs_f64()),
        ),
        ("checkpoints_taken", json!(checkpoints)),
        (
            "batches_per_checkpoint",
            per(batches as f64, checkpoints as f64),
        ),
        (
            "coordination_ms_per_batch",
            per(millis(hosts_cpu), batches as f64),
        ),
        ("coordination_share", per(hosts_cpu.as_secs_f64(), all_cpu)),
        (
            "worker_ms_per_batch",
            per(millis(spent.cpu), batches as f64),
        ),
        ("batch_ms_p50", quantile_ms(&latency, 0.5)),
        ("batch_ms_p95", quantile_ms(&latency, 0.95)),
        ("messages_per_batch", per(messages as f64, batches as f64)),
        ("notices_per_batch", json!(notices_per_batch(params))),
    ];
    figures.extend(
        commits
            .figures()
            .into_iter()
            .filter(|(name, _)| *name != "checkpoints"),
    );
    let peaks: Option<Vec<f64>> = last.iter().map(|sample| sample.rss_mb).collect();
    let rss_mb = peaks.map(|peaks| rounded(peaks.iter().sum(), 10.0));
    figures.extend(machine_of(spent, rss_mb, noise));
    Ok(Report {
        bench: "scheduling",
        parameters: params.fields(),
        figures,
    })
}

/// Returns a quantile of the time of a micro-batch, in milliseconds.
pub(super) fn quantile_ms(nanos: &Histogram<u64>, q: f64) -> Value {
    match nanos.is_empty() {
        true => Value::Null,
        false => json!(rounded(nanos.value_at_quantile(q) as f64 / 1e6, 1e4)),
    }
}
