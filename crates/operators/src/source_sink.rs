//! Beginnings and ends that need no system outside: iterators, closures, collections.

mod collect_sink;
mod for_each_sink;
mod iter_source;
mod null_sink;

pub use collect_sink::CollectSinkP;
pub use for_each_sink::{ForEachBatchSinkP, ForEachSinkP};
pub use iter_source::IterSourceP;
pub use null_sink::NullSinkP;
