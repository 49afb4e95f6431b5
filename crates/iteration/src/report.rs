//! The result of a run.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::Result;

use crate::shared_variable::SharedVariable;
use crate::variables::{Variable, Variables};

/// The reason why a run has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopReason {
    /// The maximum number of iterations was reached.
    Count,
    /// The condition was fulfilled.
    Condition,
}

/// Counters of a run in one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IterationCounters {
    /// Groups of iterations.
    pub groups: u64,
    /// Messages between the coordinator and its threads: a plan and a report for each thread and
    /// group.
    pub coordination_messages: u64,
    /// Time between the last update of a group and the first task of the next group.
    pub coordination_time: Duration,
    /// Messages with updates to other processes.
    pub exchanged_messages: u64,
    /// Bytes of updates to other processes.
    pub exchanged_bytes: u64,
}

/// The result of a run.
#[derive(Debug)]
pub struct IterationReport {
    pub(crate) variables: Variables,
    pub(crate) stop: StopReason,
    pub(crate) counters: IterationCounters,
    pub(crate) times: Vec<Duration>,
}

impl IterationReport {
    /// Returns the final value of a variable.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if the variable belongs to
    /// another iteration.
    pub fn value<V: SharedVariable>(&self, variable: &Variable<V>) -> Result<Arc<V>> {
        self.variables.value(variable)
    }

    /// Returns the number of iterations whose updates the values contain, those before a restored
    /// snapshot included.
    pub fn iterations(&self) -> u64 {
        self.variables.iterations()
    }

    /// Returns the reason why the run has ended.
    pub fn stop_reason(&self) -> StopReason {
        self.stop
    }

    /// Returns the counters of this process.
    pub fn counters(&self) -> &IterationCounters {
        &self.counters
    }

    /// Returns the time between the updates of each iteration and those of the previous one, for
    /// the first million of iterations. The first time counts from the start of the run.
    pub fn iteration_times(&self) -> &[Duration] {
        &self.times
    }

    /// Returns the variables, for another run.
    pub fn into_variables(self) -> Variables {
        self.variables
    }
}
