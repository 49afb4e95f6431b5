//! The interface of package stores.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use ardea_core::Result;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::artifacts::{Digest, Packed};

/// What an operation of a store returns: a future in a box, so that a store can be used as `dyn PackageStore`.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Keeps packages by their digests.
///
/// All methods have to be called on a tokio runtime with time and I/O enabled. Dropping a future undoes what it began, or
/// leaves what nobody sees.
///
/// # Errors of every method
///
/// * [`PackageStoreAway`](ardea_core::ErrorCode::PackageStoreAway): it can't be reached, was silent for too long, or broke
///   off. Trying again may help.
/// * [`PackageRefused`](ardea_core::ErrorCode::PackageRefused): it wants another token, or the package is too large.
pub trait PackageStore: Send + Sync + fmt::Debug {
    /// Where this store is, for messages: its URL.
    fn place(&self) -> &str;

    /// Stores a package, if it isn't there yet. When this has succeeded it is there to stay; before, it can't be seen.
    ///
    /// Fails with [`PackageCorrupt`](ardea_core::ErrorCode::PackageCorrupt) if what came is not what its digest says, and with
    /// [`DiskFull`](ardea_core::ErrorCode::DiskFull).
    fn put<'a>(&'a self, package: &'a Packed) -> Pending<'a, ()>;

    /// The bytes of a package, piece by piece. Whoever takes them verifies them.
    ///
    /// Fails with [`PackageMissing`](ardea_core::ErrorCode::PackageMissing) if there is none of this digest.
    fn get<'a>(&'a self, digest: &'a Digest) -> Pending<'a, Box<dyn Download>>;

    /// Removes a package; whether there was one. Who is reading it reads on.
    fn delete<'a>(&'a self, digest: &'a Digest) -> Pending<'a, bool>;

    /// What there is, by digest.
    fn list(&self) -> Pending<'_, Vec<Stored>>;
}

/// A package on its way out of a store.
pub trait Download: Send {
    /// Its size, if the store says it.
    fn bytes(&self) -> Option<u64>;

    /// The next piece; `None` at the end.
    fn next(&mut self) -> Pending<'_, Option<Bytes>>;
}

/// A package in a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stored {
    /// What it is called.
    pub digest: Digest,
    /// Its size.
    pub bytes: u64,
}
