//! A bounded wait-free queue between one producer and one consumer.
//!
//! This is the queue of the data plane: one ring for each pair of a producing and a consuming
//! tasklet. It never locks, and it never allocates after construction. Every operation ends after a
//! bounded number of steps, independently of the other side: constant for one item, linear
//! in the items moved for a batch. Items are taken in the order in which they were pushed.
//!
//! # Main types
//!
//! - [`ring`] builds a queue of a [`Capacity`] and returns its two ends.
//! - [`Producer`] pushes items, one by one or in batches, and closes the queue.
//! - [`Consumer`] takes items, peeks at the next one, and distinguishes an empty queue from a
//!   finished one.
//! - [`PushError`] returns a refused item and distinguishes a full queue from one whose consumer is
//!   gone.
//!
//! # Invariants
//!
//! - There is one producer and one consumer: neither end can be cloned, and all operations that
//!   move items take `&mut self`.
//! - No item is lost or duplicated: an item is refused and returned, or taken once, or dropped once
//!   with the queue. This holds when an iterator passed to [`Producer::push_from`] panics, and when
//!   the destructor of an item panics.
//! - A queue holds at most its capacity of items.
//! - [`Consumer::is_finished`] is true only when the producer has closed the queue and all its
//!   items have been taken.
//! - This crate is independent of records, tasklets and time, and has no dependencies (except loom
//!   for its tests).
//!
//! # Example
//!
//! ```
//! use ardea_spsc::{Capacity, PushError, ring};
//!
//! let (mut producer, mut consumer) = ring(Capacity::new(2)?);
//! assert_eq!(producer.push("EWR"), Ok(()));
//! assert_eq!(producer.push("JFK"), Ok(()));
//! assert_eq!(producer.push("LGA"), Err(PushError::Full("LGA")));
//!
//! assert_eq!(consumer.pop(), Some("EWR"));
//! producer.close();
//! assert!(!consumer.is_finished());
//! assert_eq!(consumer.pop(), Some("JFK"));
//! assert!(consumer.is_finished());
//! # Ok::<(), ardea_spsc::CapacityError>(())
//! ```
//!
//! # Reading order
//!
//! `queue` states the protocol: the writer of each field, and the pairs of release and acquire.
//! `producer` and `consumer` are its two roles, `cache_padded` keeps their fields on separate cache
//! lines, and `loom_shim` selects `std` or the model checker.
//!
//! # Verification
//!
//! In addition to the ordinary tests, [loom](https://docs.rs/loom) runs small scenarios under the
//! interleavings that the memory model allows, and [Miri](https://github.com/rust-lang/miri) checks
//! the unsafe code:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
//!     cargo test -p ardea-spsc --release --test loom
//! cargo +nightly miri test -p ardea-spsc
//! ```
//!
//! Miri needs `rustup component add --toolchain nightly miri rust-src` once. Loom has two limits:
//! it does not explore load buffering, and some tests bound the number of preemptions.

#![deny(unsafe_op_in_unsafe_fn)]
#![deny(missing_docs)]

mod cache_padded;
mod capacity;
mod consumer;
mod loom_shim;
mod producer;
mod queue;

pub use capacity::{Capacity, CapacityError};
pub use consumer::Consumer;
pub use producer::{Producer, PushError};

use crate::loom_shim::Arc;
use crate::queue::Queue;

/// Builds an empty queue that holds up to `capacity` items and returns its ends.
///
/// The ends may live on different threads if `T: Send`. The slots are allocated here: as many as
/// `capacity`, rounded up to a power of two. Nothing is allocated later. Running out of memory is
/// treated as it is by [`Vec`].
///
/// An item that is not `Send` keeps both ends on the thread that created them:
///
/// ```compile_fail
/// use ardea_spsc::{Capacity, ring};
/// let (_producer, mut consumer) = ring::<std::rc::Rc<u8>>(Capacity::clamped(1));
/// std::thread::spawn(move || consumer.pop());
/// ```
///
/// Neither end can be cloned, which is what makes the queue safe without locks:
///
/// ```compile_fail
/// use ardea_spsc::{Capacity, ring};
/// let (producer, _consumer) = ring::<u8>(Capacity::clamped(1));
/// let second = producer.clone();
/// ```
#[must_use]
pub fn ring<T>(capacity: Capacity) -> (Producer<T>, Consumer<T>) {
    ring_from(capacity, 0)
}

/// Builds a queue like [`ring`], with both indices starting at `start`, so that tests can begin
/// just before the indices wrap around.
fn ring_from<T>(capacity: Capacity, start: usize) -> (Producer<T>, Consumer<T>) {
    let queue = Arc::new(Queue::new(capacity, start));
    // SAFETY: the queue is new and empty at `start`, and this is the only place
    // that makes handles: one producer and one consumer for each queue.
    unsafe {
        (
            Producer::new(Arc::clone(&queue), start),
            Consumer::new(queue, start),
        )
    }
}
