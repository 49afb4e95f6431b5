//! The leader's handle to a job's scheduler: translates calls of the leader's state machine, and
//! gives all containers the same size for homogeneous schedulers.

use std::sync::Arc;

use ardea_coordination::control::{
    ContainerRequest, ContainersToMove, Order, SchedulerAnswer, SchedulerCall, SchedulerTraits,
    WorkerId,
};
use ardea_coordination::packing::{ContainerId, Resources};
use ardea_core::Result;

use crate::{LogPiece, LogRequest, RunningContainer, Scheduler};

/// A job's scheduler and its properties. Cheap to clone.
#[derive(Clone, Debug)]
pub struct JobScheduler {
    traits: SchedulerTraits,
    scheduler: Arc<dyn Scheduler>,
}

impl JobScheduler {
    /// Creates the handle from a scheduler and the properties of its kind.
    pub fn new(traits: SchedulerTraits, scheduler: Arc<dyn Scheduler>) -> Self {
        JobScheduler { traits, scheduler }
    }

    /// Returns the properties of the scheduler.
    pub fn traits(&self) -> SchedulerTraits {
        self.traits
    }

    /// Passes on the workers with current heartbeats, see [`Scheduler::on_live_workers`].
    pub fn on_live_workers(&self, workers: &[WorkerId]) {
        self.scheduler.on_live_workers(workers);
    }

    /// Carries out a call of the leader. The same or another call may be made concurrently.
    pub async fn call(&self, order: Order, call: SchedulerCall) -> SchedulerAnswer {
        let done = match call {
            SchedulerCall::EnsureContainers(requests) => self.have(order, requests).await,
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

    /// Returns the containers that must leave their hosts, see [`Scheduler::displaced`].
    ///
    /// # Errors
    ///
    /// If the framework is unreachable.
    pub async fn displaced(&self) -> Result<Vec<ContainersToMove>> {
        self.scheduler.displaced().await
    }

    /// Returns the running containers.
    ///
    /// # Errors
    ///
    /// If the framework is unreachable.
    pub async fn containers(&self) -> Result<Vec<RunningContainer>> {
        self.scheduler.containers().await
    }

    /// Returns a piece of a container's output; see [`Scheduler::logs`].
    ///
    /// # Errors
    ///
    /// Those of [`Scheduler::logs`].
    pub async fn logs(&self, container: ContainerId, request: LogRequest) -> Result<LogPiece> {
        self.scheduler.logs(container, request).await
    }

    /// Closes the scheduler, but stops no container.
    ///
    /// # Errors
    ///
    /// If the framework is unreachable. Resources are released even then.
    pub async fn close(&self) -> Result<()> {
        self.scheduler.close().await
    }
}

/// Sets each resource of all requests to the maximum over the requests.
fn make_equal(requests: &mut [ContainerRequest]) {
    let most = requests
        .iter()
        .map(|request| request.required)
        .fold(Resources::ZERO, Resources::max_of_each);
    for request in requests {
        request.required = most;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pending;
    use ardea_coordination::control::MasterEpoch;
    use ardea_coordination::packing::MilliCores;
    use ardea_core::{Error, ErrorCode};
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    /// A scheduler that records the calls and requests that it gets.
    #[derive(Debug, Default)]
    struct Recorder(Mutex<Vec<String>>, Mutex<Vec<ContainerRequest>>);

    impl Recorder {
        fn note(&self, what: String) {
            self.0.lock().expect("no panic").push(what);
        }
    }

    impl Scheduler for Recorder {
        fn on_schedule(&self, order: Order, requests: Vec<ContainerRequest>) -> Pending<'_, ()> {
            self.note(format!("schedule {} at {}", requests.len(), order.number));
            *self.1.lock().expect("no panic") = requests;
            Box::pin(async { Ok(()) })
        }

        fn on_update(&self, order: Order, requests: Vec<ContainerRequest>) -> Pending<'_, ()> {
            self.note(format!("update {} at {}", requests.len(), order.number));
            *self.1.lock().expect("no panic") = requests;
            Box::pin(async { Ok(()) })
        }

        fn on_restart(&self, order: Order, container: ContainerId) -> Pending<'_, u64> {
            self.note(format!("restart {container} at {}", order.number));
            Box::pin(async { Ok(7) })
        }

        fn on_kill(&self, _: Order) -> Pending<'_, ()> {
            Box::pin(async { Err(Error::new(ErrorCode::SchedulerUnavailable, "no answer")) })
        }

        fn containers(&self) -> Pending<'_, Vec<RunningContainer>> {
            let requests = self.1.lock().expect("no panic").clone();
            let running = requests.into_iter().map(|request| RunningContainer {
                worker: ardea_coordination::control::WorkerId {
                    container: request.id,
                    incarnation: 1,
                },
                host: String::new(),
                host_name: None,
                process: String::new(),
            });
            let running = running.collect();
            Box::pin(async move { Ok(running) })
        }

        fn logs(&self, _: ContainerId, _: LogRequest) -> Pending<'_, LogPiece> {
            Box::pin(async { Err(Error::new(ErrorCode::NoSuchContainer, "none")) })
        }

        fn close(&self) -> Pending<'_, ()> {
            Box::pin(async { Ok(()) })
        }
    }

    fn order(number: u64) -> Order {
        let epoch = MasterEpoch(1);
        Order { epoch, number }
    }

    fn request(id: u32, cpu: u64, memory_bytes: u64) -> ContainerRequest {
        let required = Resources {
            cpu: MilliCores(cpu),
            memory_bytes,
            disk_bytes: 0,
        };
        ContainerRequest {
            id: ContainerId(id),
            required,
            attributes: BTreeMap::new(),
        }
    }

    async fn sizes_after(homogeneous: bool) -> Vec<(u64, u64)> {
        let recorder = Arc::new(Recorder::default());
        let traits = SchedulerTraits {
            stateful: true,
            homogeneous,
        };
        let scheduler = JobScheduler::new(traits, Arc::clone(&recorder) as Arc<dyn Scheduler>);
        let requests = vec![request(1, 500, 9), request(2, 1500, 3)];
        scheduler
            .call(order(1), SchedulerCall::EnsureContainers(requests))
            .await;
        let asked = recorder.1.lock().expect("no panic");
        let sizes = asked.iter().map(|asked| asked.required);
        sizes.map(|size| (size.cpu.0, size.memory_bytes)).collect()
    }

    #[tokio::test]
    async fn containers_are_made_equal_where_they_have_to_be_and_left_as_they_are_elsewhere() {
        assert_eq!(sizes_after(true).await, [(1500, 9), (1500, 9)]);
        assert_eq!(sizes_after(false).await, [(500, 9), (1500, 3)]);
    }

    #[tokio::test]
    async fn each_call_becomes_what_the_interface_has_for_it() {
        let recorder = Arc::new(Recorder::default());
        let scheduler = Arc::clone(&recorder) as Arc<dyn Scheduler>;
        let scheduler = JobScheduler::new(SchedulerTraits::default(), scheduler);
        let have = || SchedulerCall::EnsureContainers(vec![request(1, 0, 0)]);
        assert_eq!(
            scheduler.call(order(1), have()).await,
            SchedulerAnswer::Done
        );
        assert_eq!(
            scheduler.call(order(2), have()).await,
            SchedulerAnswer::Done
        );
        let restart = SchedulerCall::Restart(ContainerId(1));
        let restarted = scheduler.call(order(3), restart).await;
        assert_eq!(restarted, SchedulerAnswer::Restarted(7));
        let failed = SchedulerAnswer::Failed("ARD-623: no answer".to_string());
        assert_eq!(scheduler.call(order(4), SchedulerCall::Kill).await, failed);
        let noted = recorder.0.lock().expect("no panic").join(", ");
        assert_eq!(noted, "schedule 1 at 1, update 1 at 2, restart 1 at 3");
    }
}
