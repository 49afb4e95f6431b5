//! The consumer end of the queue.

use std::fmt;

use crate::loom_shim::Arc;
use crate::queue::Queue;

/// The consuming end of a queue, created by [`ring`](crate::ring).
///
/// Dropping the consumer drops the items in the queue and sets a flag. The producer's pushes then
/// fail, and its thread sees the earlier writes of this thread. Items of a concurrent push are
/// dropped when the producer is dropped.
pub struct Consumer<T> {
    queue: Arc<Queue<T>>,
    /// The index of the next item.
    head: usize,
    /// The producer's index as last read; never above the real one.
    cached_tail: usize,
}

impl<T> Consumer<T> {
    /// # Safety
    ///
    /// `queue` is new and empty at index `start`, and gets no other consumer.
    pub(crate) unsafe fn new(queue: Arc<Queue<T>>, start: usize) -> Self {
        Self {
            queue,
            head: start,
            cached_tail: start,
        }
    }

    /// Takes the oldest item, in constant time; `None` if the queue is empty now.
    ///
    /// [`Consumer::is_finished`] distinguishes an empty queue from a finished one.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.available(1) == 0 {
            return None;
        }
        // SAFETY: this is the only consumer, `available` has found an item at
        // `head`, and `head` is advanced, so that it is not read again.
        let item = unsafe { self.queue.read(self.head) };
        self.head = self.head.wrapping_add(1);
        // SAFETY: the items below `head` are out, and `head` is not above the tail.
        unsafe { self.queue.publish_head(self.head) };
        Some(item)
    }

    /// Moves up to `max` items to the end of `out`, oldest first, and returns their number. The
    /// slots become free all at once.
    ///
    /// It allocates only if `out` has too little spare capacity.
    pub fn pop_batch(&mut self, max: usize, out: &mut Vec<T>) -> usize {
        let count = self.available(max).min(max);
        if count == 0 {
            return 0;
        }
        // First, as it may panic: nothing has been moved yet.
        out.reserve(count);
        let (queue, head) = (&self.queue, self.head);
        out.extend((0..count).map(|offset| {
            // SAFETY: this is the only consumer, `available` has found `count` items
            // from `head` on, each is read once, and `head` is advanced below. In
            // between nothing can panic: `out` has the room, and `read` only moves.
            unsafe { queue.read(head.wrapping_add(offset)) }
        }));
        self.head = self.head.wrapping_add(count);
        // SAFETY: the items below `head` are out, and `head` is not above the tail.
        unsafe { self.queue.publish_head(self.head) };
        count
    }

    /// Returns the oldest item and leaves it in the queue.
    #[inline]
    pub fn peek(&mut self) -> Option<&T> {
        self.peek_mut().map(|item| &*item)
    }

    /// Returns the oldest item for modification in place, for example to take a part of a chunk
    /// whose rest has to wait.
    ///
    /// ```
    /// use ardea_spsc::{Capacity, ring};
    ///
    /// let (mut producer, mut consumer) = ring(Capacity::clamped(1));
    /// assert_eq!(producer.push(vec![1, 2]), Ok(()));
    /// let taken = consumer.peek_mut().and_then(Vec::pop);
    /// assert_eq!(taken, Some(2));
    /// assert_eq!(consumer.pop(), Some(vec![1]));
    /// ```
    #[inline]
    pub fn peek_mut(&mut self) -> Option<&mut T> {
        if self.available(1) == 0 {
            return None;
        }
        // SAFETY: this is the only consumer and `available` has found an item at
        // `head`. The reference borrows `self`, so `head` cannot be published and
        // no second reference be created during its lifetime.
        Some(unsafe { &mut *self.queue.item(self.head) })
    }

    /// Returns the number of items that can be taken now. The number can only grow until the next
    /// pop. Reads the producer's index, which costs a cache miss if the producer is active.
    pub fn len(&mut self) -> usize {
        self.available(usize::MAX)
    }

    /// Returns true if there is no item to take now.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.available(1) == 0
    }

    /// Returns true if the producer is gone and all its items have been taken. Once true it stays
    /// true. Earlier writes of the producer's thread are then visible here, such as an error that
    /// it recorded.
    #[inline]
    pub fn is_finished(&mut self) -> bool {
        if self.head != self.cached_tail || !self.queue.producer_is_gone() {
            return false;
        }
        // The flag first, then the tail: items pushed before the close count (rule 3
        // of the protocol in `queue`).
        self.is_empty()
    }

    /// Returns the capacity of the queue.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.queue.capacity()
    }

    /// Returns true if the producer has closed the queue or been dropped. The queue may still hold
    /// items; see [`Consumer::is_finished`].
    #[inline]
    #[must_use]
    pub fn producer_is_gone(&self) -> bool {
        self.queue.producer_is_gone()
    }

    /// Returns the number of available items: the last known number if it is at least `wanted`,
    /// otherwise the current number.
    #[inline]
    fn available(&mut self, wanted: usize) -> usize {
        let known = self.cached_tail.wrapping_sub(self.head);
        if known >= wanted {
            return known;
        }
        self.cached_tail = self.queue.tail();
        self.cached_tail.wrapping_sub(self.head)
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        // The flag first, so that the producer stops. The items are dropped here and
        // not with the queue because the producer may live long after. If the
        // destructor of one panics, the rest is dropped with the queue.
        self.queue.set_consumer_gone();
        while let Some(item) = self.pop() {
            drop(item);
        }
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("capacity", &self.capacity())
            .field("producer_is_gone", &self.producer_is_gone())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{Capacity, PushError, ring};

    #[test]
    fn items_leave_in_the_order_in_which_they_came() {
        let (mut producer, mut consumer) = ring(Capacity::clamped(2));
        assert_eq!(consumer.pop(), None);
        for item in 0..10 {
            assert_eq!(producer.push(2 * item), Ok(()));
            assert_eq!(producer.push(2 * item + 1), Ok(()));
            assert_eq!(consumer.pop(), Some(2 * item));
            assert_eq!(consumer.pop(), Some(2 * item + 1));
        }
        assert_eq!(consumer.pop(), None);
    }

    #[test]
    fn a_closed_queue_yields_what_is_left_and_is_then_finished() {
        let (mut producer, mut consumer) = ring(Capacity::clamped(4));
        assert_eq!(producer.push(1), Ok(()));
        assert!(!consumer.producer_is_gone());
        producer.close();
        assert!(consumer.producer_is_gone());
        assert!(!consumer.is_finished());
        assert_eq!(consumer.pop(), Some(1));
        assert!(consumer.is_finished());
        assert_eq!(consumer.pop(), None);
        assert!(consumer.is_finished());
    }

    #[test]
    fn an_open_empty_queue_is_not_finished() {
        let (producer, mut consumer) = ring::<u8>(Capacity::clamped(1));
        assert!(consumer.is_empty());
        assert!(!consumer.is_finished());
        drop(producer);
        assert!(consumer.is_finished());
    }

    #[test]
    fn peeking_leaves_the_item_in_its_slot() {
        let (mut producer, mut consumer) = ring(Capacity::clamped(1));
        assert_eq!(consumer.peek(), None);
        assert_eq!(producer.push(String::from("a")), Ok(()));
        assert_eq!(consumer.peek().map(String::as_str), Some("a"));
        if let Some(item) = consumer.peek_mut() {
            item.push('b');
        }
        assert_eq!(consumer.len(), 1);
        assert!(producer.is_full());
        assert_eq!(consumer.pop().as_deref(), Some("ab"));
        assert!(!producer.is_full());
    }

    #[test]
    fn a_batch_is_at_most_max_items_and_is_appended() {
        let (mut producer, mut consumer) = ring(Capacity::clamped(8));
        assert_eq!(producer.push_from(&mut (1..6)), 5);
        let mut out = vec![0];
        assert_eq!(consumer.pop_batch(0, &mut out), 0);
        assert_eq!(consumer.pop_batch(3, &mut out), 3);
        assert_eq!(consumer.pop_batch(9, &mut out), 2);
        assert_eq!(consumer.pop_batch(9, &mut out), 0);
        assert_eq!(out, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn items_without_size_are_counted() {
        let (mut producer, mut consumer) = ring(Capacity::clamped(3));
        assert_eq!(producer.push_batch(&mut vec![(); 5]), 3);
        assert_eq!(producer.push(()), Err(PushError::Full(())));
        assert_eq!(consumer.len(), 3);
        assert_eq!(consumer.pop_batch(9, &mut Vec::new()), 3);
        assert_eq!(consumer.pop(), None);
    }
}
