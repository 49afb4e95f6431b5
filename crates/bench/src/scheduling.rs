//! Scheduling of micro-batches without records: cost of coordination, and micro-batches a second.
//!
//! The leader is the real scheduler with its encoding; serialising and launching have threads of
//! their own. Its workers are processes that run empty tasks, or with `--simulated` a thread that
//! acts as all of them. Two series of measurements run in virtual time: traces of tuned groups, and
//! the effects of the group size.

mod drawing;
mod group_sizes;
mod leader;
mod params;
mod processes;
mod simulated;
mod tuning;
mod virtual_cluster;

pub use params::{SchedulingMode, SchedulingParams};
pub use processes::run_worker;

use ardea_config::duration::format_duration;
use ardea_core::{Error, ErrorCode, Result};
use serde_json::{Value, json};

use crate::bounds::refused;
use crate::noise;
use crate::report::{Field, Report, machine_of, rounded, seconds};
use crate::usage::{peak_resident_mb, reset_peak};

use leader::LeaderFigures;

/// Runs the benchmark; `progress` receives status texts.
///
/// # Errors
/// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the parameters are invalid;
/// [`StartFailed`](ardea_core::ErrorCode::StartFailed) if a worker cannot be started;
/// [`PeerLost`](ardea_core::ErrorCode::PeerLost) if one ends early.
pub fn run(params: &SchedulingParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    if params.is_series() {
        let what = "--tune and --groups have several results";
        return Err(refused(what).hint("call run_series"));
    }
    reset_peak();
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(2, noise::LONG_ENOUGH)?;
    let outcome = match params.simulated {
        true => {
            progress("scheduling for simulated workers");
            simulated::run(params)?
        }
        false => {
            progress("scheduling for processes");
            processes::run(params)?
        }
    };
    let mut figures = outcome.figures;
    figures.extend(machine_of(outcome.spent, peak_resident_mb(), noise));
    Ok(Report {
        bench: "scheduling",
        parameters: params.fields(),
        figures,
    })
}

/// Runs a series: a report for each group of the traces of `--tune`, or for each size of
/// `--groups`. Each is passed to `report` when it is complete.
///
/// # Errors
/// As [`run`]; [`WriteFailed`](ErrorCode::WriteFailed) if the chart of `--draw` cannot be written;
/// the failure of `report`.
pub fn run_series(
    params: &SchedulingParams,
    progress: &mut dyn FnMut(&str),
    report: &mut dyn FnMut(Report) -> Result<()>,
) -> Result<()> {
    params.check()?;
    if !params.tune {
        return params.groups.iter().try_for_each(|size| {
            progress(&format!("groups of {size} micro-batches"));
            report(group_sizes::report(params, *size)?)
        });
    }
    let mut traces = Vec::new();
    for length in &params.micro_batch {
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
    let Some(path) = &params.draw else {
        return Ok(());
    };
    std::fs::write(path, drawing::draw(&traces)).map_err(|error| {
        let what = format!("cannot write the chart {}", path.display());
        Error::new(ErrorCode::WriteFailed, what).because(error)
    })
}

/// The measurements of a run, and the resources used by all processes.
struct Outcome {
    figures: Vec<Field>,
    spent: crate::usage::Spent,
}

/// Returns a quantile of the time of a micro-batch, in milliseconds.
fn quantile_ms(led: &LeaderFigures, q: f64) -> Value {
    match led.batch_nanos.is_empty() {
        true => Value::Null,
        false => json!(rounded(
            led.batch_nanos.value_at_quantile(q) as f64 / 1e6,
            1e4
        )),
    }
}

/// Returns the figures of a leader. `has_batch_times` is false if the times of batches are those of
/// the simulation.
fn figures(led: &LeaderFigures, has_batch_times: bool) -> Vec<Field> {
    let batches = led.batches.max(1) as f64;
    let quantile = |q: f64| match has_batch_times {
        true => quantile_ms(led, q),
        false => Value::Null,
    };
    let cpu = led.cpu();
    let share = |part: std::time::Duration| {
        (!cpu.is_zero()).then(|| rounded(part.as_secs_f64() / cpu.as_secs_f64(), 1e2))
    };
    let rate = has_batch_times.then(|| (batches / led.wall.as_secs_f64()).round());
    let per_batch = |count: u64| rounded(count as f64 / batches, 1e4);
    vec![
        ("duration_s", json!(seconds(led.wall))),
        ("batches", json!(led.batches)),
        ("batches_per_s", json!(rate)),
        (
            "coordination_ms_per_batch",
            json!(rounded(cpu.as_secs_f64() * 1e3 / batches, 1e6)),
        ),
        ("batch_ms_p50", quantile(0.5)),
        ("batch_ms_p95", quantile(0.95)),
        (
            "messages_per_batch",
            json!(per_batch(led.sent + led.received)),
        ),
        (
            "bytes_per_message",
            json!(rounded(led.bytes_per_message, 10.0)),
        ),
        ("scheduling_share", json!(share(led.scheduling))),
        ("serialising_share", json!(share(led.serialising))),
        ("launching_share", json!(share(led.launching))),
    ]
}
