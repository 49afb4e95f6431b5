//! What a job remembers, as its program says it: it travels with what the job asks for, in the attributes of its vertices.

use std::collections::BTreeMap;

use crate::savepoint::{JobStates, VertexStates};
use crate::store::Snapshot;
use ardea_coordination::packing::JobDemand;
use ardea_core::{Error, ErrorCode, Result, StateForm};

/// The attribute of a vertex that says what it remembers, as JSON.
const STATES: &str = "states";

/// Writes what a job remembers into what it asks for.
///
/// # Errors
/// `Internal`; never, as far as is known.
pub fn write_states(states: &JobStates, demand: &mut JobDemand) -> Result<()> {
    for vertex in &mut demand.vertices {
        let Some(of) = states.vertices.get(vertex.name.as_str()) else {
            continue;
        };
        let text = serde_json::to_string(of).map_err(|error| {
            let what = format!("what {:?} remembers can't be told", vertex.name.as_str());
            Error::new(ErrorCode::Internal, what).because(error)
        })?;
        vertex.attributes.insert(STATES.to_string(), text);
    }
    Ok(())
}

/// What a job remembers, by the names and attributes of its vertices. Those that say nothing are left out.
pub fn states_of<'a>(
    vertices: impl IntoIterator<Item = (&'a str, &'a BTreeMap<String, String>)>,
) -> JobStates {
    let told = vertices.into_iter().filter_map(|(name, attributes)| {
        let of: VertexStates = serde_json::from_str(attributes.get(STATES)?).ok()?;
        Some((name.to_string(), of))
    });
    JobStates {
        vertices: told.collect(),
    }
}

/// The same of what a job asks for.
pub(crate) fn states_in(demand: &JobDemand) -> JobStates {
    let vertices = demand.vertices.iter();
    states_of(vertices.map(|vertex| (vertex.name.as_str(), &vertex.attributes)))
}

/// What there is in a snapshot, in the forms that its program has told; what it has told nothing of is its own business.
pub(crate) fn states_within(snapshot: &Snapshot, told: &JobStates) -> JobStates {
    let vertices = snapshot.vertices().map(|vertex| {
        let known = told.vertices.get(vertex);
        let form = |state: &str| {
            let told = known.and_then(|known| known.states.get(state));
            told.cloned().unwrap_or(StateForm::Own)
        };
        let states = snapshot.states(vertex).into_iter();
        let of = VertexStates {
            has_generated_name: known.is_some_and(|known| known.has_generated_name),
            states: states
                .map(|state| (state.to_string(), form(state)))
                .collect(),
        };
        (vertex.to_string(), of)
    });
    JobStates {
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
        let states = JobStates::default().with("counts", [keys]);
        write_states(&states, &mut demand).unwrap();
        assert_eq!(states_in(&demand), states);
        assert!(demand.vertices[0].attributes.is_empty());
    }
}
