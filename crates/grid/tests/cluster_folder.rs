//! Checkpoint folders in the memory of several hosts, some of which crash.

use std::sync::Arc;
use std::time::Duration;

use ardea_checkpoint::cluster::GridObjectStore;
use ardea_checkpoint::store::conformance::CHECKS;
use ardea_checkpoint::store::{FileName, FileState, ObjectStore};
use ardea_core::{Error, ErrorCode};
use ardea_grid::cluster::{
    FileMark, GridStoreClient, Head, LocalGridStore, LossCounters, StoreRequest, StoreResponse,
};
use ardea_grid::node::{Grid, GridConfig};
use bytes::Bytes;

mod cluster;

use cluster::{Cluster, soon, until_settled};

const SOON: Duration = Duration::from_secs(60);

/// Name of a job.
const JOB: &str = "words#2a";

fn name(name: &str) -> FileName {
    FileName::new(name).unwrap()
}

/// Returns the stores of the members of one grid.
fn shelves(count: usize) -> Vec<LocalGridStore> {
    let first = Grid::start(GridConfig::new("test")).unwrap();
    let seed = first.endpoint().to_string();
    let mut grids = vec![first];
    for _ in 1..count {
        grids.push(Grid::start(GridConfig::new("test").join([seed.as_str()])).unwrap());
    }
    let shelves = grids.into_iter().map(|grid| {
        assert!(grid.settled(count, SOON));
        let shelf = LocalGridStore::new();
        shelf.open(grid, 1).unwrap();
        shelf
    });
    shelves.collect()
}

fn folder(shelf: &LocalGridStore, job: &str) -> GridObjectStore {
    GridObjectStore::new(Arc::new(shelf.clone()), job)
}

fn died() -> Error {
    Error::new(ErrorCode::StateUnavailable, "it has died")
}

/// Returns bytes that are not all equal.
fn content(length: usize) -> Bytes {
    (0..length).map(|at| (at % 251) as u8).collect()
}

#[test]
fn a_folder_in_the_memory_of_three_promises_what_every_folder_does() {
    let shelves = shelves(3);
    for (number, (what, check)) in CHECKS.iter().enumerate() {
        println!("{what}");
        check(&folder(&shelves[number % 3], what));
    }
}

#[test]
fn what_is_larger_than_a_letter_is_read_as_it_was_written_by_any_member() {
    let shelves = shelves(3);
    let writer = folder(&shelves[0], JOB);
    let lengths = [
        0,
        1,
        16 << 10,
        (16 << 10) + 1,
        1 << 20,
        (1 << 20) + 1,
        19 << 20,
    ];
    let file = |length: &usize| (name(&format!("f{length}")), content(*length));
    let files: Vec<_> = lengths.iter().map(file).collect();
    writer.write_all(&files).unwrap();
    writer.write_all(&files).unwrap();
    for shelf in &shelves[1..] {
        let reader = folder(shelf, JOB);
        for (name, content) in &files {
            assert_eq!(reader.read(name).unwrap().as_ref(), Some(content), "{name}");
        }
        let listed = reader.list().unwrap();
        assert_eq!(listed.len(), files.len());
        assert!(listed.iter().all(|file| file.state == FileState::Whole));
        assert_eq!(folder(shelf, "other#1").list().unwrap(), []);
    }
    let (taken, other) = (&files[6].0, content(18 << 20));
    assert!(writer.write(taken, &other).is_err());
    assert_eq!(writer.read(taken).unwrap().as_ref(), Some(&files[6].1));
    shelves[2].clear(JOB).unwrap();
    assert_eq!(writer.list().unwrap(), []);
    assert_eq!(shelves[1].jobs().unwrap(), ["other#1"]);
}

#[test]
fn a_member_that_dies_takes_nothing_with_it() {
    let shelves = shelves(3);
    let writer = folder(&shelves[0], JOB);
    let file = |number: usize| (name(&format!("f{number}")), content(number * 50_000));
    let files: Vec<_> = (0..30).map(file).collect();
    writer.write_all(&files).unwrap();
    let before = losses(&shelves[1]);
    shelves[0].close(died());
    assert_eq!(
        writer.read(&files[0].0).unwrap_err().code(),
        ErrorCode::ReadFailed
    );
    let reader = folder(&shelves[1], JOB);
    for (name, content) in &files {
        assert_eq!(reader.read(name).unwrap().as_ref(), Some(content), "{name}");
    }
    reader.write(&name("more"), &content(100_000)).unwrap();
    assert_eq!(reader.list().unwrap().len(), files.len() + 1);
    assert_eq!(losses(&shelves[1]), before);
}

fn losses(shelter: &dyn GridStoreClient) -> LossCounters {
    match shelter.request(JOB, StoreRequest::Losses).unwrap() {
        StoreResponse::Losses(losses) => losses,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_dead_writer_has_left_is_found_and_removed() {
    let shelves = shelves(2);
    let folder = folder(&shelves[0], JOB);
    let mark = FileMark {
        file: "a".into(),
        writer: 7,
        bytes: 100_000,
    };
    let key = format!("a/{:016x}/0", 7);
    let lay = StoreRequest::Lay {
        marks: vec![mark],
        pieces: vec![(key.clone(), content(100_000))],
    };
    shelves[0].request(JOB, lay).unwrap();
    let is_laid = || match shelves[1].request(JOB, StoreRequest::Pieces(vec![key.clone()])) {
        Ok(StoreResponse::Pieces(pieces)) => pieces[0].is_some(),
        other => panic!("{other:?}"),
    };
    let listed = folder.list().unwrap();
    let [left] = &listed[..] else {
        panic!("it is listed");
    };
    assert_eq!(
        (left.state, left.bytes),
        (FileState::Unfinished(7), 100_000)
    );
    assert!(is_laid() && folder.read(&name("a")).unwrap().is_none());
    folder.remove(&[(name("a"), left.state)]).unwrap();
    assert!(!is_laid() && folder.list().unwrap().is_empty());
}

#[test]
fn what_has_its_name_is_not_removed_as_unfinished() {
    let shelves = shelves(2);
    let folder = folder(&shelves[0], JOB);
    folder.write(&name("a"), &content(100_000)).unwrap();
    let told = shelves[0]
        .request(JOB, StoreRequest::Read("a".into()))
        .unwrap();
    let StoreResponse::File(Some(Head::Large(mark)), _) = told else {
        panic!("{told:?}");
    };
    // As if its writer had died right after it had named the file.
    let lay = StoreRequest::Lay {
        marks: vec![mark.clone()],
        pieces: Vec::new(),
    };
    shelves[0].request(JOB, lay).unwrap();
    let listed = folder.list().unwrap();
    assert!(listed.len() == 1 && listed[0].state == FileState::Whole);
    let state = FileState::Unfinished(mark.writer);
    folder.remove(&[(name("a"), state)]).unwrap();
    assert_eq!(folder.read(&name("a")).unwrap(), Some(content(100_000)));
}

#[test]
fn full_memory_is_told_as_a_full_disk_and_takes_more_when_there_is_room() {
    let grid = Grid::start(GridConfig::new("test").limit_bytes(5 << 20)).unwrap();
    let shelf = LocalGridStore::new();
    shelf.open(grid, 1).unwrap();
    let folder = folder(&shelf, JOB);
    let file = |number: usize| name(&format!("f{number}"));
    let error = (0..10)
        .find_map(|number| folder.write(&file(number), &content(1 << 20)).err())
        .expect("it is full");
    assert_eq!(error.code(), ErrorCode::DiskFull);
    assert!(
        error.to_string().contains("cluster.checkpoint_memory"),
        "{error}"
    );
    let listed = folder.list().unwrap().into_iter();
    let listed: Vec<_> = listed.map(|file| (file.name, file.state)).collect();
    assert!((1..10).contains(&listed.len()), "{listed:?}");
    folder.remove(&listed).unwrap();
    folder.write(&file(11), &content(1 << 20)).unwrap();
}

#[test]
fn hosts_have_a_part_when_a_job_wants_it_and_workers_find_what_is_there_whoever_dies() {
    let cluster = Cluster::new();
    let ((first, shelf), (second, other)) = (cluster.host(), cluster.host());
    assert!(!shelf.is_open() && !other.is_open(), "nobody wants it");
    cluster.want(&shelf).unwrap();
    cluster.want(&other).unwrap();
    until_settled(&shelf, 2);
    until_settled(&other, 2);
    assert!(shelf.is_first() != other.is_first());

    let worker = cluster.worker();
    let folder = GridObjectStore::new(Arc::clone(&worker) as Arc<dyn GridStoreClient>, JOB);
    let (small, large) = (content(100), content(3 << 20));
    folder.write(&name("small"), &small).unwrap();
    folder.write(&name("large"), &large).unwrap();
    let is_whole = || {
        assert_eq!(folder.read(&name("small")).unwrap().as_ref(), Some(&small));
        assert_eq!(folder.read(&name("large")).unwrap().as_ref(), Some(&large));
    };
    is_whole();
    let before = losses(&*worker);

    // One of two members continues alone, since the other's session has ended.
    drop(first);
    is_whole();
    folder.write(&name("more"), &small).unwrap();
    assert_eq!(losses(&*worker), before);

    // Another host joins, and all replicas are restored.
    let (third, shelf) = cluster.host();
    until_settled(&shelf, 2);
    cluster.runtime.block_on(second.close());
    is_whole();
    assert_eq!(losses(&*worker), before);

    // All data is lost with the last member, and the loss counters show it.
    drop(third);
    let (_fourth, _) = cluster.host();
    assert_eq!(folder.read(&name("small")).unwrap(), None);
    assert_ne!(losses(&*worker), before);
}

#[test]
fn who_is_left_of_too_few_begins_anew() {
    let cluster = Cluster::new();
    let hosts = [cluster.host(), cluster.host(), cluster.host()];
    for (_, shelf) in &hosts {
        cluster.want(shelf).unwrap();
    }
    hosts.iter().for_each(|(_, shelf)| until_settled(shelf, 3));
    let [first, second, _third] = hosts;
    drop((first, second));
    let worker = cluster.worker();
    let folder = GridObjectStore::new(worker as Arc<dyn GridStoreClient>, JOB);
    soon("it takes something again", || {
        folder.write(&name("a"), b"b").is_ok()
    });
}
