//! Tests of jobs with initial state.

use std::path::Path;

use crate::local::LeaderCheckpointBackend;
use crate::store::{Commit, PartitionRange, SnapshotKind, SnapshotOwner};
use ardea_coordination::control::{Generation, ProgramRef};
use ardea_coordination::packing::{PackingConfig, Resources, VertexDemand};
use ardea_core::{PartitionId, Schema, StateShape, Timestamp};
use ardea_grid::cluster::LocalGridStore;
use ardea_grid::node::{Grid, GridConfig};

use super::*;
use crate::cluster::{JobCheckpointStores, write_states};

const KEYS: u64 = 100;
const LEFT: FinalState = FinalState {
    generation: Generation(3),
    epoch: Epoch(7),
};

/// Returns a submission of the job `words`, with checkpoints below `place` and counts of the schema
/// `value`.
fn job(place: &Path, submission: u64, value: Schema, more: &[(&str, &str)]) -> Successor {
    let folder = place.display().to_string();
    let settings = [
        ("guarantee", "exactly-once"),
        ("checkpoints.folder", &folder),
    ];
    let settings = settings.iter().chain(more);
    let mut demand = JobDemand::new("words");
    for vertex in ["lines", "counts"] {
        demand = demand.vertex(VertexDemand::new(vertex, 1, Resources::ZERO));
    }
    let keys = StateShape::of_values("keys", Some(Schema::U64), value);
    let states = JobStateSchema::default()
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

/// Returns a submission of the job that has a checkpoint.
fn with_state(place: &Path) -> Successor {
    let old = job(place, 1, Schema::I32, &[]);
    leave_state(&old, None);
    old
}

/// Writes a checkpoint of a submission.
fn leave_state(old: &Successor, shelter: GridClient<'_>) {
    prepare_location(&old.definition, &old.demand, shelter).unwrap();
    let promise = CheckpointConfig::of(&old.definition).unwrap().unwrap();
    let folder = find_place(&promise.place, &old.definition.job, shelter).unwrap();
    let store = CheckpointStore::open(folder, "words", StoreConfig::default()).unwrap();
    let id = id_of(LEFT);
    let of = |vertex: &str| SnapshotOwner {
        checkpoint: id,
        vertex: vertex.into(),
        instance: 0,
        instances: 1,
    };
    let kind = || SnapshotKind::Full {
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
        snapshots: vec![counts.finish().unwrap(), lines.finish().unwrap()],
    };
    store.commit(&commit).unwrap();
}

/// Returns `job` with its checkpoints in memory.
fn in_memory(mut job: Successor) -> Successor {
    job.definition.settings.remove("checkpoints.folder");
    job
}

/// Returns the epoch and the number of entries in a job's initial state.
fn begins(definition: &JobDefinition) -> Option<(Epoch, u64)> {
    begins_by(&JobCheckpointStores::new(), definition)
}

/// Returns the epoch and the number of entries in a job's initial state, read with these stores.
fn begins_by(archives: &JobCheckpointStores, definition: &JobDefinition) -> Option<(Epoch, u64)> {
    archives.epochs(definition).unwrap().unwrap();
    let job = &definition.job;
    // A second request does not copy again.
    let first = archives.import_initial_state(job).unwrap()?;
    assert_eq!(
        archives.import_initial_state(job).unwrap().as_ref(),
        Some(&first)
    );
    let life = first.attempt();
    assert_eq!((life.from, life.taken_in), (None, Generation(0)));
    let epoch = first.committed?;
    let place = CheckpointConfig::of(definition).unwrap().unwrap().place;
    let folder = find_place(&place, job, archives.shelter().as_ref()).unwrap();
    let id = CheckpointId::new(IMPORTED.0, epoch);
    let checkpoint = Checkpoint::open(folder, "words", id).unwrap();
    checkpoint.verify().unwrap();
    let mut entries = checkpoint.entries("counts", "keys", PartitionRange::ALL);
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
    let left = PredecessorState {
        job: &old,
        state: Some(LEFT),
    };
    let next = job(place.path(), 2, Schema::I64, &[]);
    let definition = follow(&next, &left, None).unwrap();
    assert_eq!(begins(&definition), Some((Epoch(7), KEYS)));
    // The old program can take over again in the same way.
    let mut again = old.clone();
    again.definition.job.submission = 3;
    let definition = follow(&again, &left, None).unwrap();
    assert_eq!(begins(&definition), Some((Epoch(7), KEYS)));
}

#[test]
fn a_job_that_can_not_read_the_state_is_refused_before_anything_is_made_for_it() {
    let place = tempfile::tempdir().unwrap();
    let old = with_state(place.path());
    let left = PredecessorState {
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
    let promise = CheckpointConfig::of(&old.definition).unwrap().unwrap();
    let (job_of, states) = (&old.definition.job, states_in(&old.demand));
    let save_to = |to: &Path| save((&promise, None), job_of, LEFT, &states, to);
    let CheckpointLocation::Folder(own) = &promise.place else {
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
    let error = prepare_location(&new.definition, &new.demand, None).unwrap_err();
    assert_eq!(error.code(), ErrorCode::WrongState);
    assert!(error.hint_text().unwrap().contains("recovery.from"));
    assert_eq!(files(), before);
}

#[test]
fn a_savepoint_of_a_cluster_is_what_another_job_of_it_begins_from() {
    let place = tempfile::tempdir().unwrap();
    let old = with_state(place.path());
    let promise = CheckpointConfig::of(&old.definition).unwrap().unwrap();
    let (to, job_of) = (place.path().join("saved"), &old.definition.job);
    let states = states_in(&old.demand);
    let manifest = save((&promise, None), job_of, LEFT, &states, &to).unwrap();
    assert_eq!(manifest.states().vertices["counts"].states.len(), 1);
    let again = save((&promise, None), job_of, LEFT, &states, &to).unwrap_err();
    assert_eq!(again.code(), ErrorCode::WrongState);

    let from = to.display().to_string();
    let next = job(place.path(), 2, Schema::I64, &[("recovery.from", &from)]);
    prepare_location(&next.definition, &next.demand, None).unwrap();
    assert_eq!(begins(&next.definition), Some((Epoch(7), KEYS)));
    let nowhere = job(
        place.path(),
        4,
        Schema::I64,
        &[("recovery.from", "/nowhere")],
    );
    let error = prepare_location(&nowhere.definition, &nowhere.demand, None).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ReadFailed);
}

#[test]
fn a_job_whose_note_is_lost_does_not_begin_with_nothing() {
    let place = tempfile::tempdir().unwrap();
    let old = with_state(place.path());
    let left = PredecessorState {
        job: &old,
        state: Some(LEFT),
    };
    let next = job(place.path(), 2, Schema::I64, &[]);
    let definition = follow(&next, &left, None).unwrap();
    std::fs::remove_file(place.path().join("words-2").join(NAME)).unwrap();
    let archives = JobCheckpointStores::new();
    archives.epochs(&definition).unwrap().unwrap();
    let error = archives.import_initial_state(&definition.job).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CheckpointDamaged);
}

/// Starts a grid that stores checkpoints in memory.
fn shelter() -> Arc<dyn GridStoreClient> {
    let shelf = LocalGridStore::new();
    let grid = Grid::start(GridConfig::new("harbour")).unwrap();
    shelf.open(grid, 1).unwrap();
    Arc::new(shelf)
}

#[test]
fn what_a_job_has_left_in_memory_is_what_another_begins_with_there_or_in_a_folder() {
    let place = tempfile::tempdir().unwrap();
    let shelter = shelter();
    let archives = JobCheckpointStores::with_grid(Arc::clone(&shelter));
    let old = in_memory(job(place.path(), 1, Schema::I32, &[]));
    leave_state(&old, Some(&shelter));
    let left = PredecessorState {
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

    let kept = job(
        place.path(),
        3,
        Schema::I64,
        &[("checkpoints.memory", "on")],
    );
    let definition = archives.follow(&kept, &left).unwrap();
    assert_eq!(begins_by(&archives, &definition), Some((Epoch(7), KEYS)));
    assert!(place.path().join("words-3").is_dir());

    // A lost checkpoint is reported as lost.
    let lost = Some(FinalState {
        generation: Generation(3),
        epoch: Epoch(8),
    });
    let left = PredecessorState {
        job: &old,
        state: lost,
    };
    let error = archives.follow(&next, &left).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoSuchCheckpoint);
    assert!(error.hint_text().unwrap().contains("backups"), "{error}");
}

#[test]
fn a_job_in_memory_is_saved_and_begins_from_a_savepoint() {
    let place = tempfile::tempdir().unwrap();
    let shelter = shelter();
    let archives = JobCheckpointStores::with_grid(Arc::clone(&shelter));
    let old = in_memory(job(place.path(), 1, Schema::I32, &[]));
    leave_state(&old, Some(&shelter));
    let promise = CheckpointConfig::of(&old.definition).unwrap().unwrap();
    let (to, job_of) = (place.path().join("saved"), &old.definition.job);
    let states = states_in(&old.demand);
    let way = Some(&shelter);
    save((&promise, way), job_of, LEFT, &states, &to).unwrap();

    let from = to.display().to_string();
    let next = in_memory(job(place.path(), 2, Schema::I64, &[(FROM, &from)]));
    prepare_location(&next.definition, &next.demand, way).unwrap();
    assert_eq!(
        begins_by(&archives, &next.definition),
        Some((Epoch(7), KEYS))
    );

    // In-memory state cannot be named as a savepoint.
    let next = in_memory(job(
        place.path(),
        3,
        Schema::I64,
        &[(FROM, "memory:words#1")],
    ));
    let error = prepare_location(&next.definition, &next.demand, way).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidConfig);
    assert!(error.to_string().contains("memory:words#1"), "{error}");
}
