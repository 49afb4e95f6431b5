//! A ring of messages in shared memory, from several processes to one.
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
#[cfg(all(test, not(loom)))]
mod hostile_tests;
#[cfg(not(loom))]
mod watcher;

pub use consumer::{RingConfig, RingConsumer, RingEvent};
pub use counters::{ConsumerCounters, ProducerCounters};
#[cfg(not(loom))]
pub use handover::RingAcceptor;
pub use message::{MessageHead, RingBatch, RingMessage, RingPayload};
pub use peers::ProducerEnd;
pub use producer::{MessageWriter, RingProducer};
pub use size::RingSize;
