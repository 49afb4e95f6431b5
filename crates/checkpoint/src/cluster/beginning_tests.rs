//! Jobs that begin with state from elsewhere.

use std::path::Path;

use crate::local::Snapshots;
use crate::store::{Commit, CutKind, CutOf, PartitionRange};
use ardea_coordination::control::{Generation, ProgramRef};
use ardea_coordination::packing::{PackingConfig, Resources, VertexDemand};
use ardea_core::{PartitionId, Schema, StateShape, Timestamp};
use ardea_grid::cluster::GridShelf;
use ardea_grid::node::{Grid, GridConfig};

use super::*;
use crate::cluster::{Archives, write_states};

const KEYS: u64 = 100;
const LEFT: LeftState = LeftState {
    generation: Generation(3),
    epoch: Epoch(7),
};

/// A job `words` with the snapshots of all its submissions below `place`, whose counts are such.
fn job(place: &Path, submission: u64, value: Schema, more: &[(&str, &str)]) -> Successor {
    let folder = place.display().to_string();
    let settings = [("guarantee", "exactly-once"), ("snapshots.folder", &folder)];
    let settings = settings.iter().chain(more);
    let mut demand = JobDemand::new("words");
    for vertex in ["lines", "counts"] {
        demand = demand.vertex(VertexDemand::new(vertex, 1, Resources::ZERO));
    }
    let keys = StateShape::of_values("keys", Some(Schema::U64), value);
    let states = JobStates::default()
        .with("counts", [keys])
        .with("lines", []);
    write_states(&states, &mut demand).unwrap();
    Successor {
        definition: JobDefinition {
            job: JobRef {
                cluster: "harbour".into(),
                name: "words".into(),
                submission,
            },
            program: ProgramRef {
                package: "0".repeat(64),
                executable: "words".into(),
                arguments: Vec::new(),
            },
            packing: "round-robin".into(),
            scheduler: "local".into(),
            settings: settings
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
            version: "0.1.0".into(),
        },
        demand,
        packing: PackingConfig::default(),
    }
}

/// A submission that has left a snapshot.
fn with_state(place: &Path) -> Successor {
    let old = job(place, 1, Schema::I32, &[]);
    leave_state(&old, None);
    old
}

/// Has a submission leave a snapshot.
fn leave_state(old: &Successor, shelter: Way<'_>) {
    make_room(&old.definition, &old.demand, shelter).unwrap();
    let promise = Promise::of(&old.definition).unwrap().unwrap();
    let folder = find_place(&promise.place, &old.definition.job, shelter).unwrap();
    let store = SnapshotStore::open(folder, "words", StoreConfig::default()).unwrap();
    let id = id_of(LEFT);
    let of = |vertex: &str| CutOf {
        snapshot: id,
        vertex: vertex.into(),
        instance: 0,
        instances: 1,
    };
    let kind = || CutKind::Full {
        partitions: PartitionRange::ALL,
    };
    let mut counts = store.writer(of("counts"), kind()).unwrap();
    for key in 0..KEYS {
        let key = key.to_le_bytes();
        let partition = PartitionId::of_canonical(&key);
        counts.set("keys", Some(partition), &key, b"one").unwrap();
    }
    let lines = store.writer(of("lines"), kind()).unwrap();
    let commit = Commit {
        id,
        base: None,
        at: Timestamp::from_secs(1_000),
        cuts: vec![counts.finish().unwrap(), lines.finish().unwrap()],
    };
    store.commit(&commit).unwrap();
}

/// The same job with its snapshots in memory.
fn in_memory(mut job: Successor) -> Successor {
    job.definition.settings.remove("snapshots.folder");
    job
}

/// What a job begins with, by its first record.
fn begins(definition: &JobDefinition) -> Option<(Epoch, u64)> {
    begins_by(&Archives::new(), definition)
}

/// The same by these archives.
fn begins_by(archives: &Archives, definition: &JobDefinition) -> Option<(Epoch, u64)> {
    archives.epochs(definition).unwrap().unwrap();
    let job = &definition.job;
    // Whoever is asked again brings it no second time.
    let first = archives.first(job).unwrap()?;
    assert_eq!(archives.first(job).unwrap().as_ref(), Some(&first));
    let life = first.life();
    assert_eq!((life.from, life.taken_in), (None, Generation(0)));
    let epoch = first.committed?;
    let place = Promise::of(definition).unwrap().unwrap().place;
    let folder = find_place(&place, job, archives.shelter().as_ref()).unwrap();
    let id = SnapshotId::new(BROUGHT.0, epoch);
    let snapshot = Snapshot::open(folder, "words", id).unwrap();
    snapshot.verify().unwrap();
    let mut entries = snapshot.entries("counts", "keys", PartitionRange::ALL);
    let mut count = 0;
    while entries.next_entry().unwrap().is_some() {
        count += 1;
    }
    Some((epoch, count))
}

#[test]
fn a_job_that_follows_another_begins_with_its_last_state() {
    let place = tempfile::tempdir().unwrap();
    let old = with_state(place.path());
    let left = Left {
        job: &old,
        state: Some(LEFT),
    };
    let next = job(place.path(), 2, Schema::I64, &[]);
    let definition = follow(&next, &left, None).unwrap();
    assert_eq!(begins(&definition), Some((Epoch(7), KEYS)));
    // And so does the old one, if it comes back.
    let mut again = old.clone();
    again.definition.job.submission = 3;
    let definition = follow(&again, &left, None).unwrap();
    assert_eq!(begins(&definition), Some((Epoch(7), KEYS)));
}

#[test]
fn a_job_that_can_not_read_the_state_is_refused_before_anything_is_made_for_it() {
    let place = tempfile::tempdir().unwrap();
    let old = with_state(place.path());
    let left = Left {
        job: &old,
        state: Some(LEFT),
    };
    let next = job(place.path(), 2, Schema::Text, &[]);
    let refused = follow(&next, &left, None).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::InvalidJob);
    assert!(refused.to_string().contains("counts/keys"), "{refused}");
    assert!(!place.path().join("words-2").exists());
    let found = compare(&old, LEFT, &next, None).unwrap();
    assert!(!found.is_possible());
    let dropping = job(
        place.path(),
        2,
        Schema::Text,
        &[("recovery.drop", "counts")],
    );
    let definition = follow(&dropping, &left, None).unwrap();
    assert_eq!(begins(&definition), Some((Epoch(7), 0)));
}

#[test]
fn no_savepoint_is_within_the_folder_of_its_job_and_no_folder_of_a_job_within_a_savepoint() {
    let place = tempfile::tempdir().unwrap();
    let old = with_state(place.path());
    let promise = Promise::of(&old.definition).unwrap().unwrap();
    let (job_of, states) = (&old.definition.job, states_in(&old.demand));
    let save_to = |to: &Path| save((&promise, None), job_of, LEFT, &states, to);
    let Place::Folder(own) = &promise.place else {
        panic!("{}", promise.place);
    };
    let within = own.join("saved");
    assert_eq!(save_to(&within).unwrap_err().code(), ErrorCode::WrongState);
    assert!(!within.exists());
    let saved = place.path().join("saved");
    save_to(&saved).unwrap();
    let files = || std::fs::read_dir(&saved).unwrap().count();
    let before = files();
    let new = job(&saved, 2, Schema::I64, &[]);
    let error = make_room(&new.definition, &new.demand, None).unwrap_err();
    assert_eq!(error.code(), ErrorCode::WrongState);
    assert!(error.what_next().unwrap().contains("recovery.from"));
    assert_eq!(files(), before);
}

#[test]
fn a_savepoint_of_a_cluster_is_what_another_job_of_it_begins_from() {
    let place = tempfile::tempdir().unwrap();
    let old = with_state(place.path());
    let promise = Promise::of(&old.definition).unwrap().unwrap();
    let (to, job_of) = (place.path().join("saved"), &old.definition.job);
    let states = states_in(&old.demand);
    let manifest = save((&promise, None), job_of, LEFT, &states, &to).unwrap();
    assert_eq!(manifest.states().vertices["counts"].states.len(), 1);
    let again = save((&promise, None), job_of, LEFT, &states, &to).unwrap_err();
    assert_eq!(again.code(), ErrorCode::WrongState);

    let from = to.display().to_string();
    let next = job(place.path(), 2, Schema::I64, &[("recovery.from", &from)]);
    make_room(&next.definition, &next.demand, None).unwrap();
    assert_eq!(begins(&next.definition), Some((Epoch(7), KEYS)));
    let nowhere = job(
        place.path(),
        4,
        Schema::I64,
        &[("recovery.from", "/nowhere")],
    );
    let error = make_room(&nowhere.definition, &nowhere.demand, None).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ReadFailed);
}

#[test]
fn a_job_whose_note_is_lost_does_not_begin_with_nothing() {
    let place = tempfile::tempdir().unwrap();
    let old = with_state(place.path());
    let left = Left {
        job: &old,
        state: Some(LEFT),
    };
    let next = job(place.path(), 2, Schema::I64, &[]);
    let definition = follow(&next, &left, None).unwrap();
    std::fs::remove_file(place.path().join("words-2").join(NAME)).unwrap();
    let archives = Archives::new();
    archives.epochs(&definition).unwrap().unwrap();
    let error = archives.first(&definition.job).unwrap_err();
    assert_eq!(error.code(), ErrorCode::SnapshotDamaged);
}

/// Hosts that keep snapshots in memory.
fn shelter() -> Arc<dyn Shelter> {
    let shelf = GridShelf::new();
    let grid = Grid::start(GridConfig::new("harbour")).unwrap();
    shelf.open(grid, 1).unwrap();
    Arc::new(shelf)
}

#[test]
fn what_a_job_has_left_in_memory_is_what_another_begins_with_there_or_in_a_folder() {
    let place = tempfile::tempdir().unwrap();
    let shelter = shelter();
    let archives = Archives::sheltered(Arc::clone(&shelter));
    let old = in_memory(job(place.path(), 1, Schema::I32, &[]));
    leave_state(&old, Some(&shelter));
    let left = Left {
        job: &old,
        state: Some(LEFT),
    };
    let next = in_memory(job(place.path(), 2, Schema::I64, &[]));
    assert!(
        compare(&old, LEFT, &next, Some(&shelter))
            .unwrap()
            .is_possible()
    );
    let definition = archives.follow(&next, &left).unwrap();
    assert_eq!(definition.settings[FROM], "memory:words#1");
    assert_eq!(begins_by(&archives, &definition), Some((Epoch(7), KEYS)));
    assert_eq!(place.path().read_dir().unwrap().count(), 0);

    let kept = job(place.path(), 3, Schema::I64, &[("snapshots.memory", "on")]);
    let definition = archives.follow(&kept, &left).unwrap();
    assert_eq!(begins_by(&archives, &definition), Some((Epoch(7), KEYS)));
    assert!(place.path().join("words-3").is_dir());

    // What others have lost meanwhile can't be begun with, and is told as lost.
    let lost = Some(LeftState {
        generation: Generation(3),
        epoch: Epoch(8),
    });
    let left = Left {
        job: &old,
        state: lost,
    };
    let error = archives.follow(&next, &left).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoSuchSnapshot);
    assert!(error.what_next().unwrap().contains("backups"), "{error}");
}

#[test]
fn a_job_in_memory_is_saved_and_begins_from_a_savepoint() {
    let place = tempfile::tempdir().unwrap();
    let shelter = shelter();
    let archives = Archives::sheltered(Arc::clone(&shelter));
    let old = in_memory(job(place.path(), 1, Schema::I32, &[]));
    leave_state(&old, Some(&shelter));
    let promise = Promise::of(&old.definition).unwrap().unwrap();
    let (to, job_of) = (place.path().join("saved"), &old.definition.job);
    let states = states_in(&old.demand);
    let way = Some(&shelter);
    save((&promise, way), job_of, LEFT, &states, &to).unwrap();

    let from = to.display().to_string();
    let next = in_memory(job(place.path(), 2, Schema::I64, &[(FROM, &from)]));
    make_room(&next.definition, &next.demand, way).unwrap();
    assert_eq!(
        begins_by(&archives, &next.definition),
        Some((Epoch(7), KEYS))
    );

    // What is in memory is no savepoint, whoever names it.
    let next = in_memory(job(
        place.path(),
        3,
        Schema::I64,
        &[(FROM, "memory:words#1")],
    ));
    let error = make_room(&next.definition, &next.demand, way).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidConfig);
    assert!(error.to_string().contains("memory:words#1"), "{error}");
}
