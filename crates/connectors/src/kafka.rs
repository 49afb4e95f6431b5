//! Source and sink for Apache Kafka.
//!
//! * [`read`]: the records of one topic or several, their partitions spread over the source's instances, with event times and a watermark
//!   for each partition; see [`KafkaSource`].
//! * [`write()`]: records to a topic, by an idempotent producer; see [`KafkaSink`].
//! * [`Positions`]: how far a topic has been read, partition by partition.
//! * [`dead_letters`]: the dead letters of a job, in a topic.
//! * [`Tls`] and [`Sasl`]: encryption and authentication, for all of these.
//!
//! The client below is librdkafka, which is compiled in (a C compiler and `make` are needed). Its settings can be reached by
//! `property`. TLS and SCRAM come from the system's OpenSSL; with the feature `vendored-tls` it is compiled in. GSSAPI is left out.
//!
//! # What is promised
//!
//! While a job runs each record that was read is emitted once, and each record that was written is in the topic once, whatever
//! brokers do in between. A job that keeps its state reads on where its snapshot says, and writes each record once (or at least once, as it
//! promises) also over failures; see [`KafkaSource`] and [`KafkaSink`]. One that keeps none reads from where [`Start`] says when it is started
//! again, and what was under way when it ended is lost or written again.
//!
//! # Invariants
//!
//! * A broker that is away is waited for: it is said once on standard error that it is away, and once that it is back.
//! * Nothing is skipped in silence: positions that do not mean any more what they meant, a topic that is gone, a batch that can't be read, a
//!   delivery that failed for good, each fails the job. What another attempt can't change is a permanent error.
//! * Passwords occur in no error and no log.
//! * Whatever may block runs on a thread of its own, and looks at the job at least every 100 ms.
//!
//! # Example
//!
//! ```
//! use ardea_connectors::kafka::{Start, read, write};
//! use ardea_core::{Bounded, Sink, Source, Unbounded};
//!
//! let live: Source<String, Unbounded> =
//!     read("localhost:9092", "flights").start(Start::Latest).text().build();
//! let past: Source<String, Bounded> = read("localhost:9092", "flights").text().until_present().build();
//! let alarms: Sink<(u64, String)> = write("localhost:9092", "alarms", |(id, text): &(u64, String), out| {
//!     out.key(id.to_be_bytes()).value(text);
//!     Ok(())
//! })
//! .build();
//! ```

mod costs;
mod dead_letters;
mod discovery;
mod fingerprint;
mod headers;
mod identity;
mod lost;
mod message;
mod partitions;
mod positions;
mod security;
mod settings;
mod sink;
mod source;
mod teller;
mod topics;

pub use costs::SourceCosts;
pub use dead_letters::{DeadLetterTopic, dead_letters};
pub use message::{Message, Record};
pub use positions::{Bookmark, Positions, Start};
pub use security::{Sasl, Tls};
pub use sink::{KafkaSink, Outgoing, write};
pub use source::{Decoder, KafkaSource, read};
pub use topics::Topics;

use std::time::Duration;

/// The longest that a call waits before it looks at its job again.
const TURN: Duration = Duration::from_millis(100);
