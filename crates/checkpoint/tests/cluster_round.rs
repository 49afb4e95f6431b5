//! From what instances hand over to what those of the next life begin with: workers write, a master binds, workers read.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ardea_checkpoint::cluster::{Archives, FolderKeeper, make_room};
use ardea_checkpoint::local::Snapshots;
use ardea_checkpoint::local::{CutKeeper, LifeCuts, LifeHere};
use ardea_coordination::control::{
    EpochKind, EpochsAgentEvent, EpochsRecord, Generation, JobDefinition, JobRef, Life,
    MasterEpoch, Needed, ParticipantId, ProgramRef, Receipt, RecordedCut, RecordedSnapshot,
    WorkerId, WorkerStart,
};
use ardea_coordination::packing::{ContainerId, InstanceId, JobDemand, Resources};
use ardea_core::{
    Cut, Epoch, Error, ErrorCode, Instance, PartitionId, StateChunk, StateEntry, Waker,
};
use ardea_engine::{Counted, CutRead, CutReport, CutSink, InstanceName};
use ardea_grid::cluster::{GridShelf, Shelter};
use ardea_grid::node::{Grid, GridConfig};

/// Long enough for any machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn definition(folder: &Path) -> JobDefinition {
    let folder = folder.display().to_string();
    let settings = [("guarantee", "exactly-once"), ("snapshots.folder", &folder)];
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

/// A worker in one life: an instance of the only vertex.
struct Worker {
    name: InstanceName,
    cuts: Box<dyn LifeCuts>,
    sink: Arc<dyn CutSink>,
    told: Receiver<EpochsAgentEvent>,
    failed: Receiver<Error>,
}

fn keeper(
    definition: &JobDefinition,
    container: u32,
    shelter: Option<Arc<dyn Shelter>>,
) -> Arc<dyn CutKeeper> {
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
    FolderKeeper::of(&start, shelter).unwrap().unwrap()
}

impl Worker {
    /// The worker of a container, in a life of so many workers.
    fn begins(
        definition: &JobDefinition,
        container: u32,
        workers: u32,
        life: Life,
    ) -> ardea_core::Result<Self> {
        let keeper = keeper(definition, container, None);
        Worker::begins_by(&*keeper, container, workers, life)
    }

    /// The same, by this keeper.
    fn begins_by(
        keeper: &dyn CutKeeper,
        container: u32,
        workers: u32,
        life: Life,
    ) -> ardea_core::Result<Self> {
        let (tell, told) = channel();
        let tell = Mutex::new(tell);
        let (fail, failed) = channel();
        let fail = Mutex::new(fail);
        let cuts = keeper.begin(LifeHere {
            life,
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
            sink: cuts.cuts().sink.unwrap(),
            cuts,
            told,
            failed,
        })
    }

    fn next(&self) -> EpochsAgentEvent {
        self.told.recv_timeout(PATIENCE).expect("something comes")
    }

    /// Hands over a cut with this entry, and gets a receipt.
    fn saves(&mut self, cut: Cut, entry: Option<(&str, &str)>) -> Receipt {
        self.cuts.ends(cut.epoch, EpochKind::Usual);
        self.hands_over(cut, entry);
        match self.next() {
            EpochsAgentEvent::Saved(epoch, receipt) if epoch == cut.epoch => receipt,
            other => panic!("{other:?}"),
        }
    }

    fn hands_over(&self, cut: Cut, entry: Option<(&str, &str)>) {
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
        let report = CutReport {
            cut,
            entries: 1,
            bytes: 1,
            took: Duration::ZERO,
            counted: Counted::default(),
        };
        self.sink.finish(&self.name, report, chunk);
    }

    /// Hears that an epoch is committed, and so does its instance.
    fn hears(&mut self, epoch: Epoch) {
        self.cuts.committed(epoch);
        assert!(self.told.try_recv().is_err(), "not before the instance has");
        self.sink.heard(&self.name, epoch);
        assert_eq!(self.next(), EpochsAgentEvent::Visible(epoch));
    }

    /// What it begins with.
    fn state(&self) -> Vec<(String, String)> {
        let source = self.cuts.cuts().source.unwrap();
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
                CutRead::NotYet => woken.recv_timeout(PATIENCE).expect("it is read"),
                CutRead::Entries => found.extend(chunk.entries().map(|entry| {
                    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                    (text(entry.key), text(entry.value.unwrap()))
                })),
                CutRead::Base | CutRead::Partition(_) => panic!("nobody asked for partitions"),
                CutRead::End => break,
            }
        }
        found.sort();
        found
    }
}

fn life(generation: u64, from: Option<(u64, u64)>) -> Life {
    Life {
        generation: Generation(generation),
        from: from.map(|(_, epoch)| Epoch(epoch)),
        taken_in: Generation(from.map_or(0, |(taken_in, _)| taken_in)),
    }
}

/// The record with the epoch that these workers have saved.
fn with_epoch(before: &EpochsRecord, epoch: u64, receipts: &[(u32, Receipt)]) -> EpochsRecord {
    let mut record = before.clone();
    let cuts = receipts.iter().map(|(container, receipt)| {
        let cut = RecordedCut {
            receipt: receipt.clone(),
            has_ended: false,
        };
        (ParticipantId(*container), cut)
    });
    record.snapshots.push(Arc::new(RecordedSnapshot {
        epoch: Epoch(epoch),
        generation: record.generation,
        over: record.committed,
        is_savepoint: false,
        cuts: cuts.collect(),
    }));
    record.committed = Some(Epoch(epoch));
    record
}

/// A key of each of two instances.
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
    make_room(&definition, &JobDemand::new("words"), None).unwrap();
    let archives = Archives::new();
    assert!(archives.epochs(&definition).unwrap().is_some());
    let job = &definition.job;
    let mut record = EpochsRecord::new(job.clone());
    (record.master, record.generation) = (MasterEpoch(1), Generation(1));
    archives.make(job, &Arc::new(record.clone())).unwrap();

    // The first cuts are full, whatever instances think that they know.
    let begin = |container| Worker::begins(&definition, container, 2, life(1, None)).unwrap();
    let mut workers = [begin(1), begin(2)];
    let [first, second] = &keys();
    let [first, second] = [first.as_str(), second.as_str()];
    assert!(workers[0].sink.wants_all(&workers[0].name, Epoch(1)));
    let full = Cut::full(Epoch(1));
    let receipts = [
        (1, workers[0].saves(full, Some((first, "1")))),
        (2, workers[1].saves(full, Some((second, "1")))),
    ];
    assert!(receipts.iter().all(|(_, receipt)| receipt.since.is_none()));
    record = with_epoch(&record, 1, &receipts);
    archives.make(job, &Arc::new(record.clone())).unwrap();
    workers.iter_mut().for_each(|worker| worker.hears(Epoch(1)));

    // Then increments are enough.
    assert!(!workers[0].sink.wants_all(&workers[0].name, Epoch(2)));
    let changes = Cut::changes(Epoch(2), Epoch(1));
    let receipts = [
        (1, workers[0].saves(changes, Some((first, "2")))),
        (2, workers[1].saves(changes, None)),
    ];
    assert_eq!(receipts[0].1.since, Some(Epoch(1)));
    record = with_epoch(&record, 2, &receipts);
    archives.make(job, &Arc::new(record.clone())).unwrap();
    let needed = Needed {
        epochs: vec![Epoch(1), Epoch(2)],
        committed: Some(Epoch(2)),
        below: Epoch(3),
        generation: Generation(1),
    };
    archives.keep(job, &needed);
    drop(workers);

    // One worker has all of it, and begins with a full cut; two go on with increments.
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

    // What is not there can't be begun from.
    let missing = Worker::begins(&definition, 1, 1, life(4, Some((1, 9))));
    assert_eq!(missing.err().unwrap().code(), ErrorCode::NoSuchSnapshot);
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
    assert!(refused.what_next().unwrap().contains("mount"), "{refused}");
    // One that was there before may come back.
    let away = Worker::begins(&definition, 1, 1, life(2, Some((1, 1))));
    assert_eq!(away.err().unwrap().code(), ErrorCode::SnapshotsAway);
    assert_eq!(place.path().read_dir().unwrap().count(), 0);
}

#[test]
fn an_end_that_can_not_be_kept_waits_for_room_and_is_told_with_each_epoch() {
    let place = tempfile::tempdir().unwrap();
    let definition = definition(place.path());
    make_room(&definition, &JobDemand::new("words"), None).unwrap();
    let mut worker = Worker::begins(&definition, 1, 1, life(1, None)).unwrap();
    // The file server is away.
    let (there, away) = (place.path().join("words-2a"), place.path().join("away"));
    std::fs::rename(&there, &away).unwrap();
    let last = Cut {
        is_last: true,
        ..Cut::full(Epoch(1))
    };
    worker.hands_over(last, Some((&keys()[0], "1")));
    let mut epoch = Epoch(0);
    loop {
        epoch = epoch.next();
        worker.cuts.ends(epoch, EpochKind::Usual);
        let told = worker.told.recv_timeout(Duration::from_millis(10));
        if let Ok(EpochsAgentEvent::CannotSave(of, why)) = told {
            assert!(of <= epoch && why.contains("left at its end"), "{why}");
            break;
        }
        assert!(epoch.0 * 10 < PATIENCE.as_millis() as u64, "it is not told");
    }
    assert!(worker.failed.try_recv().is_err());
    std::fs::rename(&away, &there).unwrap();
    worker.cuts.ends(epoch.next(), EpochKind::Usual);
    let error = worker.failed.recv_timeout(PATIENCE).expect("it ends");
    assert_eq!(error.code(), ErrorCode::WriteFailed);
    let left = there.read_dir().unwrap().flatten();
    let mut names: Vec<_> = left.map(|file| file.file_name()).collect();
    names.sort();
    assert_eq!(names, ["folder.probe", "remembered.note"]);
}

/// A grid of its own, with nothing in it.
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
    let shelf = GridShelf::new();
    shelf.open(grid(), 1).unwrap();
    let shelter: Arc<dyn Shelter> = Arc::new(shelf.clone());
    let mut definition = definition(Path::new("/nowhere"));
    definition.settings.remove("snapshots.folder");
    make_room(&definition, &JobDemand::new("words"), Some(&shelter)).unwrap();
    let job = &definition.job;
    let mut record = EpochsRecord::new(job.clone());
    (record.master, record.generation) = (MasterEpoch(1), Generation(1));
    let master = |record: &EpochsRecord| {
        let archives = Archives::sheltered(Arc::clone(&shelter));
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
        let cut = match epoch {
            1 => Cut::full(Epoch(1)),
            _ => Cut::changes(Epoch(2), Epoch(1)),
        };
        let value = epoch.to_string();
        let receipts = [
            (1, workers[0].saves(cut, Some((first, value.as_str())))),
            (2, workers[1].saves(cut, Some((second, "1")))),
        ];
        record = with_epoch(&record, epoch, &receipts);
        archives.make(job, &Arc::new(record.clone())).unwrap();
        workers
            .iter_mut()
            .for_each(|worker| worker.hears(Epoch(epoch)));
    }

    // All hosts die, and others come; one of them leads.
    shelf.open(grid(), 2).unwrap();
    record.master = MasterEpoch(2);
    let archives = master(&record);
    let changes = Cut::changes(Epoch(3), Epoch(2));
    let receipts = [
        (1, workers[0].saves(changes, None)),
        (2, workers[1].saves(changes, None)),
    ];
    let refused = archives.make(job, &Arc::new(with_epoch(&record, 3, &receipts)));
    assert!(refused.is_err(), "they are based on what is lost");
    for worker in &mut workers {
        worker.cuts.given_up(Epoch(3));
        soon("all is wanted", || {
            worker.sink.wants_all(&worker.name, Epoch(4))
        });
    }
    let lost = begin(1, life(2, Some((1, 2)))).err().unwrap();
    assert_eq!(lost.code(), ErrorCode::NoSuchSnapshot);
    assert!(lost.what_next().unwrap().contains("backups"), "{lost}");

    let full = Cut::full(Epoch(4));
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
