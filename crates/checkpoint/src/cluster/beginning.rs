//! A job that begins with state from elsewhere: a savepoint's, or that of a job of its name which it follows.
//!
//! Where the job is taken it is compared, and a note left beside its snapshots of what it is to begin with. Its first master copies that to the
//! same place, before the job has a record of epochs; then it is to everybody a job that has stopped there. The copy belongs to no life
//! of the job ([`BROUGHT`]), and no increment is based on it: what was written in another form is written anew with the first snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use crate::io::block_config;
use crate::local::{
    Dropping, address_of, is_missing, keep_apart, no_savepoint, note_remembered, open_place,
    open_to_write, past_damage, place_of_savepoint, read_note, write_note,
};
use crate::savepoint::{
    JobStates, Savepoint, SavepointManifest, SavepointOf, StateDiff, copy, diff,
};
use crate::store::{Folder, Snapshot, SnapshotId, SnapshotStore, StoreConfig};
use ardea_coordination::control::{BROUGHT, JobDefinition, JobRef, Left, LeftState, Successor};
use ardea_coordination::packing::JobDemand;
use ardea_core::{Epoch, Error, ErrorCode, Result};
use ardea_grid::cluster::Shelter;
use serde::{Deserialize, Serialize};

use crate::cluster::probe::{find_own_folder, find_place, lost, make_place, sheltered};
use crate::cluster::remembered::{states_in, states_within};
use crate::cluster::{Origin, Place, Promise};

const KIND: &str = "ardea beginning";
const NAME: &str = "beginning.note";
const FROM: &str = "recovery.from";
/// More threads than this don't make copies quicker.
const MOST_THREADS: usize = 4;

/// The way to the memory of hosts, if this process has one.
type Way<'a> = Option<&'a Arc<dyn Shelter>>;

/// State that a job may begin with.
struct Elsewhere {
    place: Origin,
    /// What is there, for people.
    shown: String,
    job: String,
    snapshot: SnapshotId,
    states: JobStates,
}

/// What is noted of it beside the snapshots of the job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Beginning {
    place: Origin,
    /// The job that it is the state of.
    job: String,
    snapshot: SnapshotId,
    /// The vertices of the job that begins with it.
    vertices: BTreeSet<String>,
}

/// Makes the folder of a job that promises something, before anything of it runs; in the memory of hosts, to which `shelter` is the way, nothing has
/// to be made. If it is to begin from a savepoint, compares what is in that with what the job remembers, and reads none of it.
///
/// # Errors
/// As [`Promise::of`]; `WrongState` if the folder of all jobs is a savepoint's; if that of this one can't be made, or written to; `InvalidJob` if the job can't go on from the savepoint, with all
/// reasons; what opening that returns.
pub fn make_room(definition: &JobDefinition, demand: &JobDemand, shelter: Way<'_>) -> Result<()> {
    let Some(promise) = Promise::of(definition)? else {
        return Ok(());
    };
    check_no_savepoint(definition, &promise)?;
    let from = promise.from.as_ref();
    if from.is_none() && !promise.dropping.is_empty() {
        let what = "state is to be dropped, and the job does not begin from a savepoint";
        return Err(Error::new(ErrorCode::InvalidConfig, what)
            .hint("recovery.drop goes with recovery.from"));
    }
    let from = from.map(Elsewhere::savepoint).transpose()?;
    make((&promise, shelter), &definition.job, demand, from.as_ref())
}

/// Refuses a savepoint as the folder of all jobs, within which that of this one is: who names one there means to begin from it.
fn check_no_savepoint(definition: &JobDefinition, promise: &Promise) -> Result<()> {
    let named = definition.settings.get("snapshots.folder");
    let named = named.filter(|_| promise.place != Place::Memory);
    match named.map(Path::new).filter(|named| !is_missing(named)) {
        Some(named) => no_savepoint(open_place(named)?).map(drop),
        None => Ok(()),
    }
}

/// Makes ready that a job goes on from what another of its name has left; gives its definition as it has to be stored for that.
///
/// # Errors
/// The same.
pub(crate) fn follow(next: &Successor, left: &Left<'_>, shelter: Way<'_>) -> Result<JobDefinition> {
    let mut definition = next.definition.clone();
    let from = match left.state {
        Some(state) => Some(Elsewhere::left(left.job, state, shelter)?),
        None => None,
    };
    match &from {
        Some(from) => {
            let place = from.place.to_string();
            definition.settings.insert(FROM.to_string(), place);
        }
        None => drop(definition.settings.remove(FROM)),
    }
    let promise = Promise::of(&definition)?.ok_or_else(|| {
        let what = format!(
            "{} promises nothing, and would lose its state",
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

/// What would become of the state of a job at that epoch if another followed it with that setting of `recovery.drop`. Changes nothing.
///
/// # Errors
/// What reading the snapshot's manifest returns.
pub fn compare(
    job: &Successor,
    state: LeftState,
    next: &Successor,
    shelter: Way<'_>,
) -> Result<StateDiff> {
    let from = Elsewhere::left(job, state, shelter)?;
    let dropping = next.definition.settings.get("recovery.drop");
    let dropping = Dropping::listed(dropping.map_or("", String::as_str));
    Ok(diff(&from.states, &states_in(&next.demand), &dropping))
}

/// What a job has kept of an epoch, in the forms that its program has told: what it had nothing of is left out. Reads a manifest.
///
/// # Errors
/// If this machine doesn't see the folder of the job, or hosts don't answer; `NoSuchSnapshot` if it has been removed meanwhile, or was lost.
pub fn kept_states(
    (promise, shelter): (&Promise, Way<'_>),
    job: &JobRef,
    kept: LeftState,
    told: &JobStates,
) -> Result<JobStates> {
    let snapshot = open_kept((&promise.place, shelter), job, kept)?;
    Ok(states_within(&snapshot, told))
}

/// Writes a savepoint of what a job on a cluster has kept of an epoch, in a folder or in the memory of hosts. Reads and writes all of it.
///
/// # Errors
/// If this machine doesn't see the folder of the job, or hosts don't answer; as [`Savepoint::write`].
pub fn save(
    (promise, shelter): (&Promise, Way<'_>),
    job: &JobRef,
    kept: LeftState,
    states: &JobStates,
    to: &Path,
) -> Result<SavepointManifest> {
    if let Place::Folder(own) | Place::Both(own) = &promise.place {
        keep_apart(to, own)?;
    }
    let damaged = |error| match &promise.place {
        // There are no files to restore.
        Place::Memory => lost(&promise.place, error),
        _ => past_damage(error, Some(&job.name)),
    };
    let snapshot = open_kept((&promise.place, shelter), job, kept).map_err(damaged)?;
    let of = SavepointOf {
        snapshot: &snapshot,
        states,
        threads: threads(),
    };
    let written = Savepoint::write(open_to_write(to)?, of).map_err(damaged)?;
    Ok(written.manifest().clone())
}

fn make(
    (promise, shelter): (&Promise, Way<'_>),
    job: &JobRef,
    demand: &JobDemand,
    from: Option<&Elsewhere>,
) -> Result<()> {
    if let Some(from) = from {
        let found = diff(&from.states, &states_in(demand), &promise.dropping);
        found.check(&job.name, &from.shown)?;
    }
    make_place(&promise.place, job)?;
    if let Some(folder) = find_own_folder(&promise.place, job)? {
        note_remembered(&*folder, &states_in(demand))?;
    }
    let Some(from) = from else { return Ok(()) };
    let vertices = demand.vertices.iter();
    let beginning = Beginning {
        place: from.place.clone(),
        job: from.job.clone(),
        snapshot: from.snapshot,
        vertices: vertices
            .map(|vertex| vertex.name.as_str().to_string())
            .collect(),
    };
    beginning.write(&*find_place(&promise.place, job, shelter)?)
}

/// Brings the state that a job begins with to the place of its snapshots, unless that has been done; gives its epoch.
///
/// # Errors
/// Why it can't be brought: never, that the job begins with nothing.
pub(crate) fn bring(promise: &Promise, job: &JobRef, shelter: Way<'_>) -> Result<Epoch> {
    let folder = find_place(&promise.place, job, shelter)?;
    let beginning = Beginning::read(&*folder)?;
    let id = SnapshotId::new(BROUGHT.0, beginning.snapshot.epoch);
    let config = StoreConfig {
        keep: usize::MAX,
        blocks: block_config(),
        ..StoreConfig::default()
    };
    let store = SnapshotStore::open(folder, &job.name, config)?;
    if store.snapshot(id).is_ok() {
        return Ok(id.epoch);
    }
    let from = open(&beginning.place, shelter)?;
    let from = Snapshot::open(from, &beginning.job, beginning.snapshot);
    let from = from.map_err(|error| match beginning.place {
        Origin::Folder(_) => error,
        Origin::Memory(_) => lost(&Place::Memory, error),
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

impl Elsewhere {
    fn savepoint(place: &Origin) -> Result<Self> {
        let Origin::Folder(folder) = place else {
            let what = format!("recovery.from={place} names no savepoint");
            return Err(Error::new(ErrorCode::InvalidConfig, what).hint(
                "savepoints are in folders and buckets; what a job has in memory goes on by `ardea upgrade`",
            ));
        };
        let manifest = SavepointManifest::read(&*open_folder(folder)?)?;
        Ok(Elsewhere {
            place: place.clone(),
            shown: format!("the savepoint {place}"),
            states: manifest.states(),
            job: manifest.job,
            snapshot: manifest.snapshot,
        })
    }

    fn left(job: &Successor, state: LeftState, shelter: Way<'_>) -> Result<Self> {
        let of = &job.definition.job;
        let promise = Promise::of(&job.definition)?.ok_or_else(|| {
            let what = format!("{of} promises nothing, and has left nothing");
            Error::new(ErrorCode::WrongState, what)
        })?;
        let snapshot = open_kept((&promise.place, shelter), of, state)?;
        Ok(Elsewhere {
            shown: format!("the job {of}"),
            place: match promise.place {
                // All of it is in the folder.
                Place::Folder(folder) | Place::Both(folder) => Origin::Folder(folder),
                Place::Memory => Origin::Memory(of.key()),
            },
            job: of.name.clone(),
            snapshot: id_of(state),
            states: states_within(&snapshot, &states_in(&job.demand)),
        })
    }
}

impl Beginning {
    fn write(&self, folder: &dyn Folder) -> Result<()> {
        write_note(folder, KIND, NAME, self)
    }

    fn read(folder: &dyn Folder) -> Result<Self> {
        let lost = || {
            let what = format!("{NAME} in {} is missing or damaged", folder.place());
            Error::new(ErrorCode::SnapshotDamaged, what)
                .hint("restore that file from a copy; else kill the job, and submit it again from its newest savepoint (recovery.from); without one it begins with nothing")
        };
        match read_note(folder, KIND, NAME) {
            Ok(found) => found.ok_or_else(lost),
            Err(error) if error.code() == ErrorCode::SnapshotDamaged => {
                Err(lost().because(error.without_hint()))
            }
            Err(error) => Err(error),
        }
    }
}

fn id_of(state: LeftState) -> SnapshotId {
    SnapshotId::new(state.generation.0, state.epoch)
}

/// The snapshot that a job has kept of an epoch.
fn open_kept(
    (place, shelter): (&Place, Way<'_>),
    job: &JobRef,
    kept: LeftState,
) -> Result<Snapshot> {
    let folder = find_place(place, job, shelter)?;
    let opened = Snapshot::open(folder, &job.name, id_of(kept));
    opened.map_err(|error| lost(place, error))
}

fn open(place: &Origin, shelter: Way<'_>) -> Result<Arc<dyn Folder>> {
    match place {
        Origin::Folder(folder) => open_folder(folder),
        Origin::Memory(job) => sheltered(job, shelter),
    }
}

fn open_folder(place: &Path) -> Result<Arc<dyn Folder>> {
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
#[path = "beginning_tests.rs"]
mod tests;
