//! Tests of jobs with maps of a grid of two members in this process.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ardea_connectors::collections::items;
use ardea_connectors::for_each::for_each;
use ardea_connectors::grid::{
    Change, Grid, GridConfig, GridMap, NearCache, changes, contents, lookup, merge, put, remove,
    update,
};
use ardea_core::{Delivery, Epoch, ErrorCode, Instance, Parallelism, Result};
use ardea_engine::{JobConfig, Node, NodeConfig};
use ardea_pipeline::Pipeline;
use ardea_testkit::{CapturedEpoch, ExternalHarness};

const SOON: Duration = Duration::from_secs(60);

fn config() -> GridConfig {
    GridConfig::new("test")
        // Members delayed by a busy machine must not be removed quickly.
        .failure_timeout(Duration::from_secs(5))
        .function("add", |had: Option<u64>, more: u64| {
            Ok(Some(had.unwrap_or(0) + more))
        })
        .function("append", |had: Option<String>, more: String| {
            Ok(Some(had.unwrap_or_default() + &more))
        })
}

fn grids() -> [Grid; 2] {
    let first = Grid::start(config()).unwrap();
    let second = Grid::start(config().join([first.endpoint()])).unwrap();
    assert!(first.settled(2, SOON) && second.settled(2, SOON));
    [first, second]
}

fn numbers(grid: &Grid) -> GridMap<u64, u64> {
    grid.map("numbers").unwrap()
}

fn content(map: &GridMap<u64, u64>) -> BTreeMap<u64, u64> {
    let mut all = BTreeMap::new();
    map.scan(|key, value| {
        all.insert(key, value);
        true
    })
    .unwrap();
    all
}

/// Polls a condition until it holds; panics after a timeout.
fn soon(what: &str, mut is_it: impl FnMut() -> bool) {
    let until = Instant::now() + SOON;
    while !is_it() {
        assert!(Instant::now() < until, "{what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

#[test]
fn a_map_is_what_the_records_say_last() -> Result<()> {
    let [first, second] = grids();
    let map = numbers(&first);
    let p = Pipeline::new("put");
    // Each key occurs ten times; its last value is nine.
    let records: Vec<(u64, u64)> = (0..2_000).map(|n| (n % 200, n / 200)).collect();
    p.read_from(items(records))
        .write_to(put(&map, |record: &(u64, u64)| *record));
    p.run()?;
    let wanted: BTreeMap<u64, u64> = (0..200).map(|key| (key, 9)).collect();
    assert_eq!(content(&numbers(&second)), wanted);

    let p = Pipeline::new("update");
    let news: Vec<u64> = (0..200).collect();
    p.read_from(items(news)).write_to(update(&map, |key: &u64| {
        (*key, (key.is_multiple_of(2)).then_some(*key))
    }));
    p.run()?;
    let wanted: BTreeMap<u64, u64> = (0..100).map(|n| (2 * n, 2 * n)).collect();
    assert_eq!(content(&map), wanted);

    let p = Pipeline::new("remove");
    p.read_from(items((0..200).collect::<Vec<u64>>()))
        .write_to(remove(&map, |key: &u64| *key));
    p.run()?;
    assert!(content(&map).is_empty());
    Ok(())
}

#[test]
fn the_last_record_of_a_key_stays_however_many_instances_write() -> Result<()> {
    let [first, second] = grids();
    let map = numbers(&first);
    let p = Pipeline::new("put");
    let records: Vec<(u64, u64)> = (0..100_000).map(|n| (n % 10, n)).collect();
    let four = Parallelism::Exactly(NonZeroU32::MIN.saturating_add(3));
    let sink = put(&map, |record: &(u64, u64)| *record).parallelism(four);
    p.read_from(items(records)).write_to(sink);
    p.run()?;
    let wanted: BTreeMap<u64, u64> = (0..10).map(|key| (key, 99_990 + key)).collect();
    assert_eq!(content(&numbers(&second)), wanted);
    Ok(())
}

#[test]
fn a_function_is_applied_in_order_for_each_record() -> Result<()> {
    let [first, _second] = grids();
    let sums = numbers(&first);
    let p = Pipeline::new("sums");
    p.read_from(items((0..1_000).collect::<Vec<u64>>()))
        .write_to(merge(&sums, "add", |n: &u64| (n % 7, *n)));
    p.run()?;
    assert_eq!(content(&sums).values().sum::<u64>(), 999 * 1_000 / 2);

    let texts = first.map::<u64, String>("texts")?;
    let p = Pipeline::new("texts");
    let letters: Vec<char> = ('a'..='z').collect();
    p.read_from(items(letters))
        .write_to(merge(&texts, "append", |letter: &char| {
            (1_u64, letter.to_string())
        }));
    p.run()?;
    let all: String = ('a'..='z').collect();
    assert_eq!(texts.get(&1)?, Some(all));

    let p = Pipeline::new("unknown");
    p.read_from(items([1_u64]))
        .write_to(merge(&sums, "sing", |n: &u64| (*n, *n)));
    assert_eq!(p.run().unwrap_err().code(), ErrorCode::UserError);
    Ok(())
}

#[test]
fn sinks_say_what_they_give() {
    let [first, _second] = grids();
    let map = numbers(&first);
    let delivery = |sink: ardea_core::Sink<(u64, u64)>| sink.into_parts().1.delivery();
    let set = put(&map, |record: &(u64, u64)| *record);
    assert_eq!(delivery(set), Some(Delivery::Idempotent));
    let add = merge(&map, "add", |record: &(u64, u64)| *record);
    assert_eq!(delivery(add), Some(Delivery::AtLeastOnce));
}

#[test]
fn all_that_a_map_has_is_read_by_one_instance_or_several() -> Result<()> {
    let [first, second] = grids();
    let map = numbers(&first);
    let wanted: BTreeMap<u64, u64> = (0..3_000).map(|key| (key, key * key)).collect();
    map.put_all(&wanted)?;
    for parallelism in [1, 3] {
        let p = Pipeline::new("list");
        let count = NonZeroU32::new(parallelism).unwrap();
        let source = contents(&numbers(&second)).parallelism(Parallelism::Exactly(count));
        let all = p.read_from(source).collect();
        p.run()?;
        assert!(all.take_sorted().into_iter().eq(wanted.clone()));
    }
    Ok(())
}

#[test]
fn what_has_been_read_of_a_map_is_not_read_again_by_another_life() {
    let [first, _second] = grids();
    let map = numbers(&first);
    let entries: BTreeMap<u64, u64> = (0..3_000).map(|key| (key, key)).collect();
    map.put_all(&entries).unwrap();
    let (_, supplier, _, _) = contents(&map).into_parts();
    let of = |index, parallelism| Instance { index, parallelism };
    let mut read: Vec<(u64, u64)> = Vec::new();
    let mut kept: Option<CapturedEpoch> = None;
    // One instance, then two, then one again. Each instance reads some records before its snapshot,
    // and further ones, which do not count, before it crashes.
    for (epoch, parallelism) in [(1, 1), (2, 2), (3, 1)] {
        let mut all = Vec::new();
        for index in 0..parallelism {
            let instance = of(index, parallelism);
            let mut driven = ExternalHarness::begin(&supplier, "job", instance, kept.as_ref());
            driven.read(400 + 7 * epoch as usize, &mut read);
            all.push(driven.end_epoch(Epoch(epoch), true));
            driven.read(50, &mut Vec::<(u64, u64)>::new());
        }
        kept = Some(CapturedEpoch::merge(all));
    }
    let mut driven = ExternalHarness::begin(&supplier, "job", of(0, 1), kept.as_ref());
    while !driven.try_read(100, &mut read).unwrap() {}
    read.sort_unstable();
    assert!(read.into_iter().eq(entries));
}

#[test]
fn whoever_follows_the_changes_of_a_map_knows_what_it_has() -> Result<()> {
    let [first, second] = grids();
    let map = numbers(&first);
    map.put_all(&BTreeMap::from([(1, 10), (2, 20), (3, 30)]))?;
    let mirror: Arc<Mutex<BTreeMap<u64, u64>>> = Arc::default();
    let its = Arc::clone(&mirror);
    let p = Pipeline::new("follow");
    p.read_from(changes(&numbers(&second)))
        .write_to(for_each(move |change| {
            let mut mirror = its.lock().unwrap();
            match change {
                Change::Added(key, value) | Change::Updated(key, value) => {
                    mirror.insert(key, value);
                }
                Change::Removed(key) => {
                    mirror.remove(&key);
                }
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
    map.put(&2, &21)?;
    map.remove(&3)?;
    map.put(&4, &40)?;
    shows(BTreeMap::from([(1, 10), (2, 21), (4, 40)]));
    // Changes lost with a member are found by reading again.
    let gone = first.id();
    drop(first);
    second.report_dead(gone);
    soon("it can be written", || {
        numbers(&second).put(&5, &50).is_ok()
    });
    shows(BTreeMap::from([(1, 10), (2, 21), (4, 40), (5, 50)]));
    job.cancel();
    let _ = job.join();
    Ok(())
}

#[test]
fn records_are_joined_in_order_wherever_the_map_has_its_entries() -> Result<()> {
    let [first, second] = grids();
    let squares: BTreeMap<u64, u64> = (0..1_000).map(|key| (2 * key, key)).collect();
    numbers(&first).put_all(&squares)?;
    let near = numbers(&second).near_cache(NearCache::new())?;
    for map in [numbers(&second), near.clone(), near.clone()] {
        let p = Pipeline::new("join");
        let found = p
            .read_from(items((0..5_000_u64).collect::<Vec<_>>()))
            .custom::<(u64, Option<u64>), _>(
                "half",
                lookup(&map, |n: &u64| *n, |n, half| (n, half)),
            )
            .collect();
        p.run()?;
        let found = found.take();
        assert_eq!(found.len(), 5_000);
        for (at, (n, half)) in (0_u64..).zip(found) {
            assert_eq!((at, half), (n, squares.get(&n).copied()));
        }
    }
    assert!(near.near_hits() > 100);
    Ok(())
}
