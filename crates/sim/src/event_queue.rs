//! The queue of future events, in order of time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

/// A queue of future events; events at the same time are ordered by insertion.
#[derive(Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Reverse<Planned<E>>>,
    count: u64,
}

#[derive(Debug)]
struct Planned<E> {
    at: Duration,
    number: u64,
    event: E,
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Planned<E> {}

impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Planned<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl<E> EventQueue<E> {
    /// Creates an empty queue.
    pub fn new() -> Self {
        EventQueue {
            heap: BinaryHeap::new(),
            count: 0,
        }
    }

    /// Plans an event.
    pub fn plan(&mut self, at: Duration, event: E) {
        self.count += 1;
        let number = self.count;
        self.heap.push(Reverse(Planned { at, number, event }));
    }

    /// Removes the next event, and returns it with its time.
    pub fn take(&mut self) -> Option<(Duration, E)> {
        self.heap.pop().map(|Reverse(next)| (next.at, next.event))
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        EventQueue::new()
    }
}
