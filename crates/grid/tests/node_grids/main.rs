//! Grids of several members in one process, over TCP.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Token};
use ardea_grid::node::{Grid, GridConfig, GridMap, MapEvent, MapListener, NearCache, RawBytes};
use ardea_network::rpc::Security;

mod driving;
mod rings;

const SOON: Duration = Duration::from_secs(60);

/// Long enough that members are not removed if the machine is busy with many tests.
const SILENCE: Duration = Duration::from_secs(5);

fn config() -> GridConfig {
    GridConfig::new("test")
        .failure_timeout(SILENCE)
        .operation_timeout(SOON)
        .function("append", |had: Option<String>, more: String| {
            match more.as_str() {
                "panic" => panic!("as it was told"),
                "flood" => Ok(Some("x".repeat(17 << 20))),
                "" => Err(Error::new(
                    ErrorCode::UserError,
                    "there is nothing to append",
                )),
                more => Ok(Some(had.unwrap_or_default() + more)),
            }
        })
}

fn grids(count: usize) -> Vec<Grid> {
    grids_of(count, config)
}

fn grids_of(count: usize, config: impl Fn() -> GridConfig) -> Vec<Grid> {
    let first = Grid::start(config()).unwrap();
    let seed = first.endpoint().to_string();
    let mut grids = vec![first];
    for _ in 1..count {
        grids.push(Grid::start(config().join([seed.as_str()])).unwrap());
    }
    for grid in &grids {
        assert!(
            grid.settled(count, SOON),
            "{:?}",
            grid.view().map(|view| view.number)
        );
    }
    grids
}

/// Two members with short timeouts.
fn impatient() -> [Grid; 2] {
    let config = || {
        config()
            .operation_timeout(Duration::from_secs(1))
            .failure_timeout(Duration::from_secs(2))
    };
    let two: Result<[Grid; 2], _> = grids_of(2, config).try_into();
    two.unwrap_or_else(|_| unreachable!("there are two"))
}

fn map(grid: &Grid) -> GridMap<u64, String> {
    grid.map("test").unwrap()
}

/// Polls until the condition holds.
fn soon(what: &str, mut is_it: impl FnMut() -> bool) {
    let until = Instant::now() + SOON;
    while !is_it() {
        assert!(Instant::now() < until, "{what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

#[test]
fn every_member_sees_what_any_has_put() {
    let grids = grids(3);
    let maps: Vec<_> = grids.iter().map(map).collect();
    for key in 0..300_u64 {
        maps[key as usize % 3]
            .put(&key, &format!("value {key}"))
            .unwrap();
    }
    for map in &maps {
        for key in 0..300 {
            assert_eq!(map.get(&key).unwrap(), Some(format!("value {key}")));
        }
        assert_eq!(map.get(&300).unwrap(), None);
        assert_eq!(map.size().unwrap(), 300);
    }
    let keys: Vec<u64> = (0..301).collect();
    let all = maps[1].get_all(&keys).unwrap();
    assert_eq!(all.iter().flatten().count(), 300);
    let mut sum = 0;
    maps[2]
        .scan(|key, value| {
            assert_eq!(value, format!("value {key}"));
            sum += key;
            true
        })
        .unwrap();
    assert_eq!(sum, 299 * 300 / 2);
    maps[0].clear().unwrap();
    assert_eq!(maps[2].size().unwrap(), 0);
}

#[test]
fn many_are_put_where_nothing_is_and_many_are_removed() {
    let grids = grids(2);
    let maps: Vec<_> = grids.iter().map(map).collect();
    maps[0].put(&3, &"mine".to_string()).unwrap();
    let entries: Vec<(u64, String)> = (0..100).map(|key| (key, key.to_string())).collect();
    let pairs = || entries.iter().map(|(key, value)| (key, value));
    let had = maps[1].put_all_if_absent(pairs()).unwrap();
    assert_eq!(had[3].as_deref(), Some("mine"));
    assert_eq!((had.len(), had.iter().flatten().count()), (100, 1));
    assert_eq!(maps[0].get(&3).unwrap().as_deref(), Some("mine"));
    assert_eq!(maps[0].get(&4).unwrap().as_deref(), Some("4"));
    let gone: Vec<u64> = (0..99).collect();
    for _ in 0..2 {
        maps[0].remove_all(&gone).unwrap();
        assert_eq!(maps[1].size().unwrap(), 1);
    }
    assert_eq!(maps[1].get(&99).unwrap().as_deref(), Some("99"));
}

#[test]
fn conditions_hold_at_one_moment_for_all() {
    let grids = grids(2);
    let maps: Vec<_> = grids.iter().map(map).collect();
    assert_eq!(maps[0].put_if_absent(&1, &"a".to_string()).unwrap(), None);
    assert_eq!(
        maps[1].put_if_absent(&1, &"b".to_string()).unwrap(),
        Some("a".to_string())
    );
    assert!(
        !maps[1]
            .replace(&1, &"b".to_string(), &"c".to_string())
            .unwrap()
    );
    assert!(
        maps[1]
            .replace(&1, &"a".to_string(), &"c".to_string())
            .unwrap()
    );
    assert_eq!(maps[0].remove(&1).unwrap(), Some("c".to_string()));
    assert_eq!(maps[1].remove(&1).unwrap(), None);
    let won = std::thread::scope(|scope| {
        let tries: Vec<_> = (0..8)
            .map(|number| {
                let map = maps[number % 2].clone();
                scope.spawn(move || {
                    map.put_if_absent(&7, &number.to_string())
                        .unwrap()
                        .is_none()
                })
            })
            .collect();
        tries
            .into_iter()
            .filter_map(|one| one.join().ok())
            .filter(|won| *won)
            .count()
    });
    assert_eq!(won, 1);
}

#[test]
fn a_function_runs_where_the_key_is_kept() {
    let grids = grids(2);
    for grid in &grids {
        for key in 0..20_u64 {
            map(grid)
                .compute(&key, "append", &"ab".to_string())
                .unwrap();
        }
    }
    assert!((0..20).all(|key| map(&grids[0]).get(&key).unwrap() == Some("abab".to_string())));
}

#[test]
fn a_function_that_nobody_knows_or_that_fails_changes_nothing() {
    let grids = grids(1);
    let map = map(&grids[0]);
    let error = map.compute(&1, "sing", &1_u8).unwrap_err();
    assert_eq!(error.code(), ErrorCode::UserError);
    assert!(error.to_string().contains("sing"), "{error}");
    let error = map.compute(&1, "append", &String::new()).unwrap_err();
    assert!(error.to_string().contains("nothing to append"), "{error}");
    assert_eq!(map.get(&1).unwrap(), None);
}

#[test]
fn a_function_that_panics_or_gives_too_much_harms_nobody() {
    let grids = grids(2);
    for key in 0..4_u64 {
        let map = map(&grids[0]);
        map.put(&key, &"kept".to_string()).unwrap();
        for (argument, told) in [("panic", "panicked"), ("flood", "bytes")] {
            let error = map.compute(&key, "append", &argument.to_string());
            let error = error.unwrap_err();
            assert_eq!(error.code(), ErrorCode::UserError);
            assert!(error.to_string().contains(told), "{error}");
        }
        assert_eq!(map.get(&key).unwrap(), Some("kept".to_string()));
        map.put(&key, &"again".to_string()).unwrap();
    }
}

#[test]
fn a_map_of_bytes_gives_back_what_was_put_however_long_it_is() {
    let grids = grids(2);
    let [first, second] = [&grids[0], &grids[1]].map(|grid| grid.bytes_map::<u64>("b").unwrap());
    let values: Vec<(u64, RawBytes)> = (0..40_u64)
        .map(|key| (key, vec![key as u8; 1 << (key / 2)].into()))
        .collect();
    first
        .put_all(values.iter().map(|(key, value)| (key, value)))
        .unwrap();
    for (key, value) in &values {
        assert_eq!(second.get(key).unwrap().as_ref(), Some(value));
    }
    // Longer and shorter values in their places, then none.
    let swapped: Vec<(u64, RawBytes)> = values
        .iter()
        .map(|(key, value)| (39 - key, value.clone()))
        .collect();
    second
        .put_all(swapped.iter().map(|(key, value)| (key, value)))
        .unwrap();
    let keys: Vec<u64> = swapped.iter().map(|(key, _)| *key).collect();
    let back = first.get_all(&keys).unwrap();
    assert!(
        back.iter()
            .zip(&swapped)
            .all(|(back, (_, put))| back.as_ref() == Some(put))
    );
    let long = vec![0; 17 << 20].into();
    assert_eq!(
        first.put(&1, &long).unwrap_err().code(),
        ErrorCode::LimitReached
    );
    first.remove_all(&keys).unwrap();
    assert_eq!((second.size().unwrap(), second.bytes().unwrap()), (0, 0));
}

#[test]
fn an_entry_that_is_too_large_is_refused_where_it_comes_from() {
    let grids = grids(1);
    let map = map(&grids[0]);
    let large = "x".repeat(17 << 20);
    for error in [
        map.put(&1, &large).unwrap_err(),
        map.put_all([(&2, &String::new()), (&1, &large)])
            .unwrap_err(),
        map.compute(&1, "append", &large).unwrap_err(),
        map.replace(&1, &large, &String::new()).unwrap_err(),
    ] {
        assert_eq!(error.code(), ErrorCode::LimitReached);
    }
}

#[test]
fn a_member_that_listens_everywhere_is_told_that_nobody_can_reach_it() {
    let security = Security::new("test").token(Some(Token::new("sesame")));
    let config = config().security(security).listen("0.0.0.0:0");
    let error = Grid::start(config).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidConfig);
    assert!(error.to_string().contains("reach"), "{error}");
}

#[test]
fn others_reach_a_member_by_the_host_that_it_was_told() {
    let grid = Grid::start(config().listen("localhost:0")).unwrap();
    assert!(grid.endpoint().starts_with("localhost:"));
    let other = Grid::start(config().join([grid.endpoint()])).unwrap();
    assert!(other.settled(2, SOON));
}

#[test]
fn a_member_that_has_stopped_says_so() {
    let grid = Grid::start(config()).unwrap();
    let map = map(&grid);
    map.put(&1, &"one".to_string()).unwrap();
    drop(grid);
    let error = map.put(&1, &"two".to_string()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::StateUnavailable);
}

#[test]
fn nothing_is_lost_when_a_member_of_three_is_gone() {
    let mut grids = grids(3);
    let keys: Vec<u64> = (0..500).collect();
    let values: Vec<String> = keys.iter().map(|key| format!("value {key}")).collect();
    map(&grids[0]).put_all(keys.iter().zip(&values)).unwrap();
    drop(grids.remove(0));
    for grid in &grids {
        assert!(grid.settled(2, SOON));
        let all = map(grid).get_all(&keys).unwrap();
        assert!(all.into_iter().eq(values.iter().cloned().map(Some)));
        let view = grid.view().unwrap();
        assert!(view.records.iter().all(|record| record.losses == 0));
    }
}

#[test]
fn who_leaves_takes_nothing_along_and_who_comes_gets_its_share() {
    let mut all = grids(2);
    let keys: Vec<u64> = (0..500).collect();
    let value = "x".repeat(100);
    map(&all[0])
        .put_all(keys.iter().map(|key| (key, &value)))
        .unwrap();
    let third = Grid::start(config().join([all[1].endpoint()])).unwrap();
    assert!(third.settled(3, SOON));
    let me = third.id();
    let view = third.view().unwrap();
    let primaries = view
        .records
        .iter()
        .filter(|record| record.primary() == Some(me))
        .count();
    assert!(primaries > 200, "{primaries}");
    assert!(all.remove(0).leave(SOON));
    assert!(third.settled(2, SOON));
    assert_eq!(map(&third).size().unwrap(), 500);
    assert!(all.remove(0).leave(SOON));
    assert!(third.settled(1, SOON));
    assert_eq!(map(&third).get(&499).unwrap(), Some(value));
}

#[test]
fn half_of_the_members_say_clearly_that_they_must_not_act_until_the_others_are_proven_dead() {
    let [first, second] = impatient();
    let map = map(&second);
    map.put(&1, &"one".to_string()).unwrap();
    let gone = first.id();
    drop(first);
    // Until it knows that it is alone it reports that the other member cannot be reached.
    soon("it refuses", || {
        let error = map.put(&1, &"two".to_string()).err();
        error.is_some_and(|error| {
            let is_refusal = error.code() == ErrorCode::StateUnavailable;
            is_refusal && error.to_string().contains("majority")
        })
    });
    second.report_dead(gone);
    assert!(second.settled(1, SOON));
    soon("it can be read", || map.get(&1).is_ok());
    assert!(map.get(&1).unwrap().is_some());
    map.put(&1, &"three".to_string()).unwrap();
}

#[test]
fn who_comes_to_the_address_of_a_member_that_is_gone_is_not_taken_for_it() {
    let [first, second] = impatient();
    let map = map(&second);
    let address = first.endpoint().to_string();
    drop(first);
    // A member of another grid with the same name; an unanswered write would remain in doubt.
    let mut another = None;
    soon("the address is free again", || {
        another = Grid::start(config().listen(address.clone())).ok();
        another.is_some()
    });
    for key in 0..8 {
        soon("it refuses", || {
            let error = map.put(&key, &"lost".to_string()).err();
            error.is_some_and(|error| error.code() == ErrorCode::StateUnavailable)
        });
    }
}

#[test]
fn entries_are_gone_when_their_time_is_over() {
    let grids = grids(2);
    let brief = map(&grids[0]).time_to_live(Duration::from_millis(200));
    brief.put(&1, &"brief".to_string()).unwrap();
    map(&grids[0]).put(&2, &"long".to_string()).unwrap();
    soon("it expires", || map(&grids[1]).get(&1).unwrap().is_none());
    soon("it is removed", || map(&grids[1]).size().unwrap() == 1);
}

#[test]
fn a_member_that_is_full_says_so() {
    let grid = Grid::start(config().limit_bytes(10_000)).unwrap();
    let map = map(&grid);
    let error = (0..100).find_map(|key| map.put(&key, &"x".repeat(500)).err());
    let error = error.map(|error| (error.code(), error.to_string()));
    let (code, text) = error.unwrap();
    assert_eq!(code, ErrorCode::LimitReached);
    assert!(text.contains("10000"), "{text}");
    assert_eq!(map.get(&0).unwrap(), Some("x".repeat(500)));
}

#[test]
fn several_grids_live_in_one_process() {
    let one = Arc::new(Grid::start(GridConfig::new("one")).unwrap());
    let other = Grid::start(GridConfig::new("other")).unwrap();
    map(&one).put(&1, &"one".to_string()).unwrap();
    assert_eq!(map(&other).get(&1).unwrap(), None);
}

#[test]
fn a_grid_starts_and_is_used_and_dropped_in_a_task_of_a_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        assert!(Grid::start(config().listen("no address")).is_err());
        let grid = Grid::start(config()).unwrap();
        let map = map(&grid);
        map.put(&1, &"one".to_string()).unwrap();
        assert_eq!(map.get(&1).unwrap(), Some("one".to_string()));
        drop(grid);
    });
}

#[test]
fn a_function_that_uses_a_map_of_a_grid_is_refused_instead_of_waiting_for_itself() {
    let shared: Arc<OnceLock<GridMap<u64, String>>> = Arc::default();
    let its = Arc::clone(&shared);
    let uses = move |_: Option<String>, which: String| {
        let Some(map) = its.get() else {
            return Ok(None);
        };
        match which.as_str() {
            "get" => map.get(&1),
            "put" => map.put(&1, &which).map(|()| None),
            _ => map.size().map(|size| Some(size.to_string())),
        }
    };
    let grid = Grid::start(config().function("uses", uses)).unwrap();
    let map = map(&grid);
    assert!(shared.set(map.clone()).is_ok());
    for which in ["get", "put", "size"] {
        let error = map.compute(&1, "uses", &which.to_string()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::UserError);
        assert!(error.to_string().contains("would wait"), "{error}");
    }
    map.put(&1, &"kept".to_string()).unwrap();
    assert_eq!(map.get(&1).unwrap(), Some("kept".to_string()));
}

#[test]
fn any_number_of_entries_is_put_though_they_do_not_fit_together_into_what_may_be_under_way() {
    let grids = grids(2);
    let map = map(&grids[0]);
    let large = "x".repeat(4 << 20);
    let keys: Vec<u64> = (0..30).collect();
    map.put_all(keys.iter().map(|key| (key, &large))).unwrap();
    assert_eq!(map.size().unwrap(), 30);
    assert_eq!(map.get(&29).unwrap(), Some(large));
}

fn news(listener: &MapListener<u64, String>) -> MapEvent<u64, String> {
    listener.next(SOON).unwrap().unwrap()
}

#[test]
fn who_listens_hears_what_any_member_does_in_order() {
    let grids = grids(3);
    let maps: Vec<_> = grids.iter().map(map).collect();
    maps[0].put(&1, &"before".to_string()).unwrap();
    let listeners: Vec<_> = maps.iter().map(|map| map.listen().unwrap()).collect();
    let of_seven = maps[1].listen_to(&7).unwrap();
    for text in ["a", "b"] {
        maps[2].put(&7, &text.to_string()).unwrap();
    }
    maps[1].remove(&7).unwrap();
    maps[1].remove(&7).unwrap();
    let wanted = [
        MapEvent::Added(7, "a".to_string()),
        MapEvent::Updated(7, "b".to_string()),
        MapEvent::Removed(7),
    ];
    for listener in listeners.iter().chain([&of_seven]) {
        let told: Vec<_> = (0..3).map(|_| news(listener)).collect();
        assert_eq!(told, wanted);
    }
    maps[0].put(&1, &"after".to_string()).unwrap();
    for listener in &listeners {
        assert_eq!(news(listener), MapEvent::Updated(1, "after".to_string()));
    }
    assert_eq!(of_seven.next(Duration::ZERO).unwrap(), None);
}

#[test]
fn who_listens_hears_what_expires() {
    let grids = grids(2);
    let brief = map(&grids[0]).time_to_live(Duration::from_millis(100));
    let listener = map(&grids[1]).listen().unwrap();
    brief.put(&1, &"brief".to_string()).unwrap();
    assert_eq!(news(&listener), MapEvent::Added(1, "brief".to_string()));
    assert_eq!(news(&listener), MapEvent::Removed(1));
}

#[test]
fn who_takes_too_little_is_told_where_to_read_again() {
    let grids = grids(2);
    let map = map(&grids[0]);
    let listener = map.listen().unwrap();
    let large = "x".repeat(1 << 20);
    let keys: Vec<u64> = (0..40).collect();
    map.put_all(keys.iter().map(|key| (key, &large))).unwrap();
    let mut known = Vec::new();
    soon("all is known", || {
        match news(&listener) {
            MapEvent::Added(key, _) => known.push(key),
            MapEvent::Missed(partitions) => map
                .scan_partitions(partitions, |key, _| {
                    known.push(key);
                    true
                })
                .unwrap(),
            other => panic!("{other:?}"),
        }
        known.sort_unstable();
        known.dedup();
        known == keys
    });
}

#[test]
fn who_listens_is_told_that_its_member_has_stopped() {
    let grid = Grid::start(config()).unwrap();
    let listener = map(&grid).listen().unwrap();
    map(&grid).put(&1, &"one".to_string()).unwrap();
    drop(grid);
    assert_eq!(news(&listener), MapEvent::Added(1, "one".to_string()));
    let error = listener.next(SOON).unwrap_err();
    assert_eq!(error.code(), ErrorCode::StateUnavailable);
}

#[test]
fn a_near_cache_is_read_until_somebody_writes() {
    let grids = grids(2);
    let far = map(&grids[0]);
    let config = NearCache::new().staleness(SILENCE);
    let near = map(&grids[1]).near_cache(config).unwrap();
    let keys: Vec<u64> = (0..50).collect();
    let one = "one".to_string();
    far.put_all(keys.iter().map(|key| (key, &one))).unwrap();
    soon("values are found near", || {
        assert!(
            keys.iter()
                .all(|key| near.get(key).unwrap() == Some(one.clone()))
        );
        near.near_hits() >= 10
    });
    // Own writes are visible immediately, others' writes soon.
    for key in &keys {
        near.put(key, &"two".to_string()).unwrap();
        assert_eq!(near.get(key).unwrap().as_deref(), Some("two"));
    }
    far.clear().unwrap();
    soon("nothing is found any more", || {
        keys.iter().all(|key| near.get(key).unwrap().is_none())
    });
}

#[test]
fn what_many_are_read_at_a_time_is_kept_near_too() {
    let grids = grids(2);
    let near = map(&grids[1]).near_cache(NearCache::new()).unwrap();
    let keys: Vec<u64> = (0..100).collect();
    let one = "one".to_string();
    map(&grids[0])
        .put_all(keys.iter().map(|key| (key, &one)))
        .unwrap();
    soon("values are found near", || {
        let all = near.get_all(&keys).unwrap();
        assert!(all.iter().all(|value| value.as_ref() == Some(&one)));
        near.near_hits() >= 10
    });
}

#[test]
fn a_near_cache_that_hears_nothing_any_more_is_not_read() {
    let [first, second] = impatient();
    let near = map(&second).near_cache(NearCache::new()).unwrap();
    let keys: Vec<u64> = (0..50).collect();
    let one = "one".to_string();
    near.put_all(keys.iter().map(|key| (key, &one))).unwrap();
    soon("values are found near", || {
        assert!(keys.iter().all(|key| near.get(key).unwrap().is_some()));
        near.near_hits() >= 10
    });
    drop(first);
    soon("nothing is read any more", || {
        keys.iter().take(10).all(|key| near.get(key).is_err())
    });
}
