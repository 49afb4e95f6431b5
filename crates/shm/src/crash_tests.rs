//! Tests of one thread that plays all processes: order, wraps, windows, and deaths at every step.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;

use proptest::prelude::*;

use crate::message::MessageHead;
use crate::testing::{Seen, add, dies, drain, poll, ring};

const TO: MessageHead = MessageHead {
    target: 0,
    epoch: 0,
};
/// More steps than any message of one slot has.
const STEPS: u32 = 12;

#[test]
fn messages_come_with_their_heads_and_are_released() {
    let mut consumer = ring(64, 0);
    let (mut producer, _) = add(&consumer);
    let head = MessageHead {
        target: 7,
        epoch: 9,
    };
    assert!(producer.try_send(head, b"abc").unwrap());
    let Some(crate::RingEvent::Message(message)) = consumer.poll().unwrap() else {
        panic!("there is a message");
    };
    assert_eq!((message.head, message.producer), (head, 0));
    assert_eq!(message.payload.to_vec(), b"abc");
    assert_eq!(message.payload.in_place().map(<[_]>::len), Some(3));
    // SAFETY: this thread plays all processes.
    assert_eq!(unsafe { message.payload.as_slice() }, b"abc");
    assert_eq!(consumer.counters().fill, 64);
    assert_eq!(poll(&mut consumer), None);
    assert_eq!(consumer.counters().fill, 0);
    drop(producer);
    assert_eq!(poll(&mut consumer), Some(Seen::Closed(0)));
    assert_eq!(poll(&mut consumer), None);
}

#[test]
fn a_full_ring_refuses_messages_until_the_consumer_has_read() {
    let mut consumer = ring(16, 0);
    let (mut producer, _) = add(&consumer);
    let sent = (0..100).take_while(|_| producer.try_send(TO, &[1; 90]).unwrap());
    assert_eq!(sent.count(), 8);
    assert_eq!(drain(&mut consumer).len(), 8);
    assert!(producer.try_send(TO, &[2; 90]).unwrap());
    assert!(producer.try_send(TO, &[0; 225]).is_err(), "it needs parts");
}

#[test]
fn a_message_in_writing_holds_back_its_producer_only() {
    let mut consumer = ring(64, 0);
    let (mut slow, _) = add(&consumer);
    let (mut fast, _) = add(&consumer);
    let mut writer = slow.begin(TO, 2).unwrap();
    writer.write(&[1]).unwrap();
    for number in 0..3 {
        assert!(fast.try_send(TO, &[number]).unwrap());
        assert_eq!(poll(&mut consumer), Some(Seen::Message(1, vec![number])));
    }
    assert_eq!(poll(&mut consumer), None);
    assert_eq!(
        consumer.counters().fill,
        4 * 64,
        "the window is not released"
    );
    assert_eq!(consumer.counters().overtaking, 3);
    writer.write(&[2]).unwrap();
    writer.commit().unwrap();
    assert_eq!(poll(&mut consumer), Some(Seen::Message(0, vec![1, 2])));
    assert_eq!(poll(&mut consumer), None);
    assert_eq!(consumer.counters().fill, 0);
}

#[test]
fn a_message_that_is_given_up_is_passed() {
    let mut consumer = ring(64, 0);
    let (mut producer, _) = add(&consumer);
    producer.begin(TO, 10).unwrap().write(&[1; 10]).unwrap();
    assert!(producer.begin(TO, 1).unwrap().write(&[1; 2]).is_err());
    assert!(producer.begin(TO, 2).unwrap().commit().is_err());
    std::mem::forget(producer.begin(TO, 10).unwrap());
    producer.send(TO, &[5]).unwrap();
    assert_eq!(drain(&mut consumer), [Seen::Message(0, vec![5])]);
    assert_eq!(consumer.counters().abandoned, 4);
}

#[test]
fn a_producer_that_dies_at_any_step_blocks_nobody() {
    for start in [0, 60, (1 << 48) - 3] {
        for step in 0..STEPS {
            let mut consumer = ring(64, start);
            let (mut dying, dead) = add(&consumer);
            let (mut other, _) = add(&consumer);
            other.send(TO, &[1]).unwrap();
            let died = dies(&mut dying, step, |dying| dying.send(TO, &[9; 300]).unwrap());
            dead.store(died, Ordering::Release);
            // The first of them finds what the dead one has left.
            for number in 2..10 {
                other.send(TO, &[number]).unwrap();
                let seen: Vec<Seen> = drain(&mut consumer)
                    .into_iter()
                    .filter(|seen| !matches!(seen, Seen::Message(0, _) | Seen::Lost(0)))
                    .collect();
                let first = (number == 2).then_some(Seen::Message(1, vec![1]));
                let expected: Vec<Seen> = first
                    .into_iter()
                    .chain([Seen::Message(1, vec![number])])
                    .collect();
                assert_eq!(seen, expected, "step {step}");
            }
            assert_eq!(consumer.counters().fill, 0);
        }
    }
}

#[test]
fn the_slot_of_a_dead_producer_is_found_without_another_producer() {
    for step in 0..STEPS {
        let mut consumer = ring(64, 62);
        let (mut dying, dead) = add(&consumer);
        if !dies(&mut dying, step, |dying| dying.send(TO, &[9; 300]).unwrap()) {
            assert!(step > 4, "there are more steps");
            return;
        }
        let before = drain(&mut consumer);
        dead.store(true, Ordering::Release);
        consumer.shared().1.wake(consumer.shared().0);
        let mut seen: Vec<Seen> = Vec::new();
        while seen.last() != Some(&Seen::Lost(0)) {
            seen.extend(poll(&mut consumer));
        }
        let message = Seen::Message(0, vec![9; 300]);
        let count = before
            .iter()
            .chain(&seen)
            .filter(|seen| **seen == message)
            .count();
        assert!(count <= 1);
        assert_eq!(consumer.counters().fill, 0, "step {step}");
        // Its number is free again.
        let (mut next, _) = add(&consumer);
        assert_eq!(next.number(), 0);
        next.send(TO, &[3]).unwrap();
        assert_eq!(poll(&mut consumer), Some(Seen::Message(0, vec![3])));
    }
    panic!("there are more steps than {STEPS}");
}

#[test]
fn parts_of_a_dead_producer_are_dropped() {
    let mut consumer = ring(64, 0);
    let (mut dying, dead) = add(&consumer);
    let long = vec![7; 2_000];
    // Two parts have steps of their own; it dies in the second.
    assert!(dies(&mut dying, 6, |dying| dying.send(TO, &long).unwrap()));
    dead.store(true, Ordering::Release);
    consumer.shared().1.wake(consumer.shared().0);
    let seen: Vec<Seen> = (0..4).filter_map(|_| poll(&mut consumer)).collect();
    assert_eq!(seen, [Seen::Lost(0)]);
}

#[test]
fn a_message_of_many_parts_is_assembled_among_others() {
    let mut consumer = ring(64, 0);
    let (mut long, _) = add(&consumer);
    let (mut short, _) = add(&consumer);
    let bytes: Vec<u8> = (0..20_000).map(|at| at as u8).collect();
    std::thread::scope(|scope| {
        let pieces: Vec<&[u8]> = bytes.chunks(977).collect();
        scope.spawn(move || long.send_batch(TO, &pieces).unwrap());
        scope.spawn(move || (0..100).for_each(|number| short.send(TO, &[number]).unwrap()));
        let (mut next, mut assembled) = (0, Vec::new());
        let mut ends = 0;
        while ends < 2 {
            match consumer.poll().unwrap() {
                Some(crate::RingEvent::Message(message)) if message.producer == 1 => {
                    assert_eq!(message.payload.to_vec(), [next]);
                    next += 1;
                }
                Some(crate::RingEvent::Message(message)) => {
                    for piece in message.payload.batch() {
                        piece.unwrap().append_to(&mut assembled);
                    }
                }
                Some(crate::RingEvent::Ended { .. }) => ends += 1,
                None => consumer.wait(None).unwrap(),
            }
        }
        assert_eq!(next, 100);
        assert!(assembled == bytes);
    });
}

#[derive(Clone, Debug)]
enum Action {
    Send(usize, usize),
    /// Sends a message and dies at a step of it, if it has so many.
    Die(usize, usize, u32),
    Poll(usize),
}

fn action() -> impl Strategy<Value = Action> {
    let (producer, length) = (0..3usize, 0..200usize);
    prop_oneof![
        4 => (producer.clone(), length.clone()).prop_map(|(p, l)| Action::Send(p, l)),
        1 => (producer, length, 0..STEPS).prop_map(|(p, l, s)| Action::Die(p, l, s)),
        3 => (1..6usize).prop_map(Action::Poll),
    ]
}

/// The messages that the consumer must still deliver, for each life of a producer.
#[derive(Default)]
struct Expected {
    lives: Vec<(VecDeque<u64>, Option<u64>)>,
    owners: HashMap<u64, usize>,
    ended: usize,
}

impl Expected {
    fn sent(&mut self, life: usize, number: u64) {
        self.lives[life].0.push_back(number);
        self.owners.insert(number, life);
    }

    /// Records the message in which a life died: it may be delivered or not.
    fn perhaps_sent(&mut self, life: usize, number: u64) {
        self.lives[life].1 = Some(number);
        self.owners.insert(number, life);
    }

    fn see(&mut self, seen: Option<Seen>) {
        match seen {
            Some(Seen::Message(_, bytes)) => {
                let number = u64::from_ne_bytes(bytes[..8].try_into().unwrap());
                assert!(bytes[8..].iter().all(|byte| *byte == number as u8));
                let (sent, perhaps) = &mut self.lives[self.owners[&number]];
                let expected = sent.pop_front().or_else(|| perhaps.take());
                assert_eq!(expected, Some(number));
            }
            Some(Seen::Closed(_) | Seen::Lost(_)) => self.ended += 1,
            Some(Seen::Faulty(number)) => panic!("producer {number} is faulty"),
            None => {}
        }
    }
}

proptest! {
    #[test]
    fn nothing_of_the_living_is_lost_doubled_or_reordered(
        actions in prop::collection::vec(action(), 1..120),
        start in prop_oneof![Just(0), Just((1u64 << 48) - 20), 0..1u64 << 40],
    ) {
        let mut consumer = ring(32, start);
        let mut expected = Expected::default();
        let new = |consumer: &_, expected: &mut Expected| {
            let (producer, dead) = add(consumer);
            expected.lives.push(Default::default());
            (producer, dead, expected.lives.len() - 1)
        };
        let mut living: Vec<_> = (0..3).map(|_| new(&consumer, &mut expected)).collect();
        for (number, action) in (0u64..).zip(actions) {
            let message = |length| {
                [number.to_ne_bytes().to_vec(), vec![number as u8; length]].concat()
            };
            match action {
                Action::Send(at, length) => {
                    let (producer, _, life) = &mut living[at];
                    if producer.try_send(TO, &message(length)).unwrap() {
                        expected.sent(*life, number);
                    }
                }
                Action::Die(at, length, step) => {
                    let (producer, dead, life) = &mut living[at];
                    let mut was_sent = false;
                    if dies(producer, step, |producer| {
                        was_sent = producer.try_send(TO, &message(length)).unwrap();
                    }) {
                        expected.perhaps_sent(*life, number);
                        dead.store(true, Ordering::Release);
                        consumer.shared().1.wake(consumer.shared().0);
                        living[at] = new(&consumer, &mut expected);
                    } else if was_sent {
                        expected.sent(*life, number);
                    }
                }
                Action::Poll(count) => {
                    (0..count).for_each(|_| expected.see(poll(&mut consumer)));
                }
            }
        }
        drop(living);
        for _ in 0..1_000 {
            expected.see(poll(&mut consumer));
        }
        prop_assert_eq!(expected.ended, expected.lives.len());
        prop_assert!(expected.lives.iter().all(|(sent, _)| sent.is_empty()));
        prop_assert_eq!(consumer.counters().fill, 0);
    }
}
