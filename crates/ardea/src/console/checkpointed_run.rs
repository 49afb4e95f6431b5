//! A job with a guarantee, from its start to its summary, over all its attempts.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Instant;

use ardea_checkpoint::local::{
    FaultTolerance, FaultTolerantJob, FaultTolerantJobHandle, JobEnd, JobOutcome,
};
use ardea_core::{Error, ErrorCode};
use ardea_engine::{Job, JobHandle, JobStatus, Node};

use super::Supervisor;
use super::failure::{Failure, MessageKind, print_notice};
use super::graph_view::GraphView;
use super::measuring::Sinks;
use super::progress::Progress;
use super::run_settings::RunSettings;
use super::summary::{CheckpointSummary, Summary};
use super::supervise::{CANCEL_TIMEOUT, POLL_INTERVAL, print_summary, warn};

type Outcome = ardea_core::Result<JobOutcome>;

/// Runs a job with a guarantee until it ends.
///
/// # Errors
/// As for a job without one; [`Failure::Drained`] also if it was stopped with a last checkpoint.
pub(super) fn run(
    job: Arc<dyn Job>,
    settings: RunSettings,
    survival: FaultTolerance,
    with: &Supervisor,
) -> Result<(), Failure> {
    let dag = job.graph(settings.node.threads)?;
    let (shape, below) = (GraphView::of(&dag)?, dag.sinks_below(survival.promised()));
    let is_json = with.json;
    let dead_letters = settings.open_dead_letters(job.name())?;
    let sinks = Sinks::start(&settings, job.name(), &dag, &dead_letters, with)?;
    let survival = survival
        .dead_letters(dead_letters)
        .on_notice(move |notice| {
            print_notice(MessageKind::Warning, &notice.to_string(), is_json);
        });
    drop(dag);
    let node = Node::start(settings.node)?;
    let clock = node.clock().clone();
    let (begun, handles) = channel();
    let (ended, outcomes) = channel();
    // The thread is not joined: if the job's code does not stop, the process ends without waiting
    // for it.
    let spawned = thread::Builder::new()
        .name("ardea-driver".into())
        .spawn(move || {
            let outcome = FaultTolerantJob::open(&*job, &node, &survival).and_then(|surviving| {
                // The receiver waits below.
                let _ = begun.send(surviving.handle());
                surviving.run()
            });
            let _ = ended.send(outcome);
        });
    spawned.map_err(|error| {
        Error::new(
            ErrorCode::LimitReached,
            "cannot start the thread that runs the job",
        )
        .because(error)
    })?;
    let Ok(handle) = handles.recv() else {
        let outcome = outcomes.recv().unwrap_or_else(|_| Err(broken()));
        return outcome.map(drop).map_err(Failure::from);
    };
    let measured = handle.clone();
    let measuring = sinks.map(|sinks| {
        let present = move || {
            let restarts = measured.figures().recoveries;
            measured.job().map(|job| (job, restarts.into()))
        };
        sinks.start_reporting(clock, present)
    });
    let measuring = measuring.transpose().inspect_err(|_| handle.cancel())?;
    let passing = with.interrupts.stop(&handle);
    let mut progress = Progress::new(with, &shape);
    let outcome = follow(&handle, &outcomes, &mut progress, with);
    progress.clear();
    let summary = handle.job().map(|job| {
        let status = status_of(outcome.as_ref(), &job);
        Summary::of(&job, &status, &shape, progress.elapsed()).with_checkpoints(CheckpointSummary {
            figures: handle.figures(),
            end: end_of(outcome.as_ref()),
            below,
            counts: handle.counts(),
            counts_before: handle.counts_before(),
        })
    });
    drop(passing);
    drop(measuring);
    conclude(outcome, summary, handle.figures().is_interrupted, with)
}

fn broken() -> Error {
    Error::new(ErrorCode::Internal, "the job's driver is gone").hint("please report this")
}

fn end_of(outcome: Option<&Outcome>) -> Option<JobEnd> {
    let survived = outcome?.as_ref().ok()?;
    Some(survived.end)
}

fn status_of(outcome: Option<&Outcome>, job: &JobHandle) -> JobStatus {
    match outcome {
        None => job.status(),
        Some(Err(error)) if error.code() == ErrorCode::Cancelled => JobStatus::Cancelled,
        Some(Err(error)) => JobStatus::Failed(error.clone()),
        Some(Ok(survived)) => match survived.end {
            JobEnd::Completed | JobEnd::CompletedBefore => JobStatus::Completed,
            JobEnd::Drained => JobStatus::Drained,
            JobEnd::Stopped | JobEnd::Interrupted => JobStatus::Cancelled,
        },
    }
}

/// Shows progress until the job has ended; returns `None` if it was cancelled and does not end in
/// time.
fn follow(
    handle: &FaultTolerantJobHandle,
    outcomes: &Receiver<Outcome>,
    progress: &mut Progress<'_>,
    with: &Supervisor,
) -> Option<Outcome> {
    let mut said = 0;
    let mut stopped: Option<Instant> = None;
    let mut cancelled: Option<Instant> = None;
    loop {
        match outcomes.recv_timeout(POLL_INTERVAL) {
            Ok(outcome) => return Some(outcome),
            Err(RecvTimeoutError::Disconnected) => return Some(Err(broken())),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(job) = handle.job() {
            progress.tick(&job, Some(&|| handle.counts()), false);
        }
        let interrupts = with.interrupts.count();
        if interrupts > said {
            said = interrupts;
            if !with.quiet {
                progress.print_above(explain(interrupts));
            }
        }
        if interrupts > 0 {
            // The driver enforces the limit itself, unless it is blocked in a call.
            let limit = handle.stops_within().saturating_add(CANCEL_TIMEOUT / 2);
            if stopped.get_or_insert_with(Instant::now).elapsed() > limit
                && let Some(notice) = handle.interrupt()
            {
                progress.clear();
                print_notice(MessageKind::Warning, &notice.to_string(), with.json);
            }
        }
        let is_to_end = interrupts >= 2 || handle.figures().is_interrupted;
        if is_to_end && cancelled.get_or_insert_with(Instant::now).elapsed() > CANCEL_TIMEOUT {
            return None;
        }
    }
}

fn explain(interrupts: u32) -> &'static str {
    match interrupts {
        0 | 1 => "stopping with a last checkpoint (Ctrl-C again stops at once)",
        _ => "stopping at once",
    }
}

fn conclude(
    outcome: Option<Outcome>,
    summary: Option<Summary>,
    has_timed_out: bool,
    with: &Supervisor,
) -> Result<(), Failure> {
    let told = |summary: &Option<Summary>| match summary {
        Some(summary) => print_summary(summary, with),
        None => Ok(()),
    };
    match outcome {
        None => {
            told(&summary)?;
            Err(match has_timed_out {
                true => Failure::StopTimedOut,
                false => Failure::Interrupted,
            })
        }
        Some(Ok(survived)) => {
            told(&summary)?;
            let nothing_good = summary.as_ref().and_then(Summary::nothing_good);
            match (survived.end, nothing_good) {
                (JobEnd::Drained | JobEnd::Stopped, _) => Err(Failure::Drained),
                (JobEnd::Interrupted, _) => Err(Failure::StopTimedOut),
                (_, Some(error)) => Err(Failure::NothingGood(error)),
                (_, None) => Ok(()),
            }
        }
        Some(Err(error)) if error.code() == ErrorCode::Cancelled => {
            told(&summary)?;
            Err(Failure::Interrupted)
        }
        Some(Err(error)) => {
            let failure = Failure::from(error);
            match (&failure, &summary) {
                (Failure::ReaderGone, Some(summary)) => warn(summary, with),
                (_, Some(summary)) if with.json || !summary.is_blank() => {
                    print_summary(summary, with)?;
                }
                _ => {}
            }
            Err(failure)
        }
    }
}
