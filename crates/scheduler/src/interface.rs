//! The interface of schedulers.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ardea_coordination::control::{
    ContainerRequest, ContainersToMove, Order, SchedulerTraits, WorkerId,
};
use ardea_coordination::packing::ContainerId;
use ardea_core::Result;

use crate::{ContainerEvents, LaunchPlan, LogPiece, LogRequest, RunningContainer};

/// The return type of scheduler operations: a boxed future, so that the traits are object-safe.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A kind of scheduler, such as local processes or a Slurm cluster. Creates one [`Scheduler`] per
/// job.
pub trait SchedulerKind: Send + Sync + fmt::Debug {
    /// Returns the properties of this kind's schedulers.
    ///
    /// A *stateful* scheduler watches containers, and restarts a failed container only on request
    /// of the job's leader, by [`Scheduler::on_restart`]. A *stateless* scheduler leaves both to
    /// its framework, which restarts a failed container with a greater incarnation. A *homogeneous*
    /// scheduler gets only containers of one size.
    fn traits(&self) -> SchedulerTraits;

    /// Creates the scheduler of a job (Heron's `initialize`). The scheduler finds the job's running
    /// containers.
    ///
    /// The events begin with a [`Started`](crate::ContainerEvent::Started) for each running
    /// container.
    ///
    /// # Errors
    ///
    /// If the framework is unreachable or refuses the request. No container has been started or
    /// stopped then.
    fn initialize(&self, launch: LaunchPlan) -> Pending<'_, (Arc<dyn Scheduler>, ContainerEvents)>;
}

/// The scheduler of one job, which starts, restarts and stops the job's containers.
///
/// Each call that changes containers carries an [`Order`] and may be repeated: completed work is
/// not repeated, partial work is completed. A call of an earlier leader, or with an older order for
/// the same subject (all containers, or one container), fails with
/// [`Superseded`](ardea_core::ErrorCode::Superseded). Calls about different containers may run
/// concurrently.
///
/// The leader retries a failed call after a delay. A container that cannot be started does not
/// prevent others from being started.
///
/// Dropping a scheduler stops no container.
pub trait Scheduler: Send + Sync + fmt::Debug {
    /// Starts exactly these containers. The job has no containers so far.
    ///
    /// The containers have been launched when the call returns. The leader waits for the workers to
    /// register.
    fn on_schedule(&self, order: Order, containers: Vec<ContainerRequest>) -> Pending<'_, ()>;

    /// Sets the job's containers to exactly these: starts missing ones, stops others, and leaves
    /// running ones, even if their requirements have changed.
    ///
    /// The default implementation calls [`on_schedule`](Scheduler::on_schedule).
    fn on_update(&self, order: Order, containers: Vec<ContainerRequest>) -> Pending<'_, ()> {
        self.on_schedule(order, containers)
    }

    /// Stops the process in this container and starts it again. Returns the incarnation of the new
    /// worker.
    fn on_restart(&self, order: Order, container: ContainerId) -> Pending<'_, u64>;

    /// Stops all containers of the job, and refuses to start any later. When the call returns, no
    /// reachable container is left.
    fn on_kill(&self, order: Order) -> Pending<'_, ()>;

    /// Receives the workers from which the leader currently gets heartbeats. The leader calls this
    /// before each other call and on every change. Must not block.
    ///
    /// A scheduler that has lost contact with a container's machine must not treat the container as
    /// lost while its worker is in `workers`. A scheduler that sees all machines, or uses a
    /// framework for this, may ignore the call.
    fn on_live_workers(&self, workers: &[WorkerId]) {
        let _ = workers;
    }

    /// Returns the containers that must leave their hosts, and those among them that have room
    /// elsewhere. The leader calls this every second, so it must be cheap if no container must
    /// leave. The default implementation returns none, for schedulers with one host or with a
    /// framework that moves containers.
    fn displaced(&self) -> Pending<'_, Vec<ContainersToMove>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Returns the running containers.
    fn containers(&self) -> Pending<'_, Vec<RunningContainer>>;

    /// Returns a piece of a container's output. The output of an ended container can be read while
    /// it is retained.
    ///
    /// # Errors
    ///
    /// [`NoSuchContainer`](ardea_core::ErrorCode::NoSuchContainer) if there is no such container or
    /// file, [`ReadFailed`](ardea_core::ErrorCode::ReadFailed) if the output can't be read.
    fn logs(&self, container: ContainerId, request: LogRequest) -> Pending<'_, LogPiece>;

    /// Closes the scheduler, but stops no container: ends the watch and the events, and releases
    /// resources. [`logs`](Scheduler::logs) works until the scheduler is dropped, so that readers
    /// can finish.
    fn close(&self) -> Pending<'_, ()>;
}
