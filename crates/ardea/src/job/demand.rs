//! The resource demand of a job, from its graph.

use std::num::NonZeroU32;

use ardea_coordination::packing::{
    EQUAL_PARALLELISM_ATTRIBUTE, FIXED_INSTANCES_ATTRIBUTE, JobDemand, MOST_INSTANCES_ATTRIBUTE,
    MilliCores, Resources, VertexDemand,
};
use ardea_core::{Dag, Isolation, Result, VertexId};
use ardea_engine::{colocation_groups, equal_parallelism_groups};
use ardea_rest::{LogicalEdge, LogicalPlan, LogicalVertex};

/// The default parallelism of a vertex on a cluster.
const DEFAULT_INSTANCES: NonZeroU32 = NonZeroU32::MIN;

/// Returns the resource demand of the job with the graph `dag`. `unsaid` has the values of those
/// resources of an instance that its vertex does not set.
///
/// The graph itself is stored in the attributes of the vertices, for packing policies and for
/// display: see [`LogicalPlan`].
///
/// # Errors
/// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if the graph can't run.
pub fn demand(job: &str, dag: &Dag, unsaid: Resources) -> Result<JobDemand> {
    let counted = equal_parallelism_groups(dag)?;
    let mut demand = JobDemand::new(job);
    for id in dag.topological_order()? {
        let vertex = dag.get(id);
        let parallelism = vertex.wanted_parallelism().resolve(DEFAULT_INSTANCES);
        let said = vertex.wanted_demand();
        let each = Resources {
            cpu: said.cpu_millicores.map_or(unsaid.cpu, MilliCores),
            memory_bytes: said.memory_bytes.unwrap_or(unsaid.memory_bytes),
            disk_bytes: said.disk_bytes.unwrap_or(unsaid.disk_bytes),
        };
        let mut wanted = VertexDemand::new(&**vertex.name(), parallelism, each);
        if let Some(most) = vertex.instance_limit() {
            wanted = wanted.attribute(MOST_INSTANCES_ATTRIBUTE, most.to_string());
        }
        if vertex.has_fixed_parallelism() {
            wanted = wanted.attribute(FIXED_INSTANCES_ATTRIBUTE, "true");
        }
        if let Some(first) = first_of_group(dag, &counted, id) {
            wanted = wanted.attribute(EQUAL_PARALLELISM_ATTRIBUTE, first);
        }
        demand = demand.vertex(wanted);
    }
    logical_plan(dag, DEFAULT_INSTANCES)?.write_into(&mut demand);
    Ok(demand)
}

/// Returns the graph of a job for display. `default` is the parallelism of vertices that have none
/// of their own.
///
/// # Errors
/// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if the graph can't run.
pub(crate) fn logical_plan(dag: &Dag, default: NonZeroU32) -> Result<LogicalPlan> {
    let placed = colocation_groups(dag)?;
    let mut logical = LogicalPlan::default();
    for id in dag.topological_order()? {
        let vertex = dag.get(id);
        let parallelism = vertex.wanted_parallelism().resolve(default);
        logical.vertices.push(LogicalVertex {
            name: vertex.name().to_string(),
            parallelism,
            isolation: match vertex.wanted_isolation() {
                Isolation::Tasklet => "tasklet".into(),
                Isolation::Thread => "thread".into(),
                Isolation::Process => "process".into(),
            },
            together: first_of_group(dag, &placed, id),
        });
    }
    let name = |id: VertexId| dag.get(id).name().to_string();
    logical.edges = dag
        .edges()
        .iter()
        .map(|edge| LogicalEdge {
            from: name(edge.source().0),
            output: edge.source().1.index(),
            to: name(edge.target().0),
            input: edge.target().1.index(),
            routing: format!("{:?}", edge.wanted_routing()),
            latency_us: edge.wanted_latency().map(|it| it.as_micros() as u64),
            records_per_second: None,
        })
        .collect();
    Ok(logical)
}

/// Returns the first vertex of the group of several vertices that contains a vertex.
fn first_of_group(dag: &Dag, groups: &[Vec<VertexId>], id: VertexId) -> Option<String> {
    let mut groups = groups.iter();
    let group = groups.find(|group| group.len() > 1 && group.contains(&id))?;
    let first = group.first()?;
    Some(dag.get(*first).name().to_string())
}

#[cfg(test)]
mod tests {
    use ardea_coordination::packing::{PackingPolicy, RoundRobin};
    use ardea_core::{Demand, Edge, Parallelism, Processor, Routing, Vertex, supplier};

    use super::*;

    struct Nothing;
    impl Processor for Nothing {}

    #[test]
    fn a_demand_has_the_vertices_their_resources_and_the_graph() {
        let mut dag = Dag::new();
        let vertex = |name: &str, count: u32| {
            let parallelism = NonZeroU32::new(count).map(Parallelism::Exactly).unwrap();
            Vertex::new(name, supplier(|| Nothing)).parallelism(parallelism)
        };
        let lines = dag.vertex(vertex("lines", 2));
        let words = dag.vertex(vertex("words", 2));
        let each = Demand {
            cpu_millicores: Some(500),
            ..Demand::default()
        };
        let counts = dag.vertex(vertex("counts", 3).demand(each));
        let auto = dag.vertex(Vertex::new("sink", supplier(|| Nothing)));
        dag.edge(Edge::between(lines, words).routing(Routing::Forward));
        dag.edge(Edge::between(words, counts));
        dag.edge(Edge::between(counts, auto));
        let more = dag.vertex(vertex("more", 1));
        dag.edge(Edge::between(auto, more));
        let unsaid = Resources {
            cpu: MilliCores(100),
            memory_bytes: 7,
            disk_bytes: 0,
        };
        let demand = demand("job", &dag, unsaid).unwrap();
        let asked: Vec<_> = demand
            .vertices
            .iter()
            .map(|v| {
                (
                    v.name.as_str(),
                    v.parallelism,
                    v.resources.cpu.0,
                    v.resources.memory_bytes,
                )
            })
            .collect();
        let expected = [
            ("lines", 2, 100, 7),
            ("words", 2, 100, 7),
            ("counts", 3, 500, 7),
            ("sink", 1, 100, 7),
            ("more", 1, 100, 7),
        ];
        assert_eq!(asked, expected);
        let logical = LogicalPlan::of(&demand);
        assert_eq!(logical.edges.len(), 4);
        // Vertices with one instance each are not grouped: a rescale may add instances.
        let groups = [
            vec!["lines", "words"],
            vec!["counts"],
            vec!["sink"],
            vec!["more"],
        ];
        assert_eq!(logical.groups(), groups);
    }

    #[test]
    fn more_instances_than_a_vertex_can_have_are_refused_whoever_packs() {
        let mut dag = Dag::new();
        let vertex = Vertex::new("counts", supplier(|| Nothing)).parallelism(4);
        dag.vertex(vertex.max_instances(NonZeroU32::new(3).unwrap()));
        let more = demand("job", &dag, Resources::ZERO).unwrap();
        let error = RoundRobin.pack(&more, &Default::default()).unwrap_err();
        let told = "\"counts\" asks for 4 instances, and can have 3 at most";
        assert!(error.to_string().contains(told), "{error}");
    }
}
