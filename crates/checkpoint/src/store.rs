//! Keeps what the instances of a job hand over at the ends of epochs, so that it can be read back after whatever happened.
//!
//! At the end of an epoch each instance hands over its **cut**: entries of a state's name, a partition or none, a key, and a value or that
//! the key was removed. They are bytes here. A cut is full or an **increment**; it is written as **blocks**, packed and with checksums,
//! wherever the instance is. A **manifest** that refers to the blocks of all instances makes them a **snapshot**. What was handed over
//! before goes on to count where nothing newer was said, so the state of a vertex is a chain of **layers**, one a snapshot; **folding** makes
//! one of several, so that the chain stays short. State that is written anew all the time needs none: once all instances have said that it is
//! [outdated](CutReceipt::outdating), what older layers have of it goes unread.
//!
//! In reading order:
//!
//! * [`Folder`]: what is needed of a place; [`DiskFolder`], [`MemoryFolder`]; [`FileName`];
//! * [`SnapshotId`], [`PartitionRange`]: what snapshots and key ranges are called;
//! * [`BlockWriter`], [`CutOf`], [`CutKind`], [`CutReceipt`]: writes a cut;
//! * [`SnapshotStore`], [`Commit`]: makes snapshots, and removes old ones;
//! * [`Snapshot`], [`Entries`]: reads them;
//! * [`Fold`]: keeps chains short;
//! * [`SnapshotReport`]: sizes and durations; [`seal`], [`unseal`]: text files with a version and a checksum;
//! * `conformance`, with the feature of that name: what every folder promises, as a suite.
//!
//! # Invariants
//!
//! * **A snapshot is there exactly when its manifest is.** The manifest is written last, when all blocks are safe, and removed first.
//! * **Nothing is changed that was written.** Every file is written once, whole, under a name of its own, and removed when no snapshot
//!   needs it.
//! * **No damage goes unnoticed.** Every byte of every file is under a checksum; a reader gets what was handed over, or an error that names
//!   the file.
//! * **An increment counts only upon what it is based on.** Commits are refused whose cuts are not one of each instance, or based on
//!   another snapshot.
//! * **Only what is a snapshot's is removed**: files with exactly the names that are given here.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use ardea_core::{Epoch, PartitionId, Timestamp};
//! use ardea_checkpoint::store::*;
//!
//! let folder = Arc::new(MemoryFolder::new());
//! let store = SnapshotStore::open(folder, "words", StoreConfig::default())?;
//!
//! // An instance hands over its cut; its receipt travels to whoever commits.
//! let id = SnapshotId::new(1, Epoch(7));
//! let of = CutOf { snapshot: id, vertex: "count".into(), instance: 0, instances: 1 };
//! let mut writer = store.writer(of, CutKind::Full { partitions: PartitionRange::ALL })?;
//! writer.set("counts", Some(PartitionId::of_canonical(b"heron")), b"heron", b"3")?;
//! let receipt = writer.finish()?;
//! store.commit(&Commit { id, base: None, at: Timestamp::from_secs(1), cuts: vec![receipt] })?;
//!
//! // Later, perhaps in another process.
//! let snapshot = store.latest()?.expect("it was committed");
//! let mut entries = snapshot.entries("count", "counts", PartitionRange::ALL);
//! let entry = entries.next_entry()?.expect("there is one");
//! assert_eq!((entry.key, entry.value), (&b"heron"[..], &b"3"[..]));
//! # Ok::<(), ardea_core::Error>(())
//! ```

mod file_name;
mod id;
mod partitions;
mod recent;

mod disk_folder;
mod folder;
mod memory_folder;
mod probe;

mod block;
mod core_pace;
mod cut;
mod packer;
mod parallel;
mod sealed;
mod writer;

mod assemble;
mod layer;
mod manifest;

mod merge;
mod report;
mod snapshot;

mod checkpoint_store;
mod fold;

mod failure;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use assemble::Commit;
pub use checkpoint_store::{Collected, NewestWhole, SnapshotStore, StoreConfig};
pub use cut::{CutKind, CutOf, CutReceipt};
pub use disk_folder::DiskFolder;
pub use file_name::FileName;
pub use fold::{Fold, FoldProgress};
pub use folder::{FileState, Folder, Listed};
pub use id::SnapshotId;
pub use memory_folder::MemoryFolder;
pub use merge::{Entries, Entry};
pub use partitions::{PartitionRange, Place};
pub use report::{SnapshotReport, VertexReport};
pub use sealed::{Unsealed, seal, unseal};
pub use snapshot::{Extent, Snapshot};
pub use writer::{BlockConfig, BlockWriter};
