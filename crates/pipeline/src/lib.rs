//! The typed fluent API over the core graph.
//!
//! A [`Pipeline`] describes a job step by step: read from a source, transform, group, window, join, write to a sink. The types carry the
//! rules: a stream without event time can't be windowed, one without an end can't be sorted, a result that goes nowhere is refused.
//! The same steps serve streams that end and streams that don't.
//!
//! In reading order:
//!
//! * [`Pipeline`], [`Stream`]: sources, sinks and steps on single records;
//! * [`KeyedStream`], [`WindowedStream`], [`Window`]: grouping, windows, aggregates;
//! * joins: [`Stream::hash_join`], [`KeyedStream::interval_join`], [`WindowedStream::join`] and others;
//! * [`Collected`]: results in memory;
//! * [`Exchange`], [`Kept`], [`Local`]: which records may go to other processes, and what steps may remember beyond their lives.
//!
//! # Invariants
//!
//! * A pipeline is inert: nothing runs until it is submitted, and compiling it twice gives the same graph.
//! * Every step lowers itself to vertices and edges of [`ardea_core::Dag`]; nothing else is run.
//! * Steps after which records are elsewhere ask that they are [`Exchange`], so that a job that runs in one process runs on many.
//! * Every step that keeps something for each key has the name that its author gave it.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use ardea_aggregate::sum;
//! use ardea_connectors::collections::items;
//! use ardea_core::Timestamp;
//! use ardea_pipeline::{Pipeline, WatermarkPolicy, Window};
//!
//! let p = Pipeline::new("sales");
//! let sales = vec![("tea", 2, 3i64), ("milk", 5, 1), ("tea", 9, 4), ("tea", 12, 1)];
//! let per_ten_seconds = p
//!     .read_from(items(sales))
//!     .with_timestamps(|(_, second, _)| Timestamp::from_secs(*second), WatermarkPolicy::in_order())
//!     .key_by(|(product, ..)| *product)
//!     .window(Window::tumbling(Duration::from_secs(10)))
//!     .aggregate("sold", sum(|(_, _, amount): &(&str, i64, i64)| *amount))
//!     .map(|window| (window.key, window.value))
//!     .collect();
//! p.run().unwrap();
//! assert_eq!(per_ten_seconds.take_sorted(), [("milk", 1), ("tea", 1), ("tea", 7)]);
//! ```
#![forbid(unsafe_code)]

mod pipeline;
mod stream;

mod branch;
mod timed;

mod co_window;
mod keyed;
mod state;
mod window;
mod window_kind;

mod join;

mod collected;
mod job;
mod step;

pub use ardea_codec::{Exchange, Kept, Local};
pub use ardea_operators::{
    EarlyFiring, Either, Firing, JoinInterval, KeyedContext, Trigger, WatermarkPolicy, Weekday,
    WindowChange, WindowResult,
};
pub use collected::Collected;
pub use keyed::KeyedStream;
pub use pipeline::Pipeline;
pub use stream::{HasEventTime, Stream, Timed, Untimed};
pub use window::WindowedStream;
pub use window_kind::Window;
