//! Model checks: all interleavings of small scenarios that loom's memory model allows.
//!
//! `make loom` runs them. A lost wake-up shows as a deadlock.

use std::sync::Arc;

use loom::sync::{Condvar, Mutex};
use loom::thread;

use crate::consumer::RingConsumer;
use crate::message::MessageHead;
use crate::producer::RingProducer;
use crate::sync::Ordering;
use crate::testing::{Seen, add, dies, poll, ring};

const TO: MessageHead = MessageHead {
    target: 0,
    epoch: 0,
};

/// Explores with at most so many preemptions in a run.
fn bounded(preemptions: usize, scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(scenario);
}

/// Receives until so many producers have ended. Returns their messages, by producer.
fn receive(consumer: &mut RingConsumer, mut producers: usize) -> [Vec<u8>; 2] {
    let mut received = [Vec::new(), Vec::new()];
    while producers > 0 {
        match poll(consumer) {
            Some(Seen::Message(producer, bytes)) => received[usize::from(producer)].push(bytes[0]),
            Some(Seen::Closed(_) | Seen::Lost(_)) => producers -= 1,
            Some(Seen::Faulty(number)) => panic!("producer {number} is faulty"),
            None => consumer.wait(None).unwrap(),
        }
    }
    received
}

fn send(producer: &mut RingProducer, number: u8) {
    producer.send(TO, &[number]).unwrap();
}

#[test]
fn a_sleeping_consumer_is_woken_for_every_message_and_the_end() {
    bounded(3, || {
        let mut consumer = ring(8, 6);
        let (mut producer, _) = add(&consumer);
        let sending = thread::spawn(move || (0..2).for_each(|number| send(&mut producer, number)));
        assert_eq!(receive(&mut consumer, 1)[0], [0, 1]);
        sending.join().unwrap();
    });
}

#[test]
fn a_producer_that_sleeps_at_a_full_ring_is_woken() {
    bounded(2, || {
        let mut consumer = ring(4, 0);
        let (mut producer, _) = add(&consumer);
        (0..4).for_each(|number| send(&mut producer, number));
        let sending = thread::spawn(move || send(&mut producer, 4));
        assert_eq!(receive(&mut consumer, 1)[0], [0, 1, 2, 3, 4]);
        sending.join().unwrap();
    });
}

#[test]
fn two_producers_lose_and_reorder_nothing() {
    bounded(2, || {
        let mut consumer = ring(8, 7);
        let producers: Vec<_> = (0..2)
            .map(|_| {
                let (mut producer, _) = add(&consumer);
                thread::spawn(move || (0..2).for_each(|number| send(&mut producer, number)))
            })
            .collect();
        assert_eq!(receive(&mut consumer, 2), [[0, 1], [0, 1]]);
        producers.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// Starts a thread in which a producer dies at a step of its message.
fn dying(consumer: &RingConsumer, step: u32) -> thread::JoinHandle<()> {
    let (mut producer, dead) = add(consumer);
    let (memory, registry) = consumer.shared();
    let (memory, registry) = (memory.clone(), registry.clone());
    thread::spawn(move || {
        let died = dies(&mut producer, step, |producer| send(producer, 9));
        // The kernel reports the end of a process after its last instruction.
        dead.store(died, Ordering::Release);
        registry.wake(&memory);
    })
}

fn check_death([lost, kept]: [Vec<u8>; 2]) {
    assert!(lost.is_empty() || lost == [9]);
    assert_eq!(kept, [1]);
}

#[test]
fn a_producer_that_dies_at_any_step_holds_back_nothing_of_another() {
    for step in 0..5 {
        bounded(2, move || {
            let mut consumer = ring(8, 0);
            let killed = dying(&consumer, step);
            // The living one is the consumer's thread, so that there are fewer interleavings.
            let (mut living, _) = add(&consumer);
            send(&mut living, 1);
            drop(living);
            check_death(receive(&mut consumer, 2));
            killed.join().unwrap();
        });
    }
}

#[test]
fn a_producer_may_die_while_another_sends() {
    for step in 0..5 {
        bounded(1, move || {
            let mut consumer = ring(8, 0);
            let killed = dying(&consumer, step);
            let (mut living, _) = add(&consumer);
            let sending = thread::spawn(move || send(&mut living, 1));
            check_death(receive(&mut consumer, 2));
            killed.join().unwrap();
            sending.join().unwrap();
        });
    }
}

#[test]
fn a_producer_at_a_full_ring_learns_that_the_consumer_is_gone() {
    bounded(3, || {
        let consumer = ring(4, 0);
        let (mut producer, _) = add(&consumer);
        (0..4).for_each(|number| send(&mut producer, number));
        let sending = thread::spawn(move || producer.send(TO, &[4]).is_err());
        drop(consumer);
        assert!(sending.join().unwrap());
    });
}

/// The sleep of an owner of a polled end.
#[derive(Clone)]
struct OwnerSleep(Arc<(Mutex<bool>, Condvar)>);

impl OwnerSleep {
    fn new() -> Self {
        OwnerSleep(Arc::new((Mutex::new(false), Condvar::new())))
    }

    fn end(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_one();
    }

    fn sleep(&self) {
        let mut is_over = self.0.0.lock().unwrap();
        while !std::mem::take(&mut *is_over) {
            is_over = self.0.1.wait(is_over).unwrap();
        }
    }
}

/// Sends numbers through a polled ring; its ends are the threads of their owners.
fn poll_by_owners(units: u64, numbers: u8) {
    let mut consumer = ring(units, 0);
    let (mut producer, _) = add(&consumer);
    consumer.poll_by_owner();
    producer.poll_by_owner();
    let (sender, receiver) = (OwnerSleep::new(), OwnerSleep::new());
    let sending = thread::spawn({
        let (sender, receiver) = (sender.clone(), receiver.clone());
        move || {
            let mut number = 0;
            while number < numbers {
                if producer.try_send(TO, &[number]).unwrap() {
                    number += 1;
                    if producer.take_wake() {
                        receiver.end();
                    }
                } else if producer.may_sleep(1).unwrap() {
                    sender.sleep();
                }
            }
        }
    });
    let mut expected = 0;
    while expected < numbers {
        let polled = poll(&mut consumer);
        if let Some(Seen::Message(_, bytes)) = &polled {
            assert_eq!(bytes[..], [expected]);
            expected += 1;
        }
        let sleeps = polled.is_none() && consumer.may_sleep().unwrap();
        if consumer.take_wake() {
            sender.end();
        }
        if sleeps {
            receiver.sleep();
        }
    }
    sending.join().unwrap();
}

#[test]
fn the_owner_of_a_polled_consumer_is_woken_for_every_message() {
    bounded(2, || poll_by_owners(8, 2));
}

#[test]
fn the_owner_of_a_polled_producer_is_woken_when_there_is_room() {
    bounded(2, || poll_by_owners(4, 6));
}
