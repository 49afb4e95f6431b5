//! The state shared by both ends, and its protocol.
//!
//! # The protocol
//!
//! `head` and `tail` count items taken out and put in since the queue was built.
//! They only grow, wrapping around at `usize::MAX`; item number `i` lives in slot
//! `i mod slots`. The number of slots is a power of two, so that the numbering
//! stays seamless when an index wraps. At all times
//! `0 <= tail - head <= capacity <= slots`.
//!
//! | field | written by | read by |
//! |---|---|---|
//! | `tail` | producer only | consumer |
//! | `head` | consumer only | producer |
//! | slots `tail .. head + capacity` (free) | producer | producer |
//! | slots `head .. tail` (holding an item) | consumer | consumer |
//! | `producer_gone` | producer, once, from false to true | consumer |
//! | `consumer_gone` | consumer, once, from false to true | producer |
//! | `capacity`, `slots` (the allocation) | never after `new` | both |
//!
//! A slot changes hands only by a store to an index, and each such store is a
//! release that is paired with an acquire on the other side:
//!
//! 1. **Filled.** The producer writes the slot, then stores `tail` with `Release`
//!    ([`Queue::publish_tail`]). The consumer loads `tail` with `Acquire`
//!    ([`Queue::tail`]), so it sees the item whole before it reads the slot.
//! 2. **Freed.** The consumer moves the item out, then stores `head` with `Release`
//!    ([`Queue::publish_head`]). The producer loads `head` with `Acquire`
//!    ([`Queue::head`]), so that its next write comes after that read.
//! 3. **Closed.** The producer stores `producer_gone` with `Release` after its last
//!    store to `tail`. The consumer loads the flag with `Acquire`
//!    ([`Queue::producer_is_gone`]) and, if it is set, loads `tail` *after* it:
//!    that value is then the last one. In the other order the consumer could
//!    read an old `tail`, then the flag, and miss the items pushed in between.
//! 4. **Abandoned.** The consumer stores `consumer_gone` with `Release` and the
//!    producer loads it with `Acquire` ([`Queue::consumer_is_gone`]). No slot
//!    changes hands by it: the producer then stops, and the pair makes
//!    what the consumer's thread did before visible to the producer.
//!
//! Each side keeps its own index in its handle and a copy of the other's index as
//! it last saw it. The copy errs to the safe side only (fewer free slots, fewer
//! items than there are), and is refreshed when it does not suffice: a
//! queue that is neither full nor empty makes the two cores exchange cache lines
//! once for many items.
//!
//! Items that neither side took out are dropped with the queue, by the handle that
//! goes last; the reference count of `Arc` orders that after all other accesses.
//!
//! No access needs `SeqCst`: each decision reads one variable that the other side
//! writes, or two in the order of rule 3.

use std::mem::MaybeUninit;

use crate::cache_padded::Padded;
use crate::capacity::Capacity;
use crate::loom_shim::{AtomicBool, AtomicUsize, Ordering, UnsafeCell};

type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// The shared part of a queue. See the module documentation for the protocol.
///
/// Each index has its own cache lines. The last four fields share theirs: they are
/// read on every push and change at most twice in the life of a queue, so they
/// stay in both caches. `repr(C)` keeps this order.
#[repr(C)]
pub(crate) struct Queue<T> {
    tail: Padded<AtomicUsize>,
    head: Padded<AtomicUsize>,
    producer_gone: AtomicBool,
    consumer_gone: AtomicBool,
    capacity: Capacity,
    slots: Box<[Slot<T>]>,
}

// SAFETY: a `Queue<T>` owns its items, so sending it sends them; hence `T: Send`.
unsafe impl<T: Send> Send for Queue<T> {}

// SAFETY: through a shared `Queue` an item moves from one thread to another
// (`T: Send`), but no two threads ever have access to the same item at the same
// time, so `T: Sync` is not needed. That slots are not raced for is the
// obligation of the callers of the unsafe methods below.
unsafe impl<T: Send> Sync for Queue<T> {}

impl<T> Queue<T> {
    /// Creates an empty queue whose indices both start at `start`.
    pub(crate) fn new(capacity: Capacity, start: usize) -> Self {
        // No overflow: `Capacity::MAX` is itself a power of two.
        let slots = capacity.get().next_power_of_two();
        Self {
            tail: Padded::new(AtomicUsize::new(start)),
            head: Padded::new(AtomicUsize::new(start)),
            producer_gone: AtomicBool::new(false),
            consumer_gone: AtomicBool::new(false),
            capacity,
            slots: (0..slots)
                .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
                .collect(),
        }
    }

    /// Returns the capacity of the queue.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.capacity.get()
    }

    /// Returns the producer's index for the consumer: all items below are complete.
    #[inline]
    pub(crate) fn tail(&self) -> usize {
        // Acquire: pairs with the Release in `publish_tail` (rule 1).
        self.tail.load(Ordering::Acquire)
    }

    /// Returns the consumer's index for the producer: all slots below are free.
    #[inline]
    pub(crate) fn head(&self) -> usize {
        // Acquire: pairs with the Release in `publish_head` (rule 2).
        self.head.load(Ordering::Acquire)
    }

    /// Hands the items below `tail` over to the consumer.
    ///
    /// # Safety
    ///
    /// The caller is the producer, has written every slot below `tail`, and `tail`
    /// is at most `capacity` above `head`.
    #[inline]
    pub(crate) unsafe fn publish_tail(&self, tail: usize) {
        // Release: pairs with the Acquire in `tail` (rule 1).
        self.tail.store(tail, Ordering::Release);
    }

    /// Hands the slots below `head` back to the producer.
    ///
    /// # Safety
    ///
    /// The caller is the consumer, has moved the items below `head` out, and `head`
    /// is not above `tail`.
    #[inline]
    pub(crate) unsafe fn publish_head(&self, head: usize) {
        // Release: pairs with the Acquire in `head` (rule 2).
        self.head.store(head, Ordering::Release);
    }

    /// Marks the producer as gone. Only the producer calls it, at its end.
    pub(crate) fn set_producer_gone(&self) {
        // Release: pairs with the Acquire in `producer_is_gone` (rule 3).
        self.producer_gone.store(true, Ordering::Release);
    }

    /// Marks the consumer as gone. Only the consumer calls it, at its end.
    pub(crate) fn set_consumer_gone(&self) {
        // Release: pairs with the Acquire in `consumer_is_gone` (rule 4).
        self.consumer_gone.store(true, Ordering::Release);
    }

    /// Returns true if the producer is gone; the next load of `tail` then returns its last value.
    #[inline]
    pub(crate) fn producer_is_gone(&self) -> bool {
        // Acquire: pairs with the Release in `set_producer_gone` (rule 3).
        self.producer_gone.load(Ordering::Acquire)
    }

    /// Returns true if the consumer is gone.
    #[inline]
    pub(crate) fn consumer_is_gone(&self) -> bool {
        // Acquire: pairs with the Release in `set_consumer_gone` (rule 4).
        self.consumer_gone.load(Ordering::Acquire)
    }

    /// Puts `item` in the slot of `index`, which the consumer does not see yet.
    ///
    /// # Safety
    ///
    /// The caller is the producer and `index` is in `tail .. head + capacity`, with
    /// a `head` that it has loaded by [`Queue::head`]. An item already written
    /// at `index` and not published would leak.
    #[inline]
    pub(crate) unsafe fn write(&self, index: usize, item: T) {
        self.slot(index).with_mut(|slot| {
            // SAFETY: the slot is free (the caller's promise), so only the producer
            // has access to it, and there is no item in it to be dropped.
            unsafe { (*slot).write(item) };
        });
    }

    /// Moves the item out of the slot of `index`.
    ///
    /// # Safety
    ///
    /// The caller is the consumer, or the last owner; `index` is in `head .. tail`,
    /// with a `tail` that it has loaded by [`Queue::tail`]; and it reads no index
    /// twice.
    #[inline]
    pub(crate) unsafe fn read(&self, index: usize) -> T {
        self.slot(index).with_mut(|slot| {
            // SAFETY: the slot holds an item that is whole (the caller's promise);
            // as no index is read twice, the item is moved out only once.
            unsafe { (*slot).assume_init_read() }
        })
    }

    /// Returns a pointer to the item in the slot of `index`. It stays valid until the consumer
    /// publishes a head above `index`.
    ///
    /// # Safety
    ///
    /// As for [`Queue::read`], except that the item stays where it is, and the
    /// caller makes no two references to it that overlap.
    #[inline]
    pub(crate) unsafe fn item(&self, index: usize) -> *mut T {
        self.slot(index).with_mut(|slot| {
            // SAFETY: the slot belongs to the consumer (the caller's promise), so a
            // reference to it is unique while the pointer is derived from it.
            unsafe { (*slot).as_mut_ptr() }
        })
    }

    #[inline]
    fn slot(&self, index: usize) -> &Slot<T> {
        let mask = self.slots.len() - 1;
        // SAFETY: `new` makes a power of two of slots, at least one, so the masked
        // index is below their number.
        unsafe { self.slots.get_unchecked(index & mask) }
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        // Relaxed: `&mut self` says that the handles are gone, and the reference
        // count has ordered their stores before this.
        let mut left = RemainingItems {
            head: self.head.load(Ordering::Relaxed),
            tail: self.tail.load(Ordering::Relaxed),
            queue: self,
        };
        left.drop_items();
    }
}

/// The items left in the queue, `head .. tail`.
struct RemainingItems<'a, T> {
    queue: &'a Queue<T>,
    head: usize,
    tail: usize,
}

impl<T> RemainingItems<'_, T> {
    fn drop_items(&mut self) {
        while self.head != self.tail {
            let index = self.head;
            // Counted first: if the item's destructor panics, it is not run again.
            self.head = index.wrapping_add(1);
            // SAFETY: only `Queue::drop` makes a `RemainingItems`, as the last owner; `index`
            // is in `head .. tail` and passed once.
            drop(unsafe { self.queue.read(index) });
        }
    }
}

impl<T> Drop for RemainingItems<'_, T> {
    /// Continues with the rest after the destructor of an item has panicked.
    fn drop(&mut self) {
        self.drop_items();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn what_different_sides_write_is_on_different_cache_lines() {
        assert_eq!(align_of::<Queue<u64>>(), 128);
        assert_eq!(offset_of!(Queue<u64>, tail), 0);
        assert_eq!(offset_of!(Queue<u64>, head), 128);
        assert_eq!(offset_of!(Queue<u64>, producer_gone), 256);
        assert_eq!(size_of::<Queue<u64>>(), 384);
    }

    #[test]
    fn slots_are_the_capacity_rounded_up_to_a_power_of_two() {
        for (capacity, slots) in [(1, 1), (2, 2), (3, 4), (4, 4), (1000, 1024)] {
            let queue = Queue::<u8>::new(Capacity::clamped(capacity), 0);
            assert_eq!(queue.slots.len(), slots);
            assert_eq!(queue.capacity(), capacity);
        }
    }
}
