//! What a job asks for: instances of each vertex, and what each of them takes.

use std::collections::BTreeMap;

use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

use crate::{CHAIN_ATTRIBUTE, InstanceId, Refusal, Resources, VertexName};

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

    /// The first vertex of the chain that it is in, if it is in one.
    pub(crate) fn chain(&self) -> Option<&String> {
        self.attributes.get(CHAIN_ATTRIBUTE)
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

    /// The same demand with another number of instances of one vertex, and of those that are in a chain with it
    /// ([`CHAIN_ATTRIBUTE`](crate::CHAIN_ATTRIBUTE)): they have as many as each other.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidJob`] when the job hasn't this vertex.
    pub fn with_parallelism(&self, vertex: &str, parallelism: u32) -> Result<JobDemand> {
        let mut demand = self.clone();
        let names = || {
            let names: Vec<_> = self.vertices.iter().map(|v| v.name.as_str()).collect();
            names.join(", ")
        };
        let found = demand
            .vertices
            .iter()
            .find(|candidate| candidate.name.as_str() == vertex)
            .map(|found| (found.name.clone(), found.chain().cloned()))
            .ok_or_else(|| {
                Error::new(
                    ErrorCode::InvalidJob,
                    format!("job {:?} has no vertex {vertex:?}", self.job),
                )
                .hint(format!("it has: {}", names()))
            })?;
        let (name, chain) = found;
        for vertex in &mut demand.vertices {
            let is_chained = chain.is_some() && vertex.chain() == chain.as_ref();
            if vertex.name == name || is_chained {
                vertex.parallelism = parallelism;
            }
        }
        Ok(demand)
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
        if let Some(vertex) = self.vertices.iter().find(|v| v.parallelism == 0) {
            return Err(Refusal::NoInstances(vertex.name.clone()));
        }
        if self.vertices.is_empty() {
            return Err(Refusal::NoVertices);
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
