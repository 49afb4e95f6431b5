//! A bounded wait-free queue between one producer and one consumer.
//!
//! This is the queue of the data plane: one ring for each pair of a producing
//! and a consuming tasklet. It never locks, and it never allocates after it
//! was built. Every operation ends after a bounded number of its own steps,
//! whatever the other side does: constant for one item, linear in the items
//! moved for a batch. Items leave in the order in which they came.
//!
//! # Main types
//!
//! - [`ring`] builds a queue of a [`Capacity`] and returns its two ends.
//! - [`Producer`] puts items in, one by one or in batches, and closes the queue.
//! - [`Consumer`] takes items out, looks at the next one, and tells an empty
//!   queue from a finished one.
//! - [`PushError`] gives a refused item back and says whether to try again.
//!
//! # Invariants
//!
//! - There is one producer and one consumer: neither end can be cloned, and all
//!   that moves items takes `&mut self`.
//! - No item is lost or duplicated: an item is refused and given back, or it is
//!   taken out once, or it is dropped once with the queue. That holds when an
//!   iterator handed to [`Producer::push_from`] panics, and when the destructor
//!   of an item panics.
//! - A queue holds at most its capacity of items, to the item.
//! - [`Consumer::is_finished`] is true only when the producer has closed the
//!   queue and all that it had pushed before has been taken out.
//! - This crate knows nothing of records, tasklets or time, and links no other
//!   crate (loom only when it is checked).
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
//! `queue` states the protocol: who writes which field, and which release is
//! paired with which acquire. `producer` and `consumer` are its two roles,
//! `padded` keeps what they write on separate cache lines, and `shim` is the
//! one place that chooses between `std` and the model checker.
//!
//! # How it is checked
//!
//! Beside the ordinary tests, [loom](https://docs.rs/loom) runs small scenarios
//! under the interleavings that the memory model allows, and
//! [Miri](https://github.com/rust-lang/miri) checks the unsafe code:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
//!     cargo test -p ardea-spsc --release --test loom
//! cargo +nightly miri test -p ardea-spsc
//! ```
//!
//! Miri needs `rustup component add --toolchain nightly miri rust-src` once.
//! Two limits of loom to know: it does not explore load buffering, and the
//! tests bound the number of preemptions where they say so.

#![deny(unsafe_op_in_unsafe_fn)]
#![deny(missing_docs)]

mod capacity;
mod consumer;
mod padded;
mod producer;
mod queue;
mod shim;

pub use capacity::{Capacity, CapacityError};
pub use consumer::Consumer;
pub use producer::{Producer, PushError};

use crate::queue::Queue;
use crate::shim::Arc;

/// Builds an empty queue that holds up to `capacity` items and returns its ends.
///
/// The ends may live on different threads if `T: Send`. The slots are allocated
/// here, `capacity` rounded up to a power of two of them, and nothing is
/// allocated later. Running out of memory is treated as it is by [`Vec`].
///
/// An item that is not `Send` keeps both ends on the thread that made them:
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

/// As [`ring`], with both indices starting at `start`, so that tests can begin
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
