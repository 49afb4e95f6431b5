//! Whether what is kept of a job fits the job that is to go on from it.

use crate::savepoint::JobStates;
use crate::store::Snapshot;
use ardea_core::{Dag, Error, ErrorCode, RUNTIME_STATE, Result};

/// Refuses a snapshot with state that the job has no vertex for, and a job with vertices that would begin in the middle of what others
/// remember. What nobody named and that remembers nothing may differ: it depends on the number of threads.
///
/// # Errors
/// `InvalidJob`, with what differs.
pub(crate) fn check(snapshot: &Snapshot, dag: &Dag, job: &str) -> Result<()> {
    let is_there = |name: &str| dag.vertices().iter().any(|vertex| **vertex.name() == *name);
    let mut differences = Vec::new();
    for vertex in snapshot.vertices().filter(|vertex| !is_there(vertex)) {
        let states = own_states(snapshot, vertex);
        if !states.is_empty() {
            let states = states.join(", ");
            differences.push(format!(
                "the snapshot has state of {vertex:?} ({states}), which the job does not have"
            ));
        }
    }
    for id in dag.topological_order()? {
        let vertex = dag.get(id);
        let counts = !vertex.has_generated_name() || dag.inputs(id).is_empty();
        if counts && snapshot.instances(vertex.name()).is_none() {
            let name = vertex.name();
            differences.push(format!(
                "the job has {name:?}, of which the snapshot knows nothing"
            ));
        }
    }
    if differences.is_empty() {
        return Ok(());
    }
    let what = format!(
        "the job {job:?} is not the one whose snapshot {} is: {}",
        snapshot.id(),
        differences.join("; ")
    );
    Err(Error::new(ErrorCode::InvalidJob, what).hint(
        "to keep its state, write a savepoint of this folder (ardea savepoint FOLDER --to PLACE) and begin from it in another folder (recovery.from=PLACE, recovery.drop for state that goes); or run it as it was then; or begin with nothing (recovery.start_over)",
    ))
}

/// Refuses a job that is not the one that has completed: what nobody named and that remembers nothing may differ, as above.
///
/// # Errors
/// `InvalidJob`, with what differs.
pub(crate) fn check_completed(
    before: &JobStates,
    now: &JobStates,
    job: &str,
    place: &str,
) -> Result<()> {
    let only_in = |these: &JobStates, others: &JobStates| {
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
        (true, false) => format!("that one had no {new}"),
        (false, true) => format!("that one had {gone} as well"),
        (false, false) => format!("that one had {gone}, and not {new}"),
    };
    let what = format!("the job {job:?} is not the one that has completed in {place}: {differs}");
    Err(Error::new(ErrorCode::InvalidJob, what).hint(
        "give it a folder of its own; or begin with nothing in this one (recovery.start_over)",
    ))
}

/// The states of a vertex that are its own, and not the runtime's.
fn own_states<'a>(snapshot: &'a Snapshot, vertex: &str) -> Vec<&'a str> {
    let mut states = snapshot.states(vertex);
    states.retain(|state| !state.starts_with(RUNTIME_STATE));
    states
}
