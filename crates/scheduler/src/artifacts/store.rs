//! The interface of package stores.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use ardea_core::Result;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::artifacts::{Digest, Packed};

/// The return type of store operations: a boxed future, so that the trait is object-safe.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A store of packages by digest.
///
/// All methods must be called on a tokio runtime with time and I/O enabled. Dropping an unfinished
/// future leaves no visible effect.
///
/// # Errors of every method
///
/// * [`PackageStoreUnavailable`](ardea_core::ErrorCode::PackageStoreUnavailable): the store is
///   unreachable, timed out, or closed the connection. A retry may succeed.
/// * [`PackageRefused`](ardea_core::ErrorCode::PackageRefused): the store requires another token,
///   or the package is too large.
pub trait PackageStore: Send + Sync + fmt::Debug {
    /// Returns the URL of this store, for messages.
    fn place(&self) -> &str;

    /// Stores a package unless the store has it already. The package becomes visible and durable in
    /// one step.
    ///
    /// Fails with [`PackageCorrupt`](ardea_core::ErrorCode::PackageCorrupt) if the bytes do not
    /// match the digest, and with [`DiskFull`](ardea_core::ErrorCode::DiskFull).
    fn put<'a>(&'a self, package: &'a Packed) -> Pending<'a, ()>;

    /// Starts a download of a package's bytes, piece by piece. The caller verifies the bytes.
    ///
    /// Fails with [`PackageMissing`](ardea_core::ErrorCode::PackageMissing) if the store has no
    /// package of this digest.
    fn get<'a>(&'a self, digest: &'a Digest) -> Pending<'a, Box<dyn Download>>;

    /// Removes a package. Returns true if it existed. Running downloads of the package continue.
    fn delete<'a>(&'a self, digest: &'a Digest) -> Pending<'a, bool>;

    /// Returns the stored packages, sorted by digest.
    fn list(&self) -> Pending<'_, Vec<Stored>>;
}

/// A download of a package.
pub trait Download: Send {
    /// Returns the package's size in bytes, if the store reports it.
    fn bytes(&self) -> Option<u64>;

    /// Returns the next piece of the package; `None` at the end.
    fn next(&mut self) -> Pending<'_, Option<Bytes>>;
}

/// A package in a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stored {
    /// The digest of the package.
    pub digest: Digest,
    /// The size of the package in bytes.
    pub bytes: u64,
}
