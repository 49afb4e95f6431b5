//! Source and sink for PostgreSQL.
//!
//! * [`write()`]: writes each record as a row of a table, with `insert` or
//!   [upsert](PostgresSink::upsert); in a job with checkpoints also [exactly
//!   once](PostgresSink::exactly_once). See [`PostgresSink`].
//! * [`TableName`]: names of tables and columns, which are case-sensitive in source and sink.
//! * [`read`] and [`query`]: read the rows of a table or a query in the order of a key, with
//!   several instances if the key is an integer; see [`PostgresSource`].
//! * [`Cell`]: conversion of Rust values to column values.
//!
//! # Invariants
//!
//! * The connectors wait for a server that is unavailable, starting or full. The beginning and the
//!   end of an outage are each logged once on standard error.
//! * A row that the server refuses (a constraint, a value that does not fit its column) is handled
//!   by the sink's error policy and reported with its record's position. The other rows are
//!   written.
//! * Nothing is skipped silently: rows with a null or duplicate key, which a source would miss,
//!   fail the job.
//! * A table that was dropped, created again or truncated since the checkpoint is detected.
//! * A server that cannot support the sink's guarantee is refused before the first write: a
//!   standby, a connection pooler in transaction mode for a sink that depends on sessions, or
//!   missing permissions.
//! * Memory is bounded: a sink waits for a slow server, and a source waits for a slow job.
//! * Blocking calls run on threads of their own.
//! * Passwords are never shown.
//!
//! # Example
//!
//! ```
//! use ardea_connectors::postgres::{read, write};
//! use ardea_core::{Bounded, Sink, Source};
//!
//! #[derive(serde::Deserialize)]
//! struct Order {
//!     id: i64,
//!     item: String,
//! }
//!
//! let orders: Source<Order, Bounded> = read("postgres://localhost/shop", "orders", "id").build();
//! let counts: Sink<(String, u64)> =
//!     write("postgres://localhost/shop", "counts", ["word", "count"], |(word, count): &(String, u64), row| {
//!         row.set(word).set(count);
//!     })
//!     .upsert(["word"])
//!     .build();
//! ```

mod address;
mod cell;
mod connection;
mod connection_count;
mod encryption;
mod error_class;
mod pooler;
mod relation;
mod replaced;
mod rows;
mod session;
mod sink;
mod source;
mod table_name;
mod unbound;

pub use cell::Cell;
pub use replaced::OnReplaced;
pub use rows::Row;
pub use sink::{PostgresSink, write};
pub use source::{PostgresSource, query, read};
pub use table_name::TableName;
