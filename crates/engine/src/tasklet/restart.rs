//! Restart of a tasklet's processors after a failure, if the job is configured so.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Instance, OutboxRuntime, Result};

use super::{SliceEnd, Tasklet};
use crate::InstanceFailure;
use crate::deployment::launch::Launch;
use crate::executor::worker_shared::TaskletWaker;
use crate::job::InstanceMetricsHandle;
use crate::panics::quietly;
use crate::stage::ProcessorStage;

/// Restart delay after the first failure; doubled for each later failure that follows soon.
const FIRST_REST: Duration = Duration::from_millis(10);

/// Maximum restart delay.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// Runtime after which the next failure counts as the first again.
const RESET_AFTER: Duration = Duration::from_secs(10);

/// The factory for a tasklet's new processors, and the history of its failures.
pub(crate) struct RestartFactory {
    launch: Arc<Launch>,
    chain: usize,
    which: Instance,
    place: TaskletWaker,
    /// The counters of the instances, which continue after a restart.
    counted: Vec<InstanceMetricsHandle>,
    failures: u32,
    failures_in_a_row: u32,
    /// Maximum number of consecutive restarts before the job fails.
    most_in_a_row: u32,
    /// Time at which the present processors were created.
    made_at: Duration,
    /// Time of the restart, while there are no processors.
    due: Option<Duration>,
    /// True if the first stage was a source that was held back, when the tasklet failed.
    is_kept_back: bool,
    is_dismissed: bool,
}

impl RestartFactory {
    pub(crate) fn new(
        launch: Arc<Launch>,
        (chain, which): (usize, Instance),
        place: TaskletWaker,
        counted: Vec<InstanceMetricsHandle>,
        most_in_a_row: u32,
    ) -> Self {
        RestartFactory {
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

    /// Returns the delay after another failure; `None` if it was one too many.
    fn rest(&mut self, now: Duration) -> Option<Duration> {
        if now.saturating_sub(self.made_at) > RESET_AFTER {
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

    /// Returns the error of the job after too many failures.
    fn too_many(&self, last: Error) -> Error {
        let names = self.launch.names(self.chain);
        let (vertex, instance) = last.vertex().unwrap_or((&*names[0], self.which.index));
        let times = self.failures_in_a_row.saturating_add(1);
        let what = format!("it failed {times} times in a row, and is not started again");
        let hint = last.hint_text().map_or_else(
            || "fix the cause given above; the record that triggers it is replayed".into(),
            str::to_string,
        );
        Error::new(ErrorCode::RestartLimitReached, what)
            .in_vertex(vertex, instance)
            .hint(hint)
            .because(last.without_hint())
    }

    fn stages(&self) -> Result<Vec<ProcessorStage>> {
        let RestartFactory {
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
    /// Enables restarts of the tasklet's processors.
    pub(crate) fn restarting(mut self, remake: RestartFactory) -> Self {
        self.remake = Some(Box::new(remake));
        self
    }

    /// Drops the tasklet's processors with the records that they were processing, and waits for the
    /// restart.
    pub(super) fn schedule_restart(&mut self, error: Error) -> SliceEnd {
        let Some(remake) = &mut self.remake else {
            return self.end(true);
        };
        if error.code() == ErrorCode::RestartLimitReached {
            // The instance has restarted its process too often.
            self.job.fail(error);
            return self.end(true);
        }
        let now = remake.launch.clock.now();
        let Some(rest) = remake.rest(now) else {
            let error = remake.too_many(error);
            self.job.fail(error);
            return self.end(true);
        };
        let due = now.saturating_add(rest);
        let mut lost = 0;
        if let Some(head) = self.stages.first() {
            (remake.is_kept_back, remake.is_dismissed) = head.source_state();
        }
        if let Some(tail) = self.stages.last() {
            for (lane, edge) in self.outputs.iter_mut().enumerate() {
                edge.interrupt(tail.outbox.peek_marker(lane));
            }
        }
        for stage in &mut self.stages {
            lost += stage.pending_records();
            quietly(|| stage.close());
        }
        self.stages.drain(..).for_each(ProcessorStage::dismantle);
        remake.due = Some(due);
        self.job.note_failure(InstanceFailure {
            vertices: remake.launch.names(remake.chain),
            instance: remake.which.index,
            lost,
            restarts: remake.failures,
            error,
            is_of_process: false,
        });
        SliceEnd::Rest { wake_at: Some(due) }
    }

    /// Creates new processors when the restart delay is over. Returns the end of the slice until
    /// then, or if the creation fails; `None` if the tasklet has processors.
    pub(super) fn restart_if_due(&mut self) -> Option<SliceEnd> {
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
                    inputs.repeat_state();
                }
                None
            }
            Err(error) => Some(self.schedule_restart(error)),
        }
    }
}
