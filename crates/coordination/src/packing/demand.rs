//! What a job asks for: instances of each vertex, and what each of them takes.

use std::collections::BTreeMap;

use ardea_config::nearest;
use ardea_core::{Error, ErrorCode, Result, is_unseen};
use serde::{Deserialize, Serialize};

use crate::packing::{InstanceId, Refusal, Resources, TOGETHER_ATTRIBUTE, VertexName};

/// What a job asks for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobDemand {
    /// The job's name.
    pub job: String,
    /// Its vertices, in the order of its graph; names are unique.
    pub vertices: Vec<VertexDemand>,
}

/// What a vertex asks for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VertexDemand {
    /// The vertex.
    pub name: VertexName,
    /// How many instances.
    pub parallelism: u32,
    /// What each of them takes.
    #[serde(default)]
    pub resources: Resources,
    /// Anything else that a policy of one's own wants to know of this vertex, such as `rack`.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
}

/// The attribute of a vertex that says how many instances it can have at most, where its code knows of a limit.
pub const MOST_INSTANCES_ATTRIBUTE: &str = "most-instances";

/// The attribute of a vertex, `true`, whose number of instances stays as it was when the job began.
pub const FIXED_INSTANCES_ATTRIBUTE: &str = "fixed-instances";

/// The attribute of a vertex that names the first of those that have as many instances as it has, where there are any: an instance of one hands its
/// records to that of the same number of another, wherever they are.
pub const AS_MANY_ATTRIBUTE: &str = "as-many";

impl VertexDemand {
    /// So many instances, each of which takes `resources`.
    pub fn new(name: impl Into<VertexName>, parallelism: u32, resources: Resources) -> Self {
        VertexDemand {
            name: name.into(),
            parallelism,
            resources,
            attributes: BTreeMap::new(),
        }
    }

    /// Adds something that a policy of one's own wants to know.
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.attributes.insert(name.into(), value.into());
        self
    }

    /// The first vertex of the group that it stays together with, if there is one.
    pub(crate) fn group(&self) -> Option<&String> {
        self.attributes.get(TOGETHER_ATTRIBUTE)
    }

    /// Whether this one and another have as many instances as each other.
    fn is_as_many_as(&self, other: &VertexDemand) -> bool {
        let is_same = |name| {
            let [mine, theirs] = [self, other].map(|vertex| vertex.attributes.get(name));
            mine.is_some() && mine == theirs
        };
        self.name == other.name || is_same(TOGETHER_ATTRIBUTE) || is_same(AS_MANY_ATTRIBUTE)
    }

    /// The most instances that it can have, if its code knows of a limit ([`MOST_INSTANCES_ATTRIBUTE`]).
    pub fn instance_limit(&self) -> Option<u32> {
        self.attributes.get(MOST_INSTANCES_ATTRIBUTE)?.parse().ok()
    }

    /// Whether the number of its instances stays as it was when the job began ([`FIXED_INSTANCES_ATTRIBUTE`]).
    pub fn has_fixed_instances(&self) -> bool {
        let said = self.attributes.get(FIXED_INSTANCES_ATTRIBUTE);
        said.is_some_and(|said| said == "true")
    }

    /// The instances, in order.
    pub fn instances(&self) -> impl Iterator<Item = InstanceId> + '_ {
        (0..self.parallelism).map(|index| InstanceId {
            vertex: self.name.clone(),
            index,
        })
    }
}

impl JobDemand {
    /// A job that asks for nothing yet.
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

    /// The same demand with another number of instances of one vertex, and of those that have as many as it has: that stay together with it
    /// ([`TOGETHER_ATTRIBUTE`](crate::packing::TOGETHER_ATTRIBUTE)), or pass records on one to one ([`AS_MANY_ATTRIBUTE`]).
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidJob`] when the job hasn't this vertex.
    pub fn with_parallelism(&self, vertex: &str, parallelism: u32) -> Result<JobDemand> {
        self.rescaled([(vertex, parallelism)])
    }

    /// The same demand with other numbers of instances of some vertices, and of those that have as many as them.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidJob`] when the job hasn't one of these vertices, when the number of one is fixed, or when vertices that have as many as each other are given
    /// different numbers; both are named.
    pub fn rescaled<'a>(
        &self,
        wanted: impl IntoIterator<Item = (&'a str, u32)>,
    ) -> Result<JobDemand> {
        let mut demand = self.clone();
        // Who asked for the number of the vertex at this position.
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
                        .hint("name one of them: the others follow it"));
                }
                vertex.parallelism = parallelism;
            }
        }
        Ok(demand)
    }

    /// The positions of a vertex and of those that have as many instances.
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

    /// The number of instances of all vertices.
    pub fn instance_count(&self) -> u64 {
        self.vertices.iter().map(|v| u64::from(v.parallelism)).sum()
    }

    /// Refuses a demand that makes no sense: nothing to run, a vertex without instances or named twice, or too many instances.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let mut names: Vec<&VertexName> = self.vertices.iter().map(|v| &v.name).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Refusal::VertexTwice(pair[0].clone()));
        }
        let has_no_name = |v: &&VertexDemand| {
            let name = v.name.as_str();
            name.trim().is_empty() || name.contains(is_unseen)
        };
        if let Some(vertex) = self.vertices.iter().find(has_no_name) {
            return Err(Refusal::NoName(vertex.name.clone()));
        }
        if let Some(vertex) = self.vertices.iter().find(|v| v.parallelism == 0) {
            return Err(Refusal::NoInstances(vertex.name.clone()));
        }
        if self.vertices.is_empty() {
            return Err(Refusal::NoVertices);
        }
        for vertex in &self.vertices {
            let limit = vertex.instance_limit();
            if let Some(most) = limit.filter(|most| vertex.parallelism > *most) {
                return Err(Refusal::TooManyForVertex {
                    vertex: vertex.name.clone(),
                    wanted: vertex.parallelism,
                    most,
                });
            }
        }
        let instances = self.instance_count();
        if instances > MOST_INSTANCES {
            return Err(Refusal::TooManyInstances {
                wanted: instances,
                most: MOST_INSTANCES,
            });
        }
        Ok(())
    }
}

/// The most instances of a job: a plan of so many takes tens of megabytes, and a mistyped parallelism much more.
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
            vertex.attribute(AS_MANY_ATTRIBUTE, "maps")
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
            let refused = Refusal::NoName(name.into());
            assert_eq!(demand.check(), Err(refused));
        }
    }
}
