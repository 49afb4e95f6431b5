//! Tests of the committer: merging, garbage collection, takeover.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use crate::local::{AllowedDrops, FaultTolerance};
use crate::store::{BlockWriter, LocalDirStore, PartitionRange};
use ardea_coordination::control::{ParticipantId, RecordedSnapshot, SnapshotAck};
use ardea_core::{ErrorCode, PartitionId};
use tempfile::TempDir;

use super::*;
use crate::cluster::location_check::make_folder;

/// A job of two workers, each with one instance of a vertex.
struct Rig {
    place: TempDir,
    binder: CheckpointCommitter,
    told: CommitStatsLog,
    record: CheckpointRecord,
}

fn job() -> JobRef {
    JobRef {
        cluster: "harbour".into(),
        name: "words".into(),
        submission: 1,
    }
}

impl Rig {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let told = CommitStatsLog::default();
        let record = CheckpointRecord {
            master: MasterEpoch(1),
            generation: Generation(1),
            ..CheckpointRecord::new(job())
        };
        let binder = CheckpointCommitter::new(job(), promise(&place), told.clone(), None);
        make_folder(&place.path().join("words-1"), &job()).unwrap();
        let mut rig = Rig {
            place,
            binder,
            told,
            record,
        };
        rig.binder.make(&rig.record).unwrap();
        rig
    }

    fn keeps(&mut self, epochs: Vec<Epoch>, generation: Generation) {
        self.binder.keep(&RequiredCheckpoints {
            committed: self.record.committed,
            below: self.record.numbers,
            epochs,
            generation,
        });
    }

    fn folder(&self) -> Arc<dyn ObjectStore> {
        Arc::new(LocalDirStore::open(self.place.path().join("words-1")).unwrap())
    }

    /// Writes the snapshot of a container's worker: one entry with the worker's key and `value`.
    fn saves(
        &self,
        container: u32,
        epoch: u64,
        value: &str,
        since: Option<u64>,
    ) -> RecordedSnapshot {
        self.saves_as(WorkerManifestKind::Snapshot, container, epoch, value, since)
    }

    fn saves_as(
        &self,
        kind: WorkerManifestKind,
        container: u32,
        epoch: u64,
        value: &str,
        since: Option<u64>,
    ) -> RecordedSnapshot {
        let checkpoint = CheckpointId::new(self.record.generation.0, Epoch(epoch));
        let of = SnapshotOwner {
            checkpoint,
            vertex: "count".into(),
            instance: container - 1,
            instances: 2,
        };
        let partitions = PartitionRange::of_instance(container - 1, 2);
        let snapshot = match since {
            None => SnapshotKind::Full { partitions },
            Some(since) => SnapshotKind::Increment {
                since: CheckpointId::new(checkpoint.generation, Epoch(since)),
            },
        };
        let folder = self.folder();
        let mut writer =
            BlockWriter::new(Arc::clone(&folder), "words", of, snapshot, block_config()).unwrap();
        let partition = PartitionId::from_index(partitions.first());
        let key = format!("key {container}");
        writer
            .set("counts", partition, key.as_bytes(), value.as_bytes())
            .unwrap();
        let part = WorkerManifest {
            job: "words".into(),
            snapshots: vec![writer.finish().unwrap()],
            aligned_micros: BTreeMap::from([("count".to_string(), u64::from(container))]),
        };
        let name = WorkerManifestName {
            kind,
            checkpoint,
            container,
            writer: 7,
        };
        part.write(&*folder, name).unwrap();
        RecordedSnapshot {
            receipt: SnapshotAck {
                since: since.map(Epoch),
                place: name.to_bytes(),
                bytes: 1,
            },
            has_ended: kind == WorkerManifestKind::Last,
        }
    }

    /// Builds the record that commits the epoch of both workers' snapshots.
    fn next(&self, epoch: u64, snapshots: [RecordedSnapshot; 2]) -> CheckpointRecord {
        let mut record = self.record.clone();
        let participants = (1..).map(ParticipantId);
        record.checkpoints.push(Arc::new(RecordedCheckpoint {
            epoch: Epoch(epoch),
            generation: record.generation,
            over: record.committed,
            is_savepoint: false,
            snapshots: participants.zip(snapshots).collect(),
        }));
        record.committed = Some(Epoch(epoch));
        if record.checkpoints.len() > 2 {
            record.checkpoints.remove(0);
        }
        record
    }

    /// Merges and records an epoch, and removes obsolete files.
    fn commits(&mut self, epoch: u64, snapshots: [RecordedSnapshot; 2]) {
        let record = self.next(epoch, snapshots);
        self.binder.make(&record).unwrap();
        self.record = record;
        let epochs: Vec<Epoch> = self.record.checkpoints.iter().map(|it| it.epoch).collect();
        self.keeps(epochs, self.record.generation);
    }

    /// Returns all entries of an epoch's checkpoint.
    fn entries(&self, generation: u64, epoch: u64) -> Vec<(String, String)> {
        let id = CheckpointId::new(generation, Epoch(epoch));
        let checkpoint = Checkpoint::open(self.folder(), "words", id).unwrap();
        let mut entries = checkpoint.entries("count", "counts", PartitionRange::ALL);
        let mut found = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        while let Some(entry) = entries.next_entry().unwrap() {
            found.push((text(entry.key), text(entry.value)));
        }
        found
    }

    /// Returns the remaining worker manifests, after all maintenance.
    fn parts(&mut self) -> Vec<WorkerManifestName> {
        // Joins the maintenance thread.
        self.binder.open = None;
        let listed = self.folder().list().unwrap();
        let parts = listed
            .iter()
            .filter_map(|file| WorkerManifestName::parse(file.name.as_str()));
        let mut parts: Vec<WorkerManifestName> = parts.collect();
        parts.sort();
        parts
    }
}

fn promise(place: &TempDir) -> CheckpointConfig {
    let two = NonZeroUsize::MIN.saturating_add(1);
    CheckpointConfig {
        survival: FaultTolerance::in_folder(place.path()).keep(two),
        place: crate::cluster::CheckpointLocation::Folder(place.path().join("words-1")),
        from: None,
        dropping: AllowedDrops::nothing(),
    }
}

fn pairs(values: [&str; 2]) -> Vec<(String, String)> {
    let keys = ["key 1", "key 2"];
    let pairs = keys.iter().zip(values);
    pairs
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}

#[test]
fn what_all_workers_have_saved_becomes_one_checkpoint_and_increments_lie_over_it() {
    let mut rig = Rig::new();
    let snapshots = [rig.saves(1, 1, "a", None), rig.saves(2, 1, "b", None)];
    rig.commits(1, snapshots);
    assert_eq!(rig.entries(1, 1), pairs(["a", "b"]));
    let snapshots = [rig.saves(1, 2, "c", Some(1)), rig.saves(2, 2, "b", Some(1))];
    rig.commits(2, snapshots);
    assert_eq!(rig.entries(1, 2), pairs(["c", "b"]));
    // An increment may be based on an older checkpoint.
    let snapshots = [rig.saves(1, 4, "d", Some(1)), rig.saves(2, 4, "e", Some(2))];
    rig.commits(4, snapshots);
    assert_eq!(rig.entries(1, 4), pairs(["d", "e"]));
    let held = rig.told.of(Epoch(4)).aligned["count"];
    assert_eq!(held, Duration::from_micros(2), "the slowest");
    assert_eq!(rig.told.of(Epoch(1)), CommitStats::default(), "forgotten");
    assert_eq!(rig.parts(), []);
}

#[test]
fn blocks_that_no_checkpoint_refers_to_go_with_the_job() {
    let mut rig = Rig::new();
    let snapshots = [rig.saves(1, 1, "a", None), rig.saves(2, 1, "b", None)];
    rig.commits(1, snapshots);
    let names = |rig: &Rig| {
        let listed = rig.folder().list().unwrap().into_iter();
        let mut names: Vec<String> = listed.map(|file| file.name.to_string()).collect();
        names.sort();
        names
    };
    // The maintenance thread has ended.
    assert_eq!(rig.parts(), []);
    let before = names(&rig);
    rig.binder.make(&rig.record.clone()).unwrap();
    // Unreferenced, as the output of a compaction for a checkpoint that is not made.
    rig.saves(1, 1, "c", None);
    // Of the epoch in progress, and of a worker that ended in it.
    rig.saves(1, 2, "d", Some(1));
    rig.saves_as(WorkerManifestKind::Last, 2, 2, "e", Some(1));
    rig.binder.close();
    assert_eq!(names(&rig), before);
    assert_eq!(rig.entries(1, 1), pairs(["a", "b"]));
}

#[test]
fn what_the_master_before_has_folded_for_the_next_checkpoint_goes_when_that_is_made() {
    let mut rig = Rig::new();
    let snapshots = [rig.saves(1, 1, "a", None), rig.saves(2, 1, "b", None)];
    rig.commits(1, snapshots);
    rig.record.master = MasterEpoch(2);
    rig.binder.make(&rig.record.clone()).unwrap();
    rig.keeps(vec![Epoch(1)], Generation(1));
    // A file as the previous master has named it.
    let left = rig.saves(1, 2, "x", None);
    let name = WorkerManifestName::from_bytes(&left.receipt.place).unwrap();
    let file = (name.file().unwrap(), FileState::Whole);
    rig.folder().remove(&[file]).unwrap();
    let snapshots = [rig.saves(1, 2, "c", Some(1)), rig.saves(2, 2, "d", Some(1))];
    rig.commits(2, snapshots);
    assert_eq!(rig.parts(), []);
    let listed = rig.folder().list().unwrap().into_iter();
    let blocks = listed.filter(|file| file.name.as_str().starts_with("block-1-2-"));
    assert_eq!(blocks.count(), 2);
    assert_eq!(rig.entries(1, 2), pairs(["c", "d"]));
}

#[test]
fn what_the_record_has_is_held_before_anything_is_collected() {
    let mut rig = Rig::new();
    let snapshots = [rig.saves(1, 1, "a", None), rig.saves(2, 1, "b", None)];
    rig.commits(1, snapshots);
    rig.record.master = MasterEpoch(2);
    rig.binder.make(&rig.record.clone()).unwrap();
    let open = rig.binder.open.as_ref().unwrap();
    assert!(open.held.keys().eq(&[Epoch(1)]));
}

#[test]
fn a_job_that_is_found_at_its_end_leaves_no_more_than_its_checkpoints() {
    let mut rig = Rig::new();
    let snapshots = [rig.saves(1, 1, "a", None), rig.saves(2, 1, "b", None)];
    rig.commits(1, snapshots);
    rig.saves(1, 2, "c", Some(1));
    // A new leader, which has made no checkpoint.
    rig.binder = CheckpointCommitter::new(job(), promise(&rig.place), rig.told.clone(), None);
    rig.binder.close();
    assert_eq!(rig.parts(), []);
    let listed = rig.folder().list().unwrap().into_iter();
    let blocks = listed.filter(|file| file.name.as_str().starts_with("block-"));
    assert_eq!(blocks.count(), 2);
    assert_eq!(rig.entries(1, 1), pairs(["a", "b"]));
}

#[test]
fn the_same_record_again_makes_nothing_again() {
    let mut rig = Rig::new();
    let snapshots = [rig.saves(1, 1, "a", None), rig.saves(2, 1, "b", None)];
    let record = rig.next(1, snapshots);
    rig.binder.make(&record).unwrap();
    rig.binder.make(&record).unwrap();
    assert_eq!(rig.entries(1, 1), pairs(["a", "b"]));
}

#[test]
fn a_part_that_is_not_there_keeps_its_epoch_from_being_recorded() {
    let mut rig = Rig::new();
    let snapshots = [rig.saves(1, 1, "a", None), rig.saves(2, 1, "b", None)];
    let name = WorkerManifestName::from_bytes(&snapshots[1].receipt.place).unwrap();
    let file = (name.file().unwrap(), FileState::Whole);
    rig.folder().remove(&[file]).unwrap();
    let record = rig.next(1, snapshots);
    let error = rig.binder.make(&record).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CheckpointDamaged);
    assert!(error.to_string().contains("part-1-1-2"), "{error}");
    // The next epoch includes the state.
    let snapshots = [rig.saves(1, 2, "c", None), rig.saves(2, 2, "d", None)];
    rig.commits(2, snapshots);
    assert_eq!(rig.entries(1, 2), pairs(["c", "d"]));
}

#[test]
fn the_last_state_of_a_worker_counts_once_and_stays_as_long_as_its_life() {
    let mut rig = Rig::new();
    let last = rig.saves_as(WorkerManifestKind::Last, 1, 1, "z", None);
    let snapshots = [last.clone(), rig.saves(2, 1, "b", None)];
    rig.commits(1, snapshots);
    for epoch in [2, 3] {
        let snapshots = [last.clone(), rig.saves(2, epoch, "c", Some(epoch - 1))];
        rig.commits(epoch, snapshots);
        assert_eq!(rig.entries(1, epoch), pairs(["z", "c"]));
    }
    // A new leader reads the manifest again.
    rig.record.master = MasterEpoch(2);
    rig.binder = CheckpointCommitter::new(job(), promise(&rig.place), rig.told.clone(), None);
    let record = rig.record.clone();
    rig.binder.make(&record).unwrap();
    let snapshots = [last.clone(), rig.saves(2, 70, "d", Some(3))];
    rig.commits(70, snapshots);
    assert_eq!(rig.entries(1, 70), pairs(["z", "d"]));
    let left = rig.parts();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].kind, WorkerManifestKind::Last);
    // In the next attempt the worker reports its end again.
    rig.record.generation = Generation(2);
    rig.binder.make(&rig.record.clone()).unwrap();
    let epochs: Vec<Epoch> = rig.record.checkpoints.iter().map(|it| it.epoch).collect();
    rig.keeps(epochs, Generation(2));
    assert_eq!(rig.parts(), []);
    assert_eq!(rig.entries(1, 70), pairs(["z", "d"]));
}

#[test]
fn a_life_with_other_numbers_of_instances_begins_with_everything() {
    let mut rig = Rig::new();
    let snapshots = [rig.saves(1, 1, "a", None), rig.saves(2, 1, "b", None)];
    rig.commits(1, snapshots);
    rig.record.generation = Generation(2);
    let snapshots = [rig.saves(1, 70, "c", None), rig.saves(2, 70, "d", None)];
    rig.commits(70, snapshots);
    assert_eq!(rig.entries(2, 70), pairs(["c", "d"]));
    let id = CheckpointId::new(2, Epoch(70));
    let checkpoint = Checkpoint::open(rig.folder(), "words", id).unwrap();
    assert_eq!(checkpoint.report().base, None);
    // An attempt with the same parallelism continues with increments.
    rig.record.generation = Generation(3);
    let snapshots = [
        rig.saves(1, 80, "e", Some(70)),
        rig.saves(2, 80, "d", Some(70)),
    ];
    rig.commits(80, snapshots);
    assert_eq!(rig.entries(3, 80), pairs(["e", "d"]));
    assert_eq!(rig.entries(2, 70), pairs(["c", "d"]), "it is kept");
}

#[test]
fn what_was_aborted_and_what_lives_that_are_over_have_left_is_cleared_away() {
    let mut rig = Rig::new();
    let snapshots = [rig.saves(1, 1, "a", None), rig.saves(2, 1, "b", None)];
    rig.commits(1, snapshots);
    // Epochs 2 and 3 were aborted.
    rig.saves(1, 2, "x", Some(1));
    rig.saves(2, 3, "y", Some(1));
    let snapshots = [rig.saves(1, 4, "c", Some(1)), rig.saves(2, 4, "d", Some(1))];
    rig.commits(4, snapshots);
    assert_eq!(rig.parts(), []);
    rig.saves(1, 5, "x", Some(4));
    rig.record.generation = Generation(2);
    rig.binder.make(&rig.record.clone()).unwrap();
    let epochs: Vec<Epoch> = rig.record.checkpoints.iter().map(|it| it.epoch).collect();
    rig.keeps(epochs, Generation(2));
    assert_eq!(rig.parts(), []);
    assert_eq!(rig.entries(1, 4), pairs(["c", "d"]));
    let blocks = rig.folder().list().unwrap().into_iter();
    let blocks = blocks.filter(|file| file.name.as_str().starts_with("block-1-5"));
    assert_eq!(blocks.count(), 0);
}

#[test]
fn in_the_folder_it_can_be_seen_what_is_committed_also_when_the_cluster_has_forgotten_the_job() {
    let mut rig = Rig::new();
    let path = rig.place.path().join("words-1");
    let snapshots = [rig.saves(1, 1, "a", None), rig.saves(2, 1, "b", None)];
    rig.commits(1, snapshots);
    let snapshots = [rig.saves(1, 2, "c", Some(1)), rig.saves(2, 2, "b", Some(1))];
    // This checkpoint is written but never recorded.
    let next = rig.next(2, snapshots);
    rig.binder.make(&next).unwrap();
    let looked = crate::local::look(&path, true).unwrap();
    assert_eq!((&*looked.job, looked.committed), ("words", Some(Epoch(1))));
    assert!(looked.checkpoints.iter().all(|it| it.report.is_ok()));
    let saved = rig.place.path().join("saved");
    let written = crate::local::savepoint(&path, &saved, Duration::ZERO).unwrap();
    assert_eq!(written.checkpoint.epoch, Epoch(1));
    // The job starts over without state.
    rig.record.committed = None;
    rig.keeps(Vec::new(), Generation(2));
    let looked = crate::local::look(&path, true).unwrap();
    assert_eq!((looked.committed, looked.checkpoints.len()), (None, 0));
}

#[test]
fn a_commit_that_is_stored_after_all_is_what_the_next_one_is_based_on() {
    let mut rig = Rig::new();
    let snapshots = [rig.saves(1, 1, "a", None), rig.saves(2, 1, "b", None)];
    rig.commits(1, snapshots);
    let snapshots = [rig.saves(1, 2, "c", Some(1)), rig.saves(2, 2, "b", Some(1))];
    let doubtful = rig.next(2, snapshots);
    rig.binder.make(&doubtful).unwrap();
    // The result of that write is unknown, so another record is written in its place, too late.
    let mut instead = rig.record.clone();
    instead.numbers = instead.numbers.next();
    rig.binder.make(&instead).unwrap();
    rig.record = doubtful;
    let snapshots = [rig.saves(1, 3, "c", Some(2)), rig.saves(2, 3, "d", Some(2))];
    rig.commits(3, snapshots);
    assert_eq!(rig.entries(1, 3), pairs(["c", "d"]));
}

#[test]
fn what_a_mastership_before_the_present_one_wants_recorded_is_refused() {
    let mut rig = Rig::new();
    let snapshots = [rig.saves(1, 1, "a", None), rig.saves(2, 1, "b", None)];
    let late = rig.next(1, snapshots);
    rig.record.master = MasterEpoch(2);
    rig.binder.make(&rig.record.clone()).unwrap();
    let error = rig.binder.make(&late).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Superseded);
    let made = Checkpoint::open(rig.folder(), "words", CheckpointId::new(1, Epoch(1)));
    assert_eq!(made.unwrap_err().code(), ErrorCode::NoSuchCheckpoint);
}

#[test]
fn a_master_that_does_not_see_the_folder_makes_none_and_says_so() {
    let rig = Rig::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let mut binder =
        CheckpointCommitter::new(job(), promise(&elsewhere), CommitStatsLog::default(), None);
    let error = binder.make(&rig.record).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidConfig);
    assert!(error.to_string().contains("words-1"), "{error}");
    assert!(!elsewhere.path().join("words-1").exists());
}
