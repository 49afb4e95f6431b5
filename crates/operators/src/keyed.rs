//! Operators with keyed state.

mod active_snapshot;
mod buffered_records;
mod change_stamps;
mod changes;
mod context;
mod distinct;
mod key_processor;
mod logic;
mod restoring_partitions;
mod slot_versions;
mod snapshot_log;
mod spill;
mod spilled_entry;
mod spilled_keys;
mod state_codec;
mod stateful_map;
mod states;
mod timer_codec;
mod timers;

#[cfg(test)]
mod on_disk_tests;
#[cfg(test)]
pub(crate) mod test_codecs;
#[cfg(test)]
mod test_disk;

pub use context::{KeyedContext, TimerKind};
pub use distinct::DistinctP;
pub use logic::{KeyedLogic, flat_map_stateful, map_stateful};
pub use state_codec::StateCodecs;
pub use stateful_map::StatefulMapP;

pub(crate) use buffered_records::BufferedRecords;
pub(crate) use change_stamps::{ChangeStamps, Sweep, TrackChanges, TrackInserts};
pub(crate) use changes::Changes;
pub(crate) use snapshot_log::{SnapshotLog, SnapshotPoint};
pub(crate) use spilled_entry::{DueKind, DueTimes};
pub(crate) use state_codec::{
    SerializedPart, ValueReader, duplicate_entry, forgotten_without, put_part, put_time, put_times,
    truncated_entry, write_removed,
};
pub(crate) use states::KeyedStates;
pub(crate) use timers::TimerSet;

/// The name of the single state of keyed operators.
pub(crate) const STATE: &str = "keys";

/// The maximum number of slots scanned per call for a snapshot.
pub(crate) const PLACES_PER_CALL: usize = 1_024;

/// The written generation of a slot that is free.
const FREE: u32 = u32::MAX;
