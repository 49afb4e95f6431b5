//! What a job's master holds of its scheduler: translates control's calls, and makes containers equal where they have to be.

use std::sync::Arc;

use ardea_control::{ContainerRequest, Order, SchedulerAnswer, SchedulerCall, SchedulerTraits};
use ardea_core::Result;
use ardea_packing::{ContainerId, Resources};

use crate::{LogPiece, LogRequest, RunningContainer, Scheduler};

/// A job's scheduler and what it is like. Cheap to clone.
#[derive(Clone, Debug)]
pub struct JobScheduler {
    traits: SchedulerTraits,
    scheduler: Arc<dyn Scheduler>,
}

impl JobScheduler {
    /// A scheduler whose kind has these traits.
    pub fn new(traits: SchedulerTraits, scheduler: Arc<dyn Scheduler>) -> Self {
        JobScheduler { traits, scheduler }
    }

    /// What the scheduler is like.
    pub fn traits(&self) -> SchedulerTraits {
        self.traits
    }

    /// Carries out a call of the job's master. May be called again, with the same or another call, before it has returned.
    pub async fn call(&self, order: Order, call: SchedulerCall) -> SchedulerAnswer {
        let done = match call {
            SchedulerCall::Have(requests) => self.have(order, requests).await,
            SchedulerCall::Kill => self.scheduler.on_kill(order).await,
            SchedulerCall::Restart(container) => {
                match self.scheduler.on_restart(order, container).await {
                    Ok(incarnation) => return SchedulerAnswer::Restarted(incarnation),
                    Err(error) => Err(error),
                }
            }
        };
        match done {
            Ok(()) => SchedulerAnswer::Done,
            Err(error) => SchedulerAnswer::Failed(error.to_string()),
        }
    }

    async fn have(&self, order: Order, mut requests: Vec<ContainerRequest>) -> Result<()> {
        if self.traits.homogeneous {
            make_equal(&mut requests);
        }
        match self.scheduler.containers().await?.is_empty() {
            true => self.scheduler.on_schedule(order, requests).await,
            false => self.scheduler.on_update(order, requests).await,
        }
    }

    /// The containers that run.
    ///
    /// # Errors
    ///
    /// When the framework can't be asked.
    pub async fn containers(&self) -> Result<Vec<RunningContainer>> {
        self.scheduler.containers().await
    }

    /// A piece of what a container has written; see [`Scheduler::logs`].
    ///
    /// # Errors
    ///
    /// As of [`Scheduler::logs`].
    pub async fn logs(&self, container: ContainerId, request: LogRequest) -> Result<LogPiece> {
        self.scheduler.logs(container, request).await
    }

    /// Ends the scheduler, not the containers.
    ///
    /// # Errors
    ///
    /// When the framework can't be told; nothing is held any more all the same.
    pub async fn close(&self) -> Result<()> {
        self.scheduler.close().await
    }
}

/// Gives all containers the size of which each of them has enough.
fn make_equal(requests: &mut [ContainerRequest]) {
    let most = requests
        .iter()
        .map(|request| request.required)
        .fold(Resources::ZERO, Resources::max_of_each);
    for request in requests {
        request.required = most;
    }
}
