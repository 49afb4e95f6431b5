//! Keyed state that is larger than memory, on local disk.
//!
//! [`DiskStore`] is a [`LocalStore`](ardea_core::LocalStore): the instances of a process get places there, each an ordered map, in which they
//! put the state of keys that have not come for long. What an instance keeps in memory and what on disk is its own business; see
//! `ardea_operators`. Below is fjall, a log-structured merge tree.
//!
//! # Invariants
//!
//! * **It is a cache.** Nothing in it is needed once the process has ended: what a job has to remember beyond that is in its snapshots. So nothing
//!   is synchronised with the device, and what a process leaves behind that was killed is removed by the next one that uses the folder.
//! * **Processes may share a folder**: each has a part of its own, which it holds by a lock of the kernel.
//! * **A disk is not filled to the brim**: with less than 128 MiB free, writing fails with [`DiskFull`](ardea_core::ErrorCode::DiskFull), and
//!   what was to be written stays with whoever wanted to.
//! * Nothing is opened, and no thread started, before an instance asks for a place.
//!
//! # Example
//!
//! ```
//! use ardea_core::LocalStore;
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
mod place;
mod store;

pub use store::DiskStore;
