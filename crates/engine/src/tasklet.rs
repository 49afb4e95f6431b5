//! The cooperative unit: a chain of stages that gets a slice of a thread's time.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Clock, Error, ErrorCode, Result, take_failed_index};

use crate::input::InputSet;
use crate::job::JobShared;
use crate::output::OutputEdge;
use crate::panics::{message, quietly};
use crate::stage::{Feed, Stage};

/// How a slice ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SliceEnd {
    /// Its time was over; there is more to do at once.
    Again,
    /// There is nothing to do until a queue, a waker or this deadline says so.
    Rest { wake_at: Option<Duration> },
    /// It has ended, well or not; it is not to be called again but for [`Tasklet::report`].
    Finished,
}

/// What is being called, so that a panic can be laid to it.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// This stage's processor.
    Stage(usize),
    /// The routing of this output of the last stage.
    Output(usize),
}

/// A chain of stages with the queues at both its ends.
pub(crate) struct Tasklet {
    job: Arc<JobShared>,
    stages: Vec<Stage>,
    inputs: InputSet,
    outputs: Vec<OutputEdge>,
    slice: Duration,
    idle_poll: Duration,
    at: Place,
    is_open: bool,
    /// Whether an input waits for a more urgent one; the job is told when that has ended.
    is_urgent: bool,
    was_cut_short: bool,
}

impl Tasklet {
    /// A tasklet of at least one stage. A `slice` of zero is a single step of each stage: for code that blocks, so that what one
    /// step made does not wait for the next.
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
            is_urgent: inputs.is_urgent(),
            inputs,
            outputs,
            slice,
            idle_poll,
            at: Place::Stage(0),
            is_open: false,
            was_cut_short: false,
        }
    }

    /// Whether one of its inputs waits for a more urgent one to end.
    pub(crate) fn is_urgent(&self) -> bool {
        self.is_urgent
    }

    /// Works for up to a slice. Errors and panics of user code end up in the job.
    pub(crate) fn run_slice(&mut self) -> SliceEnd {
        if self.job.signals.is_cancelled() {
            return self.end(true);
        }
        // What a panic that the user's code caught itself may have left.
        take_failed_index();
        match catch_unwind(AssertUnwindSafe(|| self.work())) {
            Ok(Ok(SliceEnd::Finished)) => self.end(self.job.signals.is_cancelled()),
            Ok(Ok(end)) => end,
            Ok(Err(error)) => {
                let error = self.lay_error(error);
                self.fail(error)
            }
            Err(payload) => {
                let error = self.lay_panic(&*payload);
                quietly(|| drop(payload));
                self.fail(error)
            }
        }
    }

    /// Tells the job that this tasklet has ended. Nothing of it is left then.
    pub(crate) fn report(self: Box<Self>) {
        let Tasklet {
            job, was_cut_short, ..
        } = *self;
        job.tasklet_finished(was_cut_short);
        // The last one drops the job, and with it the user's receiver of dead letters.
        quietly(|| drop(job));
    }

    fn work(&mut self) -> Result<SliceEnd> {
        if !self.is_open {
            self.open()?;
        }
        let clock = self.stages[0].context.clock.clone();
        let start = clock.now();
        let (moved, now) = self.passes(&clock, start)?;
        // The end of the slice sends what has gathered: batching never adds waiting.
        let mut flushed = true;
        for edge in &mut self.outputs {
            edge.flush();
            flushed &= edge.is_flushed();
        }
        self.stages[0].context.metrics.count_slice(now - start);
        if self.is_urgent && !self.inputs.is_urgent() {
            self.is_urgent = false;
            self.job.urgent_input_ended();
        }
        if self.stages.iter().all(Stage::is_finished) && flushed {
            return Ok(SliceEnd::Finished);
        }
        if moved {
            return Ok(SliceEnd::Again);
        }
        self.count_blocked(flushed);
        let poll = start.saturating_add(self.idle_poll);
        Ok(SliceEnd::Rest {
            wake_at: self
                .stages
                .iter()
                .filter_map(|stage| stage.next_call(poll))
                .min(),
        })
    }

    /// Passes until nothing moves or the slice is over; whether something moved last, and the time then.
    ///
    /// Looking at the clock costs as much as a few dozen records: while passes are short, several go by between two looks.
    fn passes(&mut self, clock: &Clock, start: Duration) -> Result<(bool, Duration)> {
        const MOST_BETWEEN_LOOKS: u32 = 8;
        let (mut between_looks, mut before) = (1, start);
        loop {
            let mut moved = true;
            for _ in 0..between_looks {
                moved = self.pass()?;
                if !moved {
                    break;
                }
            }
            let now = clock.now();
            if !moved || now - start >= self.slice {
                return Ok((moved, now));
            }
            let is_short = now - before < self.slice / 16;
            between_looks = if is_short {
                (between_looks * 2).min(MOST_BETWEEN_LOOKS)
            } else {
                1
            };
            before = now;
        }
    }

    fn open(&mut self) -> Result<()> {
        for at in 0..self.stages.len() {
            self.at = Place::Stage(at);
            self.stages[at].init()?;
        }
        self.is_open = true;
        Ok(())
    }

    /// Lets each stage do one thing, first to last, so that a chunk passes through the whole chain while it is in the cache.
    fn pass(&mut self) -> Result<bool> {
        let mut moved = false;
        for at in 0..self.stages.len() {
            self.at = Place::Stage(at);
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
            self.at = Place::Output(lane);
            moved |= edge.drain(&mut tail.outbox, lane, &tail.context.metrics)?;
        }
        Ok(moved)
    }

    /// Counts a slice that ended because outputs are full, for each stage that waits for room.
    fn count_blocked(&self, flushed: bool) {
        let last = self.stages.len() - 1;
        for (at, stage) in self.stages.iter().enumerate() {
            if !stage.outbox.is_empty() || at == last && !flushed {
                stage.context.metrics.count_blocked();
            }
        }
    }

    fn lay_error(&self, error: Error) -> Error {
        match self.at {
            Place::Stage(at) => self.stages[at].place(error, None),
            Place::Output(_) => self.tail().named(error),
        }
    }

    fn lay_panic(&self, payload: &(dyn Any + Send)) -> Error {
        let said = message(payload);
        let index = take_failed_index();
        let error = |what| Error::new(ErrorCode::UserPanic, what);
        match self.at {
            Place::Stage(at) => {
                self.stages[at].place(error(format!("user code panicked: {said}")), index)
            }
            Place::Output(lane) => {
                let which = match index {
                    Some(index) => format!("record {}", self.outputs[lane].position(index)),
                    None => "a record".to_string(),
                };
                self.tail().named(error(format!(
                    "user code panicked routing {which} of output {lane}: {said}"
                )))
            }
        }
    }

    fn tail(&self) -> &Stage {
        &self.stages[self.stages.len() - 1]
    }

    fn fail(&mut self, error: Error) -> SliceEnd {
        self.job.fail(error);
        self.end(true)
    }

    /// Closes all processors, then drops them, their boxes and the queues' ends with all records in them.
    fn end(&mut self, cut_short: bool) -> SliceEnd {
        self.was_cut_short = cut_short;
        for stage in &mut self.stages {
            // A close that panics must not keep the others from closing.
            quietly(|| stage.close());
        }
        for stage in self.stages.drain(..) {
            stage.dismantle();
        }
        let (inputs, outputs) = (
            mem::replace(&mut self.inputs, InputSet::new(Vec::new())),
            mem::take(&mut self.outputs),
        );
        quietly(|| drop(inputs));
        quietly(|| drop(outputs));
        SliceEnd::Finished
    }
}
