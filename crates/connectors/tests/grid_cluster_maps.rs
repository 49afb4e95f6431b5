//! Tests of jobs with cluster maps. A host in this process serves the maps, and is stopped and
//! started.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ardea_connectors::collections::items;
use ardea_connectors::for_each::for_each;
use ardea_connectors::grid::{Change, ClusterMap, Grid, GridConfig, changes, lookup, put};
use ardea_core::{Error, ErrorCode, Instance, Result};
use ardea_engine::{JobConfig, Node, NodeConfig};
use ardea_grid::cluster::{LocalGridStore, set_map_client};
use ardea_pipeline::Pipeline;

const SOON: Duration = Duration::from_secs(60);

type Numbers = ClusterMap<u64, u64>;

/// Polls a condition until it holds; panics after a timeout.
fn soon(what: &str, mut is_it: impl FnMut() -> bool) {
    let until = Instant::now() + SOON;
    while !is_it() {
        assert!(Instant::now() < until, "{what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

fn host(shelf: &LocalGridStore, life: u64) {
    let grid = Grid::start(GridConfig::new("test")).unwrap();
    shelf.open(grid, life).unwrap();
}

/// A single test, because a process can have only one connection to the maps.
#[test]
fn jobs_look_up_in_maps_of_the_cluster_and_follow_them() -> Result<()> {
    let shelf = LocalGridStore::new();
    host(&shelf, 1);
    set_map_client(Arc::new(shelf.clone()));
    records_are_joined_in_order()?;
    a_key_that_can_not_be_one_fails_the_job();
    what_can_not_be_read_at_the_moment_is_waited_for(&shelf)?;
    whoever_follows_knows_what_a_map_has(&shelf)?;
    who_follows_a_map_promises_to_keep_nothing()
}

fn records_are_joined_in_order() -> Result<()> {
    let squares = Numbers::new("squares")?;
    let p = Pipeline::new("squares");
    let entries: Vec<(u64, u64)> = (0..1_000).map(|n| (2 * n, n * n)).collect();
    p.read_from(items(entries.clone()))
        .write_to(put(&squares, |entry: &(u64, u64)| *entry));
    p.run()?;
    let squares_of: BTreeMap<u64, u64> = entries.into_iter().collect();
    let p = Pipeline::new("join");
    // Some keys occur often.
    let records = (0..10_000_u64).map(|n| n % 3_000).collect::<Vec<_>>();
    let found = p
        .read_from(items(records.clone()))
        .custom::<(u64, Option<u64>), _>(
            "square",
            lookup(&squares, |n: &u64| *n, |n, square| (n, square)),
        )
        .collect();
    p.run()?;
    let wanted = records.iter().map(|n| (*n, squares_of.get(n).copied()));
    assert_eq!(found.take(), wanted.collect::<Vec<_>>());
    Ok(())
}

fn a_key_that_can_not_be_one_fails_the_job() {
    let texts = ClusterMap::<String, u64>::new("texts").unwrap();
    let p = Pipeline::new("long");
    p.read_from(items([2_usize << 20]))
        .custom::<Option<u64>, _>(
            "texts",
            lookup(
                &texts,
                |length: &usize| "x".repeat(*length),
                |_, found| found,
            ),
        )
        .collect();
    assert_eq!(p.run().unwrap_err().code(), ErrorCode::UserError);
}

fn what_can_not_be_read_at_the_moment_is_waited_for(shelf: &LocalGridStore) -> Result<()> {
    shelf.close(Error::new(ErrorCode::StateUnavailable, "it has died"));
    let later = Numbers::new("later")?;
    let p = Pipeline::new("waits");
    let found = p
        .read_from(items((0..100_u64).collect::<Vec<_>>()))
        .custom::<(u64, Option<u64>), _>("later", lookup(&later, |n: &u64| *n, |n, had| (n, had)))
        .collect();
    let node = Node::start(NodeConfig::default())?;
    let job = p.submit(&node, JobConfig::default())?;
    host(shelf, 2);
    job.join()?;
    let wanted: Vec<(u64, Option<u64>)> = (0..100).map(|n| (n, None)).collect();
    assert_eq!(found.take(), wanted);
    Ok(())
}

fn whoever_follows_knows_what_a_map_has(shelf: &LocalGridStore) -> Result<()> {
    let map = Numbers::new("numbers")?;
    let write = |entries: &[(u64, Option<u64>)]| {
        let entries = entries.iter();
        map.write(entries.map(|(key, value)| (key, value.as_ref())))
    };
    write(&[(1, Some(10)), (2, Some(20)), (3, Some(30))])?;
    let mirror: Arc<Mutex<BTreeMap<u64, u64>>> = Arc::default();
    let its = Arc::clone(&mirror);
    let p = Pipeline::new("follow");
    p.read_from(changes(&map)).write_to(for_each(move |change| {
        let mut mirror = its.lock().unwrap();
        match change {
            Change::Added(key, value) => assert_eq!(mirror.insert(key, value), None),
            Change::Updated(key, value) => assert!(mirror.insert(key, value).is_some()),
            Change::Removed(key) => assert!(mirror.remove(&key).is_some()),
        }
    }));
    let node = Node::start(NodeConfig::default())?;
    let job = p.submit(&node, JobConfig::default())?;
    let shows = |wanted: BTreeMap<u64, u64>| {
        soon("it shows what there is", || {
            *mirror.lock().unwrap() == wanted
        });
    };
    shows(BTreeMap::from([(1, 10), (2, 20), (3, 30)]));
    write(&[(2, Some(21)), (3, None), (4, Some(40))])?;
    shows(BTreeMap::from([(1, 10), (2, 21), (4, 40)]));
    // The new host has no entries; changes are found by reading again.
    shelf.close(Error::new(ErrorCode::StateUnavailable, "it has died"));
    host(shelf, 3);
    write(&[(2, Some(22)), (5, Some(50))])?;
    shows(BTreeMap::from([(2, 22), (5, 50)]));
    write(&[(2, None)])?;
    shows(BTreeMap::from([(5, 50)]));
    job.cancel();
    let _ = job.join();
    Ok(())
}

fn who_follows_a_map_promises_to_keep_nothing() -> Result<()> {
    let (_, supplier, ..) = changes(&Numbers::new("numbers")?).into_parts();
    let instance = Instance {
        index: 0,
        parallelism: 1,
    };
    assert!(supplier.supply(instance)?.unsaved_state().is_some());
    Ok(())
}
