//! Tests of a process that writes anything into the ring: an error, and never a panic.

use proptest::prelude::*;

use crate::layout::{Claim, Mark, Position, Status, Tail};
use crate::message::{Head, MessageHead, RingMessage};
use crate::sync::Ordering;
use crate::testing::{Seen, add, poll, ring};
use crate::{RingConsumer, RingEvent};

const TO: MessageHead = MessageHead {
    target: 0,
    epoch: 0,
};

/// Publishes a slot at the start of the ring with any mark and head.
fn publish(consumer: &RingConsumer, mark: Mark, head: [u8; 32]) {
    let (memory, _) = consumer.shared();
    let start = Position::new(0);
    memory.write(start, 0, &head);
    let word = mark.word(memory.geometry(), start);
    memory.mark(start).store(word, Ordering::Release);
    let tail = Tail {
        position: start.plus(mark.units),
        producer: u16::from(mark.producer),
    };
    memory.tail().store(tail.word(), Ordering::Release);
}

const HEAD: Head = Head {
    length: 10,
    target: 0,
    epoch: 0,
    sequence: 0,
    total: 10,
    is_first: true,
    is_last: true,
    is_batch: false,
};
const MARK: Mark = Mark {
    status: Status::Ready,
    producer: 0,
    units: 1,
};

#[test]
fn a_wrong_head_is_the_fault_of_its_producer_and_others_go_on() {
    let wrong: [fn(&mut Head); 5] = [
        |head| head.length = 1_000,
        |head| head.sequence = 1,
        |head| (head.total, head.is_last) = (u32::MAX, false),
        |head| head.is_first = false,
        |head| head.total = 9,
    ];
    for set in wrong {
        let mut consumer = ring(64, 0);
        let (mut bad, _) = add(&consumer);
        let (mut good, _) = add(&consumer);
        let mut head = HEAD;
        set(&mut head);
        publish(&consumer, MARK, head.to_bytes());
        good.send(TO, &[1]).unwrap();
        bad.send(TO, &[2]).unwrap();
        assert_eq!(poll(&mut consumer), Some(Seen::Faulty(0)), "{head:?}");
        assert_eq!(poll(&mut consumer), Some(Seen::Message(1, vec![1])));
        assert_eq!(poll(&mut consumer), None, "nothing more of the faulty one");
        drop((good, bad));
        assert_eq!(poll(&mut consumer), Some(Seen::Closed(1)));
        assert_eq!(poll(&mut consumer), None);
    }
}

#[test]
fn a_slot_that_cannot_be_is_an_error_of_the_ring() {
    let wrong = [
        Mark { units: 17, ..MARK },
        Mark { units: 0, ..MARK },
        Mark {
            producer: 5,
            ..MARK
        },
        Mark {
            status: Status::Read,
            ..MARK
        },
    ];
    for mark in wrong {
        let mut consumer = ring(64, 0);
        let _producer = add(&consumer);
        publish(&consumer, mark, HEAD.to_bytes());
        let error = consumer.poll().unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
    }
}

#[test]
fn a_tail_without_a_slot_is_an_error() {
    let mut consumer = ring(64, 0);
    let _producer = add(&consumer);
    let tail = Tail {
        position: Position::new(3),
        producer: 0,
    };
    consumer
        .shared()
        .0
        .tail()
        .store(tail.word(), Ordering::Release);
    assert_eq!(poll(&mut consumer), None);
    assert!(consumer.wait(None).is_err());
}

#[test]
fn a_producer_notices_a_head_that_cannot_be() {
    let consumer = ring(64, 0);
    let (mut producer, _) = add(&consumer);
    producer.send(TO, &[1]).unwrap();
    consumer.shared().0.head().store(1_000, Ordering::Release);
    // It has an older head, which suffices for a while.
    let error = (0..100).find_map(|_| producer.try_send(TO, &[1; 300]).err());
    assert!(error.is_some_and(|error| error.to_string().contains("damaged")));
}

proptest! {
    #[test]
    fn random_words_never_cause_a_panic_or_an_endless_loop(
        words in prop::collection::vec((0..6u8, 0..16u64, any::<u64>(), 0..8u64), 1..60),
    ) {
        let mut consumer = ring(16, 0);
        let (mut producer, _) = add(&consumer);
        let (mut other, _) = add(&consumer);
        for (kind, at, word, small) in words {
            let memory = std::sync::Arc::clone(consumer.shared().0);
            let position = Position::new(at);
            match kind {
                0 => memory.mark(position).store(word, Ordering::Release),
                1 => {
                    // A mark that is almost right.
                    let status = [Status::Ready, Status::Writing, Status::Wrap][at as usize % 3];
                    let mark = Mark { status, producer: (small % 3) as u8, units: small };
                    let word = mark.word(memory.geometry(), position);
                    memory.mark(position).store(word, Ordering::Release);
                }
                2 => memory.tail().store((word % 40) | (small << 48), Ordering::Release),
                3 => memory.claim(0).store(Claim::new(position, small).word(), Ordering::Release),
                4 => memory.write(position, 0, &word.to_ne_bytes()),
                _ => memory.head().store(word % 40, Ordering::Release),
            }
            let _ = producer.try_send(TO, &[1; 70]);
            let _ = other.try_send(TO, &[1; 170]);
            for _ in 0..4 {
                if let Ok(Some(RingEvent::Message(RingMessage { payload, .. }))) = consumer.poll() {
                    payload.batch().for_each(drop);
                    payload.to_vec();
                }
            }
        }
    }
}
