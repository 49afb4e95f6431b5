//! The effects of the group size on a job of processes: the time of micro-batches, recovery from a
//! killed worker, and reaction to a new one.

use std::time::Duration;

use ardea_core::Result;
use serde_json::json;

use super::job::BatchRate;
use super::params::SchedulingParams;
use super::processes::{hosts, load, quantile_ms, settings};
use crate::cluster::{Kind, Load, merged};
use crate::long_running::fixture::{Fixture, Victim};
use crate::report::{Report, fields, rounded};

/// The length of micro-batches by default.
const MICRO_BATCH: Duration = Duration::from_millis(10);

/// The groups that are measured before a worker is killed.
const GROUPS_BEFORE: f64 = 1.5;

/// Measures one group size.
pub(super) fn report(
    params: &SchedulingParams,
    size: u32,
    progress: &mut dyn FnMut(&str),
) -> Result<Report> {
    let length = params.micro_batch.first().copied().unwrap_or(MICRO_BATCH);
    let params = SchedulingParams {
        group: size,
        workers: Some(params.workers().max(2)),
        ..params.clone()
    };
    let params = &params;
    let pace = BatchRate::Every(length);
    let workers = params.workers();
    let processes = (hosts(params), workers);
    let job = load(params, pace);
    let mut fixture = Fixture::start("scheduling", processes, &settings(params, pace), |socket| {
        Load::new(socket, Kind::MicroBatches(job))
    })?;
    progress(&format!("groups of {size} micro-batches: measuring"));
    let group = (length * size).mul_f64(GROUPS_BEFORE);
    let plan = fixture.begin(params.warmup, params.duration.max(group));
    fixture.poll_until(plan.until);
    progress(&format!(
        "groups of {size} micro-batches: a worker is added"
    ));
    let joined = fixture.rescale(workers.saturating_add(1))?;
    let commits = fixture.commits().committed();
    progress(&format!(
        "groups of {size} micro-batches: a worker is killed"
    ));
    let killed = fixture.kill(Victim::Worker)?;
    let recovered = fixture.wait_until_recovered(&killed, Victim::Worker);
    // The sources emit until then.
    let (last, _) = fixture.end(Duration::ZERO);
    let latency = merged(&last)?;
    let sum = |name: &str| last.iter().map(|sample| sample.count(name)).sum::<u64>();
    let most = |name: &str| last.iter().map(|sample| sample.count(name)).max();
    let millis = |time: Duration| rounded(time.as_secs_f64() * 1e3, 10.0);
    Ok(Report {
        bench: "scheduling",
        parameters: fields!(params; group, micro_batch = length, workers = workers, slots, stages),
        figures: vec![
            ("batch_ms_p50", quantile_ms(&latency, 0.5)),
            ("batch_ms_p95", quantile_ms(&latency, 0.95)),
            ("recovery_ms", json!(recovered.map(millis))),
            (
                "gap_ms",
                json!(most("longest_pause").map(|nanos| rounded(nanos as f64 / 1e6, 10.0))),
            ),
            ("checkpoints_taken", json!(commits)),
            (
                "repeated_batches",
                json!(sum("repeated") / u64::from(job.sources.max(1))),
            ),
            ("reaction_ms", json!(millis(joined))),
        ],
    })
}
