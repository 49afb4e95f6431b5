//! The tasklets and queues required by a layout.

use std::collections::BTreeMap;

use ardea_core::{Error, ErrorCode, Result};

use super::TaskletRegistry;
use crate::Layout;
use crate::planning::wiring::{LaneTarget, Lanes, Role, TaskletEdge, Wiring};

/// Maximum number of queues of one job in a process: each takes some hundred bytes even when it is
/// empty.
const MAX_QUEUES: usize = 1 << 18;

/// The required tasklets and their queues.
#[derive(Debug, Default)]
pub(super) struct TargetLayout {
    /// Chains, with true for each that must stop when no producer routes to it.
    pub(super) chains: BTreeMap<Role, bool>,
    /// Ends of edges, with true for each that must stop when it is empty.
    pub(super) crossings: BTreeMap<Role, bool>,
    /// Queues by producer and output. Outputs that are not contained stay unchanged.
    pub(super) lanes: BTreeMap<(Role, usize), Lanes>,
    queues: usize,
}

impl TargetLayout {
    /// # Errors
    /// [`ErrorCode::WrongState`] if a tasklet is required that is still ending;
    /// [`ErrorCode::LimitReached`] if there would be too many queues.
    pub(super) fn of(roster: &TaskletRegistry, layout: &Layout) -> Result<Self> {
        let mut wanted = TargetLayout::default();
        wanted.add_chains(roster, layout)?;
        wanted.add_crossings(roster, layout);
        wanted.add_lanes(roster, layout)?;
        wanted.add_receivers(roster, layout)?;
        Ok(wanted)
    }

    fn add_chains(&mut self, roster: &TaskletRegistry, layout: &Layout) -> Result<()> {
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
            // The routing leads to these instances: they run until it changes.
            for instance in layout.routes.at(planned.head(), layout.routes.here()) {
                let role = Role::Chain { chain, instance };
                self.chains.entry(role).or_insert(true);
            }
        }
        for (role, member) in &roster.members {
            if let Role::Chain { .. } = *role {
                let is_leaving = *self.chains.entry(*role).or_insert(true);
                // A tasklet to which no producer routes may end at any moment.
                let stays = member.is_routed && !member.is_source;
                if member.is_leaving && !is_leaving && !stays {
                    return Err(roster.still_ending(*role));
                }
            }
        }
        Ok(())
    }

    fn add_crossings(&mut self, roster: &TaskletRegistry, layout: &Layout) {
        for role in roster.wiring.crossings(layout) {
            self.crossings.insert(role, false);
        }
        for role in roster.members.keys() {
            if !matches!(role, Role::Chain { .. }) {
                self.crossings.entry(*role).or_insert(true);
            }
        }
    }

    fn add_lanes(&mut self, roster: &TaskletRegistry, layout: &Layout) -> Result<()> {
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
                        // An end that the layout does not require is needed as long as a tasklet
                        // that uses it stays.
                        *self.crossings.entry(lane.role).or_insert(true) &= is_leaving;
                    }
                }
                self.add(wiring, joint, (role, joint.output), lanes)?;
            }
        }
        Ok(())
    }

    /// Retains the queues of an output, and the ends of edges to which they lead.
    fn keep(&mut self, roster: &TaskletRegistry, (role, output): (Role, usize), is_leaving: bool) {
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

    fn add_receivers(&mut self, roster: &TaskletRegistry, layout: &Layout) -> Result<()> {
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
                let lane = (is_there && (connected || receives)).then_some(LaneTarget {
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
        joint: &TaskletEdge,
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

/// Returns the number of inputs or outputs of an end of an edge: one per instance of the consumer
/// over all processes.
pub(super) fn width(
    roster: &TaskletRegistry,
    role: Role,
    joint: &TaskletEdge,
    layout: &Layout,
) -> usize {
    let vertex = joint.edge.target().0;
    let placed = layout.placements().map(|p| p.parallelism(vertex) as usize);
    let before = roster.members.get(&role).map_or(0, |m| m.outputs.len());
    placed.into_iter().max().unwrap_or(0).max(before)
}
