//! The state backend: keyed state with change tracking, timers and time-to-live.
//!
//! An operator holds a [`KeyedState`] and returns it from
//! [`Processor::checkpointed`](ardea_core::Processor::checkpointed). The backend writes snapshots
//! and increments, restores partition by partition, moves cold keys to disk, hands state over
//! between attempts, and reports its size.
//!
//! * [`KeyedState`]: one value per key, with timers and a time-to-live;
//! * [`ListState`], [`MapState`]: a list or map per key, written entry by entry;
//!   [`AggregatingState`]: an accumulator per key;
//! * [`InstanceValue`]: one value per instance, such as a read position;
//! * [`OperatorState`]: the states of an operator that has several;
//! * [`TableState`]: one value per key, for values that nearly all change between two snapshots;
//! * [`StateCodecs`]: the serializers of keys and values;
//! * [`StateTable`]: the table below, for operators with a format of their own;
//! * [`KeyTable`], [`KeyIndex`]: tables without change tracking; [`SnapshotLog`] and
//!   [`ChangeStamps`] add it where a record must cost no more than its table;
//! * `disk` (feature of that name): the store for state that is larger than memory.
//!
//! # Invariants
//!
//! * A snapshot contains the state at [`take_snapshot`](ardea_core::Checkpointed::take_snapshot),
//!   whatever changes while it is written. Taking it copies nothing.
//! * An increment contains every change and removal since the last committed snapshot.
//! * A key is in memory or on disk, never both.
//! * Equal inputs give equal outputs: nothing depends on the order of a hash table.
//!
//! # Example
//!
//! ```
//! use std::borrow::Cow;
//! use ardea_state::KeyedState;
//!
//! let mut counts: KeyedState<&str, u64> = KeyedState::new("counts");
//! for word in ["to", "be", "to"] {
//!     *counts.entry(Cow::Borrowed(&word), || 0)?.1 += 1;
//! }
//! assert_eq!(counts.value(&"to"), Some(&2));
//! # Ok::<(), ardea_core::Error>(())
//! ```
#![forbid(unsafe_code)]

mod aggregating_state;
mod changes;
mod codec;
#[cfg(feature = "disk")]
pub mod disk;
mod instance_value;
mod key_table;
mod keyed_state;
mod list_state;
mod map_state;
mod operator_state;
mod table;
mod table_state;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use aggregating_state::AggregatingState;
pub use changes::change_stamps::{ChangeStamps, StampScan, TrackChanges, TrackInserts};
pub use changes::snapshot_log::{SnapshotLog, SnapshotPoint};
pub use codec::{
    SerializedPart, StateCodecs, ValueReader, duplicate_entry, put_part, put_time, put_times,
    truncated_entry, unsaved_without, write_removed,
};
pub use instance_value::InstanceValue;
pub use key_table::{ChangeListener, KeyIndex, KeyTable};
pub use keyed_state::buffered_records::BufferedRecords;
pub use keyed_state::timers::{KeyTimers, TimerKind, TimerSet};
pub use keyed_state::{KeyedState, MIN_BUFFERED};
pub use list_state::ListState;
pub use map_state::MapState;
pub use operator_state::{NamedState, OperatorState, StateFields};
pub use table::StateTable;
pub use table_state::TableState;

/// The default name of the state of a keyed operator.
pub const STATE: &str = "keys";

/// The maximum number of slots scanned per call for a snapshot.
pub(crate) const PLACES_PER_CALL: usize = 1_024;
