//! The cooperative unit: a chain of stages that gets a slice of a thread's time.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, take_failed_index};

use crate::input::InputSet;
use crate::job::JobShared;
use crate::output::OutputEdge;
use crate::stage::{Feed, Stage};

/// How a slice ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SliceEnd {
    /// Its time was over; there is more to do at once.
    Again,
    /// There is nothing to do until a queue, a waker or this deadline says so.
    Rest { wake_at: Option<Duration> },
    /// It has ended, well or not; it is not to be called again.
    Finished,
}

/// A chain of stages with the queues at both its ends.
pub(crate) struct Tasklet {
    job: Arc<JobShared>,
    stages: Vec<Stage>,
    inputs: InputSet,
    outputs: Vec<OutputEdge>,
    slice: Duration,
    idle_poll: Duration,
    /// Which stage is being called, so that a panic can be laid to it.
    at: usize,
    is_open: bool,
}

impl Tasklet {
    /// A tasklet of at least one stage.
    pub(crate) fn new(
        job: Arc<JobShared>,
        stages: Vec<Stage>,
        inputs: InputSet,
        outputs: Vec<OutputEdge>,
        slice: Duration,
        idle_poll: Duration,
    ) -> Self {
        Tasklet {
            job,
            stages,
            inputs,
            outputs,
            slice,
            idle_poll,
            at: 0,
            is_open: false,
        }
    }

    /// Works for up to a slice. Errors and panics of user code end up in the job.
    pub(crate) fn run_slice(&mut self) -> SliceEnd {
        if self.job.signals.is_cancelled() {
            return self.finish(None);
        }
        match catch_unwind(AssertUnwindSafe(|| self.work())) {
            Ok(Ok(SliceEnd::Finished)) => self.finish(None),
            Ok(Ok(end)) => end,
            Ok(Err(error)) => {
                let error = self.stages[self.at].place(error, 0);
                self.finish(Some(error))
            }
            Err(payload) => {
                let index = take_failed_index().unwrap_or(0);
                let error = Error::new(
                    ErrorCode::UserPanic,
                    format!("user code panicked: {}", message(&*payload)),
                );
                let error = self.stages[self.at].place(error, index);
                self.finish(Some(error))
            }
        }
    }

    fn work(&mut self) -> Result<SliceEnd> {
        if !self.is_open {
            self.open()?;
        }
        let clock = self.stages[0].context.clock.clone();
        let start = clock.now();
        let mut now = start;
        let mut moved = true;
        while moved && now - start < self.slice {
            moved = self.pass()?;
            now = clock.now();
        }
        // The end of the slice sends what has gathered: batching never adds waiting.
        let mut flushed = true;
        for edge in &mut self.outputs {
            edge.flush();
            flushed &= edge.is_flushed();
        }
        self.stages[0].context.metrics.count_slice(now - start);
        if self.stages.iter().all(Stage::is_finished) && flushed {
            return Ok(SliceEnd::Finished);
        }
        if moved {
            return Ok(SliceEnd::Again);
        }
        Ok(SliceEnd::Rest {
            wake_at: self.next_wake(now),
        })
    }

    fn open(&mut self) -> Result<()> {
        for at in 0..self.stages.len() {
            self.at = at;
            self.stages[at].init()?;
        }
        self.is_open = true;
        Ok(())
    }

    /// Lets each stage do one thing, first to last, so that a chunk passes through the whole chain while it is in the cache.
    fn pass(&mut self) -> Result<bool> {
        let mut moved = false;
        for at in 0..self.stages.len() {
            self.at = at;
            let (before, rest) = self.stages.split_at_mut(at);
            let feed = match before.last_mut() {
                Some(stage) => Feed::Before(stage),
                None => Feed::Queues(&mut self.inputs),
            };
            moved |= rest[0].step(feed)?;
        }
        let last = self.stages.len() - 1;
        let tail = &mut self.stages[last];
        for (lane, edge) in self.outputs.iter_mut().enumerate() {
            moved |= edge.drain(&mut tail.outbox, lane, &tail.context.metrics)?;
        }
        Ok(moved)
    }

    fn next_wake(&self, now: Duration) -> Option<Duration> {
        let asked = self.stages.iter().filter_map(Stage::wake_at).min();
        let head = &self.stages[0];
        if head.is_speaking_source() && head.wake_at().is_none() && head.outbox.is_empty() {
            let poll = now + self.idle_poll;
            return Some(asked.map_or(poll, |asked| asked.min(poll)));
        }
        asked
    }

    fn finish(&mut self, error: Option<Error>) -> SliceEnd {
        for stage in &mut self.stages {
            // A close that panics must not keep the others from closing.
            let _ = catch_unwind(AssertUnwindSafe(|| stage.close()));
            let _ = catch_unwind(AssertUnwindSafe(|| stage.discard()));
        }
        self.job.tasklet_finished(error);
        SliceEnd::Finished
    }
}

/// What a panic said.
fn message(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "(no message)"
    }
}
