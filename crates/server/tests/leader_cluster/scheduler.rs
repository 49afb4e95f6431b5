//! A scheduler whose containers are tasks of this process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_coordination::control::{ContainerRequest, JobRef, Order, SchedulerTraits, WorkerId};
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::MetadataStore;
use ardea_network::rpc::Security;
use ardea_scheduler::{
    ContainerEvent, ContainerEvents, Ending, EventFeed, LaunchPlan, LogPiece, LogRequest, Pending,
    RunningContainer, Scheduler, SchedulerKind, container_events,
};
use tokio::task::AbortHandle;

use crate::worker::{Notes, SharedNotes, work};

/// The containers of the "machine", shared by all scheduler objects.
#[derive(Clone)]
pub struct Machine(Arc<Mutex<Inner>>);

struct Inner {
    state: Arc<dyn MetadataStore>,
    security: Security,
    containers: BTreeMap<(String, ContainerId), Life>,
    feeds: Vec<EventFeed>,
    incarnations: u64,
    newest: BTreeMap<(String, Option<ContainerId>), Order>,
    heard: Vec<WorkerId>,
}

struct Life {
    worker: WorkerId,
    task: AbortHandle,
    notes: SharedNotes,
}

impl Machine {
    pub fn new(state: Arc<dyn MetadataStore>, security: Security) -> Self {
        Machine(Arc::new(Mutex::new(Inner {
            state,
            security,
            containers: BTreeMap::new(),
            feeds: Vec::new(),
            incarnations: 100,
            newest: BTreeMap::new(),
            heard: Vec::new(),
        })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the running workers, by container.
    pub fn workers(&self) -> Vec<WorkerId> {
        let inner = self.inner();
        let running = inner
            .containers
            .values()
            .filter(|life| !life.task.is_finished());
        running.map(|life| life.worker).collect()
    }

    /// Returns the live workers last reported by a leader.
    pub fn heard(&self) -> Vec<WorkerId> {
        self.inner().heard.clone()
    }

    /// Returns the notes of a container's worker.
    pub fn notes(&self, container: u32) -> SharedNotes {
        let inner = self.inner();
        let mut lives = inner.containers.iter();
        let found = lives.find(|((_, id), _)| id.0 == container);
        Arc::clone(&found.expect("a container").1.notes)
    }

    /// Returns the notes of all workers.
    pub fn all_notes(&self) -> Vec<SharedNotes> {
        let inner = self.inner();
        inner
            .containers
            .values()
            .map(|life| Arc::clone(&life.notes))
            .collect()
    }

    /// Reports the host of a container as lost, while the container continues to run.
    pub fn lose_sight_of(&self, container: u32) {
        let inner = self.inner();
        let mut lives = inner.containers.values();
        let life = lives.find(|life| life.worker.container.0 == container);
        let worker = life.expect("a container").worker;
        for feed in &inner.feeds {
            feed.send(ContainerEvent::Exited {
                worker,
                how: Ending::HostLost,
                last_words: vec!["host a is lost".to_string()],
            });
        }
    }

    /// Kills the process of a container, as `kill -9` does.
    pub fn kill(&self, container: u32) {
        let mut inner = self.inner();
        let key = inner
            .containers
            .keys()
            .find(|(_, id)| id.0 == container)
            .cloned();
        let life = inner
            .containers
            .remove(&key.expect("a container"))
            .expect("it");
        life.task.abort();
        for feed in &inner.feeds {
            feed.send(ContainerEvent::Exited {
                worker: life.worker,
                how: Ending::Signal(9),
                last_words: vec!["killed".to_string()],
            });
        }
    }
}

impl Inner {
    fn start(&mut self, job: &JobRef, container: ContainerId) -> WorkerId {
        self.incarnations += 1;
        let worker = WorkerId {
            container,
            incarnation: self.incarnations,
        };
        let notes = SharedNotes::new(Mutex::new(Notes::default()));
        let (state, security) = (Arc::clone(&self.state), self.security.clone());
        let task = work(state, job.clone(), worker, security, Arc::clone(&notes));
        let task = tokio::spawn(task).abort_handle();
        let life = Life {
            worker,
            task,
            notes,
        };
        self.containers.insert((job.key(), container), life);
        worker
    }

    /// Returns true if this order is to be executed, or has been executed.
    fn takes(&mut self, job: &JobRef, about: Option<ContainerId>, order: Order) -> Result<bool> {
        let newest = self.newest.entry((job.key(), about)).or_default();
        if order < *newest {
            return Err(Error::new(ErrorCode::Superseded, "an older order"));
        }
        let fresh = order > *newest;
        *newest = order;
        Ok(fresh)
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Machine({:?})", self.workers())
    }
}

impl SchedulerKind for Machine {
    fn traits(&self) -> SchedulerTraits {
        SchedulerTraits::default()
    }

    fn initialize(&self, launch: LaunchPlan) -> Pending<'_, (Arc<dyn Scheduler>, ContainerEvents)> {
        Box::pin(async move {
            let (feed, events) = container_events();
            let job = launch.job().clone();
            let scheduler = JobContainers {
                machine: self.clone(),
                job,
            };
            for running in scheduler.running() {
                feed.send(ContainerEvent::Started(running));
            }
            self.inner().feeds.push(feed);
            Ok((Arc::new(scheduler) as Arc<dyn Scheduler>, events))
        })
    }
}

#[derive(Debug)]
struct JobContainers {
    machine: Machine,
    job: JobRef,
}

impl JobContainers {
    fn running(&self) -> Vec<RunningContainer> {
        let inner = self.machine.inner();
        let lives = inner.containers.iter();
        let ours = lives.filter(|((job, _), _)| *job == self.job.key());
        ours.map(|(_, life)| RunningContainer {
            worker: life.worker,
            host: "this machine".to_string(),
            host_name: None,
            process: "a task".to_string(),
        })
        .collect()
    }
}

impl Scheduler for JobContainers {
    fn on_schedule(&self, order: Order, containers: Vec<ContainerRequest>) -> Pending<'_, ()> {
        Box::pin(async move {
            let mut inner = self.machine.inner();
            inner.takes(&self.job, None, order)?;
            let wanted: Vec<_> = containers.iter().map(|request| request.id).collect();
            inner.containers.retain(|(job, id), life| {
                let stays = *job != self.job.key() || wanted.contains(id);
                if !stays {
                    life.task.abort();
                }
                stays
            });
            for id in wanted {
                if !inner.containers.contains_key(&(self.job.key(), id)) {
                    inner.start(&self.job, id);
                }
            }
            Ok(())
        })
    }

    fn on_live_workers(&self, workers: &[WorkerId]) {
        self.machine.inner().heard = workers.to_vec();
    }

    fn on_restart(&self, order: Order, container: ContainerId) -> Pending<'_, u64> {
        Box::pin(async move {
            let mut inner = self.machine.inner();
            let key = (self.job.key(), container);
            if !inner.takes(&self.job, Some(container), order)? {
                return Ok(inner.containers[&key].worker.incarnation);
            }
            if let Some(life) = inner.containers.remove(&key) {
                life.task.abort();
            }
            Ok(inner.start(&self.job, container).incarnation)
        })
    }

    fn on_kill(&self, order: Order) -> Pending<'_, ()> {
        self.on_schedule(order, Vec::new())
    }

    fn containers(&self) -> Pending<'_, Vec<RunningContainer>> {
        Box::pin(async move { Ok(self.running()) })
    }

    fn logs(&self, _: ContainerId, _: LogRequest) -> Pending<'_, LogPiece> {
        Box::pin(async {
            Err(Error::new(
                ErrorCode::NoSuchContainer,
                "tasks write no logs",
            ))
        })
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}
