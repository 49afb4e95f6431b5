//! A job that survives from its start to its summary: through all its lives, until it ends.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Instant;

use ardea_checkpoint::local::{Survival, SurvivalEnd, Survived, Surviving, SurvivingHandle};
use ardea_core::{Error, ErrorCode};
use ardea_engine::{Job, JobHandle, JobStatus, Node};

use super::Supervisor;
use super::failure::{Failure, Notice, print_notice};
use super::measuring::Sinks;
use super::progress::Progress;
use super::run_settings::RunSettings;
use super::shape::Shape;
use super::summary::{Summary, SurvivedSummary};
use super::supervise::{LOOK, PATIENCE, tell, warn};

type Outcome = ardea_core::Result<Survived>;

/// Runs a job that survives until it ends.
///
/// # Errors
/// As those of a job that doesn't; [`Failure::Drained`] also for one that was stopped with a last snapshot.
pub(super) fn run(
    job: Arc<dyn Job>,
    settings: RunSettings,
    survival: Survival,
    with: &Supervisor,
) -> Result<(), Failure> {
    let dag = job.graph(settings.node.threads)?;
    let (shape, below) = (Shape::of(&dag)?, dag.sinks_below(survival.promised()));
    drop(dag);
    let is_json = with.json;
    let survival = survival
        .dead_letters(settings.open_dead_letters(job.name())?)
        .on_notice(move |notice| {
            print_notice(Notice::Warning, &notice.to_string(), is_json);
        });
    let sinks = Sinks::start(&settings, job.name(), with.json)?;
    let node = Node::start(settings.node)?;
    let clock = node.clock().clone();
    let (begun, handles) = channel();
    let (ended, outcomes) = channel();
    // Not waited for if its code does not stop: the process ends without it.
    let spawned = thread::Builder::new()
        .name("ardea-driver".into())
        .spawn(move || {
            let outcome = Surviving::open(&*job, &node, &survival).and_then(|surviving| {
                // Whoever waits for it waits below.
                let _ = begun.send(surviving.handle());
                surviving.run()
            });
            let _ = ended.send(outcome);
        });
    spawned.map_err(|error| {
        Error::new(ErrorCode::LimitReached, "no thread to drive the job").because(error)
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
        sinks.tell(clock, present)
    });
    let measuring = measuring.transpose().inspect_err(|_| handle.cancel())?;
    let passing = with.interrupts.stop(&handle);
    let mut progress = Progress::new(with, &shape);
    let outcome = follow(&handle, &outcomes, &mut progress, with);
    progress.clear();
    let summary = handle.job().map(|job| {
        let status = status_of(outcome.as_ref(), &job);
        Summary::of(&job, &status, &shape, progress.elapsed()).of_survival(SurvivedSummary {
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

fn end_of(outcome: Option<&Outcome>) -> Option<SurvivalEnd> {
    let survived = outcome?.as_ref().ok()?;
    Some(survived.end)
}

fn status_of(outcome: Option<&Outcome>, job: &JobHandle) -> JobStatus {
    match outcome {
        None => job.status(),
        Some(Err(error)) if error.code() == ErrorCode::Cancelled => JobStatus::Cancelled,
        Some(Err(error)) => JobStatus::Failed(error.clone()),
        Some(Ok(survived)) => match survived.end {
            SurvivalEnd::Completed | SurvivalEnd::CompletedBefore => JobStatus::Completed,
            SurvivalEnd::Drained => JobStatus::Drained,
            SurvivalEnd::Stopped | SurvivalEnd::Interrupted => JobStatus::Cancelled,
        },
    }
}

/// Shows progress until the job has ended; none if it was cancelled and does not end.
fn follow(
    handle: &SurvivingHandle,
    outcomes: &Receiver<Outcome>,
    progress: &mut Progress<'_>,
    with: &Supervisor,
) -> Option<Outcome> {
    let mut said = 0;
    let mut stopped: Option<Instant> = None;
    let mut cancelled: Option<Instant> = None;
    loop {
        match outcomes.recv_timeout(LOOK) {
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
                progress.say(explain(interrupts));
            }
        }
        if interrupts > 0 {
            // The driver keeps the limit itself, unless it hangs in a call.
            let limit = handle.stops_within().saturating_add(PATIENCE / 2);
            if stopped.get_or_insert_with(Instant::now).elapsed() > limit
                && let Some(notice) = handle.interrupt()
            {
                progress.clear();
                print_notice(Notice::Warning, &notice.to_string(), with.json);
            }
        }
        let is_to_end = interrupts >= 2 || handle.figures().is_interrupted;
        if is_to_end && cancelled.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return None;
        }
    }
}

fn explain(interrupts: u32) -> &'static str {
    match interrupts {
        0 | 1 => "stopping with a last snapshot (Ctrl-C again stops at once)",
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
        Some(summary) => tell(summary, with),
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
                (SurvivalEnd::Drained | SurvivalEnd::Stopped, _) => Err(Failure::Drained),
                (SurvivalEnd::Interrupted, _) => Err(Failure::StopTimedOut),
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
                    tell(summary, with)?;
                }
                _ => {}
            }
            Err(failure)
        }
    }
}
