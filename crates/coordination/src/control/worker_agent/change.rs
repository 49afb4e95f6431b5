//! The actions of a worker's agent on its process.

use std::sync::Arc;

use crate::control::{ExecutionAttempt, Order, Rejection, RestoredWorker, Run};
use crate::packing::{InstanceId, PackingPlan};

/// A change of the instances that a worker runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The order of the assignment.
    pub order: Order,
    /// The instances to start.
    pub start: Vec<InstanceId>,
    /// The instances to stop.
    pub stop: Vec<InstanceId>,
    /// The state of the sources.
    pub run: Run,
    /// The plan by which records are routed from now on.
    pub routes: Arc<PackingPlan>,
    /// The plan by which records will be routed next. Equal to `routes` unless plans are being
    /// changed.
    pub next: Arc<PackingPlan>,
    /// The plan by which records still in transit may have been routed. Equal to `routes` unless
    /// the routes have just been switched.
    pub last: Arc<PackingPlan>,
    /// The execution attempt of the instances, if the job has a guarantee.
    pub attempt: Option<ExecutionAttempt>,
    /// True if `attempt` differs from the previous attempt. Then all running instances are stopped,
    /// and the new ones start as `attempt` specifies. Later events of the previous attempt are
    /// ignored.
    pub begins: bool,
    /// The workers that were restored alone in the attempt.
    pub restarted: Arc<[RestoredWorker]>,
}

/// The reason for which a worker exits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaveReason {
    /// The job is over.
    JobOver,
    /// The master has refused the worker.
    Refused(Rejection),
}
