//! Checkpoints in a bucket of an S3-compatible object store.
//!
//! [`S3Store`] is an [`ObjectStore`](crate::store::ObjectStore): files are objects under a prefix
//! that is used by one job only.
//!
//! # Addresses and credentials
//!
//! An address is `s3://BUCKET/PREFIX`; `?endpoint=http://host:port` and `&region=…` select a store
//! other than Amazon's. The credentials, and an endpoint or region that the address does not have,
//! come from the usual environment: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
//! `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`, roles of containers and machines.
//! Credentials are never part of an address, and never displayed.
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

mod address;
mod failure;
mod folder;

pub use address::{Credentials, check_address, is_address};
pub use folder::S3Store;
