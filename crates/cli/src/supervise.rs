//! A job from its start to its summary: progress while it runs, Ctrl-C, and what it did.

use std::time::{Duration, Instant};

use ardea_engine::{JobConfig, JobHandle, JobStatus, Node, NodeConfig};
use ardea_pipeline::Pipeline;

use crate::context::Context;
use crate::failure::{Failure, print_error};
use crate::progress::Progress;
use crate::shape::Shape;
use crate::stdout;
use crate::summary::Summary;

/// How often the supervisor looks whether there is something to say; the job's end and interrupts don't wait for it.
const LOOK: Duration = Duration::from_millis(50);
/// How long a cancelled job is waited for before the process ends without it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs a job until it ends, one way or the other.
///
/// # Errors
/// The job's own failure, [`Failure::NothingGood`] if all records were bad, [`Failure::Drained`] after a first Ctrl-C that came
/// before the end, [`Failure::Interrupted`] after a second, [`Failure::ReaderGone`] if nobody reads the results.
pub fn run(pipeline: &Pipeline, config: NodeConfig, context: &Context) -> Result<(), Failure> {
    let dag = pipeline.to_dag(config.threads)?;
    let shape = Shape::of(&dag)?;
    let node = Node::start(config)?;
    let job = node.submit(&dag, JobConfig::named(pipeline.name()))?;
    let passing = context.interrupts.drain(&job);
    let mut progress = Progress::new(context, &shape);
    let status = follow(&job, &mut progress, context);
    progress.clear();
    let summary = Summary::of(&job, &status, &shape, progress.elapsed());
    drop(passing);
    if status.is_over() {
        drop(node);
    } else {
        // Code that ignores its cancellation would hold up the end of the node for ever.
        std::mem::forget(node);
    }
    match status {
        JobStatus::Failed(error) => {
            let failure = Failure::from(error);
            // Of a job that came to nothing there is nothing to tell but why.
            let is_told = context.json || !summary.is_blank();
            if is_told && !matches!(failure, Failure::ReaderGone) {
                tell(&summary, context)?;
            }
            Err(failure)
        }
        JobStatus::Completed | JobStatus::Drained => {
            tell(&summary, context)?;
            if let Some(error) = summary.nothing_good() {
                return Err(Failure::NothingGood(error));
            }
            match status {
                JobStatus::Drained => Err(Failure::Drained),
                _ => Ok(()),
            }
        }
        JobStatus::Cancelled | JobStatus::Running => {
            tell(&summary, context)?;
            Err(Failure::Interrupted)
        }
    }
}

/// Shows progress until the job is over, or has been cancelled and does not end.
fn follow(job: &JobHandle, progress: &mut Progress<'_>, context: &Context) -> JobStatus {
    let mut said = 0;
    let mut cancelled: Option<Instant> = None;
    loop {
        progress.tick(job, said > 0);
        let status = job.wait(LOOK);
        let interrupts = context.interrupts.count();
        if status.is_over() {
            return status;
        }
        if interrupts > said {
            said = interrupts;
            if !context.quiet {
                progress.say(explain(interrupts));
            }
        }
        if interrupts >= 2 && cancelled.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return status;
        }
    }
}

fn explain(interrupts: u32) -> &'static str {
    if interrupts >= 2 {
        "stopping at once"
    } else {
        "draining: what has been read is finished (Ctrl-C again stops at once)"
    }
}

fn tell(summary: &Summary, context: &Context) -> Result<(), Failure> {
    if context.json {
        return stdout::print_json(&summary.to_json());
    }
    print_error(&if context.quiet {
        summary.warnings()
    } else {
        summary.to_text(context.verbose)
    });
    Ok(())
}
