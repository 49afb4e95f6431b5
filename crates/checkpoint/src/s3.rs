//! Snapshots in a bucket of an object store that speaks the protocol of S3.
//!
//! [`S3Folder`] is a [`Folder`](crate::store::Folder): what is written there is an object, under a prefix that is this job's alone.
//!
//! # Where it is, and who may
//!
//! An address is `s3://BUCKET/PREFIX`; `?endpoint=http://host:port` and `&region=…` behind it name a store that is not Amazon's. Both,
//! and the credentials, are otherwise those of the usual environment: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`,
//! `AWS_REGION`, `AWS_ENDPOINT_URL`, roles of containers and machines. They are never part of an address, and never shown.
//!
//! # Invariants
//!
//! * **An object is there whole or not at all, and is never changed**: it is written on the condition that its name is free, which the store
//!   decides. So of two who write the same name with other bytes one fails, wherever they are: that is what keeps two processes from both
//!   going on with a job.
//! * A store that passes over that condition is found out by
//!   [`probe`](crate::store::Folder::probe), before a job writes anything there.
//! * A request whose answer was lost is made again; an object that is there with the same bytes is success.
//! * A store that does not answer is asked again, less and less often, for about twenty seconds; then the call fails, and the job goes on
//!   without this snapshot.
//! * Of many files some are under way at a time, not all.
//!
//! # Example
//!
//! ```no_run
//! use std::sync::Arc;
//! use ardea_checkpoint::store::{Folder, SnapshotStore, StoreConfig};
//! use ardea_checkpoint::s3::S3Folder;
//!
//! let folder: Arc<dyn Folder> = Arc::new(S3Folder::open("s3://states/wordcount?endpoint=http://localhost:9000")?);
//! let store = SnapshotStore::open(folder, "wordcount", StoreConfig::default())?;
//! # Ok::<(), ardea_core::Error>(())
//! ```

mod address;
mod failure;
mod folder;

pub use address::{Credentials, check_address, is_address};
pub use folder::S3Folder;
