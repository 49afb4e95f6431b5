//! A run: the state is filled, a first snapshot holds all of it, and then records change a little of it all the while.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Delivery, Error, ErrorCode, Parallelism, Result, Sink, supplier};
use ardea_engine::{Node, NodeConfig};
use ardea_pipeline::Pipeline;
use serde_json::json;

use super::SnapshotParams;
use crate::cluster::{Attended, Order};
use crate::lasting::accounts::{Accounts, Receipt};
use crate::lasting::commits::{self, Commits, Epochs, wait_for_whole};
use crate::lasting::span::Plan;
use crate::lasting::watch::{Timed, Watch, WatchP};
use crate::noise;
use crate::report::{Field, Report, Unit, latency, machine, rounded, seconds, throughput};
use crate::running::Running;
use crate::usage::{Meanwhile, Spent, forget_peak};

/// Time from the word to begin until the first record is due.
const LEAD: Duration = Duration::from_millis(100);

/// How often it is looked what has been committed: more often than epochs end.
const LOOK: Duration = Duration::from_millis(10);

/// How long filling may take.
const FILLED_WITHIN: Duration = Duration::from_secs(1_800);

/// Runs the benchmark; `progress` is told what is going on.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`] if the parameters make no sense; the job's own failure.
pub fn run(params: &SnapshotParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    forget_peak();
    progress("listening to the machine's own noise");
    let noise = noise::listen(params.threads, params.duration)?;
    let node = Arc::new(Node::start(NodeConfig {
        spin: params.spin,
        ..NodeConfig::with_threads(params.threads)
    })?);
    let watch = Watch::new(false)?;
    let job = Running::start(&node, pipeline(params, &watch), params.survival())?;
    let seen = look_on(params, (&node, &watch), &job, progress);
    watch.obey(Order::Over);
    // Why a job has come to its end says more than that it has.
    job.join()?;
    let Seen {
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
        bench: "snapshot",
        parameters: params.fields(),
        figures,
    })
}

/// What is seen of a job that runs.
struct Seen {
    /// How long filling took.
    filled: Duration,
    /// The first snapshot that held everything, if the job makes any.
    whole: Option<Epochs>,
    /// Those of the measured time, in which there were so many events.
    commits: Commits,
    events: u64,
    spent: Spent,
}

fn look_on(
    params: &SnapshotParams,
    (node, watch): (&Node, &Watch),
    job: &Running,
    progress: &mut dyn FnMut(&str),
) -> Result<Seen> {
    progress("filling the state");
    let begun = Instant::now();
    wait_until_filled(params, watch, job)?;
    let filled = begun.elapsed();
    let whole = match params.guarantee.keeps_state() {
        true => {
            progress("waiting for a snapshot of everything");
            Some(wait_for_whole(|| look(job))?)
        }
        false => None,
    };
    let plan = Plan::after(node.clock().wall(), LEAD, params.warmup, params.duration);
    watch.obey(plan.order());
    progress("warming up");
    thread::sleep(plan.from.since(node.clock().wall()));
    progress("measuring");
    let emitted = || watch.load.emitted.load(Ordering::Relaxed);
    let (meanwhile, before) = (Meanwhile::begin(), emitted());
    let mut commits = Commits::since(look(job)?);
    while node.clock().wall() < plan.until {
        thread::sleep(LOOK);
        commits.look(look(job)?);
    }
    Ok(Seen {
        filled,
        whole,
        commits,
        spent: meanwhile.spent(),
        events: emitted() - before,
    })
}

fn pipeline(params: &SnapshotParams, watch: &Arc<Watch>) -> Pipeline {
    let accounts = Accounts {
        accounts: params.keys,
        rate: params.rate(),
        long: params.warmup + params.duration,
        instances: params.threads,
    };
    let p = Pipeline::new("accounts");
    let sees = Arc::clone(watch);
    let make = supplier(move || WatchP::<Receipt>::new(Arc::clone(&sees), Timed::Records));
    let sink = Sink::new("meter", make).delivering(Delivery::Nothing);
    let receipts = accounts.receipts(&p, watch);
    receipts.write_to(sink.parallelism(Parallelism::ONE));
    p
}

/// What is known of the job's epochs.
fn look(job: &Running) -> Result<Epochs> {
    if job.is_over() {
        return Err(over());
    }
    Ok(job.figures().as_ref().map_or(Epochs::default(), Epochs::of))
}

fn over() -> Error {
    let what = "the job has come to its end before it could be measured";
    Error::new(ErrorCode::WrongState, what).hint("run it again with less state (--keys)")
}

fn wait_until_filled(params: &SnapshotParams, watch: &Watch, job: &Running) -> Result<()> {
    let deadline = Instant::now() + FILLED_WITHIN;
    while watch.filled.load(Ordering::Relaxed) < params.keys {
        if job.is_over() {
            return Err(over());
        }
        if Instant::now() >= deadline {
            let what = format!("{} keys are too many to be filled in", params.keys);
            return Err(Error::new(ErrorCode::LimitReached, what).hint("give fewer (--keys)"));
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// What it took to have the state, and all of it in a snapshot.
fn beginning(filled: Duration, whole: Option<Epochs>) -> Vec<Field> {
    let took_ms = whole.and_then(|whole| whole.took_ms);
    vec![
        ("fill_s", json!(seconds(filled))),
        (
            "first_snapshots_bytes",
            json!(whole.map(|whole| whole.bytes)),
        ),
        (
            "first_snapshot_ms",
            json!(took_ms.map(|took| rounded(took, 1e3))),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use ardea_core::Guarantee;

    use super::*;

    #[test]
    fn snapshots_of_a_little_change_are_measured_beside_records() {
        for guarantee in [Guarantee::ExactlyOnce, Guarantee::None] {
            let params = SnapshotParams {
                keys: 2_000,
                changed: 10.0,
                snapshot_interval: Duration::from_millis(50),
                duration: Duration::from_millis(500),
                warmup: Duration::from_millis(50),
                guarantee,
                ..SnapshotParams::default()
            };
            let report = run(&params, &mut |_| {}).unwrap();
            assert_eq!(report.figure("latencies"), &json!(2_000), "{report:?}");
            assert!(report.figure("p9999_ms").is_number());
            let keeps = guarantee.keeps_state();
            assert_eq!(report.figure("snapshots").is_number(), keeps);
            if keeps {
                assert!(report.figure("snapshots").as_u64() > Some(0), "{report:?}");
                assert!(report.figure("snapshot_max_ms").is_number(), "{report:?}");
                assert!(report.figure("first_snapshots_bytes").as_u64() > Some(100_000));
            }
        }
    }
}
