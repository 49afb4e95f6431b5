//! Sources and sinks for TCP connections, as client or as server.
//!
//! [`connect`] reads from a server, [`listen`] receives lines from many clients, [`send`] writes to
//! a server. The default format is lines of text.
//!
//! ```
//! use std::time::Duration;
//! use ardea_connectors::format::JsonLines;
//! use ardea_connectors::tcp::{self, Backoff};
//! use ardea_core::{Sink, Source, Unbounded};
//!
//! let ticks: Source<String, Unbounded> =
//!     tcp::connect("feed.example.org:7000").reconnect(Backoff::default()).build();
//!
//! let server = tcp::listen("9000").decode(JsonLines);
//! let address = server.address();
//! let events: Source<(String, u64), Unbounded> = server.build();
//! // Once the job runs: address.wait(Duration::from_secs(1))
//!
//! let alerts: Sink<String> = tcp::send("10.0.0.7:9100").build();
//! ```

mod connect;
mod dial;
mod listen;
mod send;

pub use connect::{ConnectSource, connect};
pub use dial::Backoff;
pub use listen::{BoundAddress, ListenSource, listen};
pub use send::{SendSink, send};
