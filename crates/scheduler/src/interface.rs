//! The interface of schedulers.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ardea_coordination::control::{ContainerRequest, Displaced, Order, SchedulerTraits, WorkerId};
use ardea_coordination::packing::ContainerId;
use ardea_core::Result;

use crate::{ContainerEvents, LaunchPlan, LogPiece, LogRequest, RunningContainer};

/// What an operation of a scheduler returns: a future in a box, so that the traits can be used as `dyn`.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A way to get containers, such as the processes of this machine or a Slurm cluster: makes a [`Scheduler`] a job.
pub trait SchedulerKind: Send + Sync + fmt::Debug {
    /// What its schedulers are like.
    ///
    /// A *stateful* one watches containers and starts a failed one again only when the job's master says so, by
    /// [`Scheduler::on_restart`]. A *stateless* one leaves that to its framework, which starts a failed container again by
    /// itself, with a greater incarnation. One that takes only *homogeneous* containers is asked for containers of one size.
    fn traits(&self) -> SchedulerTraits;

    /// Makes the scheduler of a job (Heron's `initialize`), which finds again what runs of it.
    ///
    /// The events begin with a [`Started`](crate::ContainerEvent::Started) for each container that runs already.
    ///
    /// # Errors
    ///
    /// When its framework can't be reached or refuses; nothing has been started or stopped then.
    fn initialize(&self, launch: LaunchPlan) -> Pending<'_, (Arc<dyn Scheduler>, ContainerEvents)>;
}

/// Starts, restarts and stops the containers of one job.
///
/// Each call that changes something comes with an [`Order`]. It may be repeated: what was done for an order is not done
/// again, what was left half done is completed. A call of an older mastership than one that was heard, or of an older order
/// about the same subject (all containers, or one), is refused with
/// [`Superseded`](ardea_core::ErrorCode::Superseded). Calls about different containers may be under way at the same time.
///
/// A call that fails is repeated by the master after a while; other containers than those that could not be started
/// are started all the same.
///
/// Dropping a scheduler stops no container.
pub trait Scheduler: Send + Sync + fmt::Debug {
    /// Have exactly these containers, when none is there so far.
    ///
    /// Containers are started on their way when it returns; that their workers have come is heard by the master itself.
    fn on_schedule(&self, order: Order, containers: Vec<ContainerRequest>) -> Pending<'_, ()>;

    /// Have exactly these containers from now on: start those that are missing, stop others, leave those that run, even if
    /// what they need has changed.
    ///
    /// Unless a scheduler knows better, that is the same as [`on_schedule`](Scheduler::on_schedule).
    fn on_update(&self, order: Order, containers: Vec<ContainerRequest>) -> Pending<'_, ()> {
        self.on_schedule(order, containers)
    }

    /// Stop what runs in this container, and start it again. Returns the incarnation of the new worker.
    fn on_restart(&self, order: Order, container: ContainerId) -> Pending<'_, u64>;

    /// Stop all containers, and refuse to start any for this job again. When it returns none is left that can be reached.
    fn on_kill(&self, order: Order) -> Pending<'_, ()>;

    /// Which workers the job's master hears at the moment; said before each call and when others are heard, and not waited for.
    ///
    /// A scheduler that does not see a container's machine must not take such a container for lost. One that sees all of them,
    /// or leaves that to a framework, need not listen.
    fn heard(&self, workers: &[WorkerId]) {
        let _ = workers;
    }

    /// The containers that are to leave their hosts, and which of them can: asked every second, so that it may not cost much when there is
    /// none. There never is for a scheduler whose framework takes care of that, or that has one host.
    fn displaced(&self) -> Pending<'_, Vec<Displaced>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// The containers that run.
    fn containers(&self) -> Pending<'_, Vec<RunningContainer>>;

    /// A piece of what a container has written; also of one that has ended, as long as that is kept.
    ///
    /// # Errors
    ///
    /// [`NoSuchContainer`](ardea_core::ErrorCode::NoSuchContainer) if there is none, or no such file,
    /// [`ReadFailed`](ardea_core::ErrorCode::ReadFailed) if it can't be read.
    fn logs(&self, container: ContainerId, request: LogRequest) -> Pending<'_, LogPiece>;

    /// Ends the scheduler, not the containers: stops watching and telling, and gives back what it holds. [`logs`](Scheduler::logs) goes on
    /// to answer as long as somebody has the scheduler: who follows what a job writes reads it to its end.
    fn close(&self) -> Pending<'_, ()>;
}
