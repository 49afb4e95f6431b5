//! A job without a guarantee, from its start to its summary, with progress and Ctrl-C.

use std::time::{Duration, Instant};

use ardea_connectors::stdin;
use ardea_engine::{Job, JobConfig, JobHandle, JobStatus, Node};

use crate::connect::live_table::Screen;

use super::Supervisor;
use super::failure::{Failure, MessageKind, print_error, print_notice};
use super::graph_view::GraphView;
use super::keyboard::Keyboard;
use super::measuring::Sinks;
use super::progress::Progress;
use super::run_settings::RunSettings;
use super::stdout;
use super::summary::Summary;

/// The interval at which the supervisor updates its output. The job's end and interrupts don't wait
/// for it.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The time limit for a cancelled job to stop, after which the process ends nonetheless.
pub(crate) const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs a job without a guarantee until it ends; see [`Supervisor::run`].
pub(super) fn run(job: &dyn Job, settings: RunSettings, with: &Supervisor) -> Result<(), Failure> {
    let dag = job.graph(settings.node.threads)?;
    let shape = GraphView::of(&dag)?;
    let name = job.name();
    let dead_letters = settings.open_dead_letters(name)?;
    let sinks = Sinks::start(&settings, name, &dag, &dead_letters, with)?;
    let config = JobConfig {
        dead_letters,
        ..JobConfig::named(name)
    };
    drop(dag);
    let node = Node::start(settings.node)?;
    let job = job.start(&node, config)?;
    let measured = job.clone();
    let measuring = sinks.map(|sinks| {
        let present = move || Some((measured.clone(), 0));
        sinks.start_reporting(node.clock().clone(), present)
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
        // Dropping the node would block for ever if code ignores its cancellation.
        std::mem::forget(node);
    }
    match status {
        JobStatus::Failed(error) => {
            let failure = Failure::from(error);
            // A failed job that did nothing gets no summary, only its error.
            let is_told = with.json || !summary.is_blank();
            if matches!(failure, Failure::ReaderGone) {
                // Warns even without a summary: the visible results do not show that others are
                // missing.
                warn(&summary, with);
            } else if is_told {
                print_summary(&summary, with)?;
            }
            Err(failure)
        }
        JobStatus::Completed => {
            print_summary(&summary, with)?;
            match summary.nothing_good() {
                Some(error) => Err(Failure::NothingGood(error)),
                None => Ok(()),
            }
        }
        JobStatus::Drained => {
            print_summary(&summary, with)?;
            // Bad records so far do not imply that the rest is bad.
            Err(Failure::Drained)
        }
        JobStatus::Cancelled | JobStatus::Running => {
            print_summary(&summary, with)?;
            Err(Failure::Interrupted)
        }
    }
}

/// Shows progress until the job is over, or until it has been cancelled and does not end in time.
fn follow(job: &JobHandle, progress: &mut Progress<'_>, with: &Supervisor) -> JobStatus {
    // If the job reads standard input, the supervisor must not read keys from it.
    let reads_keys = stdin::is_claimed();
    let mut said = 0;
    let mut cancelled: Option<Instant> = None;
    let mut keyboard = None;
    loop {
        if keyboard.is_none() && !reads_keys && Screen::of_process().has_tables() {
            keyboard = Keyboard::taken(&with.interrupts);
        }
        progress.tick(job, None, said > 0);
        let status = job.wait(POLL_INTERVAL);
        let interrupts = with.interrupts.count();
        if status.is_over() {
            return status;
        }
        if interrupts > said {
            said = interrupts;
            if !with.quiet {
                progress.print_above(explain(interrupts));
            }
        }
        if interrupts >= 2 && cancelled.get_or_insert_with(Instant::now).elapsed() > CANCEL_TIMEOUT
        {
            return status;
        }
    }
}

fn explain(interrupts: u32) -> &'static str {
    if interrupts >= 2 {
        "stopping at once"
    } else {
        "draining: records already read are processed (Ctrl-C again stops at once)"
    }
}

pub(crate) fn print_summary(summary: &Summary, with: &Supervisor) -> Result<(), Failure> {
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
        print_notice(MessageKind::Warning, &warning, with.json);
    }
}
