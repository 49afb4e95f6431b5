//! Which tasklets there are to be, and which queues between them.

use std::collections::BTreeMap;

use ardea_core::{Error, ErrorCode, Result};

use super::Roster;
use crate::Layout;
use crate::wiring::{Joint, LaneTo, Lanes, Role, Wiring};

/// The most queues that one job may have in a process: each takes some hundred bytes even when it is empty.
const MAX_QUEUES: usize = 1 << 18;

/// Which tasklets there are to be, and their queues.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Of the chains, whether each is to end when nobody routes to it any more.
    pub(super) chains: BTreeMap<Role, bool>,
    /// Of the ends of edges, whether each is to end when it is empty.
    pub(super) crossings: BTreeMap<Role, bool>,
    /// By producer and output. One that is not there stays as it is.
    pub(super) lanes: BTreeMap<(Role, usize), Lanes>,
    queues: usize,
}

impl Wanted {
    /// # Errors
    /// [`ErrorCode::WrongState`] if something is wanted that is still ending; [`ErrorCode::LimitReached`] if there would be too many
    /// queues.
    pub(super) fn of(roster: &Roster, layout: &Layout) -> Result<Self> {
        let mut wanted = Wanted::default();
        wanted.add_chains(roster, layout)?;
        wanted.add_crossings(roster, layout);
        wanted.add_lanes(roster, layout)?;
        wanted.add_receivers(roster, layout)?;
        Ok(wanted)
    }

    fn add_chains(&mut self, roster: &Roster, layout: &Layout) -> Result<()> {
        let wiring = &roster.wiring;
        for (vertex, instance) in &layout.run {
            let chain = wiring.chain_of(*vertex);
            let instance = *instance;
            self.chains.insert(Role::Chain { chain, instance }, false);
        }
        for (chain, planned) in wiring.plan.tasklets.iter().enumerate() {
            if wiring.is_source(chain) {
                continue;
            }
            // Records are routed to these: they are dealt with until the routes change.
            for instance in layout.routes.at(planned.head(), layout.routes.here()) {
                let role = Role::Chain { chain, instance };
                self.chains.entry(role).or_insert(true);
            }
        }
        for (role, member) in &roster.members {
            if let Role::Chain { .. } = *role {
                let is_leaving = *self.chains.entry(*role).or_insert(true);
                // One that nobody routes to may end at any moment.
                let stays = member.is_routed && !member.is_source;
                if member.is_leaving && !is_leaving && !stays {
                    return Err(roster.still_ending(*role));
                }
            }
        }
        Ok(())
    }

    fn add_crossings(&mut self, roster: &Roster, layout: &Layout) {
        for role in roster.wiring.crossings(layout) {
            self.crossings.insert(role, false);
        }
        for role in roster.members.keys() {
            if !matches!(role, Role::Chain { .. }) {
                self.crossings.entry(*role).or_insert(true);
            }
        }
    }

    fn add_lanes(&mut self, roster: &Roster, layout: &Layout) -> Result<()> {
        let wiring = &roster.wiring;
        let has_ended = |role: &Role| roster.members.get(role).is_some_and(|m| m.has_ended());
        let listens = |chains: &BTreeMap<Role, bool>, role: Role| {
            chains.get(&role) == Some(&false) && !has_ended(&role)
        };
        let producers = self.chains.iter().filter(|(role, _)| !has_ended(role));
        let producers: Vec<(Role, bool)> =
            producers.map(|(role, leaves)| (*role, *leaves)).collect();
        for (role, is_leaving) in producers {
            let Role::Chain { chain, instance } = role else {
                continue;
            };
            for joint in wiring.outputs(chain) {
                let listens = |role| listens(&self.chains, role);
                let Some(lanes) = wiring.lanes(joint, instance, layout, listens) else {
                    self.keep(roster, (role, joint.output), is_leaving);
                    continue;
                };
                for lane in &lanes.to {
                    if matches!(lane.role, Role::Sender { .. }) {
                        // An end that the layout does not ask for is needed for as long as somebody stays who uses it.
                        *self.crossings.entry(lane.role).or_insert(true) &= is_leaving;
                    }
                }
                self.add(wiring, joint, (role, joint.output), lanes)?;
            }
        }
        Ok(())
    }

    /// An output keeps the queues that it has, and so what they lead to.
    fn keep(&mut self, roster: &Roster, (role, output): (Role, usize), is_leaving: bool) {
        let member = roster.members.get(&role);
        let Some(lanes) = member.and_then(|member| member.outputs.get(output)) else {
            return;
        };
        for (number, _) in &lanes.keys {
            let consumer = roster.members.iter().find(|(_, m)| m.number == *number);
            if let Some((role @ Role::Sender { .. }, _)) = consumer {
                *self.crossings.entry(*role).or_insert(true) &= is_leaving;
            }
        }
    }

    fn add_receivers(&mut self, roster: &Roster, layout: &Layout) -> Result<()> {
        let roles: Vec<Role> = self.crossings.keys().copied().collect();
        for role in roles {
            let Role::Receiver { edge, from } = role else {
                continue;
            };
            let Some(joint) = roster.wiring.joint(edge) else {
                continue;
            };
            let member = roster.members.get(&role);
            for target in 0..width(roster, role, joint, layout) {
                let consumer = Role::Chain {
                    chain: joint.to,
                    instance: target as u32,
                };
                let connected = member
                    .and_then(|member| member.outputs.get(target))
                    .is_some_and(|lanes| !lanes.keys.is_empty());
                let receives = roster.wiring.receives(joint, from, target as u32, layout);
                let is_there = self.chains.contains_key(&consumer);
                let lane = (is_there && (connected || receives)).then_some(LaneTo {
                    role: consumer,
                    input: joint.input,
                });
                let lanes = Lanes {
                    consumers: usize::from(lane.is_some()),
                    to: lane.into_iter().collect(),
                };
                self.add(&roster.wiring, joint, (role, target), lanes)?;
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        wiring: &Wiring,
        joint: &Joint,
        output: (Role, usize),
        lanes: Lanes,
    ) -> Result<()> {
        self.queues += lanes.to.len();
        if self.queues > MAX_QUEUES {
            let ends = [joint.edge.source().0, joint.edge.target().0];
            let [from, to] = ends.map(|vertex| wiring.dag.get(vertex).name());
            return Err(Error::new(
                ErrorCode::LimitReached,
                format!(
                    "the job needs more than {MAX_QUEUES} queues, many of them from {from:?} to {to:?}"
                ),
            )
            .hint("lower the parallelism of these vertices, or join them by a forward edge"));
        }
        self.lanes.insert(output, lanes);
        Ok(())
    }
}

/// How many inputs or outputs the end of an edge has: one for each instance of the consumer, over all processes.
pub(super) fn width(roster: &Roster, role: Role, joint: &Joint, layout: &Layout) -> usize {
    let vertex = joint.edge.target().0;
    let placed = layout.placements().map(|p| p.parallelism(vertex) as usize);
    let before = roster.members.get(&role).map_or(0, |m| m.outputs.len());
    placed.into_iter().max().unwrap_or(0).max(before)
}
