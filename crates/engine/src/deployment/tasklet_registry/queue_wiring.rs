//! The queues between a job's tasklets, and the execution of a change.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::Arc;

use ardea_core::{EdgeId, Guarantee, Routing};
use ardea_spsc::Capacity;

use super::rewire_plan::{NewTasklet, RewirePlan};
use super::target_layout::width;
use super::{LaneKey, LaneKeys, Member, RelocatedSourceQueues, TaskletRegistry};
use crate::channels::control_queue::{Change, Handover};
use crate::channels::inlet::{InputSpec, NewInlet, Unconnected};
use crate::channels::input::InputSet;
use crate::channels::output::{NewLane, NewLanes, OutputEdge};
use crate::channels::pending_producers::ExpectedProducers;
use crate::channels::queue::{QueueSender, queue};
use crate::executor::threads::Threads;
use crate::job::{JobShared, NewMember, Part};
use crate::planning::wiring::{self, Lanes, Role, TaskletEdge};
use crate::tasklet::Tasklet;
use crate::{Layout, NodeConfig, Site};

/// New ends of queues, by the role of the tasklet that gets them.
#[derive(Default)]
struct Ends {
    inlets: BTreeMap<Role, Vec<NewInlet>>,
    /// New queues for the outputs of running tasklets.
    lanes: Vec<(Role, usize, NewLanes)>,
}

/// The queues of an output before and after a change.
struct LaneChange {
    before: LaneKeys,
    after: LaneKeys,
    lanes: Vec<NewLane>,
    /// The indices of the queues that lead to instances here.
    local: Vec<usize>,
}

impl RewirePlan {
    /// Connects all tasklets, starts new ones, and posts changes to the others.
    ///
    /// Readers are notified of new queues before writers. So no queue is written before its reader
    /// knows it, and no tasklet ends while it is about to get a queue.
    pub(super) fn carry_out(
        mut self,
        roster: &mut TaskletRegistry,
        layout: &Layout,
        threads: &Threads,
        job: &Arc<JobShared>,
    ) {
        let first = roster.next_number;
        roster.next_number += self.new_tasklets.len() as u64;
        let mut ends = Ends::default();
        for ((role, output), lanes) in mem::take(&mut self.wanted.lanes) {
            self.join(roster, (role, output), lanes, &mut ends, threads, job);
        }
        let unreserved = self.reserve(roster, layout, &mut ends);
        let is_another = roster.next.replace(layout.next.clone()).as_ref() != Some(&layout.next);
        if is_another {
            roster.expect(layout);
        }
        for (role, inlets) in ends.inlets {
            if let Some(recruit) = self.new_tasklets.get_mut(&role) {
                recruit.inlets = inlets;
            } else if let Some(member) = roster.members.get(&role) {
                member.post_change(Change::Inlets(inlets));
            }
        }
        let leaving = self.admit(roster, layout, threads, job);
        if is_another {
            roster.announce(layout, first);
        }
        for (role, output, lanes) in ends.lanes {
            if let Some(member) = roster.members.get(&role) {
                member.post_change(Change::Lanes { output, lanes });
            }
        }
        unreserved.into_iter().for_each(end_reservation);
        roster.release_left(layout);
        roster.stop_tasklets(&leaving);
        self.places.keep();
    }

    /// Returns the member for a role, existing or new.
    fn member<'a>(&'a self, roster: &'a TaskletRegistry, role: Role) -> Option<&'a Member> {
        let recruit = self.new_tasklets.get(&role).map(|recruit| &recruit.member);
        recruit.or_else(|| roster.members.get(&role))
    }

    /// Creates the missing queues of an output and passes them to its tasklet.
    fn join(
        &mut self,
        roster: &mut TaskletRegistry,
        (role, output): (Role, usize),
        wanted: Lanes,
        ends: &mut Ends,
        threads: &Threads,
        job: &Arc<JobShared>,
    ) {
        let Some(joint) = joint_of(roster, role, output).cloned() else {
            return;
        };
        let capacity = capacity(&joint, &threads.config);
        let laid = self.lay(
            roster,
            (role, output),
            (&joint, &wanted),
            (capacity, &**job),
            &mut ends.inlets,
        );
        let Some(LaneChange {
            before,
            after,
            lanes,
            local,
        }) = laid
        else {
            return;
        };
        let routing = match role {
            Role::Chain { .. } => joint.edge.wanted_routing().clone(),
            // To the one instance of the output.
            _ => Routing::Forward,
        };
        let consumers = after.consumers;
        if let Some(recruit) = self.new_tasklets.get_mut(&role) {
            let chunk_records = threads.config.chunk_records.get();
            let lanes = lanes.into_iter().filter_map(NewLane::into_new).collect();
            let mut edge = OutputEdge::new(&routing, lanes, consumers, local, chunk_records);
            if matches!(role, Role::Receiver { .. }) {
                edge = edge.crossing();
            }
            if job.batches.is_some() {
                edge = edge.dealt_in_order();
            }
            recruit.outputs.push(edge);
            recruit.member.outputs.push(after);
        } else if after != before
            && let Some(member) = roster.members.get_mut(&role)
        {
            if member.outputs.len() <= output {
                member.outputs.resize_with(output + 1, LaneKeys::default);
            }
            member.outputs[output] = after;
            let told = Arc::downgrade(job);
            let receipt = roster.unsettled.begin(Arc::new(move || {
                if let Some(job) = told.upgrade() {
                    job.notify();
                }
            }));
            let lanes = NewLanes {
                lanes,
                consumers,
                local,
                routing,
                receipt,
            };
            ends.lanes.push((role, output, lanes));
        }
    }

    /// Returns the queues of an output: existing ones that lead to the same tasklets, and new ones,
    /// whose other ends are added to `inlets`. `None` if its tasklet does not exist.
    fn lay(
        &self,
        roster: &TaskletRegistry,
        (role, output): (Role, usize),
        (joint, wanted): (&TaskletEdge, &Lanes),
        (capacity, job): (Capacity, &JobShared),
        inlets: &mut BTreeMap<Role, Vec<NewInlet>>,
    ) -> Option<LaneChange> {
        let producer = self.member(roster, role)?;
        let crossing = matches!(role, Role::Receiver { .. }).then_some(producer.number);
        let before = producer.outputs.get(output).cloned().unwrap_or_default();
        let places: HashMap<LaneKey, usize> = before.keys.iter().copied().zip(0..).collect();
        let (mut keys, mut lanes, mut local) = (Vec::new(), Vec::new(), Vec::new());
        for to in &wanted.to {
            let Some(consumer) = self.member(roster, to.role) else {
                continue;
            };
            let key = (consumer.number, to.input);
            if lanes.len() < wanted.consumers && matches!(to.role, Role::Chain { .. }) {
                local.push(lanes.len());
            }
            keys.push(key);
            lanes.push(match places.get(&key) {
                Some(kept) => NewLane::Existing(*kept),
                None => {
                    let (from, to_place) = (producer.place.clone(), consumer.place.clone());
                    let (sender, receiver) = queue(capacity, from, to_place);
                    let sender = match lanes.len() < wanted.consumers {
                        true => sender.counted(job.pair_traffic.of_lane(
                            &roster.wiring.dag,
                            joint,
                            role,
                            *to,
                        )),
                        false => sender,
                    };
                    inlets.entry(to.role).or_default().push(NewInlet {
                        input: to.input,
                        receiver,
                        crossing,
                    });
                    NewLane::New(sender)
                }
            });
        }
        let after = LaneKeys {
            keys,
            consumers: wanted.consumers,
        };
        Some(LaneChange {
            before,
            after,
            lanes,
            local,
        })
    }

    /// Holds inputs open whose producers here are not started yet because they must end elsewhere
    /// first. Returns the reservations that are not needed any more.
    fn reserve(
        &mut self,
        roster: &mut TaskletRegistry,
        layout: &Layout,
        ends: &mut Ends,
    ) -> Vec<QueueSender> {
        let mut unreserved = Vec::new();
        for joint in roster.wiring.joints.clone() {
            let awaited = awaited_producers(self, roster, &joint, layout);
            let roles = self
                .wanted
                .chains
                .keys()
                .chain(self.wanted.crossings.keys());
            for role in roles {
                let Some(waiting) = waiting_inputs(*role, &joint, &awaited, layout) else {
                    continue;
                };
                let recruit = self
                    .new_tasklets
                    .get_mut(role)
                    .map(|recruit| &mut recruit.member);
                let Some(member) = recruit.or_else(|| roster.members.get_mut(role)) else {
                    continue;
                };
                let is_over =
                    |(edge, input): &(EdgeId, usize)| *edge == joint.id && !waiting.contains(input);
                let over = member.reservations.extract_if(.., |key, _| is_over(key));
                unreserved.extend(over.map(|(_, reservation)| reservation));
                for input in waiting {
                    if let Entry::Vacant(vacant) = member.reservations.entry((joint.id, input)) {
                        let place = member.place.clone();
                        let (sender, receiver) = queue(Capacity::clamped(1), place.clone(), place);
                        vacant.insert(sender);
                        ends.inlets.entry(*role).or_default().push(NewInlet {
                            input,
                            receiver,
                            crossing: None,
                        });
                    }
                }
            }
        }
        unreserved
    }

    /// Starts new tasklets; returns the roles of the tasklets to be stopped.
    fn admit(
        &mut self,
        roster: &mut TaskletRegistry,
        layout: &Layout,
        threads: &Threads,
        job: &Arc<JobShared>,
    ) -> Vec<Role> {
        let (mut joining, mut placed) = (Vec::new(), Vec::new());
        for (role, recruit) in mem::take(&mut self.new_tasklets) {
            let (member, tasklet, joins) = recruit.into_tasklet(roster, role, layout, threads, job);
            placed.push((member.place.clone(), tasklet));
            joining.push(joins);
            roster.members.insert(role, member);
        }
        let leaving = self.mark(roster, layout);
        job.join(joining);
        for (place, tasklet) in placed {
            place.admit(tasklet);
        }
        leaving
    }

    /// Updates the requests to each member; returns the roles of the tasklets to be stopped.
    fn mark(&self, roster: &mut TaskletRegistry, layout: &Layout) -> Vec<Role> {
        let mut leaving = Vec::new();
        let wanted = self.wanted.chains.iter().chain(&self.wanted.crossings);
        for (role, is_leaving) in wanted {
            let Some(member) = roster.members.get_mut(role) else {
                continue;
            };
            if let Role::Chain { chain, instance } = *role {
                let head = roster.wiring.plan.tasklets[chain].head();
                let is_placed = layout.routes.site(head, instance) == Some(layout.routes.here());
                member.is_routed = is_placed;
                if is_placed && mem::take(&mut member.is_kept_back) {
                    member.post_change(Change::StartSource);
                }
            }
            match (member.is_leaving, *is_leaving) {
                (false, true) => leaving.push(*role),
                (true, false) => member.post_change(Change::CancelStop),
                _ => {}
            }
            member.is_leaving = *is_leaving;
            member.was_recalled = false;
        }
        leaving
    }
}

impl TaskletRegistry {
    /// Notifies readers of streams from other processes of the producers that the next placement
    /// starts in those processes.
    fn expect(&mut self, layout: &Layout) {
        for joint in &self.wiring.joints {
            let mut expected = Vec::new();
            for (role, member) in &self.members {
                if let Role::Receiver { edge, from } = *role
                    && edge == joint.id
                {
                    let comers = layout.starting_producers(joint, from, |_| true);
                    member.post_change(Change::ExpectProducers(vec![(member.number, comers)]));
                    expected.push((member.number, from));
                }
            }
            for (role, member) in &self.members {
                if let Role::Chain { chain, instance } = *role
                    && chain == joint.to
                    && !expected.is_empty()
                {
                    let feeds = |producer| wiring::feeds(joint, producer, instance);
                    let expected = expected.iter();
                    let comers = expected.map(|(number, from)| {
                        (*number, layout.starting_producers(joint, *from, feeds))
                    });
                    member.post_change(Change::ExpectProducers(comers.collect()));
                }
            }
        }
    }

    /// Lets existing sending ends announce producers that the next placement starts here. New
    /// sending ends do so in any case.
    fn announce(&self, layout: &Layout, first_new: u64) {
        for (role, member) in &self.members {
            if let Role::Sender { edge, .. } = *role
                && member.number < first_new
                && let Some(joint) = self.wiring.joint(edge)
                && layout.starting_producers(joint, layout.next.here(), |_| true)
                    != ExpectedProducers::NoProducers
            {
                member.post_change(Change::AnnounceProducers);
            }
        }
    }

    /// Stops these tasklets. Queues of sources that move to other processes are retained until the
    /// routing changes.
    fn stop_tasklets(&mut self, leaving: &[Role]) {
        for role in leaving {
            let Some(member) = self.members.get(role) else {
                continue;
            };
            let moves = member.is_source && member.is_routed;
            let handover = moves.then(Handover::default);
            if let Some(lanes) = &handover {
                self.left.push(RelocatedSourceQueues {
                    role: *role,
                    lanes: Arc::clone(lanes),
                    mailbox: Arc::clone(&member.mailbox),
                    is_released: false,
                });
            }
            member.post_change(match role {
                Role::Chain { .. } => Change::Stop(handover),
                _ => Change::Dismiss,
            });
        }
    }

    /// Releases the queues of sources that now run in another process, or here again.
    fn release_left(&mut self, layout: &Layout) {
        for left in &mut self.left {
            let Role::Chain { chain, instance } = left.role else {
                continue;
            };
            let head = self.wiring.plan.tasklets[chain].head();
            let is_placed = layout.routes.site(head, instance) == Some(layout.routes.here());
            let member = self.members.get(&left.role);
            left.is_released |= !is_placed || member.is_some_and(|member| !member.is_leaving);
        }
        self.release();
    }
}

impl Layout {
    /// Returns the producers of an edge that the next placement starts at `site`, from the view of
    /// a consumer. `feeds` is true for the instances that send to this consumer.
    fn starting_producers(
        &self,
        joint: &TaskletEdge,
        site: Site,
        feeds: impl Fn(u32) -> bool,
    ) -> ExpectedProducers {
        let vertex = joint.edge.source().0;
        let next = self.next.at(vertex, site);
        let comers = next.filter(|index| self.routes.site(vertex, *index) != Some(site));
        comers.fold(
            ExpectedProducers::NoProducers,
            |known, producer| match feeds(producer) {
                true => ExpectedProducers::ForThis,
                false if known == ExpectedProducers::NoProducers => ExpectedProducers::ForOthers,
                false => known,
            },
        )
    }
}

impl NewTasklet {
    fn into_tasklet(
        self,
        roster: &TaskletRegistry,
        role: Role,
        layout: &Layout,
        threads: &Threads,
        job: &Arc<JobShared>,
    ) -> (Member, Box<Tasklet>, NewMember) {
        let NewTasklet {
            member,
            stages,
            counted,
            remake,
            inlets,
            outputs,
        } = self;
        let wiring = &roster.wiring;
        let mut unconnected = Unconnected::HasEnded;
        let (specs, part) = match role {
            Role::Chain { chain, .. } => {
                let inputs = wiring.inputs(chain).into_iter();
                let specs = inputs.map(|joint| InputSpec {
                    priority: joint.edge.wanted_priority(),
                    is_timeless: joint.edge.is_timeless(),
                });
                (specs.collect(), Part::Instances)
            }
            Role::Sender { edge, .. } => {
                unconnected = Unconnected::HasNotBegun;
                let width = wiring
                    .joint(edge)
                    .map_or(0, |joint| width(roster, role, joint, layout));
                (vec![InputSpec::ORDINARY; width], Part::Crossing)
            }
            Role::Receiver { .. } => (Vec::new(), Part::Crossing),
        };
        let mut inputs = InputSet::new(specs, inlets, unconnected, Arc::clone(&member.mailbox));
        inputs = inputs.timed(threads.clock.clone());
        if roster.launch.remote.is_none() {
            inputs = inputs.fixed();
        }
        inputs = match &job.batches {
            Some(_) => inputs.in_batches(),
            None if job.guarantee == Guarantee::AtLeastOnce => inputs.unaligned(),
            None => inputs,
        };
        if matches!(role, Role::Sender { .. }) {
            inputs = inputs.in_order_by_input();
        }
        if roster.launch.remote.is_some() {
            inputs = inputs.counting_from_barriers();
        }
        let joining = NewMember {
            number: member.number,
            part,
            waker: member.place.clone(),
            mailbox: Arc::clone(&member.mailbox),
            is_urgent: inputs.is_urgent(),
            counted,
        };
        let tasklet = Tasklet::new(
            (Arc::clone(job), part),
            Arc::clone(&member.mailbox),
            stages,
            inputs,
            outputs,
            roster.launch.turns(role),
        );
        let tasklet = match remake {
            Some(remake) => tasklet.restarting(remake),
            None => tasklet,
        };
        (member, Box::new(tasklet), joining)
    }
}

/// Returns the instances of an edge's producer that are placed here and were never started.
fn awaited_producers(
    draft: &RewirePlan,
    roster: &TaskletRegistry,
    joint: &TaskletEdge,
    layout: &Layout,
) -> Vec<u32> {
    let vertex = joint.edge.source().0;
    let here = layout.routes.here();
    let placed = layout
        .placements()
        .map(|placement| placement.at(vertex, here));
    let is_there = |instance: &u32| {
        let role = Role::Chain {
            chain: joint.from,
            instance: *instance,
        };
        draft.member(roster, role).is_some()
    };
    let placed = placed.into_iter().flatten();
    placed.filter(|instance| !is_there(instance)).collect()
}

/// Returns the inputs of the tasklet `role` that wait for one of the producers `awaited` of an
/// edge; `None` if the edge doesn't lead to that tasklet.
fn waiting_inputs(
    role: Role,
    joint: &TaskletEdge,
    awaited: &[u32],
    layout: &Layout,
) -> Option<Vec<usize>> {
    let feeds = |instance: u32| {
        let mut awaited = awaited.iter();
        awaited.any(|producer| wiring::feeds(joint, *producer, instance))
    };
    match role {
        Role::Sender { edge, to } if edge == joint.id => {
            let placed = layout.placements();
            let consumers = placed.iter().flat_map(|p| p.at(joint.edge.target().0, to));
            let fed = consumers.filter(|instance| feeds(*instance));
            let mut inputs: Vec<usize> = fed.map(|instance| instance as usize).collect();
            // The stream itself goes on in any case.
            inputs.extend((!awaited.is_empty()).then_some(0));
            Some(inputs)
        }
        Role::Chain { chain, instance } if chain == joint.to => {
            Some(Vec::from_iter(feeds(instance).then_some(joint.input)))
        }
        _ => None,
    }
}

fn joint_of(roster: &TaskletRegistry, role: Role, output: usize) -> Option<&TaskletEdge> {
    match role {
        Role::Chain { chain, .. } => roster
            .wiring
            .joints
            .iter()
            .find(|joint| joint.from == chain && joint.output == output),
        Role::Sender { edge, .. } | Role::Receiver { edge, .. } => roster.wiring.joint(edge),
    }
}

fn capacity(joint: &TaskletEdge, config: &NodeConfig) -> Capacity {
    let wanted = joint.edge.wanted_capacity();
    Capacity::clamped(wanted.unwrap_or(config.queue_chunks).get())
}

fn end_reservation(reservation: QueueSender) {
    // The queue is empty, so there is room.
    drop(reservation.end());
}

impl NewLane {
    fn into_new(self) -> Option<QueueSender> {
        match self {
            NewLane::New(sender) => Some(sender),
            NewLane::Existing(_) => None,
        }
    }
}
