//! A job that runs in this process.

use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::{Job, JobConfig, JobHandle, JobStatus, Node, NodeConfig};
use ardea_recovery::{Embedded, Survival, SurvivalEnd, Surviving};

/// How a job came to its end in this process.
pub(super) enum End {
    /// By itself.
    Completed,
    /// By a first Ctrl-C, with whole results of what it had read, or so that it goes on when it is run again.
    Early,
}

/// Runs a job to its end. Ctrl-C drains it, a second one cancels it.
pub(super) fn run<J: Job + Embedded>(job: &J, config: NodeConfig) -> Result<End> {
    let node = Node::start(config)?;
    let running = job.start(&node, JobConfig::named(Job::name(job)))?;
    running.drain_on_ctrl_c()?;
    let outcome = running.join();
    if let Some(told) = set_aside(&running) {
        eprintln!("{told}");
    }
    match running.status() {
        JobStatus::Drained => Ok(End::Early),
        JobStatus::Cancelled => Err(Error::new(ErrorCode::Cancelled, "the job was cancelled")),
        _ => outcome.map(|()| End::Completed),
    }
}

/// Runs a job that survives to its end. Ctrl-C stops it, a second one cancels it; it goes on from its newest snapshot when it is run again.
pub(super) fn run_surviving<J: Job + Embedded>(
    job: &J,
    config: NodeConfig,
    survival: &Survival,
) -> Result<End> {
    let node = Node::start(config)?;
    let surviving = Surviving::open(job, &node, survival)?;
    let handle = surviving.handle();
    handle.stop_on_ctrl_c()?;
    let survived = surviving.run();
    if let Some(told) = handle.job().and_then(|job| set_aside(&job)) {
        eprintln!("{told}");
    }
    Ok(match survived?.end {
        SurvivalEnd::Completed | SurvivalEnd::CompletedBefore => End::Completed,
        SurvivalEnd::Drained | SurvivalEnd::Stopped => End::Early,
    })
}

/// What became of records that did not become results, if there are any: nothing disappears in silence.
fn set_aside(job: &JobHandle) -> Option<String> {
    let late: u64 = job.metrics().iter().map(|report| report.metrics.late).sum();
    let letters = job.dead_letters();
    let mut parts = Vec::new();
    if letters.count() > 0 {
        let first = letters.first();
        let why = first.map_or(String::new(), |letter| {
            format!(" (the first at {}: {})", letter.origin, letter.reason)
        });
        parts.push(format!("{} could not be dealt with{why}", letters.count()));
    }
    if letters.dropped() > 0 {
        parts.push(format!(
            "{} were dropped as their step says",
            letters.dropped()
        ));
    }
    if late > 0 {
        parts.push(format!("{late} came too late for their windows"));
    }
    (!parts.is_empty())
        .then(|| format!("job {:?}: of its records {}", job.name(), parts.join(", ")))
}
