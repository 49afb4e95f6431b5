//! Queues and ring buffers of several members.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ardea_codec::Local;
use ardea_core::{ErrorCode, PartitionId};
use ardea_grid::node::{Grid, GridQueue};

use crate::{SOON, config, grids, soon};

fn queue(grid: &Grid) -> GridQueue<(u32, u32)> {
    grid.queue("work", 1_000).unwrap()
}

/// Returns the primary of the queue with this name, so that it can be stopped.
fn primary_of(grids: &[Grid], name: &str) -> usize {
    let view = grids[0].view().unwrap();
    let partition = PartitionId::of_canonical(name.as_bytes());
    let primary = view.record(partition).unwrap().primary();
    let is_it = |grid: &Grid| Some(grid.id()) == primary;
    grids.iter().position(is_it).unwrap()
}

#[test]
fn what_one_member_offers_another_takes_in_order() {
    let grids = grids(2);
    let (here, there) = (queue(&grids[0]), queue(&grids[1]));
    for turn in 0..100 {
        assert!(here.offer(&(1, turn)).unwrap());
    }
    assert_eq!(there.len().unwrap(), 100);
    assert_eq!(there.peek().unwrap(), Some((1, 0)));
    for turn in 0..100 {
        assert_eq!(there.poll().unwrap(), Some((1, turn)));
    }
    assert!(here.is_empty().unwrap() && here.poll().unwrap().is_none());
    assert_eq!(here.poll_within(Duration::from_millis(5)).unwrap(), None);
}

#[test]
fn who_waits_for_a_value_gets_it_when_it_comes() {
    let grids = grids(2);
    let (here, there) = (queue(&grids[0]), queue(&grids[1]));
    let waits = std::thread::spawn(move || there.poll_within(SOON).unwrap());
    here.offer(&(7, 7)).unwrap();
    assert_eq!(waits.join().unwrap(), Some((7, 7)));
}

#[test]
fn a_full_queue_refuses_and_a_ring_buffer_lets_the_oldest_go() {
    let grids = grids(1);
    let queue = grids[0].queue::<u32>("both", 2).unwrap();
    let ring = grids[0].ring::<u32>("both", 2).unwrap();
    for value in 0..3 {
        assert_eq!(queue.offer(&value).unwrap(), value < 2);
        assert_eq!(ring.add(&value).unwrap(), u64::from(value));
    }
    assert_eq!(queue.poll().unwrap(), Some(0));
    let run = ring.read(0).unwrap();
    assert_eq!((run.from, run.values, run.next), (1, vec![1, 2], 3));
    let run = ring.read(9).unwrap();
    assert_eq!((run.from, run.values, ring.len().unwrap()), (3, vec![], 2));
}

#[test]
fn long_runs_of_a_ring_buffer_come_in_pieces() {
    let grids = grids(2);
    let ring = grids[0].ring::<String>("long", 100).unwrap();
    for turn in 0..20 {
        ring.add(&format!("{turn} {}", "x".repeat(100_000)))
            .unwrap();
    }
    let far = grids[1].ring::<String>("long", 100).unwrap();
    let (mut at, mut reads) = (0, 0);
    while at < 20 {
        let run = far.read(at).unwrap();
        assert_eq!((run.from, run.next), (at, 20));
        assert!(run.values[0].starts_with(&format!("{at} ")));
        at += run.values.len() as u64;
        reads += 1;
    }
    assert!((5..=20).contains(&reads), "{reads}");
}

#[test]
fn every_value_is_taken_once_though_the_member_that_keeps_the_queue_dies() {
    let mut grids = grids(3);
    let gone = primary_of(&grids, "work");
    let gone = grids.remove(gone);
    let (offered, taken) = (Mutex::new(BTreeSet::new()), Mutex::new(Vec::new()));
    let (in_doubt, is_over) = (Mutex::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let offers: Vec<_> = (0..2_u32)
            .map(|thread| {
                let queue = queue(&grids[thread as usize]);
                let (offered, in_doubt) = (&offered, &in_doubt);
                scope.spawn(move || {
                    for turn in 0..2_000 {
                        match queue.offer(&(thread, turn)) {
                            Ok(true) => {
                                offered.lock().unwrap().insert((thread, turn));
                            }
                            Ok(false) => {}
                            Err(error) if error.code() == ErrorCode::OutcomeUnknown => {
                                *in_doubt.lock().unwrap() += 1;
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        for grid in &grids {
            let queue = queue(grid);
            let (taken, in_doubt, is_over) = (&taken, &in_doubt, &is_over);
            scope.spawn(move || {
                loop {
                    let was_over = is_over.load(Ordering::SeqCst);
                    match queue.poll() {
                        Ok(Some(value)) => taken.lock().unwrap().push(value),
                        Ok(None) if was_over => break,
                        Ok(None) => std::thread::yield_now(),
                        Err(error) if error.code() == ErrorCode::OutcomeUnknown => {
                            *in_doubt.lock().unwrap() += 1;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        soon("some values are taken", || {
            taken.lock().unwrap().len() > 200
        });
        drop(gone);
        for offers in offers {
            offers.join().unwrap();
        }
        is_over.store(true, Ordering::SeqCst);
    });
    let taken = taken.into_inner().unwrap();
    let once: BTreeSet<_> = taken.iter().copied().collect();
    assert_eq!(once.len(), taken.len(), "a value was taken twice");
    let lost = offered.into_inner().unwrap();
    let lost = lost.difference(&once).count();
    assert!(lost <= in_doubt.into_inner().unwrap(), "{lost} were lost");
}

#[test]
fn what_no_queue_can_be_is_refused() {
    let grid = Grid::start(config()).unwrap();
    let none = grid.queue::<u32>("none", 0).unwrap_err();
    assert_eq!(none.code(), ErrorCode::InvalidConfig);
    let local = grid.queue::<Local<u32>>("local", 1).unwrap_err();
    assert!(local.to_string().contains("the queue \"local\""), "{local}");
    let large = grid.queue::<String>("large", 9).unwrap();
    let large = large.offer(&"x".repeat(17 << 20)).unwrap_err();
    assert_eq!(large.code(), ErrorCode::LimitReached);
}
