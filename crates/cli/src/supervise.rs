//! A job from its start to its summary: progress while it runs, Ctrl-C, and what it did.

use std::time::{Duration, Instant};

use ardea::recovery::Embedded;
use ardea_connect::live_table::Screen;
use ardea_connect::stdin;
use ardea_core::Dag;
use ardea_engine::{JobConfig, JobHandle, JobStatus, Node, NodeConfig};

use crate::context::Context;
use crate::failure::{Failure, Notice, print_error, print_notice};
use crate::keyboard::Keyboard;
use crate::progress::Progress;
use crate::shape::Shape;
use crate::stdout;
use crate::summary::Summary;
use crate::surviving;

/// How often the supervisor looks whether there is something to say; the job's end and interrupts don't wait for it.
pub(crate) const LOOK: Duration = Duration::from_millis(50);
/// How long a cancelled job is waited for before the process ends without it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Runs a job until it ends, one way or the other. One that promises something, as the settings say, survives.
///
/// # Errors
/// The job's own failure, [`Failure::Drained`] after a first Ctrl-C that came before the end, [`Failure::NothingGood`] if all records
/// of a job that came to its own end were bad, [`Failure::Interrupted`] after a second, [`Failure::ReaderGone`] if nobody reads the results.
pub fn run<J>(job: &J, config: NodeConfig, context: &Context) -> Result<(), Failure>
where
    J: Embedded + Clone + 'static,
{
    if let Some(survival) = context.survival()? {
        return surviving::run(job, config, survival, context);
    }
    let dag = job.graph(config.threads)?;
    let start = |node: &Node| job.start(node, JobConfig::named(job.job_name()));
    supervised(&dag, start, config, context)
}

fn supervised(
    dag: &Dag,
    start: impl FnOnce(&Node) -> ardea_core::Result<JobHandle>,
    config: NodeConfig,
    context: &Context,
) -> Result<(), Failure> {
    let shape = Shape::of(dag)?;
    let node = Node::start(config)?;
    let job = start(&node)?;
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
            if matches!(failure, Failure::ReaderGone) {
                // Who has seen enough results has not seen what is missing among them.
                warn(&summary, context);
            } else if is_told {
                tell(&summary, context)?;
            }
            Err(failure)
        }
        JobStatus::Completed => {
            tell(&summary, context)?;
            match summary.nothing_good() {
                Some(error) => Err(Failure::NothingGood(error)),
                None => Ok(()),
            }
        }
        JobStatus::Drained => {
            tell(&summary, context)?;
            // That the records so far were bad says nothing of the rest.
            Err(Failure::Drained)
        }
        JobStatus::Cancelled | JobStatus::Running => {
            tell(&summary, context)?;
            Err(Failure::Interrupted)
        }
    }
}

/// Shows progress until the job is over, or has been cancelled and does not end.
fn follow(job: &JobHandle, progress: &mut Progress<'_>, context: &Context) -> JobStatus {
    // What is typed is then for the job.
    let reads_keys = stdin::is_claimed();
    let mut said = 0;
    let mut cancelled: Option<Instant> = None;
    let mut keyboard = None;
    loop {
        if keyboard.is_none() && !reads_keys && Screen::of_process().has_tables() {
            keyboard = Keyboard::taken(&context.interrupts);
        }
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

pub(crate) fn tell(summary: &Summary, context: &Context) -> Result<(), Failure> {
    if context.json {
        return stdout::print_json(&summary.to_json());
    }
    if context.quiet {
        warn(summary, context);
    } else {
        print_error(&summary.to_text(context.verbose));
    }
    Ok(())
}

pub(crate) fn warn(summary: &Summary, context: &Context) {
    for warning in summary.warnings() {
        print_notice(Notice::Warning, &warning, context.json);
    }
}
