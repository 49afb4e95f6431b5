//! Making a tasklet's processors anew after a failure, where the job says so.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Instance, Result};

use super::{SliceEnd, Tasklet};
use crate::InstanceFailure;
use crate::job::Counted;
use crate::launch::Launch;
use crate::panics::quietly;
use crate::stage::Stage;
use crate::worker::TaskletWaker;

/// How long a tasklet rests after its first failure; twice as long after each that follows soon.
const FIRST_REST: Duration = Duration::from_millis(10);

/// How long it rests at the most.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// A tasklet that has worked for so long is not thought to fail again soon.
const GOOD_RUN: Duration = Duration::from_secs(10);

/// How to make the processors of a tasklet once more, and how that has gone.
pub(crate) struct Remake {
    launch: Arc<Launch>,
    chain: usize,
    which: Instance,
    place: TaskletWaker,
    /// The counters go on.
    counted: Vec<Counted>,
    failures: u32,
    failures_in_a_row: u32,
    /// After more of these the job fails.
    most_in_a_row: u32,
    /// When the processors were made last.
    made_at: Duration,
    /// Without processors, it is when they are made.
    due: Option<Duration>,
    /// What its first stage had been told.
    is_kept_back: bool,
    is_dismissed: bool,
}

impl Remake {
    pub(crate) fn new(
        launch: Arc<Launch>,
        (chain, which): (usize, Instance),
        place: TaskletWaker,
        counted: Vec<Counted>,
        most_in_a_row: u32,
    ) -> Self {
        Remake {
            made_at: launch.clock.now(),
            launch,
            chain,
            which,
            place,
            counted,
            failures: 0,
            failures_in_a_row: 0,
            most_in_a_row,
            due: None,
            is_kept_back: false,
            is_dismissed: false,
        }
    }

    /// How long to rest after one failure more; none if it was one too many.
    fn rest(&mut self, now: Duration) -> Option<Duration> {
        if now.saturating_sub(self.made_at) > GOOD_RUN {
            self.failures_in_a_row = 0;
        }
        if self.failures_in_a_row >= self.most_in_a_row {
            return None;
        }
        let doubled = FIRST_REST.saturating_mul(1 << self.failures_in_a_row.min(16));
        self.failures += 1;
        self.failures_in_a_row += 1;
        Some(doubled.min(LONGEST_REST))
    }

    /// What the job fails with after the last failure of too many.
    fn too_many(&self, last: Error) -> Error {
        let names = self.launch.names(self.chain);
        let (vertex, instance) = last.vertex().unwrap_or((&*names[0], self.which.index));
        let times = self.failures_in_a_row.saturating_add(1);
        let what = format!("it failed {times} times in a row, and is not started again");
        let hint = last.what_next().map_or_else(
            || "mend what makes it fail, which is said above; what it fails on comes again".into(),
            str::to_string,
        );
        Error::new(ErrorCode::FailsAgain, what)
            .in_vertex(vertex, instance)
            .hint(hint)
            .because(last.without_hint())
    }

    fn stages(&self) -> Result<Vec<Stage>> {
        let Remake {
            launch,
            chain,
            which,
            ..
        } = self;
        let (mut stages, _) = launch.chain(
            *chain,
            *which,
            &self.place,
            (self.is_kept_back, false),
            Some(&self.counted),
        )?;
        if self.is_dismissed {
            stages[0].dismiss();
        }
        Ok(stages)
    }
}

impl Tasklet {
    /// From now on its processors are made anew when they fail.
    pub(crate) fn restarting(mut self, remake: Remake) -> Self {
        self.remake = Some(Box::new(remake));
        self
    }

    /// Gives its processors up, with the records that they had at hand, and rests.
    pub(super) fn give_up(&mut self, error: Error) -> SliceEnd {
        let Some(remake) = &mut self.remake else {
            return self.end(true);
        };
        let now = remake.launch.clock.now();
        let Some(rest) = remake.rest(now) else {
            let error = remake.too_many(error);
            self.job.fail(error);
            return self.end(true);
        };
        let due = now.saturating_add(rest);
        let mut lost = 0;
        if let Some(head) = self.stages.first() {
            (remake.is_kept_back, remake.is_dismissed) = head.standing();
        }
        if let Some(tail) = self.stages.last() {
            for (lane, edge) in self.outputs.iter_mut().enumerate() {
                edge.interrupt(tail.outbox.peek_marker(lane));
            }
        }
        for stage in &mut self.stages {
            lost += stage.at_hand();
            quietly(|| stage.close());
        }
        self.stages.drain(..).for_each(Stage::dismantle);
        remake.due = Some(due);
        self.job.note_failure(InstanceFailure {
            vertices: remake.launch.names(remake.chain),
            instance: remake.which.index,
            lost,
            restarts: remake.failures,
            error,
        });
        SliceEnd::Rest { wake_at: Some(due) }
    }

    /// If it has no processors: makes them when it is time, else says how its slice ends.
    pub(super) fn make_anew(&mut self) -> Option<SliceEnd> {
        let remake = self.remake.as_mut()?;
        let due = remake.due?;
        let now = remake.launch.clock.now();
        if now < due {
            return Some(SliceEnd::Rest { wake_at: Some(due) });
        }
        match remake.stages() {
            Ok(stages) => {
                (remake.due, remake.made_at) = (None, now);
                self.stages = stages;
                self.is_open = false;
                if let Some(inputs) = &mut self.inputs {
                    inputs.tell_again();
                }
                None
            }
            Err(error) => Some(self.give_up(error)),
        }
    }
}
