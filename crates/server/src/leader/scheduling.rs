//! One mastership's scheduler: started when the mastership begins, called without waiting, and heard.

use std::collections::HashSet;
use std::time::Duration;

use ardea_coordination::control::{
    Displaced, MasterEpoch, Order, SchedulerAnswer, SchedulerCall, WorkerId,
};
use ardea_scheduler::{ContainerEvent, ContainerEvents, JobScheduler, LaunchPlan, Schedulers};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

/// How long to wait before a scheduler that could not be started is started again.
const PAUSE: Duration = Duration::from_secs(1);

/// How often it is asked which containers are to leave their hosts.
const LOOK: Duration = Duration::from_secs(1);

/// How long a call may take; stopping a container can take a while.
const ANSWERS_WITHIN: Duration = Duration::from_secs(120);

/// What comes from a scheduler.
#[derive(Debug)]
pub(crate) enum SchedulerEvent {
    /// It is there.
    Ready(MasterEpoch, JobScheduler),
    /// It could not be started; it is tried again.
    NotReady(MasterEpoch, String),
    /// The answer to a call.
    Answered(Order, SchedulerAnswer),
    /// Something has happened to a container.
    Happened(MasterEpoch, ContainerEvent),
    /// These containers are to leave their hosts.
    Displaced(MasterEpoch, Vec<Displaced>),
}

/// One mastership's scheduler. When it is dropped, nothing more is called; containers stay as they are.
#[derive(Debug)]
pub(crate) struct Scheduling {
    epoch: MasterEpoch,
    scheduler: Option<JobScheduler>,
    events: mpsc::UnboundedSender<SchedulerEvent>,
    /// Calls that wait for the scheduler to be there.
    waiting: Vec<(Order, SchedulerCall)>,
    /// Calls that have not been answered: the master repeats them, which is not needed here.
    under_way: HashSet<Order>,
    /// The workers of which the scheduler was told last that they are heard.
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
        tasks.spawn(attend(epoch, schedulers, launch, events.clone()));
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

    /// It is there: makes the calls that have waited.
    pub(crate) fn ready(&mut self, scheduler: JobScheduler, heard: &[WorkerId]) {
        let looking = look_for_displaced(self.epoch, scheduler.clone(), self.events.clone());
        self.tasks.spawn(looking);
        self.scheduler = Some(scheduler);
        for (order, call) in std::mem::take(&mut self.waiting) {
            self.under_way.remove(&order);
            self.call(order, call, heard);
        }
    }

    /// Makes a call, while these workers are heard; the answer comes as an event.
    pub(crate) fn call(&mut self, order: Order, call: SchedulerCall, heard: &[WorkerId]) {
        while self.tasks.try_join_next().is_some() {}
        if !self.under_way.insert(order) {
            return;
        }
        let Some(scheduler) = self.scheduler.clone() else {
            return self.waiting.push((order, call));
        };
        scheduler.heard(heard);
        self.heard = heard.to_vec();
        let events = self.events.clone();
        self.tasks.spawn(async move {
            let answered = tokio::time::timeout(ANSWERS_WITHIN, scheduler.call(order, call)).await;
            let answer = answered.unwrap_or_else(|_| {
                let why = format!("it did not answer within {} s", ANSWERS_WITHIN.as_secs());
                SchedulerAnswer::Failed(why)
            });
            let _ = events.send(SchedulerEvent::Answered(order, answer));
        });
    }

    /// These workers are heard at the moment. What is to leave a drained host that has died is known by that alone, also while nothing is
    /// called.
    pub(crate) fn hears(&mut self, heard: &[WorkerId]) {
        if let Some(scheduler) = &self.scheduler
            && heard != self.heard
        {
            scheduler.heard(heard);
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
                // It holds nothing any more, whatever it says.
                let _ = scheduler.close().await;
            });
        }
    }
}

/// Starts the scheduler, however often that takes, and passes on what it tells.
async fn attend(
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
                tokio::time::sleep(PAUSE).await;
            }
        }
    };
    while let Some(event) = told.next().await {
        if events.send(SchedulerEvent::Happened(epoch, event)).is_err() {
            return;
        }
    }
}

/// Tells which containers are to leave their hosts, as long as there are some, and once when there are none any more.
async fn look_for_displaced(
    epoch: MasterEpoch,
    scheduler: JobScheduler,
    events: mpsc::UnboundedSender<SchedulerEvent>,
) {
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_told = false;
    loop {
        looks.tick().await;
        // One that can't be asked now can be asked later: nothing moves meanwhile.
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
