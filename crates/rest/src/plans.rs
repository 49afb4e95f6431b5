//! The three plans of a job: the graph, the placement on machines, and the packing into containers.

use std::collections::BTreeMap;

use ardea_coordination::packing::{
    COLOCATION_ATTRIBUTE, ContainerId, JobDemand, PackingPlan, VertexName,
};
use ardea_coordination::placement::InputEdge;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ContainerState, ContainerView};

/// The attribute of a vertex's demand with the isolation of the vertex.
const ISOLATION: &str = "isolation";

/// The three plans of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Plans {
    /// Name of the job.
    pub job: String,
    /// Version of the packing plan, from one; null before there is a packing plan.
    pub version: Option<u64>,
    /// The graph of the job.
    pub logical: LogicalPlan,
    /// The containers with their machines and instances.
    pub physical: PhysicalPlan,
    /// The packing plan, with the instances and resources of each container; null before there is a
    /// packing plan.
    pub packing: Option<PackingPlan>,
}

impl Plans {
    /// Builds the plans of a job from the demand, the versioned packing plan, and the current
    /// containers.
    pub fn of(
        demand: &JobDemand,
        packing: Option<(u64, PackingPlan)>,
        containers: &[ContainerView],
    ) -> Self {
        let logical = LogicalPlan::of(demand);
        let (version, packing) = packing.unzip();
        let physical = packing.as_ref().map_or_else(PhysicalPlan::default, |plan| {
            PhysicalPlan::of(plan, &logical, containers)
        });
        Plans {
            job: demand.job.clone(),
            version,
            logical,
            physical,
            packing,
        }
    }
}

/// The graph of a job.
///
/// The edges, and the groups of vertices that must share containers, are stored in the attributes
/// of the job's demand. Packing policies can read them there.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LogicalPlan {
    /// Vertices, in the order of the graph.
    pub vertices: Vec<LogicalVertex>,
    /// Edges.
    pub edges: Vec<LogicalEdge>,
}

/// A vertex of a job's graph.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LogicalVertex {
    /// Name of the vertex.
    pub name: String,
    /// Number of instances.
    pub parallelism: u32,
    /// Isolation of the instances: `tasklet`, `thread` or `process`.
    pub isolation: String,
    /// First vertex of the group that this vertex belongs to. In a group, the instances with the
    /// same index share a container.
    pub together: Option<String>,
}

/// An edge of a job's graph.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LogicalEdge {
    /// Name of the producing vertex.
    pub from: String,
    /// Output of the producing vertex.
    pub output: usize,
    /// Name of the consuming vertex.
    pub to: String,
    /// Input of the consuming vertex.
    pub input: usize,
    /// Distribution of records to the consuming instances.
    pub routing: String,
    /// Latency budget in microseconds; null if the edge has that of the job.
    #[serde(default)]
    pub latency_us: Option<u64>,
    /// Declared records a second (`placement.rates`); null if the rate is assumed.
    #[serde(default)]
    pub records_per_second: Option<u64>,
}

impl LogicalPlan {
    /// Reads the graph from a demand, as written by [`write_into`](Self::write_into). Missing or
    /// invalid parts are left out.
    pub fn of(demand: &JobDemand) -> Self {
        let mut plan = LogicalPlan::default();
        for vertex in &demand.vertices {
            let attribute = |name: &str| vertex.attributes.get(name).cloned();
            plan.vertices.push(LogicalVertex {
                name: vertex.name.to_string(),
                parallelism: vertex.parallelism,
                isolation: attribute(ISOLATION).unwrap_or_else(|| "tasklet".into()),
                together: attribute(COLOCATION_ATTRIBUTE),
            });
            let inputs = InputEdge::of(&vertex.attributes);
            plan.edges
                .extend(inputs.into_iter().map(|edge| LogicalEdge {
                    from: edge.from,
                    output: edge.output,
                    to: vertex.name.to_string(),
                    input: edge.input,
                    routing: edge.routing,
                    latency_us: edge.latency_us,
                    records_per_second: edge.records_per_second,
                }));
        }
        plan
    }

    /// Writes the graph into the attributes of the vertices of a demand.
    pub fn write_into(&self, demand: &mut JobDemand) {
        let vertices: BTreeMap<&str, &LogicalVertex> = self
            .vertices
            .iter()
            .map(|vertex| (vertex.name.as_str(), vertex))
            .collect();
        for wanted in &mut demand.vertices {
            let Some(vertex) = vertices.get(wanted.name.as_str()) else {
                continue;
            };
            let mut set = |name: &str, value: String| {
                wanted.attributes.insert(name.to_string(), value);
            };
            set(ISOLATION, vertex.isolation.clone());
            if let Some(group) = &vertex.together {
                set(COLOCATION_ATTRIBUTE, group.clone());
            }
            let edges = self.edges.iter().filter(|edge| edge.to == vertex.name);
            let inputs: Vec<InputEdge> = edges
                .map(|edge| InputEdge {
                    from: edge.from.clone(),
                    output: edge.output,
                    input: edge.input,
                    routing: edge.routing.clone(),
                    latency_us: edge.latency_us,
                    records_per_second: edge.records_per_second,
                })
                .collect();
            InputEdge::write(&inputs, &mut wanted.attributes);
        }
    }

    /// Returns the groups of vertices that share containers, in the order of the graph; an
    /// ungrouped vertex is a group of one.
    pub fn groups(&self) -> Vec<Vec<&str>> {
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for vertex in &self.vertices {
            let head = vertex.together.as_deref().unwrap_or(&vertex.name);
            match groups.iter_mut().find(|(known, _)| *known == head) {
                Some((_, group)) => group.push(&vertex.name),
                None => groups.push((head, vec![&vertex.name])),
            }
        }
        groups.into_iter().map(|(_, group)| group).collect()
    }
}

/// The containers of a job with their instances.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PhysicalPlan {
    /// Containers, by number.
    pub containers: Vec<PhysicalContainer>,
}

/// A container and its instances.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PhysicalContainer {
    /// Number of the container.
    #[schemars(with = "u32")]
    pub id: ContainerId,
    /// State of the container's worker.
    pub state: ContainerState,
    /// Address of the container's machine, if known.
    pub host: Option<String>,
    /// Name of the container's host, if the container runs on a host of the cluster.
    #[serde(default)]
    pub host_name: Option<String>,
    /// Address of the container's worker for other workers.
    pub address: Option<String>,
    /// Instances in the container, by groups of vertices.
    pub groups: Vec<PlacedGroup>,
}

/// Instances in a container, of one vertex or of a group of vertices.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PlacedGroup {
    /// Vertices, in the order of the graph.
    pub vertices: Vec<String>,
    /// Indices of the instances; each vertex of the group has an instance of each index.
    pub instances: Vec<u32>,
}

impl PhysicalPlan {
    /// Builds the physical plan. Vertices of a group are listed separately if their instances were
    /// packed separately.
    pub fn of(plan: &PackingPlan, logical: &LogicalPlan, containers: &[ContainerView]) -> Self {
        let groups = logical.groups();
        let of_one = |container: &ardea_coordination::packing::ContainerPlan| {
            let mut indices: BTreeMap<&VertexName, Vec<u32>> = BTreeMap::new();
            for instance in &container.instances {
                let of_vertex = indices.entry(&instance.vertex).or_default();
                of_vertex.push(instance.index);
            }
            let now = containers.iter().find(|now| now.id == container.id);
            PhysicalContainer {
                id: container.id,
                state: now.map_or(ContainerState::Planned, |now| now.state),
                host: now.and_then(|now| now.host.clone()),
                host_name: now.and_then(|now| now.host_name.clone()),
                address: now.and_then(|now| now.address.clone()),
                groups: placed(&groups, &indices),
            }
        };
        PhysicalPlan {
            containers: plan.containers().iter().map(of_one).collect(),
        }
    }
}

/// Returns the groups that have instances in this container.
fn placed(groups: &[Vec<&str>], indices: &BTreeMap<&VertexName, Vec<u32>>) -> Vec<PlacedGroup> {
    let mut found: Vec<PlacedGroup> = Vec::new();
    for group in groups {
        let mut last: Option<PlacedGroup> = None;
        for vertex in group {
            let Some(instances) = indices.get(&VertexName::from(*vertex)) else {
                continue;
            };
            match &mut last {
                Some(last) if last.instances == *instances => {
                    last.vertices.push(vertex.to_string())
                }
                _ => {
                    found.extend(last.take());
                    last = Some(PlacedGroup {
                        vertices: vec![vertex.to_string()],
                        instances: instances.clone(),
                    });
                }
            }
        }
        found.extend(last);
    }
    found
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use ardea_coordination::packing::{
        PackingConfig, PackingPolicy, Resources, RoundRobin, VertexDemand,
    };
    use ardea_coordination::placement::GRAPH_INPUTS_ATTRIBUTE;

    use super::*;

    fn vertex(name: &str, group: Option<&str>) -> LogicalVertex {
        LogicalVertex {
            name: name.into(),
            parallelism: 2,
            isolation: "tasklet".into(),
            together: group.map(str::to_string),
        }
    }

    fn words() -> (LogicalPlan, JobDemand) {
        let logical = LogicalPlan {
            vertices: vec![
                vertex("lines", Some("lines")),
                vertex("words", Some("lines")),
                vertex("counts", None),
            ],
            edges: vec![LogicalEdge {
                from: "words".into(),
                output: 0,
                to: "counts".into(),
                input: 0,
                routing: "keyed".into(),
                latency_us: Some(1_000),
                records_per_second: Some(5_000),
            }],
        };
        let mut demand = JobDemand::new("word-count");
        for vertex in &logical.vertices {
            demand = demand.vertex(VertexDemand::new(&*vertex.name, 2, Resources::ZERO));
        }
        logical.write_into(&mut demand);
        (logical, demand)
    }

    #[test]
    fn a_graph_is_read_from_a_demand_as_it_was_written() {
        let (logical, demand) = words();
        assert_eq!(LogicalPlan::of(&demand), logical);
        assert_eq!(logical.groups(), [vec!["lines", "words"], vec!["counts"]]);
    }

    #[test]
    fn a_demand_without_a_graph_or_with_a_damaged_one_gives_its_vertices() {
        let vertex =
            VertexDemand::new("v", 1, Resources::ZERO).attribute(GRAPH_INPUTS_ATTRIBUTE, "[{");
        let logical = LogicalPlan::of(&JobDemand::new("j").vertex(vertex));
        assert_eq!(logical.vertices.len(), 1);
        assert!(logical.edges.is_empty());
    }

    #[test]
    fn instances_of_a_group_stand_together_where_they_were_packed_together() {
        let (_, demand) = words();
        let config = PackingConfig {
            containers: NonZeroU32::new(2),
            ..PackingConfig::default()
        };
        let plan = RoundRobin.pack(&demand, &config).unwrap();
        let plans = Plans::of(&demand, Some((1, plan)), &[]);
        for (container, index) in plans.physical.containers.iter().zip(0..) {
            let groups: Vec<_> = container
                .groups
                .iter()
                .map(|group| (group.vertices.join("+"), group.instances.clone()))
                .collect();
            let expected = [("lines+words", vec![index]), ("counts", vec![index])];
            assert_eq!(groups, expected.map(|(name, of)| (name.to_string(), of)));
        }
    }
}
