//! Source and sink for PostgreSQL.
//!
//! * [`write()`]: records into a table, a row each: inserted, [upserted](PostgresSink::upsert), or,
//!   in a job that keeps its state, there [exactly once](PostgresSink::exactly_once); see
//!   [`PostgresSink`].
//! * [`TableName`]: names are taken as they are, by reader and writer alike.
//! * [`read`] and [`query`]: the rows of a table or a query in the order of a key, by several
//!   instances if it is a whole number; see [`PostgresSource`].
//! * [`Cell`]: what values of Rust become in columns.
//!
//! # Invariants
//!
//! * A server that is away, starting, or full is waited for: that is said once on standard error
//!   with the reason, and once that it is back.
//! * A row that the server refuses (a constraint, a value that does not fit its column) is dealt
//!   with as the sink says, with its record's position; the rows around it are written.
//! * Nothing is skipped in silence: rows that a source would pass over, since their key is null or
//!   not unique, fail the job.
//! * A table that was dropped, created again or emptied under a position is noticed.
//! * A server that can't give what a sink promises is refused before anything is written: a
//!   standby, a connection pooler in transaction mode in front of a sink that depends on sessions,
//!   a table without the permissions that are needed.
//! * Memory is bounded: a job that is faster than the server waits, and so does a source whose job
//!   is slow.
//! * Whatever may block runs on a thread of its own.
//! * A password is never shown.
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
mod encryption;
mod held;
mod pooler;
mod relation;
mod replaced;
mod rows;
mod session;
mod sink;
mod source;
mod table_name;
mod trouble;
mod unbound;

pub use cell::Cell;
pub use replaced::OnReplaced;
pub use rows::Row;
pub use sink::{PostgresSink, write};
pub use source::{PostgresSource, query, read};
pub use table_name::TableName;

use std::time::Duration;

/// The longest that a call waits before it looks at its job again.
const TURN: Duration = Duration::from_millis(100);
