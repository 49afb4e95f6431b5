//! Round trip from the snapshots of one attempt to the restored state of the next: workers write, a
//! leader commits, workers read.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ardea_checkpoint::cluster::{JobCheckpointStores, WorkerCheckpointStore, prepare_location};
use ardea_checkpoint::local::LeaderCheckpointBackend;
use ardea_checkpoint::local::{AttemptCheckpoints, AttemptContext, WorkerCheckpointBackend};
use ardea_coordination::control::{
    CheckpointRecord, EpochKind, ExecutionAttempt, Generation, JobDefinition, JobRef, MasterEpoch,
    ParticipantEvent, ParticipantId, ProgramRef, RecordedCheckpoint, RecordedSnapshot,
    RequiredCheckpoints, SnapshotAck, WorkerId, WorkerStart,
};
use ardea_coordination::packing::{ContainerId, InstanceId, JobDemand, Resources};
use ardea_core::{
    Epoch, Error, ErrorCode, Instance, PartitionId, SnapshotRequest, StateChunk, StateEntry, Waker,
};
use ardea_engine::{InstanceName, RecordCounts, SnapshotRead, SnapshotReport, SnapshotSink};
use ardea_grid::cluster::{GridStoreClient, LocalGridStore};
use ardea_grid::node::{Grid, GridConfig};

/// A timeout that is long enough for any machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn definition(folder: &Path) -> JobDefinition {
    let folder = folder.display().to_string();
    let settings = [
        ("guarantee", "exactly-once"),
        ("checkpoints.folder", &folder),
    ];
    let settings = settings.map(|(key, value)| (key.to_string(), value.to_string()));
    JobDefinition {
        job: JobRef {
            cluster: "harbour".into(),
            name: "words".into(),
            submission: 42,
        },
        program: ProgramRef {
            package: String::new(),
            executable: "words".into(),
            arguments: Vec::new(),
        },
        packing: "round-robin".into(),
        scheduler: "local".into(),
        settings: settings.into(),
        version: "0".into(),
    }
}

/// A worker in one attempt, with one instance of the job's only vertex.
struct Worker {
    name: InstanceName,
    snapshots: Box<dyn AttemptCheckpoints>,
    sink: Arc<dyn SnapshotSink>,
    told: Receiver<ParticipantEvent>,
    failed: Receiver<Error>,
}

fn keeper(
    definition: &JobDefinition,
    container: u32,
    shelter: Option<Arc<dyn GridStoreClient>>,
) -> Arc<dyn WorkerCheckpointBackend> {
    let start = WorkerStart {
        worker: WorkerId {
            container: ContainerId(container),
            incarnation: 1,
        },
        job: definition.job.clone(),
        state_url: String::new(),
        host: "127.0.0.1".into(),
        resources: Resources::ZERO,
        token_file: None,
        certificates: None,
        settings: definition.settings.clone(),
    };
    WorkerCheckpointStore::of(&start, shelter).unwrap().unwrap()
}

impl Worker {
    /// Begins the attempt `life` in the worker of `container`, one of `workers` workers.
    fn begins(
        definition: &JobDefinition,
        container: u32,
        workers: u32,
        life: ExecutionAttempt,
    ) -> ardea_core::Result<Self> {
        let keeper = keeper(definition, container, None);
        Worker::begins_by(&*keeper, container, workers, life)
    }

    /// Begins the attempt `life` with the snapshot storage `keeper`.
    fn begins_by(
        keeper: &dyn WorkerCheckpointBackend,
        container: u32,
        workers: u32,
        life: ExecutionAttempt,
    ) -> ardea_core::Result<Self> {
        let (tell, told) = channel();
        let tell = Mutex::new(tell);
        let (fail, failed) = channel();
        let fail = Mutex::new(fail);
        let snapshots = keeper.begin(AttemptContext {
            attempt: life,
            job: "harbour/words".into(),
            instances: vec![InstanceId::new("count", container - 1)],
            parallelisms: BTreeMap::from([("count".to_string(), workers)]),
            tell: Arc::new(move |event| drop(tell.lock().unwrap().send(event))),
            restored: Arc::new(|| {}),
            fail: Arc::new(move |error| drop(fail.lock().unwrap().send(error))),
        })?;
        let instance = Instance {
            index: container - 1,
            parallelism: workers,
        };
        Ok(Worker {
            name: InstanceName {
                vertex: "count".into(),
                instance,
            },
            sink: snapshots.snapshots().sink.unwrap(),
            snapshots,
            told,
            failed,
        })
    }

    fn next(&self) -> ParticipantEvent {
        self.told.recv_timeout(PATIENCE).expect("something comes")
    }

    /// Writes a snapshot with `entry`, if any, and returns the acknowledgement.
    fn saves(&mut self, snapshot: SnapshotRequest, entry: Option<(&str, &str)>) -> SnapshotAck {
        self.snapshots.ends(snapshot.epoch, EpochKind::Usual);
        self.hands_over(snapshot, entry);
        match self.next() {
            ParticipantEvent::Saved(epoch, receipt) if epoch == snapshot.epoch => receipt,
            other => panic!("{other:?}"),
        }
    }

    fn hands_over(&self, snapshot: SnapshotRequest, entry: Option<(&str, &str)>) {
        let mut chunk = self.sink.buffer(&self.name, &Waker::none()).unwrap();
        if let Some((key, value)) = entry {
            let partition = Some(PartitionId::of_canonical(key.as_bytes()));
            let entry = StateEntry {
                state: "counts",
                partition,
                key: key.as_bytes(),
                value: Some(value.as_bytes()),
            };
            chunk.push(entry).unwrap();
        }
        let report = SnapshotReport {
            snapshot,
            entries: 1,
            bytes: 1,
            took: Duration::ZERO,
            counted: RecordCounts::default(),
        };
        self.sink.finish(&self.name, report, chunk);
    }

    /// Processes the commit of an epoch, in the worker and in its instance.
    fn hears(&mut self, epoch: Epoch) {
        self.snapshots.committed(epoch);
        assert!(self.told.try_recv().is_err(), "not before the instance has");
        self.sink.commit_processed(&self.name, epoch);
        assert_eq!(self.next(), ParticipantEvent::Visible(epoch));
    }

    /// Returns the entries that the worker's instance has restored.
    fn state(&self) -> Vec<(String, String)> {
        let source = self.snapshots.snapshots().source.unwrap();
        let mut reader = source.open(&self.name).unwrap();
        let (mut chunk, mut found) = (StateChunk::default(), Vec::new());
        loop {
            let (wake, woken) = channel();
            let wake = Mutex::new(wake);
            let waker = Waker::new(move || {
                let _ = wake.lock().unwrap().send(());
            });
            chunk.clear();
            match reader.read(&mut chunk, &waker).unwrap() {
                SnapshotRead::Pending => woken.recv_timeout(PATIENCE).expect("it is read"),
                SnapshotRead::Entries => found.extend(chunk.entries().map(|entry| {
                    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                    (text(entry.key), text(entry.value.unwrap()))
                })),
                SnapshotRead::Base | SnapshotRead::Partition(_) => {
                    panic!("nobody asked for partitions")
                }
                SnapshotRead::End => break,
            }
        }
        found.sort();
        found
    }
}

fn life(generation: u64, from: Option<(u64, u64)>) -> ExecutionAttempt {
    ExecutionAttempt {
        generation: Generation(generation),
        from: from.map(|(_, epoch)| Epoch(epoch)),
        taken_in: Generation(from.map_or(0, |(taken_in, _)| taken_in)),
    }
}

/// Returns the record after `before` that commits `epoch` with these acknowledgements of workers.
fn with_epoch(
    before: &CheckpointRecord,
    epoch: u64,
    receipts: &[(u32, SnapshotAck)],
) -> CheckpointRecord {
    let mut record = before.clone();
    let snapshots = receipts.iter().map(|(container, receipt)| {
        let snapshot = RecordedSnapshot {
            receipt: receipt.clone(),
            has_ended: false,
        };
        (ParticipantId(*container), snapshot)
    });
    record.checkpoints.push(Arc::new(RecordedCheckpoint {
        epoch: Epoch(epoch),
        generation: record.generation,
        over: record.committed,
        is_savepoint: false,
        snapshots: snapshots.collect(),
    }));
    record.committed = Some(Epoch(epoch));
    record
}

/// Returns a key that the first of two instances owns, and one of the second.
fn keys() -> [String; 2] {
    let owner = |key: &String| PartitionId::of_canonical(key.as_bytes()).index() / 512;
    [0, 1].map(|instance| {
        let mut keys = (0..).map(|number| format!("key {number}"));
        keys.find(|key| owner(key) == instance).unwrap()
    })
}

#[test]
fn the_next_life_begins_with_what_all_have_saved_on_another_number_of_workers_too() {
    let place = tempfile::tempdir().unwrap();
    let definition = definition(place.path());
    prepare_location(&definition, &JobDemand::new("words"), None).unwrap();
    let archives = JobCheckpointStores::new();
    assert!(archives.epochs(&definition).unwrap().is_some());
    let job = &definition.job;
    let mut record = CheckpointRecord::new(job.clone());
    (record.master, record.generation) = (MasterEpoch(1), Generation(1));
    archives.make(job, &Arc::new(record.clone())).unwrap();

    // The first snapshots are full, even if instances still have their state in memory.
    let begin = |container| Worker::begins(&definition, container, 2, life(1, None)).unwrap();
    let mut workers = [begin(1), begin(2)];
    let [first, second] = &keys();
    let [first, second] = [first.as_str(), second.as_str()];
    assert!(workers[0].sink.wants_all(&workers[0].name, Epoch(1)));
    let full = SnapshotRequest::full(Epoch(1));
    let receipts = [
        (1, workers[0].saves(full, Some((first, "1")))),
        (2, workers[1].saves(full, Some((second, "1")))),
    ];
    assert!(receipts.iter().all(|(_, receipt)| receipt.since.is_none()));
    record = with_epoch(&record, 1, &receipts);
    archives.make(job, &Arc::new(record.clone())).unwrap();
    workers.iter_mut().for_each(|worker| worker.hears(Epoch(1)));

    // Later snapshots can be increments.
    assert!(!workers[0].sink.wants_all(&workers[0].name, Epoch(2)));
    let changes = SnapshotRequest::changes(Epoch(2), Epoch(1));
    let receipts = [
        (1, workers[0].saves(changes, Some((first, "2")))),
        (2, workers[1].saves(changes, None)),
    ];
    assert_eq!(receipts[0].1.since, Some(Epoch(1)));
    record = with_epoch(&record, 2, &receipts);
    archives.make(job, &Arc::new(record.clone())).unwrap();
    let needed = RequiredCheckpoints {
        epochs: vec![Epoch(1), Epoch(2)],
        committed: Some(Epoch(2)),
        below: Epoch(3),
        generation: Generation(1),
    };
    archives.keep(job, &needed);
    drop(workers);

    // A single worker restores all state, and starts with a full snapshot. Two workers continue
    // with increments.
    let mut all = vec![(first.to_string(), "2".to_string())];
    all.push((second.to_string(), "1".to_string()));
    all.sort();
    let alone = Worker::begins(&definition, 1, 1, life(2, Some((1, 2)))).unwrap();
    assert_eq!(alone.state(), all);
    assert!(alone.sink.wants_all(&alone.name, Epoch(3)));
    drop(alone);
    let begin = |container| Worker::begins(&definition, container, 2, life(3, Some((1, 2))));
    let pair = [begin(1).unwrap(), begin(2).unwrap()];
    assert_eq!(pair[0].state(), [(first.to_string(), "2".to_string())]);
    assert_eq!(pair[1].state(), [(second.to_string(), "1".to_string())]);
    assert!(!pair[0].sink.wants_all(&pair[0].name, Epoch(3)));

    // A missing checkpoint cannot be restored.
    let missing = Worker::begins(&definition, 1, 1, life(4, Some((1, 9))));
    assert_eq!(missing.err().unwrap().code(), ErrorCode::NoSuchCheckpoint);
    archives.gone(job);
}

#[test]
fn a_worker_that_sees_another_folder_says_so_and_begins_nothing() {
    let place = tempfile::tempdir().unwrap();
    let definition = definition(place.path());
    let refused = Worker::begins(&definition, 1, 1, life(1, None))
        .err()
        .unwrap();
    assert_eq!(refused.code(), ErrorCode::InvalidConfig);
    assert!(refused.hint_text().unwrap().contains("mount"), "{refused}");
    // A restore makes the job wait, since the folder may become available again.
    let away = Worker::begins(&definition, 1, 1, life(2, Some((1, 1))));
    assert_eq!(
        away.err().unwrap().code(),
        ErrorCode::CheckpointStoreUnavailable
    );
    assert_eq!(place.path().read_dir().unwrap().count(), 0);
}

#[test]
fn an_end_that_can_not_be_kept_waits_for_room_and_is_told_with_each_epoch() {
    let place = tempfile::tempdir().unwrap();
    let definition = definition(place.path());
    prepare_location(&definition, &JobDemand::new("words"), None).unwrap();
    let mut worker = Worker::begins(&definition, 1, 1, life(1, None)).unwrap();
    // The file server is unavailable.
    let (there, away) = (place.path().join("words-2a"), place.path().join("away"));
    std::fs::rename(&there, &away).unwrap();
    let last = SnapshotRequest {
        is_last: true,
        ..SnapshotRequest::full(Epoch(1))
    };
    worker.hands_over(last, Some((&keys()[0], "1")));
    let mut epoch = Epoch(0);
    loop {
        epoch = epoch.next();
        worker.snapshots.ends(epoch, EpochKind::Usual);
        let told = worker.told.recv_timeout(Duration::from_millis(10));
        if let Ok(ParticipantEvent::CannotSave(of, why)) = told {
            assert!(of <= epoch && why.contains("the final snapshot"), "{why}");
            break;
        }
        assert!(epoch.0 * 10 < PATIENCE.as_millis() as u64, "it is not told");
    }
    assert!(worker.failed.try_recv().is_err());
    std::fs::rename(&away, &there).unwrap();
    worker.snapshots.ends(epoch.next(), EpochKind::Usual);
    let error = worker.failed.recv_timeout(PATIENCE).expect("it ends");
    assert_eq!(error.code(), ErrorCode::WriteFailed);
    let left = there.read_dir().unwrap().flatten();
    let mut names: Vec<_> = left.map(|file| file.file_name()).collect();
    names.sort();
    assert_eq!(names, ["folder.probe", "remembered.note"]);
}

/// Starts an empty grid.
fn grid() -> Grid {
    Grid::start(GridConfig::new("harbour")).unwrap()
}

fn soon(what: &str, mut is_it: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + PATIENCE;
    while !is_it() {
        assert!(std::time::Instant::now() < until, "{what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

#[test]
fn what_hosts_have_lost_is_handed_over_anew_by_those_who_remember_it() {
    let shelf = LocalGridStore::new();
    shelf.open(grid(), 1).unwrap();
    let shelter: Arc<dyn GridStoreClient> = Arc::new(shelf.clone());
    let mut definition = definition(Path::new("/nowhere"));
    definition.settings.remove("checkpoints.folder");
    prepare_location(&definition, &JobDemand::new("words"), Some(&shelter)).unwrap();
    let job = &definition.job;
    let mut record = CheckpointRecord::new(job.clone());
    (record.master, record.generation) = (MasterEpoch(1), Generation(1));
    let master = |record: &CheckpointRecord| {
        let archives = JobCheckpointStores::with_grid(Arc::clone(&shelter));
        assert!(archives.epochs(&definition).unwrap().is_some());
        archives.make(job, &Arc::new(record.clone())).unwrap();
        archives
    };
    let archives = master(&record);
    let keepers = [1, 2].map(|number| keeper(&definition, number, Some(Arc::clone(&shelter))));
    let begin = |container: u32, life| {
        let keeper = &*keepers[container as usize - 1];
        Worker::begins_by(keeper, container, 2, life)
    };
    let [first, second] = &keys();
    let [first, second] = [first.as_str(), second.as_str()];
    let mut workers = [1, 2].map(|container| begin(container, life(1, None)).unwrap());
    for epoch in [1, 2] {
        let snapshot = match epoch {
            1 => SnapshotRequest::full(Epoch(1)),
            _ => SnapshotRequest::changes(Epoch(2), Epoch(1)),
        };
        let value = epoch.to_string();
        let receipts = [
            (1, workers[0].saves(snapshot, Some((first, value.as_str())))),
            (2, workers[1].saves(snapshot, Some((second, "1")))),
        ];
        record = with_epoch(&record, epoch, &receipts);
        archives.make(job, &Arc::new(record.clone())).unwrap();
        workers
            .iter_mut()
            .for_each(|worker| worker.hears(Epoch(epoch)));
    }

    // All hosts die and are replaced; one of the new ones leads.
    shelf.open(grid(), 2).unwrap();
    record.master = MasterEpoch(2);
    let archives = master(&record);
    let changes = SnapshotRequest::changes(Epoch(3), Epoch(2));
    let receipts = [
        (1, workers[0].saves(changes, None)),
        (2, workers[1].saves(changes, None)),
    ];
    let refused = archives.make(job, &Arc::new(with_epoch(&record, 3, &receipts)));
    assert!(refused.is_err(), "they are based on what is lost");
    for worker in &mut workers {
        worker.snapshots.aborted(Epoch(3));
        soon("all is wanted", || {
            worker.sink.wants_all(&worker.name, Epoch(4))
        });
    }
    let lost = begin(1, life(2, Some((1, 2)))).err().unwrap();
    assert_eq!(lost.code(), ErrorCode::NoSuchCheckpoint);
    assert!(lost.hint_text().unwrap().contains("backups"), "{lost}");

    let full = SnapshotRequest::full(Epoch(4));
    let receipts = [
        (1, workers[0].saves(full, Some((first, "2")))),
        (2, workers[1].saves(full, Some((second, "1")))),
    ];
    record = with_epoch(&record, 4, &receipts);
    archives.make(job, &Arc::new(record.clone())).unwrap();
    for worker in &mut workers {
        worker.hears(Epoch(4));
        soon("no more", || !worker.sink.wants_all(&worker.name, Epoch(5)));
    }
    drop(workers);
    let next = [1, 2].map(|container| begin(container, life(2, Some((1, 4)))).unwrap());
    assert_eq!(next[0].state(), [(first.to_string(), "2".to_string())]);
    assert_eq!(next[1].state(), [(second.to_string(), "1".to_string())]);
}
