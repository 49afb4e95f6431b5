//! Maps of a cluster as used by workers, over connections to hosts that crash.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use ardea_core::{ErrorCode, PartitionId, Waker};
use ardea_grid::cluster::{ClusterListener, ClusterMap, set_map_client};
use ardea_grid::node::{MapEvent, Read};

mod cluster;

use cluster::{Cluster, soon, until_settled};

const SOON: Duration = Duration::from_secs(60);

/// Timeout of one wait for an event.
const TURN: Duration = Duration::from_millis(50);

type Texts = ClusterMap<u64, String>;

/// Local copy of a map, maintained from its events.
#[derive(Default)]
struct Mirror {
    entries: BTreeMap<PartitionId, BTreeMap<u64, String>>,
    unread: Vec<PartitionId>,
    missed: usize,
}

impl Mirror {
    /// Processes the next event, or reads a missed partition. Returns true if there was anything.
    fn follow(&mut self, map: &Texts, news: &ClusterListener<u64, String>) -> bool {
        if let Some(partition) = self.unread.last().copied() {
            let mut there = BTreeMap::new();
            let read = map.scan_partition(partition, |key, value| drop(there.insert(key, value)));
            if read.is_ok() {
                self.unread.pop();
                self.entries.insert(partition, there);
            }
            return read.is_ok();
        }
        match news.next(TURN) {
            Ok(Some(MapEvent::Added(key, value) | MapEvent::Updated(key, value))) => {
                let partition = map.partition_of(&key).unwrap();
                let known = self.entries.entry(partition).or_default();
                known.insert(key, value);
            }
            Ok(Some(MapEvent::Removed(key))) => {
                let partition = map.partition_of(&key).unwrap();
                self.entries.entry(partition).or_default().remove(&key);
            }
            Ok(Some(MapEvent::Missed(partitions))) => {
                self.missed += 1;
                self.unread = partitions;
            }
            Ok(None) => return false,
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::StateUnavailable, "{error}");
                return false;
            }
        }
        true
    }

    /// Follows the map until the copy has the expected content.
    fn until(
        &mut self,
        wanted: &BTreeMap<u64, String>,
        map: &Texts,
        news: &ClusterListener<u64, String>,
    ) {
        soon("whoever follows has what the map has", || {
            while self.follow(map, news) {}
            let known = self.entries.values().flatten().collect::<BTreeMap<_, _>>();
            self.unread.is_empty() && known.into_iter().eq(wanted)
        });
    }
}

/// Returns the number of threads of this process with this name.
fn threads(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|its| its.trim() == name).count()
}

/// A single test, since there is one store client per process.
#[test]
fn whoever_follows_a_map_or_reads_it_goes_on_whichever_host_dies() {
    let cluster = Cluster::new();
    let ((first, shelf), (second, other)) = (cluster.host(), cluster.host());
    cluster.want(&shelf).unwrap();
    cluster.want(&other).unwrap();
    until_settled(&shelf, 2);
    until_settled(&other, 2);
    set_map_client(cluster.worker());
    let map = Texts::new("texts").unwrap();

    what_happens_is_told_in_order(&map);
    many_are_read_at_a_time(&map);

    let news = map.listen().unwrap();
    let (mut mirror, mut wanted) = (Mirror::default(), BTreeMap::new());
    // More than fits into a message and into the event queue.
    let long = "x".repeat(10_000);
    let many: BTreeMap<u64, String> = (0..2_500)
        .map(|key| (key, format!("{key} {long}")))
        .collect();
    map.write(many.iter().map(|(key, value)| (key, Some(value))))
        .unwrap();
    wanted.extend(many);
    mirror.until(&wanted, &map, &news);

    // Each host is dropped in turn, so one of them was sending the events.
    let missed = mirror.missed;
    drop(first);
    let write = |key: u64, wanted: &mut BTreeMap<u64, String>| {
        let value = format!("written as {key}");
        map.put(&key, &value).unwrap();
        wanted.insert(key, value);
        map.remove(&(key + 1)).unwrap();
        wanted.remove(&(key + 1));
    };
    write(7, &mut wanted);
    mirror.until(&wanted, &map, &news);
    let (third, shelf) = cluster.host();
    until_settled(&shelf, 2);
    cluster.runtime.block_on(second.close());
    write(70, &mut wanted);
    mirror.until(&wanted, &map, &news);
    assert!(mirror.missed > missed);

    // All data is lost with the last host; the watch continues with the next one.
    drop(third);
    let error = news.next(SOON).unwrap_err();
    assert_eq!(error.code(), ErrorCode::StateUnavailable);
    who_does_not_read_any_more_waits_for_nobody(&map);
    let (_fourth, _) = cluster.host();
    mirror.until(&BTreeMap::new(), &map, &news);
    map.put(&1, &"again".to_string()).unwrap();
    mirror.until(&BTreeMap::from([(1, "again".to_string())]), &map, &news);

    assert!(threads("ardea-map-news") > 0);
    drop(news);
    soon("nothing is told any more", || {
        threads("ardea-map-news") == 0
    });
}

fn what_happens_is_told_in_order(map: &Texts) {
    let news = map.listen().unwrap();
    let text = |text: &str| text.to_string();
    let told = || news.next(SOON).unwrap();
    map.put(&1, &text("a")).unwrap();
    assert_eq!(told(), Some(MapEvent::Added(1, text("a"))));
    // Longer than the timeout without heartbeats.
    assert_eq!(news.next(Duration::from_secs(6)).unwrap(), None);
    map.put(&1, &text("b")).unwrap();
    assert_eq!(told(), Some(MapEvent::Updated(1, text("b"))));
    map.remove(&1).unwrap();
    assert_eq!(told(), Some(MapEvent::Removed(1)));
}

fn many_are_read_at_a_time(map: &Texts) {
    map.put(&1, &"one".to_string()).unwrap();
    let mut reads = map.reads(Waker::none());
    let mut left = BTreeMap::new();
    for key in 0..2_000_u64 {
        match reads.get(&(key % 10)).unwrap() {
            Read::Later(number) => left.insert(number, key % 10),
            other => panic!("{other:?}"),
        };
    }
    soon("all are answered", || {
        while let Some((number, value)) = reads.answer() {
            let key = left.remove(&number).unwrap();
            let wanted = (key == 1).then(|| "one".to_string());
            assert_eq!(value.unwrap(), wanted);
        }
        left.is_empty()
    });
    map.remove(&1).unwrap();
    drop(reads);
    soon("its thread has ended", || threads("ardea-map-reads") == 0);
}

/// Without a host that responds.
fn who_does_not_read_any_more_waits_for_nobody(map: &Texts) {
    let mut reads = map.reads(Waker::none());
    assert!(matches!(reads.get(&1).unwrap(), Read::Later(_)));
    soon("its thread asks", || threads("ardea-map-reads") == 1);
    drop(reads);
    // The request is outstanding.
    assert_eq!(threads("ardea-map-reads"), 1);
}
