//! Maps of a cluster, as used by jobs and by users.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, PARTITION_COUNT, Waker};
use ardea_grid::cluster::{
    ClusterMap, Filter, JsonChange, LocalGridStore, MapService, set_map_client,
};
use ardea_grid::node::{Grid, GridConfig, MapEvent, Read};
use serde::{Deserialize, Serialize};
use serde_json::json;

const SOON: Duration = Duration::from_secs(60);

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Ship {
    flag: String,
    tons: u32,
}

/// A later version of the ship type.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Manned {
    flag: String,
    tons: u32,
    #[serde(default)]
    crew: u32,
}

fn ship(flag: &str, tons: u32) -> Ship {
    let flag = flag.to_string();
    Ship { flag, tons }
}

fn shelf(config: GridConfig) -> LocalGridStore {
    let shelf = LocalGridStore::new();
    shelf.open(Grid::start(config).unwrap(), 1).unwrap();
    shelf
}

/// A single test, since there is one store client per process.
#[test]
fn jobs_and_people_see_the_same_map() {
    let shelf = shelf(GridConfig::new("test").limit_guest_bytes(4 << 20));
    set_map_client(Arc::new(shelf.clone()));
    let desk = MapService::new(&shelf);
    assert_eq!(desk.list().unwrap(), []);
    let missing = desk.get("ships", "seagull").unwrap_err();
    assert_eq!(missing.code(), ErrorCode::NoSuchEntry);

    let ships = ClusterMap::<String, Ship>::new("ships").unwrap();
    let key = |name: &str| name.to_string();
    ships.put(&key("seagull"), &ship("NO", 7)).unwrap();
    assert_eq!(ships.get(&key("seagull")).unwrap(), Some(ship("NO", 7)));
    let found = desk.get("ships", "seagull").unwrap().unwrap();
    assert_eq!(found.value, json!({ "flag": "NO", "tons": 7 }));
    let listed = desk.list().unwrap();
    assert_eq!((listed[0].name.as_str(), listed[0].entries), ("ships", 1));
    assert!(listed[0].bytes > 0);

    what_happens_is_told_to_who_watches(&desk, &ships);
    what_happens_is_told_to_jobs(&ships);
    many_are_read_by_who_must_not_wait(&ships);
    several_are_combined(&ships);
    the_types_of_a_map_are_checked(&desk);
    all_is_read_by_partitions(&ships);
    who_takes_too_much_is_refused(&desk, &ships);

    desk.drop_map("ships").unwrap();
    assert_eq!(
        desk.drop_map("ships").unwrap_err().code(),
        ErrorCode::NoSuchEntry
    );
    // The next use creates the map again.
    ships.put(&key("tern"), &ship("SE", 1)).unwrap();
    assert_eq!(
        desk.scan("ships", &Filter::default(), 9)
            .unwrap()
            .entries
            .len(),
        1
    );
    who_listens_goes_on_by_another_member(&shelf, &ships);
}

fn what_happens_is_told_to_who_watches(desk: &MapService, ships: &ClusterMap<String, Ship>) {
    let norse = Filter::new(None, Some("flag=NO")).unwrap();
    let watch = desk.watch("ships", norse).unwrap();
    desk.put("ships", "gannet", json!({ "flag": "SE", "tons": 1 }))
        .unwrap();
    desk.put("ships", "gannet", json!({ "flag": "NO", "tons": 1 }))
        .unwrap();
    ships.remove(&"gannet".to_string()).unwrap();
    let mut told = Vec::new();
    while told.len() < 2 {
        told.extend(watch.next(SOON).unwrap());
    }
    assert!(
        matches!(&told[0], JsonChange::Updated(entry) if entry.value["flag"] == "NO"),
        "{told:?}"
    );
    assert_eq!(
        told[1],
        JsonChange::Removed {
            key: json!("gannet")
        }
    );
}

fn what_happens_is_told_to_jobs(ships: &ClusterMap<String, Ship>) {
    let manned = ClusterMap::<String, Manned>::new("ships").unwrap();
    let news = manned.listen().unwrap();
    let key = || "petrel".to_string();
    let had = |tons: u32| Manned {
        flag: "IS".into(),
        tons,
        crew: 0,
    };
    let told = || news.next(SOON).unwrap();
    ships.put(&key(), &ship("IS", 1)).unwrap();
    assert_eq!(told(), Some(MapEvent::Added(key(), had(1))));
    ships.put(&key(), &ship("IS", 2)).unwrap();
    assert_eq!(told(), Some(MapEvent::Updated(key(), had(2))));
    ships.remove(&key()).unwrap();
    assert_eq!(told(), Some(MapEvent::Removed(key())));
    assert_eq!(news.next(Duration::ZERO).unwrap(), None);
}

fn many_are_read_by_who_must_not_wait(ships: &ClusterMap<String, Ship>) {
    let (waker, woken) = {
        let (told, woken) = std::sync::mpsc::channel();
        (Waker::new(move || told.send(()).unwrap_or_default()), woken)
    };
    let mut reads = ships.reads(waker);
    ships.put(&"puffin".to_string(), &ship("FO", 5)).unwrap();
    let name = |number: u64| ["puffin", "auk"][number as usize % 2].to_string();
    let mut left = std::collections::BTreeMap::new();
    for number in 0..1_000 {
        match reads.get(&name(number)).unwrap() {
            Read::Later(its) => left.insert(its, number),
            other => panic!("{other:?}"),
        };
    }
    while !left.is_empty() {
        woken.recv_timeout(SOON).unwrap();
        while let Some((its, value)) = reads.answer() {
            let number = left.remove(&its).unwrap();
            let wanted = number.is_multiple_of(2).then(|| ship("FO", 5));
            assert_eq!(value.unwrap(), wanted, "{number}");
        }
    }
    let error = reads.get(&"x".repeat(2 << 20)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::UserError);
    ships.remove(&"puffin".to_string()).unwrap();
}

fn who_listens_goes_on_by_another_member(shelf: &LocalGridStore, ships: &ClusterMap<String, Ship>) {
    let news = ships.listen().unwrap();
    shelf.close(Error::new(ErrorCode::StateUnavailable, "it has died"));
    let error = news.next(SOON).unwrap_err();
    assert_eq!(error.code(), ErrorCode::StateUnavailable);
    shelf
        .open(Grid::start(GridConfig::new("test")).unwrap(), 2)
        .unwrap();
    let Some(MapEvent::Missed(all)) = news.next(SOON).unwrap() else {
        panic!("it is told that something was missed");
    };
    assert_eq!(all.len(), PARTITION_COUNT as usize);
    let tern = ("tern".to_string(), ship("SE", 2));
    ships.put(&tern.0, &tern.1).unwrap();
    assert_eq!(
        news.next(SOON).unwrap(),
        Some(MapEvent::Added(tern.0, tern.1))
    );
}

fn several_are_combined(ships: &ClusterMap<String, Ship>) {
    let add = |had: Option<Ship>, more: &u32| ship("DK", had.map_or(0, |had| had.tons) + more);
    let entries = || {
        (0..50)
            .map(|number| (format!("loaded {number}"), 2))
            .collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| ships.merge_all(entries(), add).unwrap());
        }
    });
    let keys: Vec<String> = entries().into_iter().map(|(key, _)| key).collect();
    let values = ships.get_all(&keys).unwrap();
    assert!(
        values.iter().all(|value| *value == Some(ship("DK", 8))),
        "{values:?}"
    );
    ships.write(keys.iter().map(|key| (key, None))).unwrap();
}

fn the_types_of_a_map_are_checked(desk: &MapService) {
    let numbered = ClusterMap::<u32, Ship>::new("ships").unwrap();
    let error = numbered.put(&7, &ship("NO", 7)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidConfig);
    assert!(
        error
            .to_string()
            .contains("has keys of type text, and not u32"),
        "{error}"
    );
    let error = desk
        .put("ships", "tern", json!({ "flag": 1, "tons": 1 }))
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::BadRequest);
    assert!(error.to_string().contains("flag: 1 is no text"), "{error}");
    for name in ["", "a\nb", &"x".repeat(300)] {
        assert!(ClusterMap::<u32, u32>::new(name).is_err(), "{name:?}");
    }
}

fn all_is_read_by_partitions(ships: &ClusterMap<String, Ship>) {
    let names: Vec<String> = (0..500).map(|number| format!("many {number}")).collect();
    let value = ship("FI", 3);
    ships
        .write(names.iter().map(|name| (name, Some(&value))))
        .unwrap();
    let mut found = Vec::new();
    ships.scan(|name, _| found.push(name)).unwrap();
    found.retain(|name| name.starts_with("many"));
    found.sort();
    found.dedup();
    assert_eq!(found.len(), names.len());
}

fn who_takes_too_much_is_refused(desk: &MapService, ships: &ClusterMap<String, Ship>) {
    let large = ship(&"x".repeat(1 << 20), 1);
    let error = ships.put(&"large".to_string(), &large).unwrap_err();
    assert_eq!(error.code(), ErrorCode::UserError);
    let heavy = ship(&"x".repeat(500_000), 1);
    let put = |number: u32| ships.put(&format!("heavy {number}"), &heavy).err();
    let error = (0..20).find_map(put).expect("it is full");
    assert_eq!(error.code(), ErrorCode::LimitReached);
    assert!(error.to_string().contains("cluster.map_memory"), "{error}");
    let heavy = Filter::new(Some("heavy".into()), None).unwrap();
    let found = desk.scan("ships", &heavy, 100).unwrap();
    assert!(found.entries.len() > 2 && !found.more);
    assert!(desk.scan("ships", &heavy, 2).unwrap().more);
}
