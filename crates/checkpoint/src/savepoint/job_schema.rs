//! The state schema of a job, as declared by its program.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use ardea_core::{Dag, Instance, Result, StateForm, StateShape};
use serde::{Deserialize, Serialize};

/// The state schema of a job, by vertex name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JobStateSchema {
    /// The states of each vertex of the job.
    pub vertices: BTreeMap<String, VertexStates>,
}

/// The states of a vertex.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct VertexStates {
    /// True if the name of the vertex is generated. A generated name may depend on the number of
    /// threads.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_generated_name: bool,
    /// The declared states by name. A vertex may also have states that it does not declare.
    pub states: BTreeMap<String, StateForm>,
}

impl JobStateSchema {
    /// Returns the schema of the job with this graph. Creates a processor of each vertex to read
    /// its declared states, but runs none.
    ///
    /// # Errors
    /// Those of creating a processor.
    pub fn of(dag: &Dag) -> Result<Self> {
        let mut vertices = BTreeMap::new();
        for vertex in dag.vertices() {
            let instance = Instance {
                index: 0,
                parallelism: vertex.wanted_parallelism().resolve(NonZeroU32::MIN),
            };
            let supplied = vertex.supplier().supply(instance);
            let mut processor = supplied.map_err(|error| error.in_vertex(vertex.name(), 0))?;
            let states = VertexStates {
                has_generated_name: vertex.has_generated_name(),
                ..VertexStates::of(processor.state().states())
            };
            vertices.insert(vertex.name().to_string(), states);
        }
        Ok(JobStateSchema { vertices })
    }

    /// Returns the schema reduced to the states for which `has`, called with vertex and state name,
    /// returns true.
    pub fn having(&self, has: impl Fn(&str, &str) -> bool) -> Self {
        let mut left = self.clone();
        for (vertex, of) in &mut left.vertices {
            of.states.retain(|state, _| has(vertex, state));
        }
        left
    }

    /// Returns the schema with an additional vertex.
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
