//! Snapshots: the state that an instance writes at the end of an epoch and gets back on restore.
//!
//! An **epoch** ends at a barrier. A snapshot is the state of one instance at the end of an epoch;
//! a [`SnapshotRequest`] requests one. It is a set of **entries** ([`StateEntry`]), each with the
//! name of a state, an optional partition, a key, and a value or a tombstone. On restore an entry
//! with a partition goes to the instance that owns that partition, at any parallelism. An entry
//! without a partition goes to all instances of the vertex.
//!
//! * [`StateChunk`]: entries in a reusable buffer;
//! * [`SnapshotWriter`]: the writer of a snapshot, with a limit of bytes per call;
//! * [`SmallSnapshot`], [`RemovedKeys`], [`instance_state`]: helpers for processors with small
//!   snapshots;
//! * [`PendingCommit`]: a helper for processors that wait for commits;
//! * [`RestoredState`]: the iterator over restored entries;
//! * [`StateCodec`]: serialization of values to bytes, or to an [`Integer`];
//! * [`Schema`], [`StateShape`]: the types of state, stored with the entries;
//! * [`StateRegistry`]: the check that snapshots contain all states of an operator;
//! * [`StateBackend`]: local disk storage for state that does not fit into memory.
//!
//! [`Processor`](crate::Processor) documents the order of the calls.

mod backend;
mod codec;
mod entry;
pub mod instance_state;
mod integer;
mod pending_commit;
mod restored;
mod schema;
mod small_snapshot;
mod snapshot;
mod state_registry;

pub use backend::{KeyValueStore, LocalChange, LocalEntries, StateBackend, StoreSnapshot};
pub use codec::StateCodec;
pub use entry::{StateChunk, StateEntries, StateEntry};
pub use integer::{Integer, IntegerType};
pub use pending_commit::PendingCommit;
pub use restored::{RestoredEntry, RestoredState};
pub use schema::{
    EnumSchema, FieldSchema, Schema, StateForm, StateShape, StructSchema, VariantSchema,
};
pub use small_snapshot::{RemovedKeys, SmallSnapshot};
pub use snapshot::{SnapshotRequest, SnapshotWriter};
pub use state_registry::StateRegistry;

/// The first character of the names of the runtime's own states; names of processors' states begin
/// with another one.
pub const RUNTIME_STATE: char = '@';
