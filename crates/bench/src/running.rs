//! A running job of a bench, with or without checkpoints.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ardea::recovery::{
    CheckpointStats, FaultTolerance, FaultTolerantJob, FaultTolerantJobHandle, JobOutcome,
};
use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::{JobConfig, JobHandle, Node};
use ardea_pipeline::Pipeline;
use serde_json::{Value, json};

use crate::report::{Field, rounded};

pub(crate) enum Running {
    Plain(JobHandle),
    /// A fault-tolerant job: the thread of its driver, and a handle to it.
    FaultTolerant(JoinHandle<Result<JobOutcome>>, FaultTolerantJobHandle),
}

impl Running {
    /// Starts the job with these fault-tolerance settings, or without fault tolerance.
    pub(crate) fn start(
        node: &Arc<Node>,
        pipeline: Pipeline,
        survival: Option<FaultTolerance>,
    ) -> Result<Running> {
        match survival {
            None => {
                let job = pipeline.submit(node, JobConfig::default())?;
                Ok(Running::Plain(job))
            }
            Some(survival) => Running::survive(node, pipeline, survival),
        }
    }

    fn survive(node: &Arc<Node>, pipeline: Pipeline, survival: FaultTolerance) -> Result<Running> {
        let node = Arc::clone(node);
        let (opens, opened) = channel();
        let driver = thread::Builder::new().spawn(move || {
            let surviving = FaultTolerantJob::open(&pipeline, &node, &survival)?;
            // The outcome is read by `join` below.
            let _ = opens.send(surviving.handle());
            surviving.run()
        });
        let driver = driver.map_err(|error| {
            Error::new(
                ErrorCode::LimitReached,
                "cannot start the job's driver thread",
            )
            .because(error)
        })?;
        match opened.recv() {
            Ok(handle) => Ok(Running::FaultTolerant(driver, handle)),
            Err(_) => Err(ended(driver).err().unwrap_or_else(broken)),
        }
    }

    /// Returns the checkpoint statistics so far, if the job is fault-tolerant.
    pub(crate) fn figures(&self) -> Option<CheckpointStats> {
        match self {
            Running::Plain(_) => None,
            Running::FaultTolerant(_, handle) => Some(handle.figures()),
        }
    }

    /// Returns true if the job has ended, successfully or not.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Running::Plain(job) => job.status().is_over(),
            Running::FaultTolerant(driver, _) => driver.is_finished(),
        }
    }

    /// Ends the sources as if their input had ended.
    #[cfg(all(feature = "kafka", feature = "redis"))]
    pub(crate) fn drain(&self) {
        match self {
            Running::Plain(job) => job.drain(),
            Running::FaultTolerant(_, handle) => handle.drain(),
        }
    }

    /// Waits until the job has ended, and returns its checkpoint statistics if it is
    /// fault-tolerant.
    pub(crate) fn join(self) -> Result<Option<CheckpointStats>> {
        match self {
            Running::Plain(job) => job.join().map(|()| None),
            Running::FaultTolerant(driver, _) => Ok(Some(ended(driver)?.figures)),
        }
    }
}

fn ended(driver: JoinHandle<Result<JobOutcome>>) -> Result<JobOutcome> {
    driver.join().unwrap_or_else(|_| Err(broken()))
}

fn broken() -> Error {
    Error::new(ErrorCode::Internal, "the job's driver thread failed").hint("please report this")
}

/// Returns the checkpoint figures of all jobs; `null` without any.
pub(crate) fn checkpoints(survived: &[Option<CheckpointStats>]) -> Vec<Field> {
    let all: Vec<&CheckpointStats> = survived.iter().flatten().collect();
    let of = |value: Value| if all.is_empty() { Value::Null } else { value };
    let sum =
        |count: fn(&CheckpointStats) -> u64| all.iter().map(|figures| count(figures)).sum::<u64>();
    let longest = all.iter().map(|figures| figures.longest).max();
    let longest: Duration = longest.unwrap_or_default();
    vec![
        ("checkpoints", of(json!(sum(|figures| figures.checkpoints)))),
        (
            "checkpoints_aborted",
            of(json!(sum(|figures| figures.aborted))),
        ),
        (
            "checkpoint_max_ms",
            of(json!(rounded(longest.as_secs_f64() * 1e3, 1e3))),
        ),
        ("checkpoint_bytes", of(json!(sum(|figures| figures.bytes)))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_guarantee_there_is_nothing_to_say_of_checkpoints() {
        assert!(
            checkpoints(&[None])
                .iter()
                .all(|(_, value)| value.is_null())
        );
        let figures = CheckpointStats {
            checkpoints: 3,
            longest: Duration::from_micros(1_500),
            ..CheckpointStats::default()
        };
        let told = checkpoints(&[Some(figures.clone()), Some(figures)]);
        assert_eq!(told[0], ("checkpoints", json!(6)));
        assert_eq!(told[2], ("checkpoint_max_ms", json!(1.5)));
    }
}
