//! The tasklets and queues that a process needs, derived from the graph and the layout alone.

use std::collections::BTreeSet;
use std::time::Duration;

use ardea_core::{Dag, Edge, EdgeId, Error, ErrorCode, Result, Routing, VertexId};

use crate::planning::execution_plan::ExecutionPlan;
use crate::{Layout, Placement, Site};

/// The identity of a tasklet among those of its job in this process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Role {
    /// An instance of a chain of vertices, by its index in the plan.
    Chain { chain: usize, instance: u32 },
    /// The end of an edge to another process.
    Sender { edge: EdgeId, to: Site },
    /// The end of an edge from another process.
    Receiver { edge: EdgeId, from: Site },
}

/// An edge between tasklets.
#[derive(Clone, Debug)]
pub(crate) struct TaskletEdge {
    pub(crate) id: EdgeId,
    pub(crate) edge: Edge,
    /// The producing chain, and the index of its output.
    pub(crate) from: usize,
    pub(crate) output: usize,
    /// The consuming chain, and the index of its input.
    pub(crate) to: usize,
    pub(crate) input: usize,
}

/// The target of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LaneTarget {
    pub(crate) role: Role,
    pub(crate) input: usize,
}

/// The queues of one output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lanes {
    pub(crate) to: Vec<LaneTarget>,
    /// The number of queues, from the first on, that get records; the others get only watermarks
    /// and end-of-stream markers.
    pub(crate) consumers: usize,
}

/// The static structure of a job's tasklets, independent of the layout.
#[derive(Debug)]
pub(crate) struct Wiring {
    pub(crate) dag: Dag,
    pub(crate) plan: ExecutionPlan,
    pub(crate) joints: Vec<TaskletEdge>,
    /// The chain of each vertex.
    chains: Vec<usize>,
}

impl Wiring {
    pub(crate) fn new(dag: Dag, plan: ExecutionPlan) -> Self {
        let mut chains = vec![0; dag.vertices().len()];
        for (number, tasklet) in plan.tasklets.iter().enumerate() {
            for vertex in &tasklet.vertices {
                chains[vertex.index()] = number;
            }
        }
        let joints = plan.edges_between(&dag).map(|(id, edge)| TaskletEdge {
            id,
            edge: edge.clone(),
            from: chains[edge.source().0.index()],
            output: edge.source().1.index(),
            to: chains[edge.target().0.index()],
            input: edge.target().1.index(),
        });
        Wiring {
            joints: joints.collect(),
            dag,
            plan,
            chains,
        }
    }

    /// Returns the chain that contains a vertex.
    pub(crate) fn chain_of(&self, vertex: VertexId) -> usize {
        self.chains[vertex.index()]
    }

    /// Returns the edges out of a chain, by output.
    pub(crate) fn outputs(&self, chain: usize) -> Vec<&TaskletEdge> {
        let mut joints: Vec<_> = self.joints.iter().filter(|j| j.from == chain).collect();
        joints.sort_by_key(|joint| joint.output);
        joints
    }

    /// Returns the edges into a chain, by input.
    pub(crate) fn inputs(&self, chain: usize) -> Vec<&TaskletEdge> {
        let mut joints: Vec<_> = self.joints.iter().filter(|j| j.to == chain).collect();
        joints.sort_by_key(|joint| joint.input);
        joints
    }

    pub(crate) fn joint(&self, edge: EdgeId) -> Option<&TaskletEdge> {
        self.joints.iter().find(|joint| joint.id == edge)
    }

    /// Returns true if a chain starts with a source.
    pub(crate) fn is_source(&self, chain: usize) -> bool {
        self.joints.iter().all(|joint| joint.to != chain)
    }

    /// Returns true if a tasklet needs a dedicated thread.
    pub(crate) fn is_dedicated(&self, role: Role) -> bool {
        matches!(role, Role::Chain { chain, .. } if self.plan.tasklets[chain].is_dedicated())
    }

    /// Returns the latency budget of a tasklet; see [`Edge::latency`]. `of_job` is the budget of
    /// edges without their own.
    pub(crate) fn latency(&self, role: Role, of_job: Duration) -> Duration {
        let own = |edge: EdgeId| self.dag.edges()[edge.index()].wanted_latency();
        let budget = match role {
            _ if self.is_dedicated(role) => None,
            Role::Receiver { edge, .. } => Some(own(edge).unwrap_or(of_job)),
            Role::Sender { edge, .. } => own(edge),
            Role::Chain { chain, .. } if self.is_source(chain) => {
                let leaving = self.outputs(chain).into_iter();
                let leaving = leaving.map(|joint| own(joint.id).unwrap_or(of_job));
                let vertices = self.plan.tasklets[chain].vertices.iter();
                let inside = vertices.flat_map(|vertex| self.dag.outputs(*vertex));
                let least = leaving.chain(inside.filter_map(own)).min();
                Some(least.unwrap_or(of_job))
            }
            Role::Chain { chain, .. } => {
                let inputs = self.inputs(chain).into_iter();
                let own: Option<Vec<Duration>> = inputs.map(|joint| own(joint.id)).collect();
                own.and_then(|budgets| budgets.into_iter().min())
            }
        };
        budget.unwrap_or_default()
    }

    /// Refuses a layout that the graph does not allow.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`], naming the vertices.
    pub(crate) fn check(&self, layout: &Layout) -> Result<()> {
        for placement in layout.placements() {
            self.check_counts(placement)?;
            self.check_chains(placement)?;
            for joint in &self.joints {
                self.check_edge(joint, placement)?;
            }
        }
        for (vertex, instance) in &layout.run {
            let Some(chain) = self.chains.get(vertex.index()) else {
                return Err(invalid("the layout has a vertex of another graph".into()));
            };
            let chain = &self.plan.tasklets[*chain].vertices;
            if !chain.iter().all(|v| layout.run.contains(&(*v, *instance))) {
                return Err(self.apart(chain, *instance));
            }
        }
        Ok(())
    }

    fn check_counts(&self, placement: &Placement) -> Result<()> {
        for vertex in 0..self.dag.vertices().len() {
            let vertex = VertexId::of_index(vertex);
            if placement.parallelism(vertex) == 0 {
                let name = self.dag.get(vertex).name();
                return Err(
                    invalid(format!("no instance of {name:?} is placed anywhere"))
                        .hint("place at least one instance of each vertex"),
                );
            }
        }
        let forward = |edge: &&Edge| matches!(edge.wanted_routing(), Routing::Forward);
        for edge in self.dag.edges().iter().filter(forward) {
            let ends = [edge.source().0, edge.target().0];
            let [from, to] = ends.map(|vertex| placement.parallelism(vertex));
            if from != to {
                let [source, target] = ends.map(|vertex| self.dag.get(vertex).name());
                return Err(invalid(format!(
                    "the forward edge from {source:?} to {target:?} joins {from} and {to} instances"
                ))
                .hint("give both the same parallelism"));
            }
        }
        Ok(())
    }

    fn check_chains(&self, placement: &Placement) -> Result<()> {
        for chain in &self.plan.tasklets {
            let head = placement.sites(chain.head());
            for vertex in &chain.vertices[1..] {
                let apart = head
                    .iter()
                    .zip(placement.sites(*vertex))
                    .position(|(a, b)| a != b);
                if let Some(instance) = apart {
                    return Err(self.apart(&chain.vertices, instance as u32));
                }
            }
        }
        Ok(())
    }

    fn apart(&self, chain: &[VertexId], instance: u32) -> Error {
        let names: Vec<&str> = chain.iter().map(|v| &**self.dag.get(*v).name()).collect();
        let names = names.join("\", \"");
        invalid(format!(
            "the instances {instance} of \"{names}\" are placed apart, but run as one tasklet"
        ))
        .hint("place instances of the same index of these vertices in one process")
    }

    fn check_edge(&self, joint: &TaskletEdge, placement: &Placement) -> Result<()> {
        if joint.edge.wanted_codec().is_some() {
            return Ok(());
        }
        let (from, to) = (joint.edge.source().0, joint.edge.target().0);
        let (sources, targets) = (placement.sites(from), placement.sites(to));
        let leaves = match joint.edge.wanted_routing() {
            Routing::Forward => sources != targets,
            Routing::AllToOne => sources.iter().any(|site| site != &targets[0]),
            _ => sources
                .iter()
                .chain(targets)
                .any(|site| site != &targets[0]),
        };
        if !leaves {
            return Ok(());
        }
        let (from, to) = (self.dag.get(from).name(), self.dag.get(to).name());
        Err(invalid(format!(
            "the edge from {from:?} to {to:?} leads to another process, but has no codec"
        ))
        .hint("give the edge a codec, or place all instances of both in one process"))
    }

    /// Returns the ends of edges to and from other processes that a layout needs.
    pub(crate) fn crossings(&self, layout: &Layout) -> BTreeSet<Role> {
        let here = layout.routes.here();
        let mut roles = BTreeSet::new();
        for joint in self
            .joints
            .iter()
            .filter(|j| j.edge.wanted_codec().is_some())
        {
            let edge = joint.id;
            for (from, to) in self.site_pairs(joint, &layout.placements()) {
                if from == here && to != here {
                    roles.insert(Role::Sender { edge, to });
                }
            }
            for (from, to) in self.site_pairs(joint, &layout.origins()) {
                if from != here && to == here {
                    roles.insert(Role::Receiver { edge, from });
                }
            }
        }
        roles
    }

    /// Returns the pairs of processes that an edge connects in these placements.
    fn site_pairs(&self, joint: &TaskletEdge, placements: &[&Placement]) -> BTreeSet<(Site, Site)> {
        let (from, to) = (joint.edge.source().0, joint.edge.target().0);
        let of = |vertex, only: Option<u32>| -> BTreeSet<Site> {
            let placements = placements.iter();
            match only {
                Some(index) => placements.filter_map(|p| p.site(vertex, index)).collect(),
                None => placements.flat_map(|p| p.sites(vertex)).copied().collect(),
            }
        };
        let pairs = |froms: BTreeSet<Site>, tos: BTreeSet<Site>| {
            let tos = tos.into_iter().collect::<Vec<_>>();
            froms
                .into_iter()
                .flat_map(move |a| tos.clone().into_iter().map(move |b| (a, b)))
                .collect::<Vec<_>>()
        };
        match joint.edge.wanted_routing() {
            Routing::Forward => {
                let counts = placements.iter().map(|p| p.parallelism(from));
                let all = 0..counts.max().unwrap_or(0);
                all.flat_map(|i| pairs(of(from, Some(i)), of(to, Some(i))))
                    .collect()
            }
            Routing::AllToOne => pairs(of(from, None), of(to, Some(0))).into_iter().collect(),
            _ => pairs(of(from, None), of(to, None)).into_iter().collect(),
        }
    }

    /// Returns the queues of an instance here over one edge. `None` if the instance retains its
    /// present queues, since it is about to leave and its records can't reach the new targets.
    ///
    /// `listens` returns true for an instance of the consumer that is here and must get watermarks
    /// and end-of-stream markers although no records are routed to it yet.
    pub(crate) fn lanes(
        &self,
        joint: &TaskletEdge,
        instance: u32,
        layout: &Layout,
        listens: impl Fn(Role) -> bool,
    ) -> Option<Lanes> {
        let vertex = joint.edge.target().0;
        let to: Vec<LaneTarget> = targets(joint, instance, layout.routes.parallelism(vertex))
            .map(|target| self.lane(joint, target, &layout.routes))
            .collect::<Option<_>>()?;
        if to.is_empty() {
            return None;
        }
        let mut lanes = Lanes {
            consumers: to.len(),
            to,
        };
        if !layout.is_steady {
            self.add_listeners(joint, instance, layout, listens, &mut lanes);
        }
        Some(lanes)
    }

    /// Adds the queues that get only watermarks and end-of-stream markers.
    fn add_listeners(
        &self,
        joint: &TaskletEdge,
        instance: u32,
        layout: &Layout,
        listens: impl Fn(Role) -> bool,
        lanes: &mut Lanes,
    ) {
        let vertex = joint.edge.target().0;
        let mut reached: BTreeSet<Role> = lanes.to.iter().map(|lane| lane.role).collect();
        let counts = layout.placements().map(|p| p.parallelism(vertex));
        let here = layout.run.range((vertex, 0)..=(vertex, u32::MAX));
        let most = here.map(|(_, index)| index + 1).chain(counts).max();
        for target in targets(joint, instance, most.unwrap_or(0)) {
            let role = Role::Chain {
                chain: joint.to,
                instance: target,
            };
            let local = LaneTarget {
                role,
                input: joint.input,
            };
            let next = self.lane(joint, target, &layout.next);
            let next = next.filter(|lane| matches!(lane.role, Role::Sender { .. }));
            for lane in [Some(local).filter(|_| listens(role)), next]
                .into_iter()
                .flatten()
            {
                if reached.insert(lane.role) {
                    lanes.to.push(lane);
                }
            }
        }
    }

    /// Returns the queue to an instance of the consumer. `None` if there is no such instance, or if
    /// it is in another process and the edge has no codec.
    fn lane(&self, joint: &TaskletEdge, target: u32, placement: &Placement) -> Option<LaneTarget> {
        let site = placement.site(joint.edge.target().0, target)?;
        if site == placement.here() {
            let role = Role::Chain {
                chain: joint.to,
                instance: target,
            };
            let input = joint.input;
            return Some(LaneTarget { role, input });
        }
        joint.edge.wanted_codec()?;
        let role = Role::Sender {
            edge: joint.id,
            to: site,
        };
        let input = target as usize;
        Some(LaneTarget { role, input })
    }

    /// Returns true if records over an edge from another process may be for this instance of the
    /// consumer.
    pub(crate) fn receives(
        &self,
        joint: &TaskletEdge,
        from: Site,
        target: u32,
        layout: &Layout,
    ) -> bool {
        match joint.edge.wanted_routing() {
            Routing::Forward => layout
                .origins()
                .iter()
                .any(|p| p.site(joint.edge.source().0, target) == Some(from)),
            Routing::AllToOne => target == 0,
            _ => true,
        }
    }
}

/// Returns the indices of the consumer's instances, out of `consumers`, that an instance of the
/// producer sends to.
fn targets(joint: &TaskletEdge, instance: u32, consumers: u32) -> std::ops::Range<u32> {
    match joint.edge.wanted_routing() {
        Routing::Forward => instance.min(consumers)..(instance + 1).min(consumers),
        Routing::AllToOne => 0..consumers.min(1),
        _ => 0..consumers,
    }
}

/// Returns true if a producer's records may go to this instance of the consumer.
pub(crate) fn feeds(joint: &TaskletEdge, producer: u32, consumer: u32) -> bool {
    match joint.edge.wanted_routing() {
        Routing::Forward => producer == consumer,
        Routing::AllToOne => consumer == 0,
        _ => true,
    }
}

fn invalid(what: String) -> Error {
    Error::new(ErrorCode::InvalidJob, what)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use ardea_core::{Chunk, ChunkCodec, Ordinal, Processor, Vertex, supplier};

    use super::*;

    struct Nothing;
    impl Processor for Nothing {}

    struct AnyWhere;
    impl ChunkCodec for AnyWhere {
        fn encode(&self, _: &mut Chunk, _: usize, _: &mut Vec<u8>) -> Result<usize> {
            Ok(0)
        }
        fn decode(&self, _: usize, _: &[u8], _: &mut Chunk) -> Result<()> {
            Ok(())
        }
    }

    /// Returns the wiring of a source and a sink with this routing.
    fn wiring(routing: Routing) -> Wiring {
        let mut dag = Dag::new();
        let [from, to] =
            ["from", "to"].map(|name| dag.vertex(Vertex::new(name, supplier(|| Nothing))));
        let edge = Edge::between(from, to).routing(routing);
        dag.edge(edge.codec(Arc::new(AnyWhere)));
        let plan =
            ExecutionPlan::made(&dag, |_| 1, crate::planning::execution_plan::Fusion::Off).unwrap();
        Wiring::new(dag, plan)
    }

    /// Returns a placement from the view of site 0.
    fn placement(from: &[u32], to: &[u32]) -> Placement {
        let sites = |sites: &[u32]| sites.iter().copied().map(Site).collect();
        Placement::new(Site(0), vec![sites(from), sites(to)])
    }

    fn lanes(wiring: &Wiring, layout: &Layout) -> (Vec<(u32, usize)>, usize) {
        let here = |_| false;
        let lanes = wiring.lanes(&wiring.joints[0], 0, layout, here).unwrap();
        let site = |role| match role {
            Role::Sender { to, .. } => to.0,
            _ => 0,
        };
        let to = lanes.to.iter().map(|lane| (site(lane.role), lane.input));
        (to.collect(), lanes.consumers)
    }

    #[test]
    fn a_tasklet_gathers_by_the_budgets_of_its_edges() {
        let [job, own, less] = [500, 900, 100].map(Duration::from_micros);
        let budgets = |first: Option<Duration>, second: Option<Duration>| {
            let mut dag = Dag::new();
            let [a, b, c] =
                ["a", "b", "c"].map(|name| dag.vertex(Vertex::new(name, supplier(|| Nothing))));
            let edge = dag.edge(Edge::between(a, b).latency(first).codec(Arc::new(AnyWhere)));
            let both = Edge::from_ordinals((b, Ordinal::FIRST), (c, Ordinal::FIRST));
            dag.edge(both.latency(second));
            let off = crate::planning::execution_plan::Fusion::Off;
            let plan = ExecutionPlan::made(&dag, |_| 1, off).unwrap();
            let wiring = Wiring::new(dag, plan);
            let chain = |chain| Role::Chain { chain, instance: 0 };
            let (from, to) = (Site(1), Site(1));
            let ends = [Role::Sender { edge, to }, Role::Receiver { edge, from }];
            let roles = [chain(0), chain(1), chain(2), ends[0], ends[1]];
            roles.map(|role| wiring.latency(role, job))
        };
        let zero = Duration::ZERO;
        assert_eq!(budgets(None, None), [job, zero, zero, zero, job]);
        assert_eq!(budgets(Some(own), None), [own, own, zero, own, own]);
        assert_eq!(
            budgets(Some(less), Some(own)),
            [less, less, own, less, less]
        );
        assert_eq!(budgets(Some(zero), None), [zero; 5]);
    }

    #[test]
    fn lane_i_leads_to_instance_i_or_to_the_input_i_of_the_way_there() {
        let layout = placement(&[0], &[1, 0, 2]).into();
        let (to, consumers) = lanes(&wiring(Routing::RoundRobin), &layout);
        assert_eq!((to, consumers), (vec![(1, 0), (0, 0), (2, 2)], 3));
        let (to, _) = lanes(&wiring(Routing::AllToOne), &layout);
        assert_eq!(to, [(1, 0)]);
    }

    #[test]
    fn those_who_are_routed_to_next_hear_of_time_before() {
        let (routes, next) = (placement(&[0], &[0]), placement(&[0], &[0, 1, 1]));
        let layout = Layout::from(routes).towards(next);
        let (to, consumers) = lanes(&wiring(Routing::RoundRobin), &layout);
        assert_eq!((to, consumers), (vec![(0, 0), (1, 1)], 1));
    }

    #[test]
    fn what_was_routed_by_the_last_placement_is_received_and_nothing_more_is_sent_by_it() {
        let (last, routes) = (placement(&[1, 2], &[0, 2]), placement(&[0, 1], &[0, 3]));
        let layout = Layout::from(routes).after(last);
        let wiring = wiring(Routing::RoundRobin);
        let (edge, [one, two, three]) = (wiring.joints[0].id, [1, 2, 3].map(Site));
        let receiver = |from| Role::Receiver { edge, from };
        let wanted = [
            Role::Sender { edge, to: three },
            receiver(one),
            receiver(two),
        ];
        assert_eq!(wiring.crossings(&layout), BTreeSet::from(wanted));
    }

    #[test]
    fn the_ends_of_edges_are_those_between_all_sites_of_both_placements() {
        let (routes, next) = (placement(&[0, 1], &[0]), placement(&[2, 1], &[0]));
        let layout = Layout::from(routes).towards(next);
        let roles = wiring(Routing::AllToOne).crossings(&layout);
        let froms: Vec<Site> = roles
            .iter()
            .filter_map(|role| match role {
                Role::Receiver { from, .. } => Some(*from),
                _ => None,
            })
            .collect();
        assert_eq!((froms, roles.len()), (vec![Site(1), Site(2)], 2));
        let pairs: Layout = placement(&[0, 1], &[0, 1]).into();
        assert!(wiring(Routing::Forward).crossings(&pairs).is_empty());
    }
}
