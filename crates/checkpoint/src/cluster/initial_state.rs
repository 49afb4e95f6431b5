//! Initial state of a job: from a savepoint, or from the predecessor of the same name.
//!
//! At submission the state schemas are compared, and a note that names the state's origin is
//! written beside the job's checkpoints. The job's first leader copies the state beside this note,
//! before the job has a checkpoint record. From then on the job resumes as if it had stopped at
//! that epoch. The copy belongs to no attempt of the job ([`IMPORTED`]). No increment is based on
//! it: migrated state is written in full with the first checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use crate::io::block_config;
use crate::local::{
    AllowedDrops, address_of, ensure_no_savepoint, is_missing, keep_apart, open_place,
    open_to_write, place_of_savepoint, read_note, with_recovery_hint, write_note,
    write_state_schema,
};
use crate::savepoint::{
    JobStateSchema, Savepoint, SavepointManifest, SavepointOf, StateDiff, copy, diff,
};
use crate::store::{Checkpoint, CheckpointId, CheckpointStore, ObjectStore, StoreConfig};
use ardea_coordination::control::{
    FinalState, IMPORTED, JobDefinition, JobRef, PredecessorState, Successor,
};
use ardea_coordination::packing::JobDemand;
use ardea_core::{Epoch, Error, ErrorCode, Result};
use ardea_grid::cluster::GridStoreClient;
use serde::{Deserialize, Serialize};

use crate::cluster::location_check::{
    find_own_folder, find_place, lost, make_place, open_grid_store,
};
use crate::cluster::schema_attributes::{states_in, states_within};
use crate::cluster::{CheckpointConfig, CheckpointLocation, Origin};

const KIND: &str = "ardea beginning";
const NAME: &str = "beginning.note";
const FROM: &str = "recovery.from";
/// The maximum number of threads that copy state; more threads are not faster.
const MOST_THREADS: usize = 4;

/// The client of the memory of hosts, if this process has one.
type GridClient<'a> = Option<&'a Arc<dyn GridStoreClient>>;

/// State that a job can start with.
struct ExternalState {
    place: Origin,
    /// The description of the state for messages.
    shown: String,
    job: String,
    checkpoint: CheckpointId,
    states: JobStateSchema,
}

/// The note of the initial state, stored beside the job's checkpoints.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct InitialStateNote {
    place: Origin,
    /// The name of the job that wrote the state.
    job: String,
    checkpoint: CheckpointId,
    /// The vertices of the job that starts with the state.
    vertices: BTreeSet<String>,
}

/// Creates the checkpoint folder of a job with a guarantee, before the job runs. Checkpoints in the
/// memory of hosts, accessed by `shelter`, need no folder. If the job starts from a savepoint,
/// compares the savepoint's state schema with the job's.
///
/// # Errors
/// Those of [`CheckpointConfig::of`]; `WrongState` if the parent folder is a savepoint; if the
/// job's folder cannot be created or written; `InvalidJob` with all reasons if the job cannot be
/// restored from the savepoint; errors of opening the savepoint.
pub fn prepare_location(
    definition: &JobDefinition,
    demand: &JobDemand,
    shelter: GridClient<'_>,
) -> Result<()> {
    let Some(promise) = CheckpointConfig::of(definition)? else {
        return Ok(());
    };
    check_no_savepoint(definition, &promise)?;
    let from = promise.from.as_ref();
    if from.is_none() && !promise.dropping.is_empty() {
        let what = "recovery.drop is set, but the job does not start from a savepoint";
        return Err(
            Error::new(ErrorCode::InvalidConfig, what).hint("recovery.drop needs recovery.from")
        );
    }
    let from = from.map(ExternalState::savepoint).transpose()?;
    make((&promise, shelter), &definition.job, demand, from.as_ref())
}

/// Checks that the parent folder, `checkpoints.folder`, is not a savepoint. The user of such a
/// folder probably wants to start from the savepoint.
fn check_no_savepoint(definition: &JobDefinition, promise: &CheckpointConfig) -> Result<()> {
    let named = definition.settings.get("checkpoints.folder");
    let named = named.filter(|_| promise.place != CheckpointLocation::Memory);
    match named.map(Path::new).filter(|named| !is_missing(named)) {
        Some(named) => ensure_no_savepoint(open_place(named)?).map(drop),
        None => Ok(()),
    }
}

/// Prepares the job `next` to continue from the state of its predecessor of the same name. Returns
/// the definition of `next` to be stored.
///
/// # Errors
/// Those of [`prepare_location`].
pub(crate) fn follow(
    next: &Successor,
    left: &PredecessorState<'_>,
    shelter: GridClient<'_>,
) -> Result<JobDefinition> {
    let mut definition = next.definition.clone();
    let from = match left.state {
        Some(state) => Some(ExternalState::left(left.job, state, shelter)?),
        None => None,
    };
    match &from {
        Some(from) => {
            let place = from.place.to_string();
            definition.settings.insert(FROM.to_string(), place);
        }
        None => drop(definition.settings.remove(FROM)),
    }
    let promise = CheckpointConfig::of(&definition)?.ok_or_else(|| {
        let what = format!(
            "{} has no guarantee, and would lose its state",
            definition.job
        );
        Error::new(ErrorCode::InvalidConfig, what)
            .hint("give it a guarantee, as the one before has")
    })?;
    check_no_savepoint(&definition, &promise)?;
    let demand = &next.demand;
    make((&promise, shelter), &definition.job, demand, from.as_ref())?;
    Ok(definition)
}

/// Returns the change of each state if `next` were restored from the `state` of `job`. Applies the
/// setting `recovery.drop` of `next`. Changes nothing.
///
/// # Errors
/// Those of reading the checkpoint's manifest.
pub fn compare(
    job: &Successor,
    state: FinalState,
    next: &Successor,
    shelter: GridClient<'_>,
) -> Result<StateDiff> {
    let from = ExternalState::left(job, state, shelter)?;
    let dropping = next.definition.settings.get("recovery.drop");
    let dropping = AllowedDrops::listed(dropping.map_or("", String::as_str));
    Ok(diff(&from.states, &states_in(&next.demand), &dropping))
}

/// Returns the schema of the states in a job's checkpoint, as declared by the job's program. States
/// without data are left out. Reads one manifest.
///
/// # Errors
/// If this machine does not see the folder of the job, or hosts do not answer; `NoSuchCheckpoint`
/// if the checkpoint was removed meanwhile or lost.
pub fn kept_states(
    (promise, shelter): (&CheckpointConfig, GridClient<'_>),
    job: &JobRef,
    kept: FinalState,
    told: &JobStateSchema,
) -> Result<JobStateSchema> {
    let checkpoint = open_kept((&promise.place, shelter), job, kept)?;
    Ok(states_within(&checkpoint, told))
}

/// Writes a savepoint of a cluster job's checkpoint, from a folder or the memory of hosts. Reads
/// and writes all state.
///
/// # Errors
/// If this machine does not see the folder of the job, or hosts do not answer; those of
/// [`Savepoint::write`].
pub fn save(
    (promise, shelter): (&CheckpointConfig, GridClient<'_>),
    job: &JobRef,
    kept: FinalState,
    states: &JobStateSchema,
    to: &Path,
) -> Result<SavepointManifest> {
    if let CheckpointLocation::Folder(own) | CheckpointLocation::Both(own) = &promise.place {
        keep_apart(to, own)?;
    }
    let damaged = |error| match &promise.place {
        // In-memory checkpoints have no files that a user could restore.
        CheckpointLocation::Memory => lost(&promise.place, error),
        _ => with_recovery_hint(error, Some(&job.name)),
    };
    let checkpoint = open_kept((&promise.place, shelter), job, kept).map_err(damaged)?;
    let of = SavepointOf {
        checkpoint: &checkpoint,
        states,
        threads: threads(),
    };
    let written = Savepoint::write(open_to_write(to)?, of).map_err(damaged)?;
    Ok(written.manifest().clone())
}

fn make(
    (promise, shelter): (&CheckpointConfig, GridClient<'_>),
    job: &JobRef,
    demand: &JobDemand,
    from: Option<&ExternalState>,
) -> Result<()> {
    if let Some(from) = from {
        let found = diff(&from.states, &states_in(demand), &promise.dropping);
        found.check(&job.name, &from.shown)?;
    }
    make_place(&promise.place, job)?;
    if let Some(folder) = find_own_folder(&promise.place, job)? {
        write_state_schema(&*folder, &states_in(demand))?;
    }
    let Some(from) = from else { return Ok(()) };
    let vertices = demand.vertices.iter();
    let beginning = InitialStateNote {
        place: from.place.clone(),
        job: from.job.clone(),
        checkpoint: from.checkpoint,
        vertices: vertices
            .map(|vertex| vertex.name.as_str().to_string())
            .collect(),
    };
    beginning.write(&*find_place(&promise.place, job, shelter)?)
}

/// Copies the initial state of a job to the job's checkpoints, unless already copied. Returns the
/// epoch of the state.
///
/// # Errors
/// If the state cannot be copied. The job must not start then.
pub(crate) fn copy_initial_state(
    promise: &CheckpointConfig,
    job: &JobRef,
    shelter: GridClient<'_>,
) -> Result<Epoch> {
    let folder = find_place(&promise.place, job, shelter)?;
    let beginning = InitialStateNote::read(&*folder)?;
    let id = CheckpointId::new(IMPORTED.0, beginning.checkpoint.epoch);
    let config = StoreConfig {
        keep: usize::MAX,
        blocks: block_config(),
        ..StoreConfig::default()
    };
    let store = CheckpointStore::open(folder, &job.name, config)?;
    if store.checkpoint(id).is_ok() {
        return Ok(id.epoch);
    }
    let from = open(&beginning.place, shelter)?;
    let from = Checkpoint::open(from, &beginning.job, beginning.checkpoint);
    let from = from.map_err(|error| match beginning.place {
        Origin::Folder(_) => error,
        Origin::Memory(_) => lost(&CheckpointLocation::Memory, error),
    })?;
    let dropping = &promise.dropping;
    let wanted = |vertex: &str, state: Option<&str>| {
        let is_there = beginning.vertices.contains(vertex) && !dropping.has_vertex(vertex);
        is_there && state.is_none_or(|state| !dropping.has(vertex, state))
    };
    let was_there: BTreeSet<&str> = from.vertices().collect();
    let vertices = beginning.vertices.iter();
    let added = vertices.filter(|it| !wanted(it, None) || !was_there.contains(it.as_str()));
    let added: BTreeMap<String, u32> = added.map(|vertex| (vertex.clone(), 1)).collect();
    copy(&from, &store, id, &wanted, &added, threads())?;
    Ok(id.epoch)
}

impl ExternalState {
    fn savepoint(place: &Origin) -> Result<Self> {
        let Origin::Folder(folder) = place else {
            let what = format!("recovery.from={place} names no savepoint");
            return Err(Error::new(ErrorCode::InvalidConfig, what).hint(
                "savepoints are in folders and buckets; the in-memory state of a job is passed on by `ardea upgrade`",
            ));
        };
        let manifest = SavepointManifest::read(&*open_folder(folder)?)?;
        Ok(ExternalState {
            place: place.clone(),
            shown: format!("the savepoint {place}"),
            states: manifest.states(),
            job: manifest.job,
            checkpoint: manifest.checkpoint,
        })
    }

    fn left(job: &Successor, state: FinalState, shelter: GridClient<'_>) -> Result<Self> {
        let of = &job.definition.job;
        let promise = CheckpointConfig::of(&job.definition)?.ok_or_else(|| {
            let what = format!("{of} has no guarantee, and therefore no state");
            Error::new(ErrorCode::WrongState, what)
        })?;
        let checkpoint = open_kept((&promise.place, shelter), of, state)?;
        Ok(ExternalState {
            shown: format!("the job {of}"),
            place: match promise.place {
                // The folder contains the whole state.
                CheckpointLocation::Folder(folder) | CheckpointLocation::Both(folder) => {
                    Origin::Folder(folder)
                }
                CheckpointLocation::Memory => Origin::Memory(of.key()),
            },
            job: of.name.clone(),
            checkpoint: id_of(state),
            states: states_within(&checkpoint, &states_in(&job.demand)),
        })
    }
}

impl InitialStateNote {
    fn write(&self, folder: &dyn ObjectStore) -> Result<()> {
        write_note(folder, KIND, NAME, self)
    }

    fn read(folder: &dyn ObjectStore) -> Result<Self> {
        let lost = || {
            let what = format!("{NAME} in {} is missing or damaged", folder.place());
            Error::new(ErrorCode::CheckpointDamaged, what)
                .hint("restore that file from a copy; else kill the job, and submit it again from its newest savepoint (recovery.from); without one it begins with nothing")
        };
        match read_note(folder, KIND, NAME) {
            Ok(found) => found.ok_or_else(lost),
            Err(error) if error.code() == ErrorCode::CheckpointDamaged => {
                Err(lost().because(error.without_hint()))
            }
            Err(error) => Err(error),
        }
    }
}

fn id_of(state: FinalState) -> CheckpointId {
    CheckpointId::new(state.generation.0, state.epoch)
}

/// Opens the checkpoint of an epoch of a job.
fn open_kept(
    (place, shelter): (&CheckpointLocation, GridClient<'_>),
    job: &JobRef,
    kept: FinalState,
) -> Result<Checkpoint> {
    let folder = find_place(place, job, shelter)?;
    let opened = Checkpoint::open(folder, &job.name, id_of(kept));
    opened.map_err(|error| lost(place, error))
}

fn open(place: &Origin, shelter: GridClient<'_>) -> Result<Arc<dyn ObjectStore>> {
    match place {
        Origin::Folder(folder) => open_folder(folder),
        Origin::Memory(job) => open_grid_store(job, shelter),
    }
}

fn open_folder(place: &Path) -> Result<Arc<dyn ObjectStore>> {
    place_of_savepoint(place).map_err(|error| match error.code() {
        ErrorCode::ReadFailed if address_of(place).is_none() => error.hint(
            "name a folder that all hosts see by the same path, and that a savepoint was written to (recovery.from)",
        ),
        _ => error,
    })
}

fn threads() -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    cores.clamp(1, MOST_THREADS)
}

#[cfg(test)]
#[path = "initial_state_tests.rs"]
mod tests;
