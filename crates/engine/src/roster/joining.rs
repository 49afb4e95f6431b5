//! The queues between a job's tasklets, and carrying a change out.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::Arc;

use ardea_core::{Marker, Routing};
use ardea_ring::Capacity;

use super::draft::{Draft, Recruit};
use super::wanted::width;
use super::{LaneKey, LaneKeys, Member, Roster};
use crate::input::{InputSet, InputSpec, NewInlet, Unconnected};
use crate::job::{JobShared, Joining};
use crate::launch::Launch;
use crate::mailbox::Change;
use crate::output::{NewLane, NewLanes, OutputEdge};
use crate::queue::{Message, QueueSender, queue};
use crate::tasklet::{Part, Tasklet};
use crate::threads::Threads;
use crate::wiring::{Joint, Lanes, Role};
use crate::{Layout, NodeConfig};

/// Queues that have been made, by those who are to get their ends.
#[derive(Default)]
struct Ends {
    inlets: BTreeMap<Role, Vec<NewInlet>>,
    /// For those that run already.
    lanes: Vec<(Role, usize, NewLanes)>,
}

impl Draft {
    /// Joins all to each other, starts what is new, and tells the others.
    ///
    /// In this order: those that read learn of their new queues before those that write do. So no queue is written to that its reader
    /// does not know, and nobody ends who is about to get one.
    pub(super) fn carry_out(
        mut self,
        roster: &mut Roster,
        layout: &Layout,
        threads: &Threads,
        job: &Arc<JobShared>,
    ) {
        roster.next_number += self.recruits.len() as u64;
        let mut ends = Ends::default();
        for ((role, output), lanes) in mem::take(&mut self.wanted.lanes) {
            self.join(roster, (role, output), lanes, &mut ends, threads, job);
        }
        let unreserved = self.reserve(roster, layout, &mut ends);
        for (role, inlets) in ends.inlets {
            if let Some(recruit) = self.recruits.get_mut(&role) {
                recruit.inlets = inlets;
            } else if let Some(member) = roster.members.get(&role) {
                member.tell(Change::Inlets(inlets));
            }
        }
        let leaving = self.admit(roster, layout, threads, job);
        for (role, output, lanes) in ends.lanes {
            if let Some(member) = roster.members.get(&role) {
                member.tell(Change::Lanes { output, lanes });
            }
        }
        unreserved.into_iter().for_each(end_reservation);
        for role in leaving {
            if let Some(member) = roster.members.get(&role) {
                member.tell(match role {
                    Role::Chain { .. } => Change::Leave,
                    _ => Change::Dismiss,
                });
            }
        }
        self.places.keep();
    }

    /// Who a tasklet is that is there or about to be.
    fn member<'a>(&'a self, roster: &'a Roster, role: Role) -> Option<&'a Member> {
        let recruit = self.recruits.get(&role).map(|recruit| &recruit.member);
        recruit.or_else(|| roster.members.get(&role))
    }

    /// Makes the queues that an output does not have.
    fn join(
        &mut self,
        roster: &mut Roster,
        (role, output): (Role, usize),
        wanted: Lanes,
        ends: &mut Ends,
        threads: &Threads,
        job: &Arc<JobShared>,
    ) {
        let Some(joint) = joint_of(roster, role, output).cloned() else {
            return;
        };
        let Some(producer) = self.member(roster, role) else {
            return;
        };
        let place = producer.place.clone();
        let before = producer.outputs.get(output).cloned().unwrap_or_default();
        let places: HashMap<LaneKey, usize> = before.keys.iter().copied().zip(0..).collect();
        let (mut keys, mut lanes) = (Vec::new(), Vec::new());
        for to in &wanted.to {
            let Some(consumer) = self.member(roster, to.role) else {
                continue;
            };
            let key = (consumer.number, to.input);
            keys.push(key);
            lanes.push(match places.get(&key) {
                Some(kept) => NewLane::Kept(*kept),
                None => {
                    let capacity = capacity(&joint, &threads.config);
                    let (sender, receiver) = queue(capacity, place.clone(), consumer.place.clone());
                    ends.inlets.entry(to.role).or_default().push(NewInlet {
                        input: to.input,
                        receiver,
                        is_crossing: matches!(role, Role::Receiver { .. }),
                    });
                    NewLane::New(sender)
                }
            });
        }
        let after = LaneKeys {
            keys,
            consumers: wanted.consumers,
        };
        let routing = match role {
            Role::Chain { .. } => joint.edge.wanted_routing().clone(),
            // To the one instance that the output is for.
            _ => Routing::Forward,
        };
        if let Some(recruit) = self.recruits.get_mut(&role) {
            let chunk_records = threads.config.chunk_records.get();
            let lanes = lanes.into_iter().filter_map(NewLane::into_new).collect();
            let edge = OutputEdge::new(&routing, lanes, after.consumers, chunk_records);
            recruit.outputs.push(edge);
            recruit.member.outputs.push(after);
        } else if after != before
            && let Some(member) = roster.members.get_mut(&role)
        {
            if member.outputs.len() <= output {
                member.outputs.resize_with(output + 1, LaneKeys::default);
            }
            let consumers = after.consumers;
            member.outputs[output] = after;
            let told = Arc::downgrade(job);
            let receipt = roster.unsettled.begin(Arc::new(move || {
                if let Some(job) = told.upgrade() {
                    job.tell();
                }
            }));
            let lanes = NewLanes {
                lanes,
                consumers,
                routing,
                receipt,
            };
            ends.lanes.push((role, output, lanes));
        }
    }

    /// Holds the ends of edges open whose producers here have not been started yet, as they have to end elsewhere first. Gives back the
    /// reservations that are not needed any more.
    fn reserve(
        &mut self,
        roster: &mut Roster,
        layout: &Layout,
        ends: &mut Ends,
    ) -> Vec<QueueSender> {
        let mut unreserved = Vec::new();
        for (role, is_leaving) in &self.wanted.crossings {
            let Role::Sender { edge, .. } = *role else {
                continue;
            };
            let Some(joint) = roster.wiring.joint(edge) else {
                continue;
            };
            let awaited = !is_leaving && awaits_producers(self, roster, joint, layout);
            let recruit = self
                .recruits
                .get_mut(role)
                .map(|recruit| &mut recruit.member);
            let Some(member) = recruit.or_else(|| roster.members.get_mut(role)) else {
                continue;
            };
            if !awaited {
                unreserved.extend(member.reservation.take());
            } else if member.reservation.is_none() {
                let place = member.place.clone();
                let (mut sender, receiver) = queue(Capacity::clamped(2), place.clone(), place);
                // Time does not wait for it.
                sender.send(Message::Marker(Marker::Idle));
                member.reservation = Some(sender);
                ends.inlets.entry(*role).or_default().push(NewInlet {
                    input: 0,
                    receiver,
                    is_crossing: false,
                });
            }
        }
        unreserved
    }

    /// Starts what is new; those that are to end are given back.
    fn admit(
        &mut self,
        roster: &mut Roster,
        layout: &Layout,
        threads: &Threads,
        job: &Arc<JobShared>,
    ) -> Vec<Role> {
        let (mut joining, mut placed) = (Vec::new(), Vec::new());
        for (role, recruit) in mem::take(&mut self.recruits) {
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

    /// Notes of each member what is wanted of it; those that are to end are given back.
    fn mark(&self, roster: &mut Roster, layout: &Layout) -> Vec<Role> {
        let mut leaving = Vec::new();
        let wanted = self.wanted.chains.iter().chain(&self.wanted.crossings);
        for (role, is_leaving) in wanted {
            let Some(member) = roster.members.get_mut(role) else {
                continue;
            };
            if let Role::Chain { chain, instance } = *role {
                let head = roster.wiring.plan.tasklets[chain].head();
                let is_source = roster.wiring.is_source(chain);
                let is_placed = layout.routes.site(head, instance) == Some(layout.routes.here());
                member.is_routed = is_placed && !is_source;
                if is_placed && mem::take(&mut member.is_kept_back) {
                    member.tell(Change::Begin);
                }
            }
            match (member.is_leaving, *is_leaving) {
                (false, true) => leaving.push(*role),
                (true, false) => member.tell(Change::Stay),
                _ => {}
            }
            member.is_leaving = *is_leaving;
        }
        leaving
    }
}

impl Recruit {
    fn into_tasklet(
        self,
        roster: &Roster,
        role: Role,
        layout: &Layout,
        threads: &Threads,
        job: &Arc<JobShared>,
    ) -> (Member, Box<Tasklet>, Joining) {
        let Recruit {
            member,
            stages,
            counted,
            inlets,
            mut outputs,
        } = self;
        let wiring = &roster.wiring;
        let mut unconnected = Unconnected::HasEnded;
        let (specs, part, is_dedicated) = match role {
            Role::Chain { chain, .. } => {
                let inputs = wiring.inputs(chain).into_iter();
                let specs = inputs.map(|joint| InputSpec {
                    priority: joint.edge.wanted_priority(),
                    is_timeless: joint.edge.is_timeless(),
                });
                let is_dedicated = wiring.plan.tasklets[chain].is_dedicated();
                (specs.collect(), Part::Instances, is_dedicated)
            }
            Role::Sender { edge, .. } => {
                unconnected = Unconnected::HasNotBegun;
                let width = wiring
                    .joint(edge)
                    .map_or(0, |joint| width(roster, role, joint, layout));
                (vec![InputSpec::ORDINARY; width], Part::Crossing, false)
            }
            Role::Receiver { edge, from } => {
                let source = wiring.joint(edge).map(|joint| joint.edge.source().0);
                let has_producers = source.is_some_and(|v| layout.routes.sites(v).contains(&from));
                if !has_producers {
                    outputs = outputs.into_iter().map(OutputEdge::silent).collect();
                }
                (Vec::new(), Part::Crossing, false)
            }
        };
        let inputs = InputSet::new(specs, inlets, unconnected, Arc::clone(&member.mailbox));
        let joining = Joining {
            number: member.number,
            part,
            waker: member.place.clone(),
            is_urgent: inputs.is_urgent(),
            counted,
        };
        let tasklet = Tasklet::new(
            (Arc::clone(job), part),
            Arc::clone(&member.mailbox),
            stages,
            inputs,
            outputs,
            Launch::turns(&threads.config, is_dedicated),
        );
        (member, Box::new(tasklet), joining)
    }
}

/// Whether instances of an edge's producer are placed here that have never been started.
fn awaits_producers(draft: &Draft, roster: &Roster, joint: &Joint, layout: &Layout) -> bool {
    let vertex = joint.edge.source().0;
    let here = layout.routes.here();
    layout.placements().iter().any(|placement| {
        placement.at(vertex, here).any(|instance| {
            let role = Role::Chain {
                chain: joint.from,
                instance,
            };
            draft.member(roster, role).is_none()
        })
    })
}

fn joint_of(roster: &Roster, role: Role, output: usize) -> Option<&Joint> {
    match role {
        Role::Chain { chain, .. } => roster
            .wiring
            .joints
            .iter()
            .find(|joint| joint.from == chain && joint.output == output),
        Role::Sender { edge, .. } | Role::Receiver { edge, .. } => roster.wiring.joint(edge),
    }
}

fn capacity(joint: &Joint, config: &NodeConfig) -> Capacity {
    let wanted = joint.edge.wanted_capacity();
    Capacity::clamped(wanted.unwrap_or(config.queue_chunks).get())
}

fn end_reservation(reservation: QueueSender) {
    // There is room: it holds a single marker at the most.
    drop(reservation.end());
}

impl NewLane {
    fn into_new(self) -> Option<QueueSender> {
        match self {
            NewLane::New(sender) => Some(sender),
            NewLane::Kept(_) => None,
        }
    }
}
