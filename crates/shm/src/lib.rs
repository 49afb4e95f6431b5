//! A ring of messages in shared memory, from several processes to one.
//!
//! The ring is the "OSRBuffer" of TurboStream (Wu et al., ICDCS 2018, section IV): producers
//! reserve space by one compare-and-swap, and the consumer reads past messages in writing. Unlike
//! the paper's, it loses no message of a slow producer, and survives producers that are killed at
//! any instruction.
//!
//! # Main types
//!
//! - [`RingConsumer`] creates a ring, reads its messages, and sleeps while there are none.
//! - [`RingAcceptor`] hands the ring to other processes over a Unix socket, or to other threads.
//! - [`RingProducer`] connects to a ring and sends messages, batches of messages, and messages that
//!   it writes in place ([`MessageWriter`]).
//! - [`RingOffer`] hands a ring to one producer by a message of the caller's own protocol. Both
//!   ends of such a ring are *polled*: their owners sleep outside of the ring, and wake each other.
//! - [`RingMessage`] is a message in the ring, read there or copied out ([`RingPayload`]).
//! - [`RingConfig`] has the size of the ring ([`RingSize`]) and the consumer's limits.
//!
//! # Invariants
//!
//! - A message whose [`send`](RingProducer::send) has returned is delivered exactly once, whatever
//!   happens to its producer and to others, as long as the consumer lives.
//! - Messages of one producer are delivered in their order.
//! - A message that was not completed is not delivered, not even in part.
//! - A slot is abandoned only if its producer has given it up, has closed, or has died. A slow
//!   producer is waited for, if necessary until the ring is full.
//! - Neither end makes a system call while the other one is awake.
//! - No bytes that a process writes into the memory make another one panic or cause undefined
//!   behaviour. A wrong message is an error of its producer, and a wrong structure one of the ring.
//!   A hostile process can therefore end the traffic of a ring, but nothing else.
//! - Nothing is allocated for messages of up to a quarter of the ring.
//!
//! # Example
//!
//! ```
//! use std::os::unix::net::UnixStream;
//! use ardea_shm::{MessageHead, RingConfig, RingConsumer, RingEvent, RingProducer};
//!
//! let mut consumer = RingConsumer::new(RingConfig::default())?;
//! // Usually two ends of a socket between processes.
//! let (here, there) = UnixStream::pair().unwrap();
//! let producer = std::thread::spawn(move || {
//!     let mut producer = RingProducer::connect(&there)?;
//!     producer.send(MessageHead { target: 7, epoch: 0 }, b"EWR")
//! });
//! consumer.acceptor().accept(&here)?;
//! loop {
//!     match consumer.poll()? {
//!         Some(RingEvent::Message(message)) => {
//!             assert_eq!(message.head.target, 7);
//!             assert_eq!(message.payload.to_vec(), b"EWR");
//!         }
//!         Some(RingEvent::Ended { .. }) => break,
//!         None => consumer.wait(None)?,
//!     }
//! }
//! producer.join().unwrap()?;
//! # Ok::<(), ardea_core::Error>(())
//! ```
//!
//! # Reading order
//!
//! 1. `layout`: the memory, byte by byte; `message`: the head of a message.
//! 2. `reservation`: the protocol of the producers, and why they can die at any instruction.
//! 3. `producer` and `consumer`, with `peers` and `registry` for what the consumer knows of each
//!    producer.
//! 4. `handover`: the handshake; `consumer::offer`: a ring in a message; `polled`: ends whose
//!    owners sleep outside; `peer_process` and `watcher`: the end of a process.
//! 5. `memory` and `copy`: the unsafe code, and why it is sound. `loom_memory` takes their place
//!    under the model checker.
//!
//! # Verification
//!
//! `make loom` checks small scenarios (`model`) in all interleavings, with producers that die at
//! each step. `make miri` runs the unit tests. Property tests compare random histories with a model
//! (`crash_tests`), and write anything into the memory (`hostile_tests`). The test `killed` ends
//! producer processes with `kill -9` at random moments, for seconds or for hours.
#![deny(unsafe_op_in_unsafe_fn)]
#![deny(missing_docs)]

mod consumer;
#[cfg(not(loom))]
mod copy;
mod counters;
#[cfg(all(test, not(loom)))]
mod crash_tests;
#[cfg(not(loom))]
mod handover;
#[cfg(all(test, not(loom)))]
mod hostile_tests;
mod layout;
#[cfg(not(loom))]
mod memory;
#[cfg(loom)]
#[path = "loom_memory.rs"]
mod memory;
mod message;
#[cfg(all(test, loom))]
mod model;
mod peer_process;
mod peers;
mod producer;
mod registry;
mod reservation;
mod size;
mod sync;
#[cfg(test)]
mod testing;
#[cfg(not(loom))]
mod watcher;

#[cfg(not(loom))]
pub use consumer::{RemoteProducer, RingOffer};
pub use consumer::{RingConfig, RingConsumer, RingEvent};
pub use counters::{ConsumerCounters, ProducerCounters};
#[cfg(not(loom))]
pub use handover::RingAcceptor;
pub use message::{MessageHead, RingBatch, RingMessage, RingPayload};
pub use peers::ProducerEnd;
pub use producer::{MessageWriter, RingProducer};
pub use size::RingSize;
