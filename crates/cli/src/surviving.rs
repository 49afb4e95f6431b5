//! A job that survives from its start to its summary: through all its lives, until it ends.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Instant;

use ardea::recovery::{Embedded, Survival, SurvivalEnd, Survived, Surviving, SurvivingHandle};
use ardea_core::{Error, ErrorCode};
use ardea_engine::{JobHandle, JobStatus, Node, NodeConfig};

use crate::context::Context;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::shape::Shape;
use crate::summary::{Summary, SurvivedSummary};
use crate::supervise::{LOOK, PATIENCE, tell, warn};

type Outcome = ardea_core::Result<Survived>;

/// Runs a job that survives until it ends.
///
/// # Errors
/// As those of a job that doesn't; [`Failure::Drained`] also for one that was stopped with a last snapshot.
pub fn run<J>(
    job: &J,
    config: NodeConfig,
    survival: Survival,
    context: &Context,
) -> Result<(), Failure>
where
    J: Embedded + Clone + 'static,
{
    let dag = job.graph(config.threads)?;
    let (shape, below) = (Shape::of(&dag)?, dag.sinks_below(survival.promised()));
    drop(dag);
    let node = Node::start(config)?;
    let (begun, handles) = channel();
    let (ended, outcomes) = channel();
    let job = job.clone();
    // Not waited for if its code does not stop: the process ends without it.
    let spawned = thread::Builder::new()
        .name("ardea-driver".into())
        .spawn(move || {
            let outcome = Surviving::open(&job, &node, &survival).and_then(|surviving| {
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
    let passing = context.interrupts.stop(&handle);
    let mut progress = Progress::new(context, &shape);
    let outcome = follow(&handle, &outcomes, &mut progress, context);
    progress.clear();
    let summary = handle.job().map(|job| {
        let status = status_of(outcome.as_ref(), &job);
        Summary::of(&job, &status, &shape, progress.elapsed()).of_survival(SurvivedSummary {
            figures: handle.figures(),
            end: end_of(outcome.as_ref()),
            below,
        })
    });
    drop(passing);
    conclude(outcome, summary, context)
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
            SurvivalEnd::Stopped => JobStatus::Cancelled,
        },
    }
}

/// Shows progress until the job has ended; none if it was cancelled and does not end.
fn follow(
    handle: &SurvivingHandle,
    outcomes: &Receiver<Outcome>,
    progress: &mut Progress<'_>,
    context: &Context,
) -> Option<Outcome> {
    let mut said = 0;
    let mut cancelled: Option<Instant> = None;
    loop {
        match outcomes.recv_timeout(LOOK) {
            Ok(outcome) => return Some(outcome),
            Err(RecvTimeoutError::Disconnected) => return Some(Err(broken())),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(job) = handle.job() {
            progress.tick(&job, false);
        }
        let interrupts = context.interrupts.count();
        if interrupts > said {
            said = interrupts;
            if !context.quiet {
                progress.say(explain(interrupts));
            }
        }
        if interrupts >= 2 && cancelled.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
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
    context: &Context,
) -> Result<(), Failure> {
    let told = |summary: &Option<Summary>| match summary {
        Some(summary) => tell(summary, context),
        None => Ok(()),
    };
    match outcome {
        None => {
            told(&summary)?;
            Err(Failure::Interrupted)
        }
        Some(Ok(survived)) => {
            told(&summary)?;
            let nothing_good = summary.as_ref().and_then(Summary::nothing_good);
            match (survived.end, nothing_good) {
                (SurvivalEnd::Drained | SurvivalEnd::Stopped, _) => Err(Failure::Drained),
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
                (Failure::ReaderGone, Some(summary)) => warn(summary, context),
                (_, Some(summary)) if context.json || !summary.is_blank() => {
                    tell(summary, context)?;
                }
                _ => {}
            }
            Err(failure)
        }
    }
}
