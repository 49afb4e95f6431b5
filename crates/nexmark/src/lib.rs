//! The NEXMark benchmark: an auction site's events, their generator, its queries, and plain loops
//! as a baseline for engines.
//!
//! NEXMark (Tucker, Tufte, Papadimos, Maier: "NEXMark – A Benchmark for Queries over Data Streams",
//! 2002; here as in Apache Beam's documentation) models an auction site: persons register, open
//! auctions and bid. This crate has the events in two forms:
//!
//! - [`Event`] ([`Person`], [`Auction`], [`Bid`]): complete events with all their strings, as read
//!   from and written to JSON lines. [`Generator`] generates them, and [`write_jsonl`] writes a
//!   file of them.
//! - [`BidRow`], [`PersonRow`], [`AuctionRow`]: only the numbers of an event, generated in a
//!   nanosecond or two, for measuring an engine without the creation of strings. [`baseline`] has
//!   hand-written loops over these rows. [`checksum`] computes order-independent sums that prove
//!   that both sides computed the same.
//!
//! [`queries`] has the queries as pipelines over a file of events.
//!
//! # Invariants
//!
//! - Event `i` is a function of the seed and `i` alone, and [`Schedule`] determines its time. So
//!   any thread can generate any part of a stream. A stream is the same on every machine, since no
//!   floating point is involved.
//! - Event times are milliseconds since the Unix epoch and may be negative; ids and prices are
//!   unsigned integers.
//!
//! The folder `oracle` beside `src` computes every query in SQL over a file of JSON lines, for the
//! tests.
//!
//! # Example
//!
//! ```
//! use ardea_nexmark::{Event, Generator, GeneratorConfig};
//!
//! let config = GeneratorConfig { seed: 7, events: 100, ..GeneratorConfig::default() };
//! let bids = Generator::new(config)?.filter(|event| matches!(event, Event::Bid(_))).count();
//! assert_eq!(bids, 92); // 46 of every 50
//! # Ok::<(), ardea_nexmark::NexmarkError>(())
//! ```

#![forbid(unsafe_code)]

pub mod baseline;
mod bench_events;
mod catalogue;
pub mod checksum;
mod error;
mod event;
mod event_clock;
mod generator;
pub mod queries;
mod random;
mod schedule;
mod web;

pub use bench_events::{
    AuctionRow, BidRow, BidRows, DEFAULT_KEYS, KEYS_MAX, PERSON_EVERY, PersonRow, SIDE_KEYS,
    auction_at, bid_at, is_person_at, person_at, side_value,
};
pub use error::NexmarkError;
pub use event::{Auction, Bid, DOLLAR_TO_EURO, Event, Person};
pub use event_clock::EventClock;
pub use generator::{Generator, GeneratorConfig, write_jsonl};
pub use schedule::Schedule;
