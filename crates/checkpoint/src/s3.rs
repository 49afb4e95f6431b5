//! Checkpoints in a bucket of an S3-compatible object store.
//!
//! [`S3Store`] is an [`ObjectStore`](crate::store::ObjectStore): files are objects under a prefix
//! that is used by one job only.
//!
//! Addresses and credentials are those of [`ardea_bucket`].
//!
//! # Invariants
//!
//! * **Objects are atomic and immutable**: an object is written with a conditional request that
//!   fails if the name is taken. If two writers on any hosts write different bytes to one name, one
//!   of them fails. This prevents two processes from running the same job.
//! * A store that ignores the condition is detected by [`probe`](crate::store::ObjectStore::probe),
//!   before a job writes anything.
//! * A request whose answer was lost is repeated; an existing object with the same bytes is a
//!   success.
//! * Requests to a store that does not answer are retried with increasing delays for about twenty
//!   seconds. Then the call fails, and the job continues without this checkpoint.
//! * The number of concurrent requests per call is limited.
//!
//! # Example
//!
//! ```no_run
//! use std::sync::Arc;
//! use ardea_checkpoint::store::{ObjectStore, CheckpointStore, StoreConfig};
//! use ardea_checkpoint::s3::S3Store;
//!
//! let folder: Arc<dyn ObjectStore> = Arc::new(S3Store::open("s3://states/wordcount?endpoint=http://localhost:9000")?);
//! let store = CheckpointStore::open(folder, "wordcount", StoreConfig::default())?;
//! # Ok::<(), ardea_core::Error>(())
//! ```

mod folder;
mod unconditional;

pub use ardea_bucket::{Credentials, check_address, is_address};
pub use folder::S3Store;
