//! Source and sink for NATS JetStream, a message store with acknowledgements.
//!
//! * [`read`]: reads a stream with a durable consumer. Messages are acknowledged when the epoch in
//!   which they were read is committed, and redelivered messages are deduplicated; see
//!   [`NatsSource`].
//! * [`write()`]: writes records as messages confirmed by the stream. Messages with an id are
//!   deduplicated by the server; see [`NatsSink`].
//!
//! # Invariants
//!
//! * A message is acknowledged only when its epoch is committed, so no failure loses a message.
//! * The memory for deduplication is bounded by the number of unacknowledged messages.
//! * The connectors wait for an unavailable server. The beginning and the end of an outage are each
//!   logged once on standard error.
//! * Blocking calls run on threads of their own.
//!
//! # Example
//!
//! ```
//! use ardea_connectors::nats::{read, write};
//! use ardea_core::{Sink, Source, Unbounded};
//!
//! let orders: Source<String, Unbounded> = read("nats://localhost", "ORDERS").text().build();
//! let bills: Sink<(u64, String)> = write("nats://localhost", |(id, text): &(u64, String), out| {
//!     out.subject("bills.new").id(id).payload(text);
//!     Ok(())
//! })
//! .idempotent()
//! .build();
//! ```

mod connection;
mod message;
mod sink;
mod source;

pub use message::Message;
pub use sink::{NatsSink, Outgoing, write};
pub use source::{Decoder, NatsSource, read};
