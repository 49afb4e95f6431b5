//! A test that every item is dropped exactly once, in every state of the queue.
#![cfg(not(loom))]

use ardea_spsc::{Capacity, Consumer, Producer, ring};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of drops of each item of a test.
struct DropCounts(Arc<[AtomicUsize]>);

impl DropCounts {
    fn new(items: usize) -> Self {
        Self((0..items).map(|_| AtomicUsize::new(0)).collect())
    }

    fn item(&self, id: usize) -> Item {
        Item {
            id,
            fails: false,
            drops: Arc::clone(&self.0),
        }
    }

    fn drops(&self) -> Vec<usize> {
        self.0
            .iter()
            .map(|drops| drops.load(Ordering::SeqCst))
            .collect()
    }
}

struct Item {
    id: usize,
    fails: bool,
    drops: Arc<[AtomicUsize]>,
}

impl Drop for Item {
    fn drop(&mut self) {
        self.drops[self.id].fetch_add(1, Ordering::SeqCst);
        assert!(!self.fails, "the destructor of this item fails");
    }
}

fn filled(ledger: &DropCounts, items: usize) -> (Producer<Item>, Consumer<Item>) {
    let (mut producer, consumer) = ring(Capacity::clamped(items));
    let mut batch = (0..items).map(|id| ledger.item(id));
    assert_eq!(producer.push_from(&mut batch), items);
    (producer, consumer)
}

#[test]
fn what_is_left_is_dropped_once_when_the_producer_goes_first() {
    let ledger = DropCounts::new(3);
    let (producer, mut consumer) = filled(&ledger, 3);
    drop(consumer.pop());
    drop(producer);
    assert_eq!(ledger.drops(), [1, 0, 0]);
    drop(consumer);
    assert_eq!(ledger.drops(), [1, 1, 1]);
}

#[test]
fn what_is_left_is_dropped_once_and_at_once_when_the_consumer_goes_first() {
    let ledger = DropCounts::new(3);
    let (producer, mut consumer) = filled(&ledger, 3);
    drop(consumer.pop());
    drop(consumer);
    assert_eq!(ledger.drops(), [1, 1, 1]);
    drop(producer);
    assert_eq!(ledger.drops(), [1, 1, 1]);
}

#[test]
fn a_refused_item_is_dropped_by_its_owner_only() {
    let ledger = DropCounts::new(2);
    let (mut producer, consumer) = filled(&ledger, 1);
    let refused = producer.push(ledger.item(1));
    assert_eq!(ledger.drops(), [0, 0]);
    drop(refused);
    assert_eq!(ledger.drops(), [0, 1]);
    drop((producer, consumer));
    assert_eq!(ledger.drops(), [1, 1]);
}

#[test]
fn a_failing_destructor_keeps_no_other_item_from_being_dropped() {
    for consumer_goes_first in [true, false] {
        let ledger = DropCounts::new(4);
        let (producer, mut consumer) = filled(&ledger, 4);
        if let Some(item) = consumer.peek_mut() {
            item.fails = true;
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            if consumer_goes_first {
                drop(consumer);
                drop(producer);
            } else {
                drop(producer);
                drop(consumer);
            }
        }));
        assert!(outcome.is_err());
        assert_eq!(ledger.drops(), [1, 1, 1, 1]);
    }
}

#[test]
fn every_item_is_dropped_once_when_the_consumer_leaves_in_the_middle() {
    let items = if cfg!(miri) { 60 } else { 5_000 };
    let ledger = DropCounts::new(items);
    let (mut producer, mut consumer) = ring(Capacity::clamped(4));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for id in 0..items {
                let mut item = ledger.item(id);
                while let Err(error) = producer.push(item) {
                    if !error.is_full() {
                        break;
                    }
                    item = error.into_inner();
                    std::thread::yield_now();
                }
            }
        });
        for _ in 0..items / 2 {
            while consumer.pop().is_none() {
                std::thread::yield_now();
            }
        }
        drop(consumer);
    });
    drop(producer);
    assert_eq!(ledger.drops(), vec![1; items]);
}
