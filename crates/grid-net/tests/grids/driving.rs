//! Members that are driven by those who ask as much as by threads of their own.

use ardea_courier::Security;
use ardea_tls::testing::certificates;

use crate::{config, grids, grids_of, map};

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
