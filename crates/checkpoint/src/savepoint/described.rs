//! What a job remembers, as its program says it.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use ardea_core::{Dag, Instance, Result, StateForm, StateShape};
use serde::{Deserialize, Serialize};

/// What a job remembers, by the names of its vertices.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JobStates {
    /// All its vertices.
    pub vertices: BTreeMap<String, VertexStates>,
}

/// What a vertex remembers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct VertexStates {
    /// Whether nobody chose its name, so that it may be called otherwise with another number of threads.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_generated_name: bool,
    /// Its states by their names; none where its code tells none, which doesn't mean that it has none.
    pub states: BTreeMap<String, StateForm>,
}

impl JobStates {
    /// Of the job with this graph. Makes a processor of each vertex to ask it, and runs none.
    ///
    /// # Errors
    /// Whatever keeps a processor from being made.
    pub fn of(dag: &Dag) -> Result<Self> {
        let mut vertices = BTreeMap::new();
        for vertex in dag.vertices() {
            let instance = Instance {
                index: 0,
                parallelism: vertex.wanted_parallelism().resolve(NonZeroU32::MIN),
            };
            let supplied = vertex.supplier().supply(instance);
            let processor = supplied.map_err(|error| error.in_vertex(vertex.name(), 0))?;
            let states = VertexStates {
                has_generated_name: vertex.has_generated_name(),
                ..VertexStates::of(processor.states())
            };
            vertices.insert(vertex.name().to_string(), states);
        }
        Ok(JobStates { vertices })
    }

    /// The same without those states for which `has` is false of vertex and state.
    pub fn having(&self, has: impl Fn(&str, &str) -> bool) -> Self {
        let mut left = self.clone();
        for (vertex, of) in &mut left.vertices {
            of.states.retain(|state, _| has(vertex, state));
        }
        left
    }

    /// The same with a vertex more.
    pub fn with(
        mut self,
        vertex: impl Into<String>,
        states: impl IntoIterator<Item = StateShape>,
    ) -> Self {
        self.vertices
            .insert(vertex.into(), VertexStates::of(states));
        self
    }
}

impl VertexStates {
    fn of(states: impl IntoIterator<Item = StateShape>) -> Self {
        let states = states.into_iter();
        VertexStates {
            has_generated_name: false,
            states: states.map(|state| (state.name, state.form)).collect(),
        }
    }
}
