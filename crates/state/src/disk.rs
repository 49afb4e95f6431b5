//! Keyed state larger than memory, on local disk.
//!
//! [`DiskStore`] is a [`StateBackend`](ardea_core::StateBackend): each instance of a process opens
//! an ordered map in the store, and moves the state of cold keys there. The division between memory
//! and disk is up to the instance; see `ardea_operators`. The implementation uses fjall, a
//! log-structured merge tree.
//!
//! # Invariants
//!
//! * **The store is a cache.** Durable state is in the job's checkpoints, so the store does not
//!   survive its process. Nothing is synced to the device, and the files of a killed process are
//!   deleted by the next process that uses the folder.
//! * **Processes may share a folder**: each has its own subfolder, protected by a file lock.
//! * **A reserve of disk space remains**: with less than 128 MiB free, writing fails with
//!   [`DiskFull`](ardea_core::ErrorCode::DiskFull), and the caller retains the data.
//! * No file is opened and no thread started before an instance opens its map.
//!
//! # Example
//!
//! ```
//! use ardea_core::StateBackend;
//! use ardea_state::disk::DiskStore;
//!
//! let folder = std::env::temp_dir().join(format!("disk-example-{}", std::process::id()));
//! let store = DiskStore::new(&folder, 64 << 20);
//! let mut place = store.open()?;
//! place.write(&[(b"a".to_vec(), Some(b"1".to_vec())), (b"b".to_vec(), Some(b"2".to_vec()))])?;
//! let before = place.view();
//! place.write(&[(b"a".to_vec(), None)])?;
//! assert_eq!(place.get(b"a")?, None);
//! assert_eq!(before.get(b"a")?, Some(b"1".to_vec()));
//! assert_eq!(before.range(b"a", b"z").count(), 2);
//! drop((before, place, store));
//! std::fs::remove_dir_all(&folder).ok();
//! # Ok::<(), ardea_core::Error>(())
//! ```

mod failure;
mod folder;
mod instance_store;
mod store;

pub use store::DiskStore;
