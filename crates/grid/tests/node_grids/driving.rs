//! Members that are driven by callers as well as by their own threads.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use ardea_core::ErrorCode;
use ardea_grid::node::{Grid, GridMap};
use ardea_network::rpc::Security;
use ardea_network::tls::testing::certificates;

use crate::{SOON, config, grids, grids_of, map};

#[test]
fn many_threads_use_the_same_members_at_the_same_time() {
    let grids = grids(3);
    const SHARED: u64 = 1_000_000;
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let map = map(&grids[thread as usize % 3]);
            scope.spawn(move || {
                for turn in 0..200 {
                    let key = 1_000 * thread + turn;
                    map.put(&key, &turn.to_string()).unwrap();
                    assert_eq!(map.get(&key).unwrap(), Some(turn.to_string()));
                    map.compute(&SHARED, "append", &"x".to_string()).unwrap();
                }
            });
        }
    });
    assert_eq!(map(&grids[0]).size().unwrap(), 8 * 200 + 1);
    let appended = map(&grids[1]).get(&SHARED).unwrap();
    assert_eq!(appended, Some("x".repeat(8 * 200)));
}

#[test]
fn the_last_value_of_a_key_that_is_put_several_times_in_one_call_stays() {
    let grids = grids(2);
    let map = map(&grids[0]);
    let entries: Vec<(u64, String)> = (0..20_000)
        .map(|turn| (turn % 100, turn.to_string()))
        .collect();
    map.put_all(entries.iter().map(|(key, value)| (key, value)))
        .unwrap();
    for key in 0..100 {
        assert_eq!(map.get(&key).unwrap(), Some((19_900 + key).to_string()));
    }
}

/// Works on a map while a third member joins and leaves, so that partitions move all the time.
fn while_parts_move(work: impl FnOnce(&GridMap<u64, String>)) {
    let grids = grids(2);
    let seed = grids[0].endpoint().to_string();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let third = Grid::start(config().join([seed.as_str()])).unwrap();
                assert!(third.settled(3, SOON) && third.leave(SOON));
            }
        });
        let worked = catch_unwind(AssertUnwindSafe(|| work(&map(&grids[0]))));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = worked {
            resume_unwind(panic);
        }
    });
}

#[test]
fn a_key_that_is_put_several_times_in_one_call_has_the_last_value_while_parts_move() {
    let value = |turn: u64, which: u64| format!("{turn} {which} {}", "x".repeat(20_000));
    while_parts_move(|map| {
        for turn in 0..40 {
            let values: Vec<(u64, String)> = (0..300)
                .map(|which| (which % 100, value(turn, which)))
                .collect();
            map.put_all(values.iter().map(|(key, value)| (key, value)))
                .unwrap();
            let keys: Vec<u64> = (0..100).collect();
            for (key, found) in (0..).zip(map.get_all(&keys).unwrap()) {
                assert!(found == Some(value(turn, 200 + key)), "{turn}: {key}");
            }
        }
    });
}

#[test]
fn a_call_that_has_failed_puts_nothing_later() {
    let keys: Vec<u64> = (0..20_000).collect();
    let large = "x".repeat(17 << 20);
    while_parts_move(|map| {
        for turn in 0..15 {
            let (old, new) = (format!("old {turn}"), format!("new {turn}"));
            // More than is gathered at once, so some puts are outstanding when the oversized entry
            // is found.
            let many: Vec<u64> = (0..66_000).collect();
            let entries = many.iter().map(|key| (key, &old));
            let failed = map.put_all(entries.chain([(&99_999, &large)]));
            assert_eq!(failed.unwrap_err().code(), ErrorCode::LimitReached);
            map.put_all(keys.iter().map(|key| (key, &new))).unwrap();
            let found = map.get_all(&keys).unwrap();
            let older = found.iter().filter(|found| found.as_ref() != Some(&new));
            assert_eq!(older.count(), 0, "{turn}");
        }
    });
}

#[test]
fn a_call_whose_entries_end_in_a_panic_leaves_nothing_under_way() {
    let grids = grids(2);
    let map = map(&grids[0]);
    let (old, new) = ("old".to_string(), "new".to_string());
    let keys: Vec<u64> = (0..70_000).collect();
    let entries = keys.iter().map(|key| match key {
        69_000 => panic!("as it was told"),
        key => (key, &old),
    });
    let panicked = catch_unwind(AssertUnwindSafe(|| map.put_all(entries)));
    assert!(panicked.is_err());
    map.put_all(keys.iter().map(|key| (key, &new))).unwrap();
    let found = map.get_all(&keys).unwrap();
    assert!(found.iter().all(|found| found.as_ref() == Some(&new)));
}

#[test]
fn a_member_that_is_stopped_while_others_use_it_tells_all_of_them() {
    let mut grids = grids(2);
    let (Some(gone), Some(_stays)) = (grids.pop(), grids.pop()) else {
        unreachable!("there are two");
    };
    let maps: Vec<_> = (0..4).map(|_| map(&gone)).collect();
    let threads: Vec<_> = maps
        .into_iter()
        .map(|map| {
            std::thread::spawn(move || (0..).find_map(|key| map.put(&key, &"x".to_string()).err()))
        })
        .collect();
    drop(gone);
    for thread in threads {
        assert!(thread.join().unwrap().is_some());
    }
}

#[test]
fn members_with_certificates_read_and_write_over_encrypted_connections() {
    let tls = certificates();
    let grids = grids_of(2, || {
        config().security(Security::new("test").tls(Some(tls.clone())))
    });
    let large = "x".repeat(1 << 20);
    let keys: Vec<u64> = (0..20).collect();
    let (here, there) = (map(&grids[0]), map(&grids[1]));
    here.put_all(keys.iter().map(|key| (key, &large))).unwrap();
    for key in 100..400 {
        here.put(&key, &"small".to_string()).unwrap();
        assert_eq!(there.get(&key).unwrap().as_deref(), Some("small"));
    }
    assert!(
        keys.iter()
            .all(|key| there.get(key).unwrap().as_ref() == Some(&large))
    );
}
