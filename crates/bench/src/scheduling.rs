//! Cost of the coordination of micro-batches, and micro-batches a second.
//!
//! Micro-batches need no message of the leader: their ends follow the records. The leader
//! coordinates checkpoints, so a group is the micro-batches between two of them. The job has a
//! source with one record per micro-batch, and a sink. It runs on a cluster of this machine, or
//! with `--simulated` the real coordinator coordinates workers without records in virtual time.
//!
//! Two series compare group sizes: traces of the tuned interval in virtual time, and the effects of
//! the size on processes.

mod drawing;
mod group_sizes;
mod job;
mod params;
mod processes;
mod simulated;
mod tuning;

pub(crate) use job::BatchLoad;
pub use params::SchedulingParams;

use ardea_config::duration::format_duration;
use ardea_core::Result;
use serde_json::{Value, json};

use crate::bounds::refused;
use crate::report::{Report, rounded};
use crate::usage::reset_peak;

use params::REDUCERS;

/// Runs the benchmark; `progress` receives status texts.
///
/// # Errors
/// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the parameters are invalid; errors of
/// the cluster or the job.
pub fn run(params: &SchedulingParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    if params.is_series() {
        let what = "--tune and --groups have several results";
        return Err(refused(what).hint("call run_series"));
    }
    reset_peak();
    match params.simulated {
        true => simulated::run(params, progress),
        false => processes::run(params, progress),
    }
}

/// Runs a series: a report for each group of the traces of `--tune`, or for each size of
/// `--groups`. Each is passed to `report` when it is complete.
///
/// # Errors
/// As [`run`]; [`WriteFailed`](ardea_core::ErrorCode::WriteFailed) if the chart of `--draw` cannot
/// be written; the failure of `report`.
pub fn run_series(
    params: &SchedulingParams,
    progress: &mut dyn FnMut(&str),
    report: &mut dyn FnMut(Report) -> Result<()>,
) -> Result<()> {
    params.check()?;
    if !params.tune {
        return params
            .groups
            .iter()
            .try_for_each(|size| report(group_sizes::report(params, *size, progress)?));
    }
    let mut traces = Vec::new();
    for length in &params.traced_lengths() {
        progress(&format!(
            "tuning for micro-batches of {}",
            format_duration(*length)
        ));
        let trace = tuning::trace(params, *length)?;
        trace
            .reports(params)
            .into_iter()
            .try_for_each(&mut *report)?;
        traces.push(trace);
    }
    match &params.draw {
        Some(path) => drawing::chart(&traces).write(path),
        None => Ok(()),
    }
}

/// Returns the notices for each micro-batch: an end of the micro-batch on each edge from one worker
/// to another. Instances are dealt to the workers in turn, and the sink is on one of them.
fn notices_per_batch(params: &SchedulingParams) -> u64 {
    let others = u64::from(params.workers().saturating_sub(1));
    if params.stages == 1 {
        return others;
    }
    let reducing = u64::from(params.workers().min(REDUCERS));
    reducing * others + reducing.saturating_sub(1)
}

/// Returns `amount` for each of `count`; null if there are none.
fn per(amount: f64, count: f64) -> Value {
    match count > 0.0 {
        true => json!(rounded(amount / count, 1e6)),
        false => Value::Null,
    }
}
