//! The model checker's scenarios: two threads, a small queue, and every
//! interleaving that loom's memory model allows.
//!
//! Run with `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p
//! ardea-spsc --release --test loom`. Without `--cfg loom` this file is empty.
//! Scenarios explore all interleavings, except where `bounded` limits the number
//! of preemptions of one run because the full number is out of reach.
#![cfg(loom)]

use ardea_spsc::{Capacity, Consumer, Producer, PushError, ring};
use loom::sync::atomic::AtomicBool;
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Explores with at most three preemptions in a run.
fn bounded(scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(scenario);
}

/// An item that counts the items made and dropped. The counters are of `std`, so
/// that they bring no ordering into the model.
struct Item {
    number: usize,
    drops: Arc<AtomicUsize>,
}

impl Drop for Item {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

fn items(drops: &Arc<AtomicUsize>, count: usize) -> Vec<Item> {
    let make = |number| Item {
        number,
        drops: Arc::clone(drops),
    };
    (0..count).map(make).collect()
}

/// Pushes until the queue takes the item. Without the yield, loom does not see that nothing happens
/// here before the other thread has run.
fn push_patiently<T>(producer: &mut Producer<T>, mut item: T) {
    while let Err(error) = producer.push(item) {
        assert!(error.is_full(), "the consumer is still there");
        item = error.into_inner();
        thread::yield_now();
    }
}

/// Pops until the queue is finished.
fn pop_to_the_end<T>(consumer: &mut Consumer<T>) -> Vec<T> {
    let mut out = Vec::new();
    loop {
        match consumer.pop() {
            Some(item) => out.push(item),
            None if consumer.is_finished() => return out,
            None => thread::yield_now(),
        }
    }
}

#[test]
fn what_went_in_is_what_came_out_and_what_is_left() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(Capacity::clamped(2));
        let pushing = thread::spawn(move || {
            let accepted: Vec<usize> = (0..4).filter(|i| producer.push(*i).is_ok()).collect();
            (producer, accepted)
        });
        let mut out: Vec<usize> = (0..3).filter_map(|_| consumer.pop()).collect();
        let (mut producer, accepted) = pushing.join().unwrap();
        assert_eq!(consumer.len() + producer.free(), 2);
        out.extend(std::iter::from_fn(|| consumer.pop()));
        assert_eq!(out, accepted);
    });
}

#[test]
fn slots_are_used_again_in_order() {
    for capacity in [1, 2, 3] {
        bounded(move || {
            let (mut producer, mut consumer) = ring(Capacity::clamped(capacity));
            let pushing = thread::spawn(move || {
                for item in 0..5 {
                    push_patiently(&mut producer, Box::new(item));
                }
            });
            let out = pop_to_the_end(&mut consumer);
            assert_eq!(out, (0..5).map(Box::new).collect::<Vec<_>>());
            pushing.join().unwrap();
        });
    }
}

#[test]
fn a_push_just_before_the_close_is_not_missed() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(Capacity::clamped(2));
        let pushing = thread::spawn(move || {
            assert!(producer.push(1).is_ok());
            assert!(producer.push(2).is_ok());
            producer.close();
        });
        // The check comes first, so that it runs at every stage of the close.
        let mut out = Vec::new();
        while !consumer.is_finished() {
            match consumer.pop() {
                Some(item) => out.push(item),
                None => thread::yield_now(),
            }
        }
        assert_eq!(consumer.pop(), None);
        assert_eq!(out, [1, 2]);
        pushing.join().unwrap();
    });
}

#[test]
fn a_finished_queue_was_seen_closed_and_stays_finished() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(Capacity::clamped(2));
        let pushing = thread::spawn(move || producer.push(7).is_ok());
        let finished = consumer.is_finished();
        assert!(!finished, "an item is still to be taken");
        let popped = consumer.pop();
        if consumer.is_finished() {
            assert_eq!(popped, Some(7));
            assert!(consumer.producer_is_gone() && consumer.is_finished());
        }
        assert!(pushing.join().unwrap());
        assert_eq!(popped.or_else(|| consumer.pop()), Some(7));
        assert!(consumer.is_finished());
    });
}

#[test]
fn every_item_is_dropped_once_when_the_consumer_leaves_during_pushes() {
    loom::model(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let (mut producer, mut consumer) = ring(Capacity::clamped(2));
        let made = items(&drops, 3);
        let pushing = thread::spawn(move || {
            let mut gone = false;
            for item in made {
                let refused = producer.push(item);
                let now_gone = matches!(refused, Err(PushError::Gone(_)));
                assert!(now_gone || !gone, "the consumer does not come back");
                gone = now_gone;
            }
        });
        drop(consumer.pop());
        drop(consumer);
        pushing.join().unwrap();
        assert_eq!(drops.load(Ordering::Relaxed), 3);
    });
}

#[test]
fn every_item_is_dropped_once_when_both_ends_leave_at_once() {
    loom::model(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let (mut producer, consumer) = ring(Capacity::clamped(4));
        let mut made = items(&drops, 3);
        assert_eq!(producer.push_batch(&mut made), 3);
        let leaving = thread::spawn(move || drop(producer));
        drop(consumer);
        leaving.join().unwrap();
        assert_eq!(drops.load(Ordering::Relaxed), 3);
    });
}

#[test]
fn a_producer_that_waits_for_room_learns_that_the_consumer_is_gone() {
    loom::model(|| {
        let (mut producer, consumer) = ring(Capacity::clamped(1));
        assert!(producer.push(0).is_ok());
        let leaving = thread::spawn(move || drop(consumer));
        let mut accepted = 0;
        loop {
            match producer.push(1) {
                Ok(()) => accepted += 1,
                Err(PushError::Full(_)) => thread::yield_now(),
                Err(PushError::Gone(_)) => break,
            }
        }
        // A dropped consumer frees slots, but only after it has set its flag.
        assert!(accepted <= 1);
        assert!(producer.consumer_is_gone());
        leaving.join().unwrap();
    });
}

#[test]
fn what_one_end_did_before_it_left_is_visible_to_the_other() {
    for consumer_leaves in [true, false] {
        loom::model(move || {
            let (mut producer, mut consumer) = ring::<u8>(Capacity::clamped(1));
            let done = loom::sync::Arc::new(AtomicBool::new(false));
            let seen = loom::sync::Arc::clone(&done);
            // Relaxed on purpose: only the queue's own flags order this.
            if consumer_leaves {
                let leaving = thread::spawn(move || {
                    done.store(true, Ordering::Relaxed);
                    drop(consumer);
                });
                if matches!(producer.push(0), Err(PushError::Gone(_))) {
                    assert!(seen.load(Ordering::Relaxed));
                }
                leaving.join().unwrap();
            } else {
                let leaving = thread::spawn(move || {
                    done.store(true, Ordering::Relaxed);
                    producer.close();
                });
                if consumer.is_finished() {
                    assert!(seen.load(Ordering::Relaxed));
                }
                leaving.join().unwrap();
            }
        });
    }
}

#[test]
fn a_batch_is_seen_whole_or_not_at_all() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(Capacity::clamped(4));
        let pushing = thread::spawn(move || {
            assert_eq!(producer.push_from(&mut (0..3)), 3);
            producer
        });
        let mut out = Vec::new();
        let count = consumer.pop_batch(4, &mut out);
        assert!(count == 0 || count == 3);
        let _producer = pushing.join().unwrap();
        consumer.pop_batch(4, &mut out);
        assert_eq!(out, [0, 1, 2]);
    });
}

#[test]
fn batches_both_ways_conserve_items_and_their_order() {
    bounded(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let (mut producer, mut consumer) = ring(Capacity::clamped(3));
        let mut made = items(&drops, 5);
        let pushing = thread::spawn(move || {
            while !made.is_empty() {
                if producer.push_batch(&mut made) == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut out = Vec::new();
        while !consumer.is_finished() {
            if consumer.pop_batch(2, &mut out) == 0 {
                thread::yield_now();
            }
        }
        pushing.join().unwrap();
        let numbers: Vec<usize> = out.iter().map(|item| item.number).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
        assert_eq!(drops.load(Ordering::Relaxed), 0);
        drop(out);
        assert_eq!(drops.load(Ordering::Relaxed), 5);
    });
}

#[test]
fn a_peeked_item_is_not_overwritten_while_the_producer_pushes() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(Capacity::clamped(2));
        assert!(producer.push(Box::new(10)).is_ok());
        let pushing = thread::spawn(move || {
            (1..4)
                .filter(|i| producer.push(Box::new(10 + i)).is_ok())
                .count()
        });
        if let Some(item) = consumer.peek_mut() {
            assert_eq!(**item, 10);
            **item = 20;
        }
        assert_eq!(consumer.pop(), Some(Box::new(20)));
        let accepted = pushing.join().unwrap();
        assert_eq!(pop_to_the_end(&mut consumer).len(), accepted);
    });
}
