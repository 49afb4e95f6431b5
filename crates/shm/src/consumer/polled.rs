//! The consumer of a polled ring: its owner sleeps outside of the ring, for example until one of
//! many sockets is ready.
//!
//! # Why no wake-up is lost
//!
//! The owner calls [`RingConsumer::may_sleep`] and sleeps only if that returns true. It stores
//! `sleeping` before it looks for a message, with a fence between. A producer stores the mark of a
//! message before it looks at `sleeping`, with a fence between. So either the consumer sees the
//! message, or the producer sees the flag and then owes a wake-up. The producer clears the flag
//! when it owes a wake-up, so that later messages cost none. That is safe for one producer only: it
//! could stop before its owner has woken the consumer, and another producer would not know.

use ardea_core::Result;

use super::RingConsumer;
use crate::sync::{Ordering, fence};

impl RingConsumer {
    /// Lets the owners of both ends wake each other.
    pub(crate) fn poll_by_owner(&mut self) {
        self.polling.is_on = true;
    }

    /// Announces that the owner is about to sleep outside of the ring. Returns false if
    /// [`poll`](Self::poll) has something to do; the owner must not sleep then.
    ///
    /// After it has returned true, the producer's owner signals the next message. The next poll
    /// ends the announcement.
    ///
    /// # Errors
    /// As for [`poll`](Self::poll).
    pub fn may_sleep(&mut self) -> Result<bool> {
        self.current = None;
        self.release(true);
        self.memory.sleeping().store(1, Ordering::Relaxed);
        self.polling.is_asleep = true;
        // Either this sees a new mark, or its producer sees the flag.
        fence(Ordering::SeqCst);
        if self.has_work()? {
            self.awake();
            return Ok(false);
        }
        self.counters.sleeps += 1;
        Ok(true)
    }

    /// Ends the announcement of a sleep.
    #[inline]
    pub(super) fn awake(&mut self) {
        if std::mem::take(&mut self.polling.is_asleep) {
            self.memory.sleeping().store(0, Ordering::Relaxed);
        }
    }

    /// Returns true if the owner has to wake the producer's owner, which waits for room. Each
    /// wake-up is returned once. To be called after [`poll`](Self::poll) and
    /// [`may_sleep`](Self::may_sleep), before the owner sleeps.
    pub fn take_wake(&mut self) -> bool {
        std::mem::take(&mut self.polling.owes_wake)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::message::MessageHead;
    use crate::testing::{Seen, add, drain, poll, ring};

    const TO: MessageHead = MessageHead {
        target: 0,
        epoch: 0,
    };

    #[test]
    fn the_first_message_for_a_sleeping_owner_owes_one_wake_up() {
        let mut consumer = ring(64, 0);
        consumer.poll_by_owner();
        let (mut producer, _) = add(&consumer);
        producer.poll_by_owner();
        producer.send(TO, &[1]).unwrap();
        assert!(!producer.take_wake(), "the consumer is awake");
        assert!(!consumer.may_sleep().unwrap(), "there is a message");
        assert_eq!(poll(&mut consumer), Some(Seen::Message(0, vec![1])));
        assert!(consumer.may_sleep().unwrap());
        producer.send(TO, &[2]).unwrap();
        producer.send(TO, &[3]).unwrap();
        assert!(producer.take_wake());
        assert!(!producer.take_wake(), "it is returned once");
        producer.send(TO, &[4]).unwrap();
        assert!(!producer.take_wake(), "the owner was woken");
        assert_eq!(drain(&mut consumer).len(), 3);
        producer.send(TO, &[5]).unwrap();
        assert!(!producer.take_wake(), "the consumer is awake");
        assert_eq!(consumer.counters().sleeps, 1);
    }

    #[test]
    fn an_owner_that_waits_for_room_is_owed_a_wake_up() {
        let mut consumer = ring(16, 0);
        consumer.poll_by_owner();
        let (mut producer, _) = add(&consumer);
        producer.poll_by_owner();
        assert!(!producer.may_sleep(200).unwrap(), "there is room");
        while producer.try_send(TO, &[1; 200]).unwrap() {}
        assert!(producer.may_sleep(200).unwrap());
        assert!(!consumer.take_wake());
        assert!(drain(&mut consumer).len() > 2);
        assert!(consumer.take_wake());
        assert!(!consumer.take_wake(), "it is returned once");
        assert!(!producer.may_sleep(200).unwrap());
        assert_eq!(producer.counters().sleeps, 1);
        drop(consumer);
        assert!(producer.may_sleep(200).is_err(), "no consumer makes room");
    }

    #[test]
    fn the_end_of_a_producer_is_work() {
        let mut consumer = ring(16, 0);
        consumer.poll_by_owner();
        let (mut producer, _) = add(&consumer);
        producer.poll_by_owner();
        assert_eq!(poll(&mut consumer), None);
        assert!(consumer.may_sleep().unwrap());
        drop(producer);
        assert!(!consumer.may_sleep().unwrap());
        assert_eq!(poll(&mut consumer), Some(Seen::Closed(0)));
    }
}
