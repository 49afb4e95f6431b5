//! Operators without state, or with a counter only.

mod filter;
mod filter_map;
mod flat_map;
mod inspect;
mod limit;
mod map;
mod map_timed;
mod merge;
mod partition_map;
mod sample;
mod split;
mod tee;
mod tee_map;
mod try_map;

pub use filter::FilterP;
pub use filter_map::FilterMapP;
pub use flat_map::FlatMapP;
pub use inspect::InspectP;
pub use limit::LimitP;
pub use map::MapP;
pub use map_timed::MapTimedP;
pub use merge::MergeP;
pub use partition_map::{Either, PartitionMapP};
pub use sample::SampleP;
pub use split::SplitP;
pub use tee::TeeP;
pub use tee_map::TeeMapP;
pub use try_map::TryMapP;
