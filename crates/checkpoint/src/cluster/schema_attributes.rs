//! The state schema of a job in the attributes of its vertices, as part of its resource demand.

use std::collections::BTreeMap;

use crate::savepoint::{JobStateSchema, VertexStates};
use crate::store::Checkpoint;
use ardea_coordination::packing::JobDemand;
use ardea_core::{Error, ErrorCode, Result, StateForm};

/// The name of the vertex attribute with the vertex's state schema, as JSON.
const STATES: &str = "states";

/// Writes a job's state schema into its demand.
///
/// # Errors
/// `Internal` if the schema cannot be encoded.
pub fn write_states(states: &JobStateSchema, demand: &mut JobDemand) -> Result<()> {
    for vertex in &mut demand.vertices {
        let Some(of) = states.vertices.get(vertex.name.as_str()) else {
            continue;
        };
        let text = serde_json::to_string(of).map_err(|error| {
            let what = format!(
                "the state schema of {:?} can't be encoded",
                vertex.name.as_str()
            );
            Error::new(ErrorCode::Internal, what).because(error)
        })?;
        vertex.attributes.insert(STATES.to_string(), text);
    }
    Ok(())
}

/// Reads a job's state schema from the names and attributes of its vertices. Vertices without the
/// attribute are left out.
pub fn states_of<'a>(
    vertices: impl IntoIterator<Item = (&'a str, &'a BTreeMap<String, String>)>,
) -> JobStateSchema {
    let told = vertices.into_iter().filter_map(|(name, attributes)| {
        let of: VertexStates = serde_json::from_str(attributes.get(STATES)?).ok()?;
        Some((name.to_string(), of))
    });
    JobStateSchema {
        vertices: told.collect(),
    }
}

/// Reads the state schema from a demand.
pub(crate) fn states_in(demand: &JobDemand) -> JobStateSchema {
    let vertices = demand.vertices.iter();
    states_of(vertices.map(|vertex| (vertex.name.as_str(), &vertex.attributes)))
}

/// Returns the schema of the states in a checkpoint, as declared by the checkpoint's program.
/// Undeclared states have the form [`StateForm::Own`].
pub(crate) fn states_within(checkpoint: &Checkpoint, told: &JobStateSchema) -> JobStateSchema {
    let vertices = checkpoint.vertices().map(|vertex| {
        let known = told.vertices.get(vertex);
        let form = |state: &str| {
            let told = known.and_then(|known| known.states.get(state));
            told.cloned().unwrap_or(StateForm::Own)
        };
        let states = checkpoint.states(vertex).into_iter();
        let of = VertexStates {
            has_generated_name: known.is_some_and(|known| known.has_generated_name),
            states: states
                .map(|state| (state.to_string(), form(state)))
                .collect(),
        };
        (vertex.to_string(), of)
    });
    JobStateSchema {
        vertices: vertices.collect(),
    }
}

#[cfg(test)]
mod tests {
    use ardea_coordination::packing::{Resources, VertexDemand};
    use ardea_core::{Schema, StateShape};

    use super::*;

    #[test]
    fn what_a_job_remembers_is_read_from_what_it_asks_for() {
        let mut demand = JobDemand::new("words")
            .vertex(VertexDemand::new("lines", 1, Resources::ZERO))
            .vertex(VertexDemand::new("counts", 2, Resources::ZERO));
        let keys = StateShape::of_values("keys", Some(Schema::Text), Schema::I64);
        let states = JobStateSchema::default().with("counts", [keys]);
        write_states(&states, &mut demand).unwrap();
        assert_eq!(states_in(&demand), states);
        assert!(demand.vertices[0].attributes.is_empty());
    }
}
