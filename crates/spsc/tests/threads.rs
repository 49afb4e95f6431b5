//! A test of two threads over a small queue: all items arrive in order.
#![cfg(not(loom))]

use ardea_spsc::{Capacity, ring};
use std::thread;
use std::time::{Duration, Instant};

const ITEMS: u64 = if cfg!(miri) { 400 } else { 100_000 };

/// A deadline for the other thread: fails the test instead of hanging.
struct TestDeadline(Instant);

impl TestDeadline {
    fn new() -> Self {
        Self(Instant::now() + Duration::from_secs(120))
    }

    fn wait(&self) {
        assert!(Instant::now() < self.0, "the other side makes no progress");
        thread::yield_now();
    }
}

#[test]
fn items_pushed_one_by_one_arrive_in_order() {
    let (mut producer, mut consumer) = ring(Capacity::clamped(8));
    let pushing = thread::spawn(move || {
        let patience = TestDeadline::new();
        for item in 0..ITEMS {
            let mut boxed = Box::new(item);
            while let Err(refused) = producer.push(boxed) {
                assert!(refused.is_full(), "the consumer left early");
                boxed = refused.into_inner();
                patience.wait();
            }
        }
    });
    let patience = TestDeadline::new();
    let mut expected = 0;
    while !consumer.is_finished() {
        match consumer.pop() {
            Some(item) => {
                assert_eq!(*item, expected);
                expected += 1;
            }
            None => patience.wait(),
        }
    }
    assert!(pushing.join().is_ok());
    assert_eq!(expected, ITEMS);
}

#[test]
fn items_pushed_in_batches_arrive_in_order() {
    let (mut producer, mut consumer) = ring(Capacity::clamped(8));
    let pushing = thread::spawn(move || {
        let patience = TestDeadline::new();
        let mut pending: Vec<Box<u64>> = Vec::new();
        let mut numbers = (0..ITEMS).map(Box::new);
        let mut pushed = 0;
        while pushed < ITEMS {
            // Both kinds of batch in turn: the vector first, then the iterator.
            pending.extend(numbers.by_ref().take(3));
            let mut moved = producer.push_batch(&mut pending);
            if pending.is_empty() {
                moved += producer.push_from(&mut numbers.by_ref().take(4));
            }
            pushed += moved as u64;
            if moved == 0 {
                patience.wait();
            }
        }
        assert!(pending.is_empty());
    });
    let patience = TestDeadline::new();
    let mut expected = 0;
    let mut out = Vec::new();
    while !consumer.is_finished() {
        if consumer.pop_batch(5, &mut out) == 0 {
            patience.wait();
        }
        for item in out.drain(..) {
            assert_eq!(*item, expected);
            expected += 1;
        }
    }
    assert!(pushing.join().is_ok());
    assert_eq!(expected, ITEMS);
}
