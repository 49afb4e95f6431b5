//! Compatibility checks between a checkpoint and the graph of the job to be restored.

use crate::savepoint::JobStateSchema;
use crate::store::Checkpoint;
use ardea_core::{Dag, Error, ErrorCode, RUNTIME_STATE, Result};

/// Checks that each vertex with state in the checkpoint is in the job, and that each vertex of the
/// job is in the checkpoint. Stateless vertices with generated names are ignored, since these names
/// depend on the number of threads.
///
/// # Errors
/// `InvalidJob` with the differences.
pub(crate) fn check(checkpoint: &Checkpoint, dag: &Dag, job: &str) -> Result<()> {
    let is_there = |name: &str| dag.vertices().iter().any(|vertex| **vertex.name() == *name);
    let mut differences = Vec::new();
    for vertex in checkpoint.vertices().filter(|vertex| !is_there(vertex)) {
        let states = own_states(checkpoint, vertex);
        if !states.is_empty() {
            let states = states.join(", ");
            differences.push(format!(
                "the checkpoint has state of {vertex:?} ({states}), which the job does not have"
            ));
        }
    }
    for id in dag.topological_order()? {
        let vertex = dag.get(id);
        let counts = !vertex.has_generated_name() || dag.inputs(id).is_empty();
        if counts && checkpoint.instances(vertex.name()).is_none() {
            let name = vertex.name();
            differences.push(format!(
                "the job has {name:?}, which the checkpoint does not contain"
            ));
        }
    }
    if differences.is_empty() {
        return Ok(());
    }
    let what = format!(
        "the steps of the job {job:?} differ from its checkpoint {}: {}",
        checkpoint.id(),
        differences.join("; ")
    );
    Err(Error::new(ErrorCode::InvalidJob, what).hint(
        "to keep its state, write a savepoint of this folder (ardea savepoint FOLDER --to PLACE) and start from it in another folder (recovery.from=PLACE, with recovery.drop for steps that were removed); or run the previous program; or start without state (recovery.start_over)",
    ))
}

/// Checks that the job `now` has the vertices of the job `before`, which has completed in this
/// folder. Stateless vertices with generated names are ignored.
///
/// # Errors
/// `InvalidJob` with the differences.
pub(crate) fn check_completed(
    before: &JobStateSchema,
    now: &JobStateSchema,
    job: &str,
    place: &str,
) -> Result<()> {
    let only_in = |these: &JobStateSchema, others: &JobStateSchema| {
        let of_these = these.vertices.iter();
        let missing = of_these.filter(|(name, vertex)| {
            let counts = !vertex.has_generated_name || !vertex.states.is_empty();
            counts && !others.vertices.contains_key(*name)
        });
        let names: Vec<String> = missing.map(|(name, _)| format!("{name:?}")).collect();
        names.join(", ")
    };
    let (gone, new) = (only_in(before, now), only_in(now, before));
    let differs = match (gone.is_empty(), new.is_empty()) {
        (true, true) => return Ok(()),
        (true, false) => format!("only the present one has {new}"),
        (false, true) => format!("only the completed one had {gone}"),
        (false, false) => format!("the completed one had {gone}, the present one has {new}"),
    };
    let what = format!("another version of the job {job:?} has completed in {place}: {differs}");
    Err(Error::new(ErrorCode::InvalidJob, what).hint(
        "give it its own checkpoints.folder; or start without state in this one (recovery.start_over)",
    ))
}

/// Returns the names of a vertex's states, without the states of the runtime itself.
fn own_states<'a>(checkpoint: &'a Checkpoint, vertex: &str) -> Vec<&'a str> {
    let mut states = checkpoint.states(vertex);
    states.retain(|state| !state.starts_with(RUNTIME_STATE));
    states
}
