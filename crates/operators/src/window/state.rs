//! The slices of windows, and the watermarks by partition, as checkpointed state.
//!
//! * `open_slices`, `frozen_slices`, `dropped_slices`, `restored_slices`: slices that receive
//!   records, closed ones, dropped ones that a snapshot still needs, and restored ones;
//! * `window_state`: tracks their changes, and writes snapshots; `delta_*`: the entries;
//! * `partition_watermarks`, `partition_lag`: watermarks by partition, and partitions behind.

mod delta_blocks;
mod delta_buffer;
mod delta_format;
mod delta_index;
mod delta_keys;
mod delta_writer;
mod dropped_slices;
pub(super) mod frozen_slices;
pub(super) mod open_slices;
pub(super) mod partition_lag;
pub(super) mod partition_watermarks;
mod restored_slices;
pub(super) mod window_state;

use super::spec::Slice;

/// A slice and the number of one of its tables.
pub(super) type SliceId = (Slice, u32);

/// Returns true if the emitted windows do not contain the records of an open table yet.
fn is_pending((_, number): SliceId) -> bool {
    number > 0
}
