//! Model checks of the wake-up protocols: all interleavings that loom's memory model allows.
//!
//! `make loom` runs them. A lost wake-up shows as a deadlock, or as a loop that never ends.

use std::sync::Arc;

use ardea_core::{Chunk, Marker, Watermark};
use ardea_spsc::Capacity;
use loom::thread;

use crate::channels::queue::{Message, queue};
use crate::executor::parker::ThreadNotifier;
use crate::executor::worker_shared::WorkerShared;

/// Waits until tasklet `number` is ready, parking like a worker thread.
fn wait_for(notifier: &ThreadNotifier, number: u32) {
    let mut taken = Vec::new();
    loop {
        notifier.take(&mut taken);
        if taken.contains(&number) {
            return;
        }
        if notifier.may_sleep() {
            thread::park();
        }
        notifier.awake();
    }
}

#[test]
fn a_thread_that_goes_to_sleep_is_woken_for_every_ring() {
    loom::model(|| {
        let notifier = Arc::new(ThreadNotifier::new(2));
        let thread = thread::current();
        let ringer = Arc::clone(&notifier);
        let ringing = thread::spawn(move || {
            for number in 0..2 {
                if ringer.notify(number) {
                    thread.unpark();
                }
            }
        });
        wait_for(&notifier, 1);
        ringing.join().unwrap();
    });
}

#[test]
fn of_two_that_ring_neither_is_lost() {
    // At most three preemptions per run: the number of all interleavings of three threads is too
    // large.
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(3);
    bounded.check(|| {
        let notifier = Arc::new(ThreadNotifier::new(2));
        let ringing: Vec<_> = (0..2)
            .map(|number| {
                let (notifier, thread) = (Arc::clone(&notifier), thread::current());
                thread::spawn(move || {
                    if notifier.notify(number) {
                        thread.unpark();
                    }
                })
            })
            .collect();
        let mut taken = Vec::new();
        while taken.len() < 2 {
            notifier.take(&mut taken);
            if taken.len() < 2 && notifier.may_sleep() {
                thread::park();
            }
            notifier.awake();
        }
        ringing.into_iter().for_each(|ring| ring.join().unwrap());
    });
}

#[test]
fn a_wake_up_of_a_deferred_tasklet_is_seen_after_the_deferral() {
    loom::model(|| {
        let notifier = Arc::new(ThreadNotifier::new(1));
        notifier.defer(0);
        let thread = thread::current();
        let ringer = Arc::clone(&notifier);
        let ringing = thread::spawn(move || {
            if ringer.notify_data(0) {
                thread.unpark();
            }
        });
        notifier.end_deferral(0);
        wait_for(&notifier, 0);
        ringing.join().unwrap();
    });
}

/// Lets other threads go on until the tasklet is woken.
fn wait_until_ready(worker: &WorkerShared) {
    let mut taken = Vec::new();
    while taken.is_empty() {
        worker.take_ready(&mut taken);
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
                    wait_until_ready(&producer);
                }
                sender.send(message);
            }
        });
        for _ in 0..2 {
            while receiver.pop().is_none() {
                wait_until_ready(&consumer);
            }
        }
        sending.join().unwrap();
    });
}
