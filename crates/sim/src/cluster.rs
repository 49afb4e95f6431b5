//! The simulated scheduler: starts, restarts and stops the processes of containers on hosts.

use std::collections::{BTreeMap, BTreeSet};

use ardea_coordination::control::{Order, SchedulerAnswer, SchedulerCall, WorkerId};
use ardea_coordination::packing::ContainerId;

/// An operation of the scheduler on a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Start a process.
    Start(WorkerId),
    /// Stop a process as soon as its host is reachable.
    Stop(WorkerId),
}

/// The simulated scheduler.
#[derive(Debug, Default)]
pub struct Cluster {
    /// True if the scheduler restarts containers only on request of the master.
    pub stateful: bool,
    /// True if calls of the scheduler fail.
    pub down: bool,
    /// True if the scheduler has no room for containers that it has never started.
    pub full: bool,
    containers: BTreeMap<ContainerId, Container>,
    wanted: BTreeSet<ContainerId>,
    last: Order,
    /// The last order of each submission that was replaced by another.
    past: BTreeMap<u64, Order>,
}

#[derive(Debug, Default)]
struct Container {
    starts: u64,
    running: bool,
    last: Order,
}

impl Cluster {
    /// Creates a scheduler without containers.
    pub fn new(stateful: bool) -> Self {
        Cluster {
            stateful,
            ..Cluster::default()
        }
    }

    /// Handles the replacement of a submission: later calls belong to the new one.
    pub fn followed(&mut self, before: u64) {
        self.past.insert(before, self.last);
        self.last = Order::default();
        self.wanted.clear();
        for container in self.containers.values_mut() {
            container.last = Order::default();
        }
    }

    /// Handles a call for a submission that was replaced. No process of that submission runs, and
    /// calls from before the replacement are ignored.
    ///
    /// # Errors
    ///
    /// If a later call requests containers to run.
    pub fn call_of_past(
        &self,
        of: u64,
        order: Order,
        call: &SchedulerCall,
    ) -> Result<SchedulerAnswer, String> {
        let is_new = self.past.get(&of).is_none_or(|last| order > *last);
        match call {
            SchedulerCall::EnsureContainers(_) | SchedulerCall::Restart(_) if is_new => Err(
                format!("{call:?} for submission {of:x}, which was replaced"),
            ),
            _ => Ok(SchedulerAnswer::Done),
        }
    }

    /// Returns true if the scheduler has started the process `worker` and not stopped it since.
    pub fn is_current(&self, worker: WorkerId) -> bool {
        let container = self.containers.get(&worker.container);
        container.is_some_and(|c| c.running && c.starts == worker.incarnation)
    }

    /// Returns the processes that should be running.
    pub fn current(&self) -> impl Iterator<Item = WorkerId> + '_ {
        let running = self.containers.iter().filter(|(_, c)| c.running);
        running.map(|(id, container)| WorkerId {
            container: *id,
            incarnation: container.starts,
        })
    }

    /// Executes a call. Returns the answer and the operations on processes.
    pub fn call(&mut self, order: Order, call: SchedulerCall) -> (SchedulerAnswer, Vec<Operation>) {
        if self.down {
            let failed = SchedulerAnswer::Failed("the scheduler is not available".to_string());
            return (failed, Vec::new());
        }
        let mut deeds = Vec::new();
        let no_room = SchedulerAnswer::Failed("there is no room".to_string());
        match call {
            SchedulerCall::EnsureContainers(requests) if order > self.last => {
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
                let current = self.current();
                let unwanted: Vec<_> = current
                    .filter(|w| !self.wanted.contains(&w.container))
                    .collect();
                deeds.extend(unwanted.into_iter().map(|worker| self.stop(worker)));
                if is_refused {
                    // The call is not recorded, so that it may succeed later.
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
                    let (container, incarnation) = (id, container.starts);
                    if self.containers[&id].running {
                        deeds.push(self.stop(WorkerId {
                            container,
                            incarnation,
                        }));
                    }
                    deeds.push(self.start(id));
                }
                let starts = self.containers.get(&id).map_or(0, |c| c.starts);
                return (SchedulerAnswer::Restarted(starts), deeds);
            }
            SchedulerCall::EnsureContainers(_)
            | SchedulerCall::Kill
            | SchedulerCall::Restart(_) => {}
        }
        (SchedulerAnswer::Done, deeds)
    }

    fn has_room(&self, id: ContainerId) -> bool {
        !self.full || self.containers.get(&id).is_some_and(|it| it.starts > 0)
    }

    /// Handles a process that has exited, or whose host is unreachable. A framework with automatic
    /// restarts starts the container again.
    pub fn ended(&mut self, worker: WorkerId) -> Vec<Operation> {
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

    fn start(&mut self, id: ContainerId) -> Operation {
        let container = self.containers.entry(id).or_default();
        container.starts += 1;
        container.running = true;
        Operation::Start(WorkerId {
            container: id,
            incarnation: container.starts,
        })
    }

    fn stop(&mut self, worker: WorkerId) -> Operation {
        if let Some(container) = self.containers.get_mut(&worker.container) {
            container.running = false;
        }
        Operation::Stop(worker)
    }
}
