//! The drivers of the state machines: they deliver events and execute actions, as the real drivers
//! do over sockets.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::{
    AgentAction, AgentConfig, AgentEvent, CandidateAction, CandidateEvent, Change,
    CheckpointRecord, Credentials, JobRecord, LeaseEvent, MasterAction, MasterEpoch, MasterEvent,
    Order, RequiredCheckpoints, Run, StoreReply, StoreRequest, ToWorker, WorkerAgent, WorkerId,
};

use crate::network::{Host, Node};
use crate::simulation::{Event, Message, SkewedClock, TICK, WorkerProcess, World};

impl World {
    pub(crate) fn deliver(&mut self, to: Node, message: Message) {
        match (to, message) {
            (Node::Store, message) => self.at_store(message),
            (Node::Scheduler, Message::Call(master, order, call)) => {
                let answer = match self.is_of_job(master) {
                    true => {
                        let (answer, deeds) = self.cluster.call(order, call);
                        self.do_deeds(deeds);
                        answer
                    }
                    false => {
                        let of = self.led_by(master);
                        match self.cluster.call_of_past(of, order, &call) {
                            Ok(answer) => answer,
                            Err(broken) => return self.watch.broken(broken),
                        }
                    }
                };
                let answer = Message::Answer(order, answer);
                self.send(Node::Scheduler, Node::Master(master), answer);
            }
            (Node::Master(id), message) => self.at_master(id, message),
            (Node::Worker(id), Message::ToWorker(message)) => {
                self.check_message(id, &message);
                self.worker_event(id, AgentEvent::From(message));
            }
            (Node::Worker(id), Message::LookedUp(found)) => {
                self.worker_event(id, AgentEvent::Lookup(found));
            }
            (Node::Worker(id), Message::MasterClosed) => self.worker_event(id, AgentEvent::Closed),
            (Node::User, Message::CommandReply(id, reply)) => self.user.answered(id, &reply),
            (_, message) => self.watch.broken(format!("{message:?} went astray")),
        }
    }

    fn at_store(&mut self, message: Message) {
        let down = self.metastore.down;
        let (to, reply) = match message {
            Message::Lease(master, id, request) => {
                let reply = match down {
                    true => StoreReply::Unavailable,
                    false => self.metastore.lease(self.led_by(master), request),
                };
                (Node::Master(master), Message::LeaseReply(id, reply))
            }
            Message::Record(master, id, request) => {
                self.check_write(&request);
                let reply = match down {
                    true => StoreReply::Unavailable,
                    false => match self.store_record(self.led_by(master), request) {
                        Ok(reply) => reply,
                        Err(broken) => return self.watch.broken(broken),
                    },
                };
                (Node::Master(master), Message::RecordReply(id, reply))
            }
            Message::Epochs(master, id, request) => {
                let reply = match down {
                    true => StoreReply::Unavailable,
                    false => self.store_epochs(self.led_by(master), request),
                };
                (Node::Master(master), Message::EpochsReply(id, reply))
            }
            Message::LookUp(worker) if !down => {
                let own = self.workers.get(&worker).map(|process| process.of);
                let found = self.metastore.look_up(own.unwrap_or(self.job.submission));
                (Node::Worker(worker), Message::LookedUp(found))
            }
            Message::DropLease(master) if !down => {
                self.metastore.drop_lease(self.led_by(master));
                (Node::Master(master), Message::LeaseDropped)
            }
            _ => return,
        };
        self.send(Node::Store, to, reply);
    }

    fn store_record(
        &mut self,
        of: u64,
        request: StoreRequest<Arc<JobRecord>>,
    ) -> Result<StoreReply<Arc<JobRecord>>, String> {
        let stored = |world: &World| {
            let stored = world.metastore.record.value.as_ref();
            stored.map(|(record, _)| Arc::clone(record))
        };
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

    fn store_epochs(
        &mut self,
        of: u64,
        request: StoreRequest<Arc<CheckpointRecord>>,
    ) -> StoreReply<Arc<CheckpointRecord>> {
        let stored = |world: &World| world.metastore.epochs_of(of).map(Arc::clone);
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

    fn at_master(&mut self, id: u32, message: Message) {
        let event = match message {
            Message::LeaseReply(request, reply) => {
                CandidateEvent::Lease(LeaseEvent::Reply(request, reply))
            }
            Message::RecordReply(request, reply) => {
                CandidateEvent::Master(MasterEvent::Record(request, reply))
            }
            Message::EpochsReply(request, reply) => {
                CandidateEvent::Master(MasterEvent::Epochs(request, reply))
            }
            Message::ToMaster(message) => CandidateEvent::Master(MasterEvent::From(message)),
            Message::WorkerClosed(worker) => CandidateEvent::Master(MasterEvent::Closed(worker)),
            Message::Exited(worker) => CandidateEvent::Master(MasterEvent::Exited(worker)),
            Message::Answer(order, answer) => {
                CandidateEvent::Master(MasterEvent::Scheduler(order, answer))
            }
            Message::Displaced(displaced) => {
                CandidateEvent::Master(MasterEvent::Displaced(displaced))
            }
            Message::Command(command, what) => {
                CandidateEvent::Master(MasterEvent::Command(command, what))
            }
            Message::LeaseDropped => {
                self.masters.remove(&id);
                return;
            }
            other => return self.watch.broken(format!("{other:?} went astray")),
        };
        self.master_event(id, event);
    }

    pub(crate) fn tick_master(&mut self, id: u32) {
        let Some(master) = self.masters.get(&id) else {
            return;
        };
        self.timeline.plan(self.now + TICK, Event::TickMaster(id));
        match master.leaving {
            true => self.send(Node::Master(id), Node::Store, Message::DropLease(id)),
            false => self.master_event(id, CandidateEvent::Tick),
        }
    }

    fn master_event(&mut self, id: u32, event: CandidateEvent) {
        let Some(master) = self.masters.get_mut(&id) else {
            return;
        };
        if master.leaving {
            return;
        }
        let now = master.clock.read(self.now);
        let candidate = &mut master.candidate;
        let actions = self.stopwatch.master(|| candidate.on(now, event));
        for action in actions {
            match action {
                CandidateAction::Lease(request, what) => {
                    self.send(
                        Node::Master(id),
                        Node::Store,
                        Message::Lease(id, request, what),
                    );
                }
                CandidateAction::Master(action) => self.master_action(id, action),
                CandidateAction::JobGone => {
                    if let Some(master) = self.masters.get_mut(&id) {
                        master.leaving = true;
                    }
                }
                CandidateAction::Gained | CandidateAction::Lost => {
                    if let Some(master) = self.masters.get_mut(&id) {
                        master.assigned.clear();
                        master.aborted.clear();
                    }
                }
            }
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
                self.send(from, Node::Worker(worker), Message::ToWorker(message));
            }
            MasterAction::Record(request, what) => {
                self.send(from, Node::Store, Message::Record(id, request, what));
            }
            MasterAction::Epochs(request, what) => {
                self.send(from, Node::Store, Message::Epochs(id, request, what));
            }
            MasterAction::Keep(RequiredCheckpoints {
                epochs,
                below,
                generation,
                ..
            }) => {
                let after = self.random.time(Duration::ZERO, Duration::from_secs(1));
                let sweep = Event::Sweep(self.led_by(id), epochs, below, generation);
                self.timeline.plan(self.now + after, sweep);
            }
            MasterAction::Scheduler(order, call) => {
                self.send(from, Node::Scheduler, Message::Call(id, order, call));
            }
            MasterAction::Reply(command, reply) => {
                self.send(from, Node::User, Message::CommandReply(command, reply));
            }
            MasterAction::Phase(phase) => self.watch.phase(self.now, id, phase),
            MasterAction::Note(note) => {
                self.check_note(id, &note);
                self.watch.note(self.now, id, note);
            }
            MasterAction::JobGone => {
                if let Some(master) = self.masters.get_mut(&id) {
                    master.leaving = true;
                }
            }
        }
    }

    pub(crate) fn start_worker(&mut self, id: WorkerId) {
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
            self.timeline
                .plan(self.now + Duration::from_secs(1), Event::Start(id));
            return;
        };
        let who = Credentials::of(&self.job);
        let endpoint = format!("{}:{id}", host.0);
        let process = WorkerProcess {
            of: self.job.submission,
            agent: WorkerAgent::new(id, who, endpoint, AgentConfig::default()),
            clock: SkewedClock::new(self.now, &mut self.random, 10),
            host,
            changes: Vec::new(),
            part: None,
            running: BTreeSet::new(),
            busy_until: self.now,
            ended: BTreeSet::new(),
            applied: None,
            heard_of: MasterEpoch::default(),
            routes: None,
        };
        self.workers.insert(id, process);
        self.timeline.plan(self.now, Event::TickWorker(id));
    }

    pub(crate) fn tick_worker(&mut self, id: WorkerId) {
        if self.workers.contains_key(&id) {
            self.timeline.plan(self.now + TICK, Event::TickWorker(id));
            match self.attempts {
                Some(_) => self.read_records(id),
                None => self.end_instances(id),
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
        let random = &mut self.random;
        let ends: Vec<_> = worker
            .running
            .iter()
            .filter(|instance| !worker.ended.contains(*instance) && random.per_mille(50))
            .cloned()
            .collect();
        for instance in ends {
            self.watch.ends(&instance);
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

    pub(crate) fn worker_event(&mut self, id: WorkerId, event: AgentEvent) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let now = worker.clock.read(self.now);
        for action in worker.agent.on(now, event) {
            match action {
                AgentAction::LookUp => {
                    self.send(Node::Worker(id), Node::Store, Message::LookUp(id));
                }
                AgentAction::Send(address, message) => match address.parse() {
                    Ok(master) => {
                        let message = Message::ToMaster(message);
                        self.send(Node::Worker(id), Node::Master(master), message);
                    }
                    Err(_) => self.watch.broken(format!("{address:?} is no address")),
                },
                AgentAction::Peers(_) => {}
                AgentAction::Apply(change) => self.apply(id, change),
                AgentAction::Epochs(generation, action) => {
                    self.epochs_action(id, generation, action);
                }
                AgentAction::Exit(why) => {
                    self.check_departure(id, &why);
                    self.watch.departure(self.now, id, &why);
                    self.end_worker(id);
                }
            }
        }
    }

    /// Starts to execute a change, after all earlier changes are executed.
    fn apply(&mut self, id: WorkerId, change: Change) {
        self.check_change(id, &change);
        self.check_change_of_life(id, &change);
        let takes = Duration::from_millis(1)..Duration::from_millis(30);
        let takes = self.random.time(takes.start, takes.end);
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.busy_until = worker.busy_until.max(self.now) + takes;
            let at = worker.busy_until;
            self.timeline.plan(at, Event::Applied(id, change.order));
            worker.changes.push(change);
        }
    }

    pub(crate) fn applied(&mut self, id: WorkerId, order: Order) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let (mut begins, mut former) = (None, None);
        while worker
            .changes
            .first()
            .is_some_and(|first| first.order <= order)
        {
            let change = worker.changes.remove(0);
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
        if self.attempts.is_some() && worker.part.is_none() {
            return; // it could not start
        }
        worker.applied = Some(order);
        self.worker_event(id, AgentEvent::Applied(order));
        self.tell_end(id);
    }

    /// Stops a process, now or as soon as its host is reachable.
    pub(crate) fn stop_worker(&mut self, id: WorkerId) {
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
    pub(crate) fn end_worker(&mut self, id: WorkerId) {
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
                self.send_from(Host(1), to, Message::Exited(id));
            }
            if self.random.per_mille(800) {
                self.send_from(worker.host, to, Message::WorkerClosed(id));
            }
        }
    }

    /// Handles a worker whose host the framework of a stateless scheduler could not reach for a
    /// long time.
    pub(crate) fn give_up(&mut self, id: WorkerId) {
        let unreachable = self
            .host(Node::Worker(id))
            .is_some_and(|host| !self.network.connects(Host(1), host));
        if unreachable && !self.cluster.stateful {
            self.leftovers.insert(id);
            let deeds = self.cluster.ended(id);
            self.do_deeds(deeds);
        }
    }

    /// Returns the processes that consider themselves the job's leader.
    pub(crate) fn acting_masters(&self) -> impl Iterator<Item = u32> + '_ {
        self.leaders(self.job.submission)
    }

    /// Returns the processes that consider themselves the leader of a submission.
    pub(crate) fn leaders(&self, of: u64) -> impl Iterator<Item = u32> + '_ {
        self.masters.iter().filter_map(move |(id, master)| {
            let now = master.clock.read(self.now);
            let acts = !master.leaving && master.candidate.mastership(now).is_some();
            (acts && self.led_by(*id) == of).then_some(*id)
        })
    }
}
