//! The demand of a job: the instances of each vertex, and their resources.

use std::collections::BTreeMap;

use ardea_config::nearest;
use ardea_core::{Error, ErrorCode, Result, is_invisible};
use serde::{Deserialize, Serialize};

use crate::packing::{COLOCATION_ATTRIBUTE, InstanceId, PackingError, Resources, VertexName};

/// The demand of a job: its vertices with their numbers of instances and resources.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct JobDemand {
    /// The job's name.
    pub job: String,
    /// The job's vertices with unique names, in the order of the job graph.
    pub vertices: Vec<VertexDemand>,
}

/// The demand of a vertex: its number of instances, and the resources of each.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct VertexDemand {
    /// The name of the vertex.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub name: VertexName,
    /// The number of instances.
    pub parallelism: u32,
    /// The resources of each instance.
    #[serde(default)]
    pub resources: Resources,
    /// Further attributes for a user's policy, such as `rack`.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
}

/// The name of the vertex attribute with the maximum number of instances, if the vertex's code has
/// a limit.
pub const MOST_INSTANCES_ATTRIBUTE: &str = "most-instances";

/// The name of the vertex attribute that is `true` if the number of instances is fixed when the job
/// starts.
pub const FIXED_INSTANCES_ATTRIBUTE: &str = "fixed-instances";

/// The name of the vertex attribute that names the first vertex of a group with equal parallelism.
/// Each instance forwards its records to the instance with the same index of another vertex of the
/// group.
pub const EQUAL_PARALLELISM_ATTRIBUTE: &str = "as-many";

impl VertexDemand {
    /// Creates the demand of the vertex `name`: `parallelism` instances with `resources` each.
    pub fn new(name: impl Into<VertexName>, parallelism: u32, resources: Resources) -> Self {
        VertexDemand {
            name: name.into(),
            parallelism,
            resources,
            attributes: BTreeMap::new(),
        }
    }

    /// Adds an attribute for a user's policy.
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.attributes.insert(name.into(), value.into());
        self
    }

    /// Returns the first vertex of this vertex's colocation group, if it has one.
    pub(crate) fn group(&self) -> Option<&String> {
        self.attributes.get(COLOCATION_ATTRIBUTE)
    }

    /// Returns true if both vertices must have the same number of instances.
    fn is_as_many_as(&self, other: &VertexDemand) -> bool {
        let is_same = |name| {
            let [mine, theirs] = [self, other].map(|vertex| vertex.attributes.get(name));
            mine.is_some() && mine == theirs
        };
        self.name == other.name
            || is_same(COLOCATION_ATTRIBUTE)
            || is_same(EQUAL_PARALLELISM_ATTRIBUTE)
    }

    /// Returns the maximum number of instances, if the vertex's code has a limit
    /// ([`MOST_INSTANCES_ATTRIBUTE`]).
    pub fn instance_limit(&self) -> Option<u32> {
        self.attributes.get(MOST_INSTANCES_ATTRIBUTE)?.parse().ok()
    }

    /// Returns true if the number of instances is fixed when the job starts
    /// ([`FIXED_INSTANCES_ATTRIBUTE`]).
    pub fn has_fixed_instances(&self) -> bool {
        let said = self.attributes.get(FIXED_INSTANCES_ATTRIBUTE);
        said.is_some_and(|said| said == "true")
    }

    /// Returns the ids of the instances, by ascending index.
    pub fn instances(&self) -> impl Iterator<Item = InstanceId> + '_ {
        (0..self.parallelism).map(|index| InstanceId {
            vertex: self.name.clone(),
            index,
        })
    }
}

impl JobDemand {
    /// Creates the demand of a job without vertices.
    pub fn new(job: impl Into<String>) -> Self {
        JobDemand {
            job: job.into(),
            vertices: Vec::new(),
        }
    }

    /// Adds a vertex.
    pub fn vertex(mut self, vertex: VertexDemand) -> Self {
        self.vertices.push(vertex);
        self
    }

    /// Returns the demand with another parallelism of `vertex` and of all vertices that must have
    /// the same parallelism. These are colocated vertices
    /// ([`COLOCATION_ATTRIBUTE`](crate::packing::COLOCATION_ATTRIBUTE)), and vertices with
    /// one-to-one edges ([`EQUAL_PARALLELISM_ATTRIBUTE`]).
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidJob`] if the job does not have this vertex.
    pub fn with_parallelism(&self, vertex: &str, parallelism: u32) -> Result<JobDemand> {
        self.rescaled([(vertex, parallelism)])
    }

    /// Returns the demand with another parallelism of the vertices in `wanted`, and of all vertices
    /// that must have the same parallelism as one of them.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidJob`] if the job does not have one of the vertices, if the parallelism
    /// of a vertex is fixed, or if vertices that must have the same parallelism get different
    /// numbers.
    pub fn rescaled<'a>(
        &self,
        wanted: impl IntoIterator<Item = (&'a str, u32)>,
    ) -> Result<JobDemand> {
        let mut demand = self.clone();
        // By position of a vertex: the name of the vertex by which its parallelism was requested.
        let mut asked: BTreeMap<usize, &str> = BTreeMap::new();
        for (name, parallelism) in wanted {
            for at in self.as_many_as(name)? {
                let vertex = &mut demand.vertices[at];
                if vertex.has_fixed_instances() && vertex.parallelism != parallelism {
                    let what = format!(
                        "vertex {:?} of job {:?} has {} instances and can't have {parallelism} while it runs: each reads a share of its input that depends on how many they are",
                        vertex.name.as_str(),
                        self.job,
                        vertex.parallelism
                    );
                    return Err(Error::new(ErrorCode::InvalidJob, what)
                        .hint("kill the job and submit it with that many instances, or change another vertex"));
                }
                if let Some(other) = asked.insert(at, name)
                    && vertex.parallelism != parallelism
                {
                    let what = format!(
                        "vertices {other:?} and {name:?} of job {:?} have as many instances as each other, and can't have {} and {parallelism}",
                        self.job, vertex.parallelism
                    );
                    return Err(Error::new(ErrorCode::InvalidJob, what)
                        .hint("specify one of them; the others change with it"));
                }
                vertex.parallelism = parallelism;
            }
        }
        Ok(demand)
    }

    /// Returns the positions of the vertex `name` and of all vertices that must have the same
    /// parallelism.
    fn as_many_as(&self, name: &str) -> Result<Vec<usize>> {
        let mut vertices = self.vertices.iter();
        let Some(found) = vertices.find(|vertex| vertex.name.as_str() == name) else {
            let names: Vec<_> = self.vertices.iter().map(|v| v.name.as_str()).collect();
            let what = format!("job {:?} has no vertex {name:?}", self.job);
            let mut hint = format!("it has: {}", names.join(", "));
            if let Some(meant) = nearest(name, names.into_iter()) {
                hint = format!("did you mean {meant}? {hint}");
            }
            return Err(Error::new(ErrorCode::InvalidJob, what).hint(hint));
        };
        let vertices = self.vertices.iter().enumerate();
        let meant = vertices.filter(|(_, vertex)| vertex.is_as_many_as(found));
        Ok(meant.map(|(at, _)| at).collect())
    }

    /// Returns the position of the first vertex that must have the same parallelism as `vertex`.
    pub(crate) fn first_as_many_as(&self, vertex: &VertexDemand) -> Option<usize> {
        let mut vertices = self.vertices.iter();
        vertices.position(|other| vertex.is_as_many_as(other))
    }

    /// Returns the total number of instances of all vertices.
    pub fn instance_count(&self) -> u64 {
        self.vertices.iter().map(|v| u64::from(v.parallelism)).sum()
    }

    /// Checks the demand: at least one vertex, valid and unique names, at least one instance each,
    /// and not too many instances.
    pub(crate) fn check(&self) -> Result<(), PackingError> {
        let mut names: Vec<&VertexName> = self.vertices.iter().map(|v| &v.name).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(PackingError::VertexTwice(pair[0].clone()));
        }
        let has_no_name = |v: &&VertexDemand| {
            let name = v.name.as_str();
            name.trim().is_empty() || name.contains(is_invisible)
        };
        if let Some(vertex) = self.vertices.iter().find(has_no_name) {
            return Err(PackingError::NoName(vertex.name.clone()));
        }
        if let Some(vertex) = self.vertices.iter().find(|v| v.parallelism == 0) {
            return Err(PackingError::NoInstances(vertex.name.clone()));
        }
        if self.vertices.is_empty() {
            return Err(PackingError::NoVertices);
        }
        for vertex in &self.vertices {
            let limit = vertex.instance_limit();
            if let Some(most) = limit.filter(|most| vertex.parallelism > *most) {
                return Err(PackingError::TooManyForVertex {
                    vertex: vertex.name.clone(),
                    wanted: vertex.parallelism,
                    most,
                });
            }
        }
        let instances = self.instance_count();
        if instances > MOST_INSTANCES {
            return Err(PackingError::TooManyInstances {
                wanted: instances,
                most: MOST_INSTANCES,
            });
        }
        Ok(())
    }
}

/// The maximum number of instances of a job. The limit guards against a mistyped parallelism: a
/// plan of this size takes tens of megabytes.
const MOST_INSTANCES: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn reading_and_counting() -> JobDemand {
        let lines = VertexDemand::new("lines", 2, Resources::ZERO);
        JobDemand::new("words")
            .vertex(lines.attribute(FIXED_INSTANCES_ATTRIBUTE, "true"))
            .vertex(VertexDemand::new("counts", 2, Resources::ZERO))
    }

    #[test]
    fn a_vertex_whose_instances_share_an_input_keeps_their_number() {
        let demand = reading_and_counting();
        assert!(demand.rescaled([("lines", 2), ("counts", 5)]).is_ok());
        for count in [1, 3] {
            let error = demand.rescaled([("counts", 5), ("lines", count)]);
            let error = error.unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidJob);
            assert!(error.to_string().contains("\"lines\""), "{error}");
        }
    }

    #[test]
    fn vertices_that_pass_records_on_one_to_one_follow_each_other() {
        let [maps, writes] = ["maps", "writes"].map(|name| {
            let vertex = VertexDemand::new(name, 2, Resources::ZERO);
            vertex.attribute(EQUAL_PARALLELISM_ATTRIBUTE, "maps")
        });
        let demand = reading_and_counting().vertex(maps).vertex(writes);
        let rescaled = demand.rescaled([("writes", 5)]).unwrap();
        let counts: Vec<u32> = rescaled.vertices.iter().map(|v| v.parallelism).collect();
        assert_eq!(counts, [2, 2, 5, 5]);
        let error = demand.rescaled([("writes", 5), ("maps", 4)]).unwrap_err();
        assert!(
            error.to_string().contains("\"writes\" and \"maps\""),
            "{error}"
        );
    }

    #[test]
    fn a_vertex_without_a_name_is_refused() {
        for name in ["", " ", "two\nlines", "\0", "a\u{202e}b"] {
            let vertex = VertexDemand::new(name, 1, Resources::ZERO);
            let demand = reading_and_counting().vertex(vertex);
            let refused = PackingError::NoName(name.into());
            assert_eq!(demand.check(), Err(refused));
        }
    }
}
