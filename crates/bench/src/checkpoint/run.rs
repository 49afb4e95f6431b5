//! A run: the state is filled, a first checkpoint stores all of it, and then records change a small
//! part of it continuously.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Delivery, Error, ErrorCode, Parallelism, Result, Sink, supplier};
use ardea_engine::{Node, NodeConfig};
use ardea_pipeline::Pipeline;
use serde_json::json;

use super::CheckpointParams;
use crate::cluster::{ControlledLoad, Order};
use crate::long_running::accounts::{Accounts, Receipt};
use crate::long_running::commits::{self, Commits, Epochs, wait_for_full_checkpoint};
use crate::long_running::span::Plan;
use crate::long_running::watch::{ObserverP, ResultObserver, Timed};
use crate::noise;
use crate::report::{Field, Report, Unit, latency, machine, rounded, seconds, throughput};
use crate::running::Running;
use crate::usage::{Spent, Stopwatch, reset_peak};

/// Delay from the start signal until the first record is due.
const LEAD: Duration = Duration::from_millis(100);

/// Poll interval of committed epochs; shorter than an epoch.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Timeout for filling the state.
const FILLED_WITHIN: Duration = Duration::from_secs(1_800);

/// Runs the benchmark; `progress` receives status texts.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters are invalid; the job's own failure.
pub fn run(params: &CheckpointParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    reset_peak();
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(params.threads, params.duration)?;
    let node = Arc::new(Node::start(NodeConfig {
        spin: params.spin,
        ..NodeConfig::with_threads(params.threads)
    })?);
    let watch = ResultObserver::new(false)?;
    let job = Running::start(&node, pipeline(params, &watch), params.survival())?;
    let seen = look_on(params, (&node, &watch), &job, progress);
    watch.handle_order(Order::Over);
    // The job's own failure is reported first.
    job.join()?;
    let Sample {
        filled,
        whole,
        commits,
        events,
        spent,
    } = seen?;
    drop(node);
    let mut figures = throughput(events, spent);
    figures.extend(latency(&watch.latency(), Unit::Millis));
    figures.extend(machine(spent, noise));
    figures.extend(match whole {
        Some(_) => commits.figures(),
        None => commits::none(),
    });
    figures.extend(beginning(filled, whole));
    Ok(Report {
        bench: "checkpoint",
        parameters: params.fields(),
        figures,
    })
}

/// The measurements of a running job.
struct Sample {
    /// The time for filling the state.
    filled: Duration,
    /// The first checkpoint of the whole state, if the job has checkpoints.
    whole: Option<Epochs>,
    /// The commits of the measured time, and the number of events in it.
    commits: Commits,
    events: u64,
    spent: Spent,
}

fn look_on(
    params: &CheckpointParams,
    (node, watch): (&Node, &ResultObserver),
    job: &Running,
    progress: &mut dyn FnMut(&str),
) -> Result<Sample> {
    progress("filling the state");
    let begun = Instant::now();
    wait_until_filled(params, watch, job)?;
    let filled = begun.elapsed();
    let whole = match params.guarantee.keeps_state() {
        true => {
            progress("waiting for a full checkpoint");
            Some(wait_for_full_checkpoint(|| poll_epochs(job))?)
        }
        false => None,
    };
    let plan = Plan::after(node.clock().wall(), LEAD, params.warmup, params.duration);
    watch.handle_order(plan.order());
    progress("warming up");
    thread::sleep(plan.from.since(node.clock().wall()));
    progress("measuring");
    let emitted = || watch.load.emitted.load(Ordering::Relaxed);
    let (meanwhile, before) = (Stopwatch::begin(), emitted());
    let mut commits = Commits::since(poll_epochs(job)?);
    while node.clock().wall() < plan.until {
        thread::sleep(POLL_INTERVAL);
        commits.update(poll_epochs(job)?);
    }
    Ok(Sample {
        filled,
        whole,
        commits,
        spent: meanwhile.spent(),
        events: emitted() - before,
    })
}

fn pipeline(params: &CheckpointParams, watch: &Arc<ResultObserver>) -> Pipeline {
    let accounts = Accounts {
        accounts: params.keys,
        rate: params.rate(),
        long: params.warmup + params.duration,
        instances: params.threads,
    };
    let p = Pipeline::new("accounts");
    let sees = Arc::clone(watch);
    let make = supplier(move || ObserverP::<Receipt>::new(Arc::clone(&sees), Timed::Records));
    let sink = Sink::new("meter", make).with_delivery(Delivery::Nothing);
    let receipts = accounts.receipts(&p, watch);
    receipts.write_to(sink.parallelism(Parallelism::ONE));
    p
}

/// Returns the job's epochs.
///
/// # Errors
/// [`ErrorCode::WrongState`] if the job has ended.
fn poll_epochs(job: &Running) -> Result<Epochs> {
    if job.is_over() {
        return Err(over());
    }
    Ok(job.figures().as_ref().map_or(Epochs::default(), Epochs::of))
}

fn over() -> Error {
    let what = "the job ended before it could be measured";
    Error::new(ErrorCode::WrongState, what).hint("run it again with less state (--keys)")
}

fn wait_until_filled(
    params: &CheckpointParams,
    watch: &ResultObserver,
    job: &Running,
) -> Result<()> {
    let deadline = Instant::now() + FILLED_WITHIN;
    while watch.filled.load(Ordering::Relaxed) < params.keys {
        if job.is_over() {
            return Err(over());
        }
        if Instant::now() >= deadline {
            let what = format!("filling the state with {} keys timed out", params.keys);
            return Err(Error::new(ErrorCode::LimitReached, what).hint("give fewer (--keys)"));
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Returns the figures of filling the state and of the first full checkpoint.
fn beginning(filled: Duration, whole: Option<Epochs>) -> Vec<Field> {
    let took_ms = whole.and_then(|whole| whole.took_ms);
    vec![
        ("fill_s", json!(seconds(filled))),
        (
            "first_checkpoints_bytes",
            json!(whole.map(|whole| whole.bytes)),
        ),
        (
            "first_checkpoint_ms",
            json!(took_ms.map(|took| rounded(took, 1e3))),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use ardea_core::Guarantee;

    use super::*;

    #[test]
    fn checkpoints_of_a_little_change_are_measured_beside_records() {
        for guarantee in [Guarantee::ExactlyOnce, Guarantee::None] {
            let params = CheckpointParams {
                keys: 2_000,
                changed: 10.0,
                checkpoint_interval: Duration::from_millis(50),
                duration: Duration::from_millis(500),
                warmup: Duration::from_millis(50),
                guarantee,
                ..CheckpointParams::default()
            };
            let report = run(&params, &mut |_| {}).unwrap();
            assert_eq!(report.figure("latencies"), &json!(2_000), "{report:?}");
            assert!(report.figure("p9999_ms").is_number());
            let keeps = guarantee.keeps_state();
            assert_eq!(report.figure("checkpoints").is_number(), keeps);
            if keeps {
                assert!(
                    report.figure("checkpoints").as_u64() > Some(0),
                    "{report:?}"
                );
                assert!(report.figure("checkpoint_max_ms").is_number(), "{report:?}");
                assert!(report.figure("first_checkpoints_bytes").as_u64() > Some(100_000));
            }
        }
    }
}
