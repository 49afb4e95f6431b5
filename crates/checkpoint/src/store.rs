//! Checkpoint store: snapshots of instances in block files, and manifests that combine them into
//! checkpoints.
//!
//! At the end of an epoch each instance writes its **snapshot**: entries of a state name, an
//! optional partition, a key, and a value or a tombstone, all as bytes. A snapshot is full or an
//! **increment**. The process of the instance writes it as **blocks**, compressed and checksummed.
//! A **manifest** that refers to the blocks of all instances makes them a **checkpoint**.
//!
//! An older entry stays valid until a newer one replaces it, so the state of a vertex is a chain of
//! **layers**, one per checkpoint. **Compaction** merges layers to keep the chain short. State that
//! is rewritten all the time needs no compaction: once all instances have declared it
//! [outdated](StateHandle::outdating), its entries in older layers are dropped.
//!
//! In reading order:
//!
//! * [`ObjectStore`]: the interface to a storage location, with its implementations
//!   [`LocalDirStore`], [`MemoryStore`]; [`FileName`];
//! * [`CheckpointId`], [`PartitionRange`]: names of checkpoints and key ranges;
//! * [`BlockWriter`], [`SnapshotOwner`], [`SnapshotKind`], [`StateHandle`]: writing a snapshot;
//! * [`CheckpointStore`], [`Commit`]: committing checkpoints, and removing old ones;
//! * [`Checkpoint`], [`Entries`]: reading checkpoints;
//! * [`Compaction`]: merging layers;
//! * [`CheckpointReport`]: sizes and durations; [`seal`], [`unseal`]: text files with a version and
//!   a checksum;
//! * `conformance`, with the feature of that name: a test suite for implementations of
//!   [`ObjectStore`].
//!
//! # Invariants
//!
//! * **A checkpoint exists exactly when its manifest does.** The manifest is written last, when all
//!   blocks are durable, and removed first.
//! * **Files are immutable.** Every file is written once, as a whole, under a unique name, and
//!   removed when no checkpoint needs it.
//! * **All damage is detected.** Every byte of every file is covered by a checksum; a reader gets
//!   the written data or an error that names the file.
//! * **An increment is valid only with its base.** A commit is refused unless it has one snapshot
//!   of each instance, all based on the same checkpoint.
//! * **Only files of checkpoints are removed**, recognized by their exact names.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use ardea_core::{Epoch, PartitionId, Timestamp};
//! use ardea_checkpoint::store::*;
//!
//! let folder = Arc::new(MemoryStore::new());
//! let store = CheckpointStore::open(folder, "words", StoreConfig::default())?;
//!
//! // An instance writes its snapshot; the handle is sent to the committer.
//! let id = CheckpointId::new(1, Epoch(7));
//! let of = SnapshotOwner { checkpoint: id, vertex: "count".into(), instance: 0, instances: 1 };
//! let mut writer = store.writer(of, SnapshotKind::Full { partitions: PartitionRange::ALL })?;
//! writer.set("counts", Some(PartitionId::of_canonical(b"heron")), b"heron", b"3")?;
//! let receipt = writer.finish()?;
//! store.commit(&Commit { id, base: None, at: Timestamp::from_secs(1), snapshots: vec![receipt] })?;
//!
//! // Later, perhaps in another process.
//! let checkpoint = store.latest()?.expect("it was committed");
//! let mut entries = checkpoint.entries("count", "counts", PartitionRange::ALL);
//! let entry = entries.next_entry()?.expect("there is one");
//! assert_eq!((entry.key, entry.value), (&b"heron"[..], &b"3"[..]));
//! # Ok::<(), ardea_core::Error>(())
//! ```

mod block_cache;
mod file_name;
mod id;
mod partitions;

mod folder;
mod local_store;
mod memory_store;
mod probe;

mod block;
mod block_compressor;
mod checksummed_file;
mod parallel;
mod state_handle;
mod writer;
mod yield_pacer;

mod assemble;
mod layer;
mod manifest;

mod checkpoint;
mod merge;
mod report;

mod checkpoint_store;
mod compaction;

mod failure;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use assemble::Commit;
pub use checkpoint::{Checkpoint, Extent};
pub use checkpoint_store::{CheckpointStore, Collected, LatestValid, StoreConfig};
pub use checksummed_file::{Unsealed, seal, unseal};
pub use compaction::{Compaction, CompactionProgress};
pub use file_name::FileName;
pub use folder::{FileEntry, FileState, ObjectStore};
pub use id::CheckpointId;
pub use local_store::LocalDirStore;
pub use memory_store::MemoryStore;
pub use merge::{Entries, Entry};
pub use partitions::{KeySlot, PartitionRange};
pub use report::{CheckpointReport, VertexReport};
pub use state_handle::{SnapshotKind, SnapshotOwner, StateHandle};
pub use writer::{BlockConfig, BlockWriter};
