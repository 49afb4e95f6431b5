//! A job's plans: what was asked for, what runs where, and in which container.

use std::collections::BTreeMap;

use ardea_coordination::packing::{
    ContainerId, JobDemand, PackingPlan, TOGETHER_ATTRIBUTE, VertexName,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ContainerState, ContainerView, foreign};

/// The attribute of a vertex's demand that says how it is isolated.
const ISOLATION: &str = "isolation";
/// The attribute that lists the edges which lead into it, as JSON.
const INPUTS: &str = "inputs";

/// The three plans of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Plans {
    /// The job.
    pub job: String,
    /// The number of the packing plan, from one; none before there is one.
    pub version: Option<u64>,
    /// Its graph.
    pub logical: LogicalPlan,
    /// What runs where.
    pub physical: PhysicalPlan,
    /// Which instance is in which container, and what each takes; none before there is one.
    #[schemars(with = "Option<foreign::PackingPlan>")]
    pub packing: Option<PackingPlan>,
}

impl Plans {
    /// The plans of a job that asks for `demand`, packed so, as its containers are at the moment.
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

/// A job's graph.
///
/// It travels in the attributes of the job's demand, where packing policies can look at it as well: which vertex reads from which,
/// and which have to stay together.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LogicalPlan {
    /// Its vertices, in the order of the graph.
    pub vertices: Vec<LogicalVertex>,
    /// Its edges.
    pub edges: Vec<LogicalEdge>,
}

/// A vertex of a job's graph.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LogicalVertex {
    /// Its name.
    pub name: String,
    /// How many instances it has.
    pub parallelism: u32,
    /// Where they run: `tasklet`, `thread` or `process`.
    pub isolation: String,
    /// The first vertex of the group that it is in: those whose instances of one number have to be in one container.
    pub together: Option<String>,
}

/// An edge of a job's graph.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LogicalEdge {
    /// The vertex that writes.
    pub from: String,
    /// To which of its outputs.
    pub output: usize,
    /// The vertex that reads.
    pub to: String,
    /// From which of its inputs.
    pub input: usize,
    /// How records are dealt out to its instances.
    pub routing: String,
}

/// An edge as its consumer has it among its attributes.
#[derive(Serialize, Deserialize)]
struct InputEdge {
    from: String,
    output: usize,
    input: usize,
    routing: String,
}

impl LogicalPlan {
    /// The graph that was [written into](Self::write_into) a demand. What was not written, or can't be read, is left out.
    pub fn of(demand: &JobDemand) -> Self {
        let mut plan = LogicalPlan::default();
        for vertex in &demand.vertices {
            let attribute = |name: &str| vertex.attributes.get(name).cloned();
            plan.vertices.push(LogicalVertex {
                name: vertex.name.to_string(),
                parallelism: vertex.parallelism,
                isolation: attribute(ISOLATION).unwrap_or_else(|| "tasklet".into()),
                together: attribute(TOGETHER_ATTRIBUTE),
            });
            let inputs = attribute(INPUTS).unwrap_or_default();
            let inputs: Vec<InputEdge> = serde_json::from_str(&inputs).unwrap_or_default();
            plan.edges
                .extend(inputs.into_iter().map(|edge| LogicalEdge {
                    from: edge.from,
                    output: edge.output,
                    to: vertex.name.to_string(),
                    input: edge.input,
                    routing: edge.routing,
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
                set(TOGETHER_ATTRIBUTE, group.clone());
            }
            let edges = self.edges.iter().filter(|edge| edge.to == vertex.name);
            let inputs: Vec<InputEdge> = edges
                .map(|edge| InputEdge {
                    from: edge.from.clone(),
                    output: edge.output,
                    input: edge.input,
                    routing: edge.routing.clone(),
                })
                .collect();
            // Texts and numbers always become JSON.
            if let Ok(inputs) = serde_json::to_string(&inputs) {
                set(INPUTS, inputs);
            }
        }
    }

    /// The groups of vertices that stay together, in the order of the graph; a vertex that may be anywhere is one by itself.
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

/// What runs where.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PhysicalPlan {
    /// The containers, by number.
    pub containers: Vec<PhysicalContainer>,
}

/// A container, and what runs in it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PhysicalContainer {
    /// Its number.
    #[schemars(with = "u32")]
    pub id: ContainerId,
    /// Whether it has a worker.
    pub state: ContainerState,
    /// The address of the machine that it is on, if that is known.
    pub host: Option<String>,
    /// The name of the host that it is on, if a host runs it and it is known which.
    #[serde(default)]
    pub host_name: Option<String>,
    /// Where other workers reach its worker.
    pub address: Option<String>,
    /// What runs in it: instances of vertices that stay together, group by group.
    pub groups: Vec<PlacedGroup>,
}

/// Instances in a container, of vertices that stay together, or of one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PlacedGroup {
    /// Its vertices, in the order of the graph.
    pub vertices: Vec<String>,
    /// Which instances of them.
    pub instances: Vec<u32>,
}

impl PhysicalPlan {
    /// What runs where by this plan; vertices of a group whose instances were packed apart stand by themselves.
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

/// The groups of which there are instances here.
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
        PackingConfig, ResourceManager, Resources, RoundRobin, VertexDemand,
    };

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
        let vertex = VertexDemand::new("v", 1, Resources::ZERO).attribute(INPUTS, "[{");
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
