//! Error constructors for packages.

use std::io;
use std::path::Path;

use ardea_core::{Error, ErrorCode};

use crate::artifacts::Digest;

/// Creates the error of a failed read or write of a file or folder. For a full disk, the code is
/// `DiskFull` instead of `code`.
pub(crate) fn on_file(code: ErrorCode, what: &str, path: &Path, error: io::Error) -> Error {
    let path = path.display();
    if matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    ) {
        return Error::new(ErrorCode::DiskFull, format!("{what} {path}"))
            .because(error)
            .hint("make space there, or name another directory");
    }
    Error::new(code, format!("{what} {path}"))
        .because(error)
        .hint("check the path and its permissions")
}

pub(crate) fn unwritable(path: &Path, error: io::Error) -> Error {
    on_file(
        ErrorCode::WriteFailed,
        "a package can't be written at",
        path,
        error,
    )
}

pub(crate) fn unreadable(path: &Path, error: io::Error) -> Error {
    on_file(
        ErrorCode::ReadFailed,
        "a package can't be read at",
        path,
        error,
    )
}

/// Creates the error for received bytes whose digest is not the expected one.
pub(crate) fn wrong_digest(expected: &Digest, found: &Digest, place: &str) -> Error {
    Error::new(
        ErrorCode::PackageCorrupt,
        format!(
            "package {expected} at {place} is corrupt: the received bytes have the digest {found}"
        ),
    )
    .hint("put it into the store again, and check the disk and the network in between")
}

pub(crate) fn missing(digest: &Digest, place: &str) -> Error {
    Error::new(
        ErrorCode::PackageMissing,
        format!("there is no package {digest} at {place}"),
    )
    .hint("check that this is the store that the job was submitted with, or submit it again")
}

pub(crate) fn too_large(what: &str, limit: u64) -> Error {
    Error::new(
        ErrorCode::PackageRefused,
        format!("{what} than the {limit} that are allowed"),
    )
    .hint("leave out what the job does not need, or raise the limit: cluster.package_size, cluster.unpacked_size")
}

/// Creates the error for a blocking task that was cancelled or panicked.
pub(crate) fn interrupted(error: tokio::task::JoinError) -> Error {
    Error::new(ErrorCode::Internal, "work on a package was interrupted").because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_as_such_with_the_path() {
        let full = std::io::Error::from_raw_os_error(28);
        let error = unwritable(Path::new("/cache/x"), full);
        assert_eq!(error.code(), ErrorCode::DiskFull);
        assert!(error.to_string().contains("/cache/x"), "{error}");
        let denied = std::io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(
            unwritable(Path::new("/x"), denied).code(),
            ErrorCode::WriteFailed
        );
    }
}
