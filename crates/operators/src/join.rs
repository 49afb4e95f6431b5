//! Operators that join, combine and sort records.

mod broadcast_input;
mod build_table;
mod hash_join;
mod interval;
mod interval_join;
mod join_buffers;
mod sort;

pub use broadcast_input::{BroadcastInputP, BroadcastLogic};
pub use build_table::BuildTable;
pub use hash_join::{HashJoinLogic, HashJoinP, enrich, inner_hash_join, outer_hash_join};
pub use interval::JoinInterval;
pub use interval_join::{
    IntervalJoinLogic, IntervalJoinP, inner_interval_join, outer_interval_join,
};
pub use sort::SortP;
