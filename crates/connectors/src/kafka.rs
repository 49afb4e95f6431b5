//! Source and sink for Apache Kafka.
//!
//! * [`read`]: reads the records of one or several topics. Partitions are distributed over the
//!   source's instances. Each partition has its own watermark; see [`KafkaSource`].
//! * [`write()`]: writes records to a topic with an idempotent producer; see [`KafkaSink`].
//! * [`Positions`]: the next offset of each partition of a topic.
//! * [`dead_letters`]: writes the dead letters of a job to a topic.
//! * [`Tls`] and [`Sasl`]: encryption and authentication for all of these.
//!
//! The client is librdkafka, which is compiled in (a C compiler and `make` are needed). Its
//! properties are set with `property`. TLS and SCRAM use the system's OpenSSL; the feature
//! `vendored-tls` compiles it in. GSSAPI is not included.
//!
//! # Guarantees
//!
//! While a job runs, each record read is emitted once and each record written is in the topic once,
//! also across broker failures. A job with checkpoints resumes from the positions in its
//! checkpoint. It writes each record exactly once or at least once after failures, depending on its
//! guarantee; see [`KafkaSource`] and [`KafkaSink`]. A job without checkpoints starts again at the
//! configured [`Start`]. Records in flight when it ended are lost or written again.
//!
//! # Invariants
//!
//! * The connectors wait for unavailable brokers. The beginning and the end of an outage are each
//!   logged once on standard error.
//! * Nothing is skipped silently: lost positions, a deleted topic, an unreadable batch and a failed
//!   delivery each fail the job. Errors that a new attempt cannot fix are permanent.
//! * No error or log line contains a password.
//! * Blocking calls run on threads of their own and check the job at least every 100 ms.
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

#[cfg(feature = "avro")]
mod avro;
mod client_context;
mod cpu_accounting;
mod dead_letters;
mod discovery;
mod fingerprint;
mod headers;
mod identity;
mod lost;
mod message;
mod partitions;
mod positions;
#[cfg(feature = "protobuf")]
mod protobuf;
#[cfg(any(feature = "avro", feature = "protobuf"))]
mod schema_registry;
mod security;
mod settings;
mod sink;
mod source;
mod topics;

#[cfg(feature = "avro")]
pub use avro::{Avro, AvroBatchDecoder, AvroBatches, AvroDecoder, AvroValues};
pub use cpu_accounting::SourceCosts;
pub use dead_letters::{DeadLetterTopic, dead_letters};
pub use message::{Message, Record};
pub use positions::{EmittedPositions, Positions, Start};
#[cfg(feature = "protobuf")]
pub use protobuf::{
    Protobuf, ProtobufBatchDecoder, ProtobufBatches, ProtobufDecoder, ProtobufValues,
};
#[cfg(any(feature = "avro", feature = "protobuf"))]
pub use schema_registry::SchemaRegistry;
pub use security::{Sasl, Tls};
pub use sink::{KafkaSink, Outgoing, write};
pub use source::decoders::{
    BatchMessageDecoder, DecodeMessage, DecodeMessageBatch, Decoder, FormatDecoder,
    FunctionDecoder, MessageDecoder,
};
pub use source::{KafkaSource, read};
pub use topics::Topics;
