//! A job of the bench, which survives or does not.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ardea::recovery::{Figures, Survival, Survived, Surviving, SurvivingHandle};
use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::{JobConfig, JobHandle, Node};
use ardea_pipeline::Pipeline;
use serde_json::{Value, json};

use crate::report::{Field, rounded};

/// A job that runs.
pub(crate) enum Running {
    Plain(JobHandle),
    /// Its driver, on a thread, and the way to look at it.
    Surviving(JoinHandle<Result<Survived>>, SurvivingHandle),
}

impl Running {
    /// Starts the job, so that it survives as is said, or promises nothing.
    ///
    /// # Errors
    /// What submitting it returns.
    pub(crate) fn start(
        node: &Arc<Node>,
        pipeline: Pipeline,
        survival: Option<Survival>,
    ) -> Result<Running> {
        match survival {
            None => {
                let job = pipeline.submit(node, JobConfig::default())?;
                Ok(Running::Plain(job))
            }
            Some(survival) => Running::survive(node, pipeline, survival),
        }
    }

    fn survive(node: &Arc<Node>, pipeline: Pipeline, survival: Survival) -> Result<Running> {
        let node = Arc::clone(node);
        let (opens, opened) = channel();
        let driver = thread::Builder::new().spawn(move || {
            let surviving = Surviving::open(&pipeline, &node, &survival)?;
            // Whoever waits for it waits below.
            let _ = opens.send(surviving.handle());
            surviving.run()
        });
        let driver = driver.map_err(|error| {
            Error::new(ErrorCode::LimitReached, "no thread to drive the job").because(error)
        })?;
        match opened.recv() {
            Ok(handle) => Ok(Running::Surviving(driver, handle)),
            Err(_) => Err(ended(driver).err().unwrap_or_else(broken)),
        }
    }

    /// What surviving has taken so far, if it survives.
    pub(crate) fn figures(&self) -> Option<Figures> {
        match self {
            Running::Plain(_) => None,
            Running::Surviving(_, handle) => Some(handle.figures()),
        }
    }

    /// Whether it has come to its end, whatever that is.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Running::Plain(job) => job.status().is_over(),
            Running::Surviving(driver, _) => driver.is_finished(),
        }
    }

    /// Waits until it has ended: what surviving took, if it did.
    ///
    /// # Errors
    /// The job's own failure.
    pub(crate) fn join(self) -> Result<Option<Figures>> {
        match self {
            Running::Plain(job) => job.join().map(|()| None),
            Running::Surviving(driver, _) => Ok(Some(ended(driver)?.figures)),
        }
    }
}

fn ended(driver: JoinHandle<Result<Survived>>) -> Result<Survived> {
    driver.join().unwrap_or_else(|_| Err(broken()))
}

fn broken() -> Error {
    Error::new(ErrorCode::Internal, "the job's driver is gone").hint("please report this")
}

/// What the snapshots of all jobs came to; `null` without any.
pub(crate) fn snapshots(survived: &[Option<Figures>]) -> Vec<Field> {
    let all: Vec<&Figures> = survived.iter().flatten().collect();
    let of = |value: Value| if all.is_empty() { Value::Null } else { value };
    let sum = |count: fn(&Figures) -> u64| all.iter().map(|figures| count(figures)).sum::<u64>();
    let longest = all.iter().map(|figures| figures.longest).max();
    let longest: Duration = longest.unwrap_or_default();
    vec![
        ("snapshots", of(json!(sum(|figures| figures.snapshots)))),
        (
            "snapshots_given_up",
            of(json!(sum(|figures| figures.given_up))),
        ),
        (
            "snapshot_max_ms",
            of(json!(rounded(longest.as_secs_f64() * 1e3, 1e3))),
        ),
        ("snapshot_bytes", of(json!(sum(|figures| figures.bytes)))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_guarantee_there_is_nothing_to_say_of_snapshots() {
        assert!(snapshots(&[None]).iter().all(|(_, value)| value.is_null()));
        let figures = Figures {
            snapshots: 3,
            longest: Duration::from_micros(1_500),
            ..Figures::default()
        };
        let told = snapshots(&[Some(figures.clone()), Some(figures)]);
        assert_eq!(told[0], ("snapshots", json!(6)));
        assert_eq!(told[2], ("snapshot_max_ms", json!(1.5)));
    }
}
