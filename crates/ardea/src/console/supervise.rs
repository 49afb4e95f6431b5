//! A job from its start to its summary: progress while it runs, Ctrl-C, and what it did.

use std::time::{Duration, Instant};

use ardea_connectors::live_table::Screen;
use ardea_connectors::stdin;
use ardea_engine::{Job, JobConfig, JobHandle, JobStatus, Node};

use super::Supervisor;
use super::failure::{Failure, Notice, print_error, print_notice};
use super::keyboard::Keyboard;
use super::measuring::Sinks;
use super::progress::Progress;
use super::run_settings::RunSettings;
use super::shape::Shape;
use super::stdout;
use super::summary::Summary;

/// Interval at which the supervisor looks for something to say. The job's end and interrupts don't
/// wait for it.
pub(crate) const LOOK: Duration = Duration::from_millis(50);
/// Time limit of a cancelled job, after which the process ends without it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Runs a job without a guarantee until it ends; see [`Supervisor::run`].
pub(super) fn run(job: &dyn Job, settings: RunSettings, with: &Supervisor) -> Result<(), Failure> {
    let shape = Shape::of(&job.graph(settings.node.threads)?)?;
    let name = job.name();
    let config = JobConfig {
        dead_letters: settings.open_dead_letters(name)?,
        ..JobConfig::named(name)
    };
    let sinks = Sinks::start(&settings, name, with.json)?;
    let node = Node::start(settings.node)?;
    let job = job.start(&node, config)?;
    let measured = job.clone();
    let measuring = sinks.map(|sinks| {
        let present = move || Some((measured.clone(), 0));
        sinks.tell(node.clock().clone(), present)
    });
    let measuring = measuring.transpose().inspect_err(|_| job.cancel())?;
    let passing = with.interrupts.drain(&job);
    let mut progress = Progress::new(with, &shape);
    let status = follow(&job, &mut progress, with);
    progress.clear();
    let summary = Summary::of(&job, &status, &shape, progress.elapsed());
    drop(passing);
    drop(measuring);
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
            let is_told = with.json || !summary.is_blank();
            if matches!(failure, Failure::ReaderGone) {
                // Enough results on the terminal do not show those that are missing.
                warn(&summary, with);
            } else if is_told {
                tell(&summary, with)?;
            }
            Err(failure)
        }
        JobStatus::Completed => {
            tell(&summary, with)?;
            match summary.nothing_good() {
                Some(error) => Err(Failure::NothingGood(error)),
                None => Ok(()),
            }
        }
        JobStatus::Drained => {
            tell(&summary, with)?;
            // That the records so far were bad says nothing of the rest.
            Err(Failure::Drained)
        }
        JobStatus::Cancelled | JobStatus::Running => {
            tell(&summary, with)?;
            Err(Failure::Interrupted)
        }
    }
}

/// Shows progress until the job is over, or has been cancelled and does not end.
fn follow(job: &JobHandle, progress: &mut Progress<'_>, with: &Supervisor) -> JobStatus {
    // Input at the keyboard is then for the job.
    let reads_keys = stdin::is_claimed();
    let mut said = 0;
    let mut cancelled: Option<Instant> = None;
    let mut keyboard = None;
    loop {
        if keyboard.is_none() && !reads_keys && Screen::of_process().has_tables() {
            keyboard = Keyboard::taken(&with.interrupts);
        }
        progress.tick(job, None, said > 0);
        let status = job.wait(LOOK);
        let interrupts = with.interrupts.count();
        if status.is_over() {
            return status;
        }
        if interrupts > said {
            said = interrupts;
            if !with.quiet {
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

pub(crate) fn tell(summary: &Summary, with: &Supervisor) -> Result<(), Failure> {
    if with.json {
        return stdout::print_json(&summary.to_json());
    }
    if with.quiet {
        warn(summary, with);
    } else {
        print_error(&summary.to_text(with.verbose));
    }
    Ok(())
}

pub(crate) fn warn(summary: &Summary, with: &Supervisor) {
    for warning in summary.warnings() {
        print_notice(Notice::Warning, &warning, with.json);
    }
}
