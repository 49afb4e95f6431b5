//! Buckets of S3-compatible object stores.
//!
//! [`Bucket`] is a blocking client for a prefix of a bucket. Checkpoints and the file connectors
//! use it.
//!
//! # Addresses and credentials
//!
//! An address is `s3://BUCKET/PREFIX`; `?endpoint=http://host:port` and `&region=…` select a store
//! other than Amazon's. The credentials, and an endpoint or region that the address does not have,
//! come from the usual environment: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
//! `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`, roles of containers and machines.
//! Credentials are never part of an address, and never displayed.
//!
//! # Example
//!
//! ```
//! use ardea_bucket::{Bucket, BucketPrefix};
//!
//! let address = BucketPrefix::parse("s3://flights/2026?endpoint=http://localhost:9000")?;
//! let bucket = Bucket::open(&address, None, "flights-s3")?;
//! assert_eq!(bucket.place(), "s3://flights/2026");
//! # Ok::<(), ardea_core::Error>(())
//! ```

#![forbid(unsafe_code)]

mod address;
mod client;
mod failure;
mod part_copy;

pub use address::{BucketPrefix, Credentials, check_address, is_address};
pub use client::{Bucket, PendingRequest, RequestError};
pub use failure::{
    failed, has_no_bucket, is_access_denied, is_changed, is_missing, is_not_implemented,
    is_unavailable, reason,
};
