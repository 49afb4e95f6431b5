//! The scheduler under one leader: its start, the calls to it, and its events.

use std::collections::HashSet;
use std::time::Duration;

use ardea_coordination::control::{
    ContainersToMove, MasterEpoch, Order, SchedulerAnswer, SchedulerCall, WorkerId,
};
use ardea_scheduler::{ContainerEvent, ContainerEvents, JobScheduler, LaunchPlan, Schedulers};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

/// Retry delay after a failed start of the scheduler.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Poll interval for containers that must leave their hosts, because the hosts are drained.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Timeout of a scheduler call; stopping a container can take long.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);

/// An event of the scheduler.
#[derive(Debug)]
pub(crate) enum SchedulerEvent {
    /// The scheduler has started.
    Ready(MasterEpoch, JobScheduler),
    /// The scheduler could not be started and will be started again.
    NotReady(MasterEpoch, String),
    /// The reply to a call.
    Answered(Order, SchedulerAnswer),
    /// An event of a container.
    Happened(MasterEpoch, ContainerEvent),
    /// The containers that must leave their hosts.
    Displaced(MasterEpoch, Vec<ContainersToMove>),
}

/// The scheduler of one leadership. Dropping it stops all calls; containers are not affected.
#[derive(Debug)]
pub(crate) struct Scheduling {
    epoch: MasterEpoch,
    scheduler: Option<JobScheduler>,
    events: mpsc::UnboundedSender<SchedulerEvent>,
    /// Calls queued until the scheduler has started.
    waiting: Vec<(Order, SchedulerCall)>,
    /// Unanswered calls. The leader's state machine repeats them, and the repetitions are dropped
    /// here.
    under_way: HashSet<Order>,
    /// The live workers last reported to the scheduler.
    heard: Vec<WorkerId>,
    tasks: JoinSet<()>,
}

impl Scheduling {
    pub(crate) fn start(
        epoch: MasterEpoch,
        schedulers: Schedulers,
        launch: LaunchPlan,
        events: mpsc::UnboundedSender<SchedulerEvent>,
    ) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(run_scheduler(epoch, schedulers, launch, events.clone()));
        Scheduling {
            epoch,
            scheduler: None,
            events,
            waiting: Vec::new(),
            under_way: HashSet::new(),
            heard: Vec::new(),
            tasks,
        }
    }

    pub(crate) fn epoch(&self) -> MasterEpoch {
        self.epoch
    }

    pub(crate) fn scheduler(&self) -> Option<&JobScheduler> {
        self.scheduler.as_ref()
    }

    /// Handles the start of the scheduler: makes the queued calls. `heard` are the live workers.
    pub(crate) fn ready(&mut self, scheduler: JobScheduler, heard: &[WorkerId]) {
        let looking = poll_displaced(self.epoch, scheduler.clone(), self.events.clone());
        self.tasks.spawn(looking);
        self.scheduler = Some(scheduler);
        for (order, call) in std::mem::take(&mut self.waiting) {
            self.under_way.remove(&order);
            self.call(order, call, heard);
        }
    }

    /// Makes a scheduler call unless the same call is unanswered. `heard` are the live workers; the
    /// reply arrives as an event.
    pub(crate) fn call(&mut self, order: Order, call: SchedulerCall, heard: &[WorkerId]) {
        while self.tasks.try_join_next().is_some() {}
        if !self.under_way.insert(order) {
            return;
        }
        let Some(scheduler) = self.scheduler.clone() else {
            return self.waiting.push((order, call));
        };
        scheduler.on_live_workers(heard);
        self.heard = heard.to_vec();
        let events = self.events.clone();
        self.tasks.spawn(async move {
            let answered = tokio::time::timeout(CALL_TIMEOUT, scheduler.call(order, call)).await;
            let answer = answered.unwrap_or_else(|_| {
                let why = format!("it did not answer within {} s", CALL_TIMEOUT.as_secs());
                SchedulerAnswer::Failed(why)
            });
            let _ = events.send(SchedulerEvent::Answered(order, answer));
        });
    }

    /// Reports the live workers to the scheduler if they have changed. Between calls, the scheduler
    /// needs them to detect drained hosts that have died.
    pub(crate) fn report_live_workers(&mut self, heard: &[WorkerId]) {
        if let Some(scheduler) = &self.scheduler
            && heard != self.heard
        {
            scheduler.on_live_workers(heard);
            self.heard = heard.to_vec();
        }
    }

    pub(crate) fn answered(&mut self, order: Order) {
        self.under_way.remove(&order);
    }
}

impl Drop for Scheduling {
    fn drop(&mut self) {
        let runtime = tokio::runtime::Handle::try_current();
        if let (Some(scheduler), Ok(runtime)) = (self.scheduler.take(), runtime) {
            runtime.spawn(async move {
                // The connection is released even if closing fails.
                let _ = scheduler.close().await;
            });
        }
    }
}

/// Starts the scheduler, with retries, and forwards its events.
async fn run_scheduler(
    epoch: MasterEpoch,
    schedulers: Schedulers,
    launch: LaunchPlan,
    events: mpsc::UnboundedSender<SchedulerEvent>,
) {
    let mut told: ContainerEvents = loop {
        match schedulers.start(launch.clone()).await {
            Ok((scheduler, told)) => {
                let _ = events.send(SchedulerEvent::Ready(epoch, scheduler));
                break told;
            }
            Err(error) => {
                let _ = events.send(SchedulerEvent::NotReady(epoch, error.to_string()));
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    };
    while let Some(event) = told.next().await {
        if events.send(SchedulerEvent::Happened(epoch, event)).is_err() {
            return;
        }
    }
}

/// Polls for containers that must leave their hosts, and reports them in every round. Once none is
/// left, an empty list is reported once.
async fn poll_displaced(
    epoch: MasterEpoch,
    scheduler: JobScheduler,
    events: mpsc::UnboundedSender<SchedulerEvent>,
) {
    let mut looks = tokio::time::interval(POLL_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_told = false;
    loop {
        looks.tick().await;
        // A failed poll is repeated at the next tick.
        let Ok(displaced) = scheduler.displaced().await else {
            continue;
        };
        let was_told = std::mem::replace(&mut is_told, !displaced.is_empty());
        let is_news = is_told || was_told;
        if is_news
            && events
                .send(SchedulerEvent::Displaced(epoch, displaced))
                .is_err()
        {
            return;
        }
    }
}
