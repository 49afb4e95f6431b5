//! The producer end of the queue.

use std::error::Error;
use std::fmt;

use crate::loom_shim::Arc;
use crate::queue::Queue;

/// The producing end of a queue, created by [`ring`](crate::ring).
///
/// Dropping the producer closes the queue: the consumer still gets the remaining items, and then
/// sees the queue finished.
pub struct Producer<T> {
    queue: Arc<Queue<T>>,
    /// The index of the next free slot. Above the shared `tail` only within a batch.
    tail: usize,
    /// The consumer's index as last read; never above the real one.
    cached_head: usize,
}

impl<T> Producer<T> {
    /// # Safety
    ///
    /// `queue` is new and empty at index `start`, and gets no other producer.
    pub(crate) unsafe fn new(queue: Arc<Queue<T>>, start: usize) -> Self {
        Self {
            queue,
            tail: start,
            cached_head: start,
        }
    }

    /// Pushes one item, in constant time.
    ///
    /// # Errors
    ///
    /// The item is returned in [`PushError::Full`] if there is no free slot, or in
    /// [`PushError::Gone`] if the consumer has been dropped.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), PushError<T>> {
        if self.queue.consumer_is_gone() {
            return Err(PushError::Gone(item));
        }
        if self.room(1) == 0 {
            return Err(PushError::Full(item));
        }
        // SAFETY: this is the only producer, and `room` has found the slot free.
        unsafe { self.queue.write(self.tail, item) };
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: every slot below `tail` has been written, and `tail` is within
        // the room found above.
        unsafe { self.queue.publish_tail(self.tail) };
        Ok(())
    }

    /// Moves as many items as there is room for from the front of `items` into the
    /// queue, and returns their number. The rest stays in `items`.
    ///
    /// The consumer sees all moved items at once. The call takes time linear in the length of
    /// `items`, as the rest moves to the front. If the consumer has been dropped nothing is moved:
    /// the result is 0, and [`Producer::consumer_is_gone`] returns true.
    ///
    /// ```
    /// use ardea_spsc::{Capacity, ring};
    ///
    /// let (mut producer, _consumer) = ring(Capacity::clamped(2));
    /// let mut items = vec![1, 2, 3];
    /// assert_eq!(producer.push_batch(&mut items), 2);
    /// assert_eq!(items, [3]);
    /// ```
    pub fn push_batch(&mut self, items: &mut Vec<T>) -> usize {
        if self.queue.consumer_is_gone() {
            return 0;
        }
        let count = self.room(items.len()).min(items.len());
        self.write_batch(count, &mut items.drain(..count))
    }

    /// Takes as many items as there is room for from the iterator `items` and
    /// returns their number. No item is taken that does not fit.
    ///
    /// The consumer sees all taken items at once; if `items` panics, it sees the items before the
    /// panic. If the consumer has been dropped nothing is taken: the result is 0, and
    /// [`Producer::consumer_is_gone`] returns true.
    ///
    /// Mind that some iterators, such as [`Vec::drain`], drop items not taken
    /// from them; for a vector there is [`Producer::push_batch`].
    ///
    /// ```
    /// use ardea_spsc::{Capacity, ring};
    ///
    /// let (mut producer, mut consumer) = ring(Capacity::clamped(2));
    /// let mut numbers = 1..;
    /// assert_eq!(producer.push_from(&mut numbers), 2);
    /// assert_eq!(consumer.pop(), Some(1));
    /// assert_eq!(producer.push_from(&mut numbers), 1);
    /// assert_eq!(numbers.next(), Some(4));
    /// ```
    pub fn push_from<I>(&mut self, items: &mut I) -> usize
    where
        I: Iterator<Item = T> + ?Sized,
    {
        if self.queue.consumer_is_gone() {
            return 0;
        }
        let wanted = items.size_hint().1.unwrap_or(usize::MAX);
        let room = self.room(wanted);
        self.write_batch(room, items)
    }

    /// Returns the number of items that can be pushed now. The number can only grow until the next
    /// push. Reads the consumer's index, which costs a cache miss if the consumer is active.
    pub fn free(&mut self) -> usize {
        self.room(usize::MAX)
    }

    /// Returns true if a push would fail because the queue is full.
    #[inline]
    pub fn is_full(&mut self) -> bool {
        self.room(1) == 0
    }

    /// Returns the capacity of the queue.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.queue.capacity()
    }

    /// Returns true if the consumer has been dropped; this is final.
    #[inline]
    #[must_use]
    pub fn consumer_is_gone(&self) -> bool {
        self.queue.consumer_is_gone()
    }

    /// Closes the queue: the consumer gets the remaining items, then sees it finished.
    /// Dropping the producer does the same.
    pub fn close(self) {
        drop(self);
    }

    /// Returns the number of free slots: the last known number if it is at least `wanted`,
    /// otherwise the current number.
    #[inline]
    fn room(&mut self, wanted: usize) -> usize {
        let known = self.known_room();
        if known >= wanted {
            return known;
        }
        self.cached_head = self.queue.head();
        self.known_room()
    }

    #[inline]
    fn known_room(&self) -> usize {
        self.queue.capacity() - self.tail.wrapping_sub(self.cached_head)
    }

    /// Writes up to `count` items and publishes them with one store. `count` is at
    /// most [`Producer::known_room`].
    fn write_batch<I>(&mut self, count: usize, items: &mut I) -> usize
    where
        I: Iterator<Item = T> + ?Sized,
    {
        debug_assert!(count <= self.known_room());
        let count = count.min(self.known_room());
        let start = self.tail;
        let batch = Batch {
            start,
            producer: self,
        };
        for item in items.take(count) {
            // SAFETY: this is the only producer, and the slot is free: at most
            // `known_room` items are written from `start` on.
            unsafe { batch.producer.queue.write(batch.producer.tail, item) };
            batch.producer.tail = batch.producer.tail.wrapping_add(1);
        }
        drop(batch);
        self.tail.wrapping_sub(start)
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.queue.set_producer_gone();
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("capacity", &self.capacity())
            .field("consumer_is_gone", &self.consumer_is_gone())
            .finish_non_exhaustive()
    }
}

/// A batch of written items. Publishes the items since `start` when it is dropped, also after a
/// panic of the caller's iterator: items already taken from it are not lost.
struct Batch<'a, T> {
    producer: &'a mut Producer<T>,
    start: usize,
}

impl<T> Drop for Batch<'_, T> {
    fn drop(&mut self) {
        let tail = self.producer.tail;
        if tail != self.start {
            // SAFETY: `tail` is advanced only after its slot has been written, and
            // within the room that the batch was given.
            unsafe { self.producer.queue.publish_tail(tail) };
        }
    }
}

/// The reason why an item was not pushed, with the item.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PushError<T> {
    /// The queue holds its capacity of items; try again when the consumer has run.
    Full(T),
    /// The consumer has been dropped; no push will succeed any more.
    Gone(T),
}

impl<T> PushError<T> {
    /// Returns the item.
    pub fn into_inner(self) -> T {
        match self {
            Self::Full(item) | Self::Gone(item) => item,
        }
    }

    /// Returns true if a later push may succeed.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }
}

impl<T> fmt::Debug for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Gone(_) => "Gone(..)",
        })
    }
}

impl<T> fmt::Display for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "the queue is full: push again after its consumer has run",
            Self::Gone(_) => "the queue's consumer is gone: stop producing for it",
        })
    }
}

impl<T> Error for PushError<T> {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Capacity, ring, ring_from};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_full_queue_gives_the_item_back() {
        let (mut producer, _consumer) = ring(Capacity::clamped(3));
        for item in 0..3 {
            assert_eq!(producer.push(item), Ok(()));
        }
        assert!(producer.is_full());
        assert_eq!(producer.push(3), Err(PushError::Full(3)));
        assert_eq!(producer.free(), 0);
        assert_eq!(producer.capacity(), 3);
    }

    #[test]
    fn a_push_after_the_consumer_is_gone_gives_the_item_back() {
        let (mut producer, consumer) = ring(Capacity::clamped(2));
        assert_eq!(producer.push(1), Ok(()));
        assert!(!producer.consumer_is_gone());
        drop(consumer);
        assert!(producer.consumer_is_gone());
        assert_eq!(producer.push(2), Err(PushError::Gone(2)));
    }

    #[test]
    fn batches_leave_their_items_where_they_are_when_the_consumer_is_gone() {
        let (mut producer, consumer) = ring(Capacity::clamped(4));
        drop(consumer);
        let mut items = vec![1, 2];
        assert_eq!(producer.push_batch(&mut items), 0);
        assert_eq!(items, [1, 2]);
        let mut numbers = 1..3;
        assert_eq!(producer.push_from(&mut numbers), 0);
        assert_eq!(numbers, 1..3);
    }

    #[test]
    fn indices_wrap_around_without_a_seam() {
        for capacity in [1, 2, 3, 4, 7] {
            let capacity = Capacity::clamped(capacity);
            let (mut producer, mut consumer) = ring_from(capacity, usize::MAX - 5);
            for item in 0..20 {
                while producer.push(item + capacity.get()).is_ok() {}
                assert_eq!(consumer.len(), capacity.get());
                let mut out = Vec::new();
                consumer.pop_batch(usize::MAX, &mut out);
                assert_eq!(out, vec![item + capacity.get(); capacity.get()]);
            }
        }
    }

    #[test]
    fn items_before_a_panic_of_the_iterator_are_published() {
        let (mut producer, mut consumer) = ring(Capacity::clamped(4));
        let mut items = [1, 2, 0].into_iter().map(|item| {
            assert_ne!(item, 0, "the iterator fails here");
            Box::new(item)
        });
        let outcome = catch_unwind(AssertUnwindSafe(|| producer.push_from(&mut items)));
        assert!(outcome.is_err());
        assert_eq!(producer.free(), 2);
        assert_eq!(consumer.pop(), Some(Box::new(1)));
        assert_eq!(consumer.pop(), Some(Box::new(2)));
        assert_eq!(consumer.pop(), None);
    }

    #[test]
    fn an_iterator_that_understates_its_length_does_not_overrun() {
        struct Liar(u32);
        impl Iterator for Liar {
            type Item = u32;
            fn next(&mut self) -> Option<u32> {
                self.0 += 1;
                Some(self.0)
            }
            fn size_hint(&self) -> (usize, Option<usize>) {
                (0, Some(1))
            }
        }
        let (mut producer, mut consumer) = ring(Capacity::clamped(3));
        assert_eq!(producer.push_from(&mut Liar(0)), 3);
        assert_eq!(producer.push_from(&mut Liar(3)), 0);
        let mut out = Vec::new();
        assert_eq!(consumer.pop_batch(9, &mut out), 3);
        assert_eq!(out, [1, 2, 3]);
    }

    #[test]
    fn the_error_says_whether_to_try_again() {
        assert!(PushError::Full(()).is_full());
        assert!(!PushError::Gone(()).is_full());
        assert_eq!(PushError::Gone(7).into_inner(), 7);
        assert_eq!(
            PushError::Full(()).to_string(),
            "the queue is full: push again after its consumer has run"
        );
        assert_eq!(
            PushError::Gone(()).to_string(),
            "the queue's consumer is gone: stop producing for it"
        );
    }
}
