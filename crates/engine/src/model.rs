//! The wake-up protocols under the model checker: the interleavings that loom's memory model allows.
//!
//! `make loom` runs them. A lost wake-up shows as a deadlock, or as a loop that loom sees no end of.

use std::sync::Arc;

use ardea_core::{Chunk, Marker, Watermark};
use ardea_spsc::Capacity;
use loom::thread;

use crate::bell::Bell;
use crate::queue::{Message, queue};
use crate::worker::WorkerShared;

/// What a thread does until it finds tasklet `number` ready, with a park instead of an endless loop.
fn wait_for(bell: &Bell, number: u32) {
    let mut taken = Vec::new();
    loop {
        bell.take(&mut taken);
        if taken.contains(&number) {
            return;
        }
        if bell.may_sleep() {
            thread::park();
        }
        bell.awake();
    }
}

#[test]
fn a_thread_that_goes_to_sleep_is_woken_for_every_ring() {
    loom::model(|| {
        let bell = Arc::new(Bell::new(2));
        let thread = thread::current();
        let ringer = Arc::clone(&bell);
        let ringing = thread::spawn(move || {
            for number in 0..2 {
                if ringer.ring(number) {
                    thread.unpark();
                }
            }
        });
        wait_for(&bell, 1);
        ringing.join().unwrap();
    });
}

#[test]
fn of_two_that_ring_neither_is_lost() {
    // With at most three preemptions in a run: all interleavings of three threads are too many.
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(3);
    bounded.check(|| {
        let bell = Arc::new(Bell::new(2));
        let ringing: Vec<_> = (0..2)
            .map(|number| {
                let (bell, thread) = (Arc::clone(&bell), thread::current());
                thread::spawn(move || {
                    if bell.ring(number) {
                        thread.unpark();
                    }
                })
            })
            .collect();
        let mut taken = Vec::new();
        while taken.len() < 2 {
            bell.take(&mut taken);
            if taken.len() < 2 && bell.may_sleep() {
                thread::park();
            }
            bell.awake();
        }
        ringing.into_iter().for_each(|ring| ring.join().unwrap());
    });
}

/// Lets other threads go on until the tasklet is rung for.
fn until_rung(worker: &WorkerShared) {
    let mut taken = Vec::new();
    while taken.is_empty() {
        worker.take_rung(&mut taken);
        thread::yield_now();
    }
}

#[test]
fn a_sender_that_met_a_full_queue_is_woken_and_a_receiver_that_met_an_empty_one_too() {
    loom::model(|| {
        let (producer, consumer) = (WorkerShared::new(1), WorkerShared::new(1));
        let (mut sender, mut receiver) = queue(
            Capacity::clamped(1),
            producer.reserve().unwrap(),
            consumer.reserve().unwrap(),
        );
        let sending = thread::spawn(move || {
            for message in [
                Message::Chunk(Chunk::default()),
                Message::Marker(Marker::Watermark(Watermark::END)),
            ] {
                while !sender.has_room() {
                    until_rung(&producer);
                }
                sender.send(message);
            }
        });
        for _ in 0..2 {
            while receiver.pop().is_none() {
                until_rung(&consumer);
            }
        }
        sending.join().unwrap();
    });
}
