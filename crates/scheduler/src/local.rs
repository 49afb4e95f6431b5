//! The scheduler `local`: all containers on this machine.

use std::fmt;
use std::sync::Arc;

use ardea_coordination::control::{ContainerRequest, Order, SchedulerTraits};
use ardea_coordination::packing::ContainerId;

use crate::runner::RunnerJob;
use crate::{
    ContainerEvents, LaunchPlan, LogPiece, LogRequest, Pending, Runner, RunningContainer,
    Scheduler, SchedulerKind,
};

/// The scheduler that runs all containers on this machine, with a [`Runner`] in this process.
///
/// The scheduler is stateful: the leader decides when an ended container is restarted, with the
/// delays of [`Backoff`](ardea_coordination::control::Backoff). Containers may be of different
/// sizes.
#[derive(Clone, Debug)]
pub struct Local(Runner);

impl Local {
    /// Creates the scheduler with this runner.
    pub fn new(runner: Runner) -> Self {
        Local(runner)
    }
}

impl SchedulerKind for Local {
    fn traits(&self) -> SchedulerTraits {
        SchedulerTraits {
            stateful: true,
            homogeneous: false,
        }
    }

    fn initialize(&self, launch: LaunchPlan) -> Pending<'_, (Arc<dyn Scheduler>, ContainerEvents)> {
        Box::pin(async move {
            let (job, events) = self.0.job(launch).await?;
            Ok((Arc::new(LocalJob(job)) as Arc<dyn Scheduler>, events))
        })
    }
}

/// The scheduler of one job.
struct LocalJob(RunnerJob);

impl Scheduler for LocalJob {
    fn on_schedule(&self, order: Order, containers: Vec<ContainerRequest>) -> Pending<'_, ()> {
        Box::pin(self.0.have(order, containers, 0))
    }

    fn on_restart(&self, order: Order, container: ContainerId) -> Pending<'_, u64> {
        Box::pin(self.0.restart(order, container, None, 0))
    }

    fn on_kill(&self, order: Order) -> Pending<'_, ()> {
        Box::pin(self.0.kill(order))
    }

    fn containers(&self) -> Pending<'_, Vec<RunningContainer>> {
        Box::pin(self.0.containers())
    }

    fn logs(&self, container: ContainerId, request: LogRequest) -> Pending<'_, LogPiece> {
        Box::pin(self.0.logs(container, request))
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.0.close();
            Ok(())
        })
    }
}

impl fmt::Debug for LocalJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LocalJob").field(&self.0).finish()
    }
}
