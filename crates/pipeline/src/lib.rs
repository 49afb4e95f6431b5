//! The typed fluent API over the core graph.
//!
//! A [`Pipeline`] describes a job step by step: read from a source, transform, key, window, join,
//! write to a sink. The types enforce the rules: a stream without event time cannot be windowed, an
//! unbounded stream cannot be sorted, and a result without a consumer is refused. The same steps
//! work for bounded and unbounded streams.
//!
//! In reading order:
//!
//! * [`Pipeline`], [`Stream`]: sources, sinks and steps on single records;
//! * [`KeyedStream`], [`WindowedStream`], [`Window`]: keys, windows, aggregates;
//! * joins: [`Stream::hash_join`], [`KeyedStream::interval_join`], [`WindowedStream::join`] and
//!   others;
//! * [`Collected`]: results in memory;
//! * [`ExchangeData`], [`StateValue`], [`Local`]: records that can be sent to other processes, and
//!   state that can be checkpointed.
//!
//! # Invariants
//!
//! * A pipeline is inert: nothing runs until it is submitted, and compiling it twice gives the same
//!   graph.
//! * Every step is lowered to vertices and edges of [`ardea_core::Dag`]; nothing else is run.
//! * Steps that move records between instances require [`ExchangeData`], so that a job that runs in
//!   one process also runs on many.
//! * Every step with state per key has a name given by the author.
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
mod record_codecs;
mod stream;

mod branch;
mod timed;

mod co_window;
mod combine;
mod keyed;
mod state;
mod window;
mod window_kind;

mod join;

mod collected;
mod extension;
mod in_process;
mod job;
mod step;

pub use ardea_codec::{ExchangeData, Local, StateValue};
pub use ardea_operators::{
    EarlyFiring, Either, Firing, JoinInterval, KeyedContext, Trigger, WatermarkPolicy, Weekday,
    WindowChange, WindowResult,
};
pub use collected::Collected;
pub use combine::Combine;
pub use keyed::KeyedStream;
pub use pipeline::Pipeline;
pub use stream::{HasEventTime, Stream, Timed, Untimed};
pub use window::WindowedStream;
pub use window_kind::Window;
