//! The simulated scheduler: starts, restarts and stops the processes of containers on hosts.

use std::collections::{BTreeMap, BTreeSet};

use ardea_coordination::control::{Order, SchedulerAnswer, SchedulerCall, WorkerId};
use ardea_coordination::packing::ContainerId;

/// What the scheduler does to processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// Starts one.
    Start(WorkerId),
    /// Stops one, as soon as its host can be reached.
    Stop(WorkerId),
}

/// The simulated scheduler.
#[derive(Debug)]
pub struct Cluster {
    /// Whether it starts containers again only when the master says so.
    pub stateful: bool,
    /// Whether its calls fail.
    pub down: bool,
    /// Whether it has no room for containers that it has never started.
    pub full: bool,
    containers: BTreeMap<ContainerId, Container>,
    wanted: BTreeSet<ContainerId>,
    last: Order,
    /// The last order of each submission that another has followed.
    past: BTreeMap<u64, Order>,
}

#[derive(Debug, Default)]
struct Container {
    starts: u64,
    running: bool,
    last: Order,
}

impl Cluster {
    /// A scheduler without containers.
    pub fn new(stateful: bool) -> Self {
        Cluster {
            stateful,
            down: false,
            full: false,
            containers: BTreeMap::new(),
            wanted: BTreeSet::new(),
            last: Order::default(),
            past: BTreeMap::new(),
        }
    }

    /// Another submission has followed that one: what is asked for from now on is its own.
    pub fn followed(&mut self, before: u64) {
        self.past.insert(before, self.last);
        self.last = Order::default();
        self.wanted.clear();
        for container in self.containers.values_mut() {
            container.last = Order::default();
        }
    }

    /// Carries out a call for a submission that another has followed: nothing of it runs, and whatever was asked before that was so comes too late.
    ///
    /// # Errors
    ///
    /// When somebody wants something of it to run after that.
    pub fn call_of_past(
        &self,
        of: u64,
        order: Order,
        call: &SchedulerCall,
    ) -> Result<SchedulerAnswer, String> {
        let is_new = self.past.get(&of).is_none_or(|last| order > *last);
        match call {
            SchedulerCall::Have(_) | SchedulerCall::Restart(_) if is_new => Err(format!(
                "{call:?} is wanted for submission {of:x}, which was followed"
            )),
            _ => Ok(SchedulerAnswer::Done),
        }
    }

    /// Whether this process is one that the scheduler has started and not stopped since.
    pub fn is_current(&self, worker: WorkerId) -> bool {
        let container = self.containers.get(&worker.container);
        container.is_some_and(|c| c.running && c.starts == worker.incarnation)
    }

    /// The processes that should be there.
    pub fn current(&self) -> impl Iterator<Item = WorkerId> + '_ {
        let running = self.containers.iter().filter(|(_, c)| c.running);
        running.map(|(id, container)| WorkerId {
            container: *id,
            incarnation: container.starts,
        })
    }

    /// Carries out a call: the answer, and what is done.
    pub fn call(&mut self, order: Order, call: SchedulerCall) -> (SchedulerAnswer, Vec<Deed>) {
        if self.down {
            let failed = SchedulerAnswer::Failed("the scheduler is not available".to_string());
            return (failed, Vec::new());
        }
        let mut deeds = Vec::new();
        let no_room = SchedulerAnswer::Failed("there is no room".to_string());
        match call {
            SchedulerCall::Have(requests) if order > self.last => {
                self.last = order;
                self.wanted = requests.into_iter().map(|request| request.id).collect();
                let (fits, refused): (Vec<_>, Vec<_>) =
                    self.wanted.iter().partition(|id| self.has_room(**id));
                let is_refused = !refused.is_empty();
                for id in fits {
                    if !self.containers.get(&id).is_some_and(|c| c.running) {
                        deeds.push(self.start(id));
                    }
                }
                let unwanted: Vec<_> = self
                    .current()
                    .filter(|w| !self.wanted.contains(&w.container))
                    .collect();
                deeds.extend(unwanted.into_iter().map(|worker| self.stop(worker)));
                if is_refused {
                    // It is as if it had never been asked: the same call may succeed later.
                    self.last.number -= 1;
                    return (no_room, deeds);
                }
            }
            SchedulerCall::Restart(id) if !self.has_room(id) => return (no_room, deeds),
            SchedulerCall::Kill if order > self.last => {
                self.last = order;
                self.wanted.clear();
                let all: Vec<_> = self.current().collect();
                deeds.extend(all.into_iter().map(|worker| self.stop(worker)));
            }
            SchedulerCall::Restart(id) if self.wanted.contains(&id) => {
                let container = self.containers.entry(id).or_default();
                let fresh = order > container.last;
                if fresh {
                    container.last = order;
                    let incarnation = container.starts;
                    if container.running {
                        deeds.push(self.stop(WorkerId {
                            container: id,
                            incarnation,
                        }));
                    }
                    deeds.push(self.start(id));
                }
                let starts = self.containers.get(&id).map_or(0, |c| c.starts);
                return (SchedulerAnswer::Restarted(starts), deeds);
            }
            SchedulerCall::Have(_) | SchedulerCall::Kill | SchedulerCall::Restart(_) => {}
        }
        (SchedulerAnswer::Done, deeds)
    }

    fn has_room(&self, id: ContainerId) -> bool {
        !self.full || self.containers.get(&id).is_some_and(|it| it.starts > 0)
    }

    /// A process has ended, or its host can't be reached any more: what a framework does that starts containers again by itself.
    pub fn ended(&mut self, worker: WorkerId) -> Vec<Deed> {
        if !self.is_current(worker) {
            return Vec::new();
        }
        if let Some(container) = self.containers.get_mut(&worker.container) {
            container.running = false;
        }
        match self.stateful || !self.wanted.contains(&worker.container) {
            true => Vec::new(),
            false => vec![self.start(worker.container)],
        }
    }

    fn start(&mut self, id: ContainerId) -> Deed {
        let container = self.containers.entry(id).or_default();
        container.starts += 1;
        container.running = true;
        Deed::Start(WorkerId {
            container: id,
            incarnation: container.starts,
        })
    }

    fn stop(&mut self, worker: WorkerId) -> Deed {
        if let Some(container) = self.containers.get_mut(&worker.container) {
            container.running = false;
        }
        Deed::Stop(worker)
    }
}
