//! Source and sink for NATS JetStream, a queue whose messages are acknowledged.
//!
//! * [`read`]: the messages of a stream, by a durable consumer; acknowledged when the epoch in which they were read is committed, and each
//!   read once although the server delivers some again; see [`NatsSource`].
//! * [`write()`]: records as messages, confirmed by the stream; those with an id are there once; see [`NatsSink`].
//!
//! # Invariants
//!
//! * No message is acknowledged before the job can't go back to before it; none is lost whatever dies.
//! * What has to be remembered of messages that may be delivered again is bounded by how many may be unacknowledged.
//! * A server that is away is waited for: that is said once on standard error, and once that it is back.
//! * Whatever may block runs on a thread of its own.
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

mod message;
mod sink;
mod source;
mod teller;

pub use message::Message;
pub use sink::{NatsSink, Outgoing, write};
pub use source::{Decoder, NatsSource, read};

use std::time::Duration;

/// The longest that a call waits before it looks at its job again.
const TURN: Duration = Duration::from_millis(100);
