//! The reservation of slots.
//!
//! # The protocol
//!
//! A producer reserves a slot in four steps:
//!
//! 1. It loads the tail. If another producer made the last reservation, it writes the mark of that
//!    slot in its place, unless the mark is there ([`complete_last`]).
//! 2. It stores its claim: the slot that it is about to reserve.
//! 3. It moves the tail behind the slot by a compare-and-swap, and puts its number into it. If the
//!    tail has changed, it starts again.
//! 4. It writes head and payload, and then stores the mark with [`Status::Ready`].
//!
//! # Why a producer can die at any instruction
//!
//! * *Before step 3* it has changed nothing but its own claim.
//! * *After step 3* the slot has a position, but perhaps no mark. Its size is in the claim, which
//!   its owner does not change before it has stored the mark. The tail names the owner. So others
//!   can write the mark: the next producer does it before its own step 3, and the
//!   consumer when it finds no mark. Hence all slots but the last have their marks, and the last
//!   one can be found by the tail. The consumer can always go on to the next slot.
//! * *After step 4* the message is complete. If its producer did not get as far as waking the
//!   consumer, the next producer does, because only the consumer clears `sleeping`. If there is no
//!   next one, the end of the process wakes the consumer.
//!
//! # Why a claim is of the slot that the tail names
//!
//! Let the tail be (end, owner). The owner stored a claim that ends there before it moved the tail,
//! and a reader of the tail sees that claim or a later one. Later claims of the owner start at this
//! end or after it, so they end after it. Thus a claim that ends exactly there is of that slot. If
//! the claim is another one, the owner has stored its mark already, because it does so before its
//! next claim.
//!
//! # Why a late helper does no harm
//!
//! A helper may be stopped before its compare-and-swap on a mark, for as long as the ring makes
//! whole laps. The swap then fails: the slot got its mark before the consumer passed it, and a word
//! with another lap never becomes the old word again (laps count to 2^33).

use crate::layout::{Claim, MAX_PRODUCERS, Mark, Position, Status, Tail};
use crate::memory::Memory;
use crate::sync::Ordering;

/// Writes the mark of the last reserved slot in place of its owner, unless it is there.
///
/// After this call every slot before `tail` has a mark, unless a process broke the protocol.
#[inline]
pub(crate) fn complete_last(memory: &Memory, tail: Tail) {
    let Some(owner) = u8::try_from(tail.producer)
        .ok()
        .filter(|&number| usize::from(number) < MAX_PRODUCERS)
    else {
        return;
    };
    // Acquire: a later claim of the owner makes the mark of this slot visible.
    let claim = Claim::from_word(memory.claim(owner).load(Ordering::Acquire));
    let geometry = memory.geometry();
    if !claim.ends_at(tail.position) || claim.units > geometry.max_slot() {
        return;
    }
    let start = tail.position.minus(claim.units);
    let word = memory.mark(start).load(Ordering::Acquire);
    if Mark::is_of(word, geometry, start) {
        return;
    }
    let mark = Mark {
        status: Status::Writing,
        producer: owner,
        units: claim.units,
    };
    // A failure means that the owner or another helper has written a mark.
    let _ = memory.mark(start).compare_exchange(
        word,
        mark.word(geometry, start),
        Ordering::AcqRel,
        Ordering::Acquire,
    );
}

/// The result of one try to reserve a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attempt {
    /// The slot is reserved.
    Reserved(Position),
    /// The slot is reserved and reaches to the ring's end: it becomes a wrap, and the next try is
    /// at the start.
    Wrapped(Position, u64),
    /// The ring is full: the consumer must move its head from this position.
    Full(Position),
    /// Another producer was faster.
    Outrun,
    /// The head contradicts the tail.
    Corrupt,
}

/// The view that a producer has of the ring.
#[derive(Debug)]
pub(crate) struct SlotWriter {
    pub(crate) number: u8,
    /// The head as last seen; the real one is the same or ahead.
    head: Position,
    #[cfg(test)]
    pub(crate) death: crate::testing::Death,
}

impl SlotWriter {
    pub(crate) fn new(memory: &Memory, number: u8) -> Self {
        SlotWriter {
            number,
            head: Position::new(memory.head().load(Ordering::Acquire)),
            #[cfg(test)]
            death: Default::default(),
        }
    }

    /// Tries once to reserve a slot of so many units, at most a quarter of the ring.
    #[inline]
    pub(crate) fn try_once(&mut self, memory: &Memory, units: u64) -> Attempt {
        let geometry = memory.geometry();
        // Acquire: makes the claim of the last reservation visible.
        let word = memory.tail().load(Ordering::Acquire);
        let tail = Tail::from_word(word);
        let to_end = geometry.to_end(tail.position);
        let wraps = to_end < units;
        let taken = if wraps { to_end } else { units };
        if !self.has_room(memory, tail.position, taken) {
            let used = tail.position.since(self.head);
            return if used <= geometry.units() {
                Attempt::Full(self.head)
            } else if memory.tail().load(Ordering::Acquire) == word {
                Attempt::Corrupt
            } else {
                // The head has passed a tail that was out of date.
                Attempt::Outrun
            };
        }
        if tail.producer != u16::from(self.number) {
            complete_last(memory, tail);
        }
        self.step();
        let claim = Claim::new(tail.position, taken);
        // Release: this claim makes the marks of earlier slots visible.
        memory
            .claim(self.number)
            .store(claim.word(), Ordering::Release);
        self.step();
        let moved = Tail {
            position: tail.position.plus(taken),
            producer: u16::from(self.number),
        };
        // Release: the new tail makes the claim visible.
        let swapped =
            memory
                .tail()
                .compare_exchange(word, moved.word(), Ordering::AcqRel, Ordering::Relaxed);
        match swapped {
            Err(_) => Attempt::Outrun,
            Ok(_) if wraps => Attempt::Wrapped(tail.position, taken),
            Ok(_) => Attempt::Reserved(tail.position),
        }
    }

    #[inline]
    fn has_room(&mut self, memory: &Memory, tail: Position, units: u64) -> bool {
        let capacity = memory.geometry().units();
        if tail.since(self.head) + units <= capacity {
            return true;
        }
        // Acquire: the consumer has read the slots below the head before it is overwritten.
        self.head = Position::new(memory.head().load(Ordering::Acquire));
        tail.since(self.head) + units <= capacity
    }

    /// Returns true if a slot of so many units could be reserved now.
    pub(crate) fn would_fit(&mut self, memory: &Memory, units: u64) -> bool {
        let tail = Tail::from_word(memory.tail().load(Ordering::Acquire)).position;
        let to_end = memory.geometry().to_end(tail);
        let taken = if to_end < units { to_end } else { units };
        self.has_room(memory, tail, taken)
    }

    /// Stores the mark of a reserved slot.
    #[inline]
    pub(crate) fn mark(&self, memory: &Memory, start: Position, units: u64, status: Status) {
        self.step();
        let mark = Mark {
            status,
            producer: self.number,
            units,
        };
        // Release: makes head and payload visible. A store would do, because the helper's swap can
        // only come before it; loom does not know that.
        memory
            .mark(start)
            .swap(mark.word(memory.geometry(), start), Ordering::Release);
        self.step();
    }

    /// A point at which tests end the producer, as `kill -9` may.
    #[inline]
    pub(crate) fn step(&self) {
        #[cfg(test)]
        self.death.step();
    }
}
