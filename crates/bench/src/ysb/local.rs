//! A run in this process, in either execution mode.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Timestamp};
use ardea_engine::{MicroBatchConfig, Node, NodeConfig};
use serde_json::{Value, json};

use super::params::YsbParams;
use super::run::{latencies, outcome, verdict};
use crate::cluster::{ControlledLoad, Order, Sample};
use crate::long_running::commits::{self, Commits, Epochs};
use crate::long_running::span::Plan;
use crate::noise;
use crate::report::{Field, Report, machine, seconds};
use crate::running::Running;
use crate::usage::{Stopwatch, reset_peak};

#[cfg(all(feature = "kafka", feature = "redis"))]
use super::servers::KafkaFeed;

/// Delay from the start signal until the first event is due.
const LEAD: Duration = Duration::from_millis(100);

/// Poll interval of the job and its committed epochs; shorter than an epoch.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Runs the benchmark with valid parameters; `progress` receives status texts.
///
/// # Errors
/// Errors of the job.
pub(super) fn run(params: &YsbParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    reset_peak();
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(params.threads, params.duration)?;
    let folder = tempfile::tempdir().map_err(no_folder)?;
    let load = params.load(folder.path().join("out"));
    fs::create_dir(&load.out).map_err(no_folder)?;
    let (pipeline, watch) = load.pipeline()?;
    let node = Arc::new(Node::start(NodeConfig {
        mode: params.mode,
        micro_batch: MicroBatchConfig {
            epoch: params.epoch,
            ..MicroBatchConfig::default()
        },
        ..NodeConfig::with_threads(params.threads)
    })?);
    #[cfg(all(feature = "kafka", feature = "redis"))]
    let generator = match &load.kafka {
        Some(topic) => Some(KafkaFeed::start(&load, topic)?),
        None => None,
    };
    let job = Running::start(&node, pipeline, params.survival())?;
    let plan = Plan::after(node.clock().wall(), LEAD, params.warmup, params.duration);
    watch.handle_order(plan.order());
    #[cfg(all(feature = "kafka", feature = "redis"))]
    if let Some(generator) = &generator {
        generator.begin(&plan);
    }
    progress("warming up");
    let epochs = || job.figures().as_ref().map_or(Epochs::default(), Epochs::of);
    let wait_until = |until: Timestamp, commits: &mut Commits| {
        // A job that has ended has failed, which `join` reports.
        while node.clock().wall() < until && !job.is_over() {
            thread::sleep(POLL_INTERVAL.min(until.since(node.clock().wall())));
            commits.update(epochs());
        }
    };
    wait_until(plan.from, &mut Commits::since(epochs()));
    progress("measuring");
    let (meanwhile, mut commits) = (Stopwatch::begin(), Commits::since(epochs()));
    wait_until(plan.until, &mut commits);
    let spent = meanwhile.spent();
    progress("waiting for all results");
    #[cfg(all(feature = "kafka", feature = "redis"))]
    if let Some(generator) = generator {
        generator.finish(&watch, &job)?;
        job.drain();
    }
    // The sources end when they have emitted all that was due.
    watch.handle_order(Order::Over);
    job.join()?;
    drop(node);
    let last = [Sample {
        numbers: watch.numbers(),
        latencies: watch.latencies(),
        ..Sample::default()
    }];
    let verdict = verdict(&load, &load.out, plan.start)?;
    let mut figures: Vec<Field> = vec![("duration_s", json!(seconds(params.duration)))];
    figures.extend(latencies(params, &last, &plan, None)?);
    figures.extend(outcome(None, Some(verdict)));
    figures.push(("host_cpu_seconds", Value::Null));
    figures.extend(match params.guarantee.keeps_state() {
        true => commits.figures(),
        false => commits::none(),
    });
    figures.extend(machine(spent, noise));
    Ok(Report {
        bench: "ysb",
        parameters: params.fields(),
        figures,
    })
}

fn no_folder(error: std::io::Error) -> Error {
    Error::new(
        ErrorCode::WriteFailed,
        "cannot create a folder for the results in the temporary folder",
    )
    .because(error)
    .hint("set TMPDIR to a folder that can be written")
}

#[cfg(test)]
mod tests {
    use ardea_core::Guarantee;
    use ardea_engine::ExecutionMode;

    use super::*;
    use crate::ysb::{YsbCombine, YsbInput};

    /// Runs for a moment, and checks that no view is lost or duplicated.
    fn check(change: impl FnOnce(&mut YsbParams)) -> Report {
        let mut params = YsbParams {
            rate: 20_000,
            campaigns: 10,
            window: Duration::from_millis(100),
            workers: 1,
            threads: 2,
            duration: Duration::from_millis(700),
            warmup: Duration::from_millis(100),
            checkpoint_interval: Duration::from_millis(50),
            ..YsbParams::default()
        };
        change(&mut params);
        let report = crate::ysb::run(&params, &mut |_| {}).unwrap();
        assert_eq!(report.figure("lost"), &json!(0), "{report:?}");
        assert_eq!(report.figure("duplicated"), &json!(0), "{report:?}");
        assert_eq!(report.figure("windows"), &json!(7), "{report:?}");
        assert_eq!(report.figure("latencies"), &json!(70), "{report:?}");
        report
    }

    #[test]
    fn views_are_counted_in_both_modes_combined_before_the_exchange_or_after() {
        for mode in [ExecutionMode::Continuous, ExecutionMode::MicroBatch] {
            for combine in [YsbCombine::On, YsbCombine::Off] {
                let report = check(|params| (params.mode, params.combine) = (mode, combine));
                let json = report.to_json();
                assert_eq!(json["mode"], mode.name());
                assert_eq!(json["combine"], combine.as_str());
                assert_eq!(json["input"], "json");
            }
        }
    }

    #[test]
    fn rows_are_counted_as_well_and_with_a_guarantee_their_distribution_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("latencies.csv");
        for mode in [ExecutionMode::Continuous, ExecutionMode::MicroBatch] {
            let report = check(|params| {
                params.input = YsbInput::Rows;
                params.guarantee = Guarantee::ExactlyOnce;
                params.mode = mode;
                params.cdf = Some(path.clone());
            });
            assert!(
                report.figure("checkpoints").as_u64() > Some(0),
                "{report:?}"
            );
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.trim_end().ends_with(",1.000000"), "{text}");
            fs::remove_file(&path).unwrap();
        }
    }
}
