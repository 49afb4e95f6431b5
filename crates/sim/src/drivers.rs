//! The drivers of the state machines: they deliver events and execute actions, as the real drivers
//! do over sockets.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{
    AgentAction, AgentConfig, AgentEvent, CandidateAction, CandidateEvent, Change, Credentials,
    JobPhase, LeaseEvent, MasterAction, MasterEpoch, MasterEvent, Order, Run, SchedulerCall,
    StoreReply, StoreRequest, ToWorker, WorkerAgent, WorkerId,
};

use crate::metastore::{CheckpointReply, CheckpointRequest, JobReply, JobRequest};
use crate::network::{Host, Node};
use crate::simulation::{ClusterSimulation, TICK, WorkerProcess};

impl ClusterSimulation {
    /// Sends a request of a master to the scheduler.
    fn call_scheduler(&mut self, id: u32, order: Order, call: SchedulerCall) {
        self.send(Node::Master(id), Node::Scheduler, move |sim| {
            let of = sim.led_by(id);
            let answer = if sim.is_of_job(id) {
                let (answer, deeds) = sim.cluster.call(order, call);
                sim.do_deeds(deeds);
                Some(answer)
            } else {
                let answer = sim.cluster.call_of_past(of, order, &call);
                sim.checked(answer)
            };
            if let Some(answer) = answer {
                let event = MasterEvent::Scheduler(order, answer);
                sim.send_to_master(Node::Scheduler, id, CandidateEvent::Master(event));
            }
        });
    }

    /// Sends an event to a master.
    pub fn send_to_master(&mut self, from: Node, id: u32, event: CandidateEvent) {
        self.send(from, Node::Master(id), move |sim| {
            sim.master_event(id, event)
        });
    }

    /// Executes a request of a master at the metadata store, and sends the reply.
    fn at_store<T: Clone>(
        &mut self,
        id: u32,
        request: impl FnOnce(&mut Self, u64) -> Result<StoreReply<T>, String>,
        event: impl FnOnce(StoreReply<T>) -> CandidateEvent,
    ) {
        let of = self.led_by(id);
        let reply = match self.metastore.down {
            true => Ok(StoreReply::Unavailable),
            false => request(self, of),
        };
        if let Some(reply) = self.checked(reply) {
            self.send_to_master(Node::Store, id, event(reply));
        }
    }

    fn look_up(&mut self, id: WorkerId) {
        if !self.metastore.down {
            let found = self.metastore.look_up(self.submission_of(id));
            self.send(Node::Store, Node::Worker(id), move |sim| {
                sim.worker_event(id, AgentEvent::Lookup(found));
            });
        }
    }

    /// Removes the lease of a master whose job is gone, after which the master exits.
    fn drop_lease(&mut self, id: u32) {
        if !self.metastore.down {
            self.metastore.drop_lease(self.led_by(id));
            self.send(Node::Store, Node::Master(id), move |sim| {
                drop(sim.masters.remove(&id))
            });
        }
    }

    fn store_record(&mut self, of: u64, request: JobRequest) -> Result<JobReply, String> {
        let stored = |sim: &Self| sim.metastore.job().map(Arc::clone);
        let before = stored(self);
        if let (StoreRequest::Delete { expected }, Some(before)) = (&request, &before)
            && before.job.submission == of
            && let Some(reply) = self.replace_job(before, *expected)
        {
            return Ok(reply);
        }
        let reply = self.metastore.record(request)?;
        if let (StoreReply::Written(_), Some(record)) = (&reply, stored(self)) {
            self.note_plans(&record);
            self.check_upgrade(before.as_deref(), &record);
        }
        Ok(reply)
    }

    fn store_epochs(&mut self, of: u64, request: CheckpointRequest) -> CheckpointReply {
        let stored = |sim: &Self| sim.metastore.epochs_of(of).map(Arc::clone);
        let before = stored(self);
        if before.is_none()
            && matches!(request, StoreRequest::Read)
            && let Some(reply) = self.import_state(of)
        {
            return reply;
        }
        let reply = self.metastore.epochs(of, request);
        if let (StoreReply::Written(_), Some(record)) = (&reply, stored(self)) {
            self.check_epochs(before.as_deref(), &record);
        }
        reply
    }

    pub fn tick_master(&mut self, id: u32) {
        let Some(master) = self.masters.get(&id) else {
            return;
        };
        let is_leaving = master.leaving;
        self.plan_in(TICK, move |sim| sim.tick_master(id));
        match is_leaving {
            true => self.send(Node::Master(id), Node::Store, move |sim| sim.drop_lease(id)),
            false => self.master_event(id, CandidateEvent::Tick),
        }
    }

    fn master_event(&mut self, id: u32, event: CandidateEvent) {
        let master = self.masters.get_mut(&id);
        let Some(master) = master.filter(|master| !master.leaving) else {
            return;
        };
        let now = master.clock.read(self.world.now);
        let candidate = &mut master.candidate;
        for action in self.stopwatch.master(|| candidate.on(now, event)) {
            match action {
                CandidateAction::Lease(request, what) => {
                    self.send(Node::Master(id), Node::Store, move |sim| {
                        sim.at_store(
                            id,
                            |sim, of| Ok(sim.metastore.lease(of, what)),
                            |reply| CandidateEvent::Lease(LeaseEvent::Reply(request, reply)),
                        );
                    });
                }
                CandidateAction::Master(action) => self.master_action(id, action),
                CandidateAction::JobGone => self.leave(id),
                CandidateAction::Gained | CandidateAction::Lost => {
                    if let Some(master) = self.masters.get_mut(&id) {
                        master.assigned.clear();
                        master.aborted.clear();
                    }
                }
            }
        }
    }

    fn leave(&mut self, id: u32) {
        if let Some(master) = self.masters.get_mut(&id) {
            master.leaving = true;
        }
    }

    fn master_action(&mut self, id: u32, action: MasterAction) {
        let from = Node::Master(id);
        match action {
            MasterAction::To(worker, message) => {
                self.stopwatch.encode(&message);
                if let ToWorker::Assign(assignment) = &message {
                    self.check_assignment(id, worker, assignment);
                }
                self.send(from, Node::Worker(worker), move |sim| {
                    sim.check_message(worker, &message);
                    sim.worker_event(worker, AgentEvent::From(message));
                });
            }
            MasterAction::Record(request, what) => self.send(from, Node::Store, move |sim| {
                sim.check_write(&what);
                sim.at_store(
                    id,
                    |sim, of| sim.store_record(of, what),
                    |reply| CandidateEvent::Master(MasterEvent::Record(request, reply)),
                );
            }),
            MasterAction::Epochs(request, what) => self.send(from, Node::Store, move |sim| {
                sim.at_store(
                    id,
                    |sim, of| Ok(sim.store_epochs(of, what)),
                    |reply| CandidateEvent::Master(MasterEvent::Epochs(request, reply)),
                );
            }),
            MasterAction::Keep(kept) => {
                let of = self.led_by(id);
                self.after(0, 1_000, move |sim| {
                    sim.attempts.program(of).storage.keep(&kept)
                });
            }
            MasterAction::Scheduler(order, call) => self.call_scheduler(id, order, call),
            MasterAction::Reply(command, reply) => {
                self.send(from, Node::User, move |sim| {
                    sim.user.answered(command, &reply)
                });
            }
            MasterAction::Phase(phase) => {
                if phase == JobPhase::Running {
                    self.watch.first_running.get_or_insert(self.world.now);
                }
                self.remember(format!("master {id}: {phase:?}"));
            }
            MasterAction::Note(note) => {
                self.check_note(id, &note);
                self.remember(format!("master {id}: {note:?}"));
            }
            MasterAction::JobGone => self.leave(id),
        }
    }

    pub fn start_worker(&mut self, id: WorkerId) {
        if !self.cluster.is_current(id) {
            return;
        }
        // Hosts are chosen in turn, except those that the scheduler cannot reach.
        let hosts: Vec<Host> = self.worker_hosts().collect();
        let turn = (u64::from(id.container.0) + id.incarnation - 1) as usize;
        let scheduler = Host(1);
        let mut reachable = (0..hosts.len())
            .map(|step| hosts[(turn + step) % hosts.len()])
            .filter(|host| self.network.connects(scheduler, *host));
        // A drained host is used only if there is no other.
        let first = reachable.clone().next();
        let open = reachable.find(|host| !self.drained.contains(host));
        let Some(host) = open.or(first) else {
            return self.plan_in(Duration::from_secs(1), move |sim| sim.start_worker(id));
        };
        let who = Credentials::of(&self.job);
        let endpoint = format!("{}:{id}", host.0);
        let process = WorkerProcess {
            of: self.job.submission,
            agent: WorkerAgent::new(id, who, endpoint, AgentConfig::default()),
            clock: self.skewed_clock(10),
            host,
            changes: VecDeque::new(),
            part: None,
            running: BTreeSet::new(),
            busy_until: self.now,
            ended: BTreeSet::new(),
            applied: None,
            heard_of: MasterEpoch::default(),
            routes: None,
        };
        self.workers.insert(id, process);
        self.plan_in(Duration::ZERO, move |sim| sim.tick_worker(id));
    }

    pub fn tick_worker(&mut self, id: WorkerId) {
        if self.workers.contains_key(&id) {
            self.plan_in(TICK, move |sim| sim.tick_worker(id));
            match self.has_guarantee() {
                true => self.read_records(id),
                false => self.end_instances(id),
            }
            self.worker_event(id, AgentEvent::Tick);
        }
    }

    /// Lets some instances of a worker complete, if the time of completion has come.
    fn end_instances(&mut self, id: WorkerId) {
        let now = self.now;
        let over = self.config.ends_at.is_some_and(|at| now >= at);
        let Some(worker) = self.workers.get_mut(&id).filter(|_| over) else {
            return;
        };
        // Sources that do not read do not complete.
        if worker.agent.run() != Run::Running || !worker.changes.is_empty() {
            return;
        }
        let random = &mut self.world.random;
        let open = worker.running.difference(&worker.ended);
        let ends: Vec<_> = open.filter(|_| random.per_mille(50)).cloned().collect();
        for instance in ends {
            self.watch.ended.insert(instance.clone());
            worker.ended.insert(instance);
        }
        self.tell_end(id);
    }

    /// Reports to a worker's agent that all instances of the worker have completed, if they have.
    fn tell_end(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get(&id) else {
            return;
        };
        let all = !worker.running.is_empty() && worker.running == worker.ended;
        if let Some(order) = worker.applied.filter(|_| all && worker.changes.is_empty()) {
            self.worker_event(id, AgentEvent::Ended(order));
        }
    }

    pub fn worker_event(&mut self, id: WorkerId, event: AgentEvent) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let now = worker.clock.read(self.world.now);
        for action in worker.agent.on(now, event) {
            match action {
                AgentAction::LookUp => {
                    self.send(Node::Worker(id), Node::Store, move |sim| sim.look_up(id));
                }
                AgentAction::Send(address, message) => match address.parse() {
                    Ok(master) => {
                        let event = CandidateEvent::Master(MasterEvent::From(message));
                        self.send_to_master(Node::Worker(id), master, event);
                    }
                    Err(_) => self.breaks(format!("{address:?} is no address")),
                },
                AgentAction::Peers(_) => {}
                AgentAction::Apply(change) => self.apply(id, change),
                AgentAction::Epochs(generation, action) => {
                    self.epochs_action((id, generation), action);
                }
                AgentAction::Exit(why) => {
                    self.check_departure(id, &why);
                    self.remember(format!("worker {id} ends: {why:?}"));
                    self.end_worker(id);
                }
            }
        }
    }

    /// Starts to execute a change, after all earlier changes are executed.
    fn apply(&mut self, id: WorkerId, change: Change) {
        self.check_change(id, &change);
        self.check_change_of_life(id, &change);
        let millis = Duration::from_millis;
        let takes = self.random.time(millis(1), millis(30));
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.busy_until = worker.busy_until.max(self.world.now) + takes;
            let (at, order) = (worker.busy_until, change.order);
            worker.changes.push_back(change);
            self.plan(at, move |sim| sim.applied(id, order));
        }
    }

    pub fn applied(&mut self, id: WorkerId, order: Order) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let (mut begins, mut former) = (None, None);
        while let Some(change) = worker.changes.pop_front_if(|first| first.order <= order) {
            // Stops precede starts, and both appear atomic to observers.
            for instance in &change.stop {
                worker.running.remove(instance);
                worker.ended.remove(instance);
                self.watch.lets_go(id, instance);
            }
            for instance in &change.start {
                self.watch.holds(id, instance);
                worker.running.insert(instance.clone());
            }
            if change.begins {
                former = worker.part.take().or(former);
                begins = Some(change);
            }
        }
        if begins.is_some_and(|change| !self.begin_part(id, &change, former)) {
            return;
        }
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        if self.config.survival.is_some() && worker.part.is_none() {
            return; // it could not start
        }
        worker.applied = Some(order);
        self.worker_event(id, AgentEvent::Applied(order));
        self.tell_end(id);
    }

    /// Stops a process, now or as soon as its host is reachable.
    pub fn stop_worker(&mut self, id: WorkerId) {
        let Some(host) = self.host(Node::Worker(id)) else {
            return;
        };
        match self.network.connects(Host(1), host) {
            true => self.end_worker(id),
            false => {
                self.leftovers.insert(id);
            }
        }
    }

    /// Ends a process, and notifies the scheduler and the leaders connected to it.
    pub fn end_worker(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.remove(&id) else {
            return;
        };
        self.leftovers.remove(&id);
        for instance in &worker.running {
            self.watch.lets_go(id, instance);
        }
        let deeds = self.cluster.ended(id);
        self.do_deeds(deeds);
        let masters: Vec<_> = self.leaders(worker.of).collect();
        for master in masters {
            let to = Node::Master(master);
            if self.network.connects(Host(1), worker.host) {
                self.send_from(Host(1), to, move |sim| {
                    let exited = MasterEvent::Exited(id);
                    sim.master_event(master, CandidateEvent::Master(exited));
                });
            }
            if self.random.per_mille(800) {
                self.close_at_master(worker.host, id, master);
            }
        }
    }

    /// Notifies a master of the end of the connection to a worker.
    pub fn close_at_master(&mut self, from: Host, id: WorkerId, master: u32) {
        let closed = CandidateEvent::Master(MasterEvent::Closed(id));
        self.send_from(from, Node::Master(master), move |sim| {
            sim.master_event(master, closed);
        });
    }

    /// Notifies a worker of the end of the connection to its master.
    pub fn close_at_worker(&mut self, from: Host, id: WorkerId) {
        self.send_from(from, Node::Worker(id), move |sim| {
            sim.worker_event(id, AgentEvent::Closed);
        });
    }

    /// Handles a worker whose host the framework of a stateless scheduler could not reach for a
    /// long time.
    pub fn give_up(&mut self, id: WorkerId) {
        let host = self.host(Node::Worker(id));
        let unreachable = host.is_some_and(|host| !self.network.connects(Host(1), host));
        if unreachable && !self.cluster.stateful {
            self.leftovers.insert(id);
            let deeds = self.cluster.ended(id);
            self.do_deeds(deeds);
        }
    }

    /// Returns the processes that consider themselves the job's leader.
    pub fn acting_masters(&self) -> impl Iterator<Item = u32> + '_ {
        self.leaders(self.job.submission)
    }

    /// Returns the processes that consider themselves the leader of a submission.
    pub fn leaders(&self, of: u64) -> impl Iterator<Item = u32> + '_ {
        self.masters.iter().filter_map(move |(id, master)| {
            let now = master.clock.read(self.now);
            let acts = !master.leaving && master.candidate.mastership(now).is_some();
            (acts && self.led_by(*id) == of).then_some(*id)
        })
    }
}
