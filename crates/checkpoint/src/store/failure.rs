//! What went wrong, for people.

use std::io;

use ardea_core::{Error, ErrorCode};

use crate::store::{FileName, SnapshotId};

/// A file or a folder could not be read or written. A full disk has a code of its own.
fn on_file(code: ErrorCode, what: String, error: io::Error) -> Error {
    if matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    ) {
        return Error::new(ErrorCode::DiskFull, what)
            .because(error)
            .hint("make space there; snapshots that are there already stay");
    }
    Error::new(code, what)
        .because(error)
        .hint("check the path and its permissions")
}

pub(crate) fn unwritable(what: &str, place: &str, error: io::Error) -> Error {
    let what = format!("{what} in {place} can't be written");
    on_file(ErrorCode::WriteFailed, what, error)
}

pub(crate) fn unreadable(what: &str, place: &str, error: io::Error) -> Error {
    let what = format!("{what} in {place} can't be read");
    on_file(ErrorCode::ReadFailed, what, error)
}

/// A file of a snapshot is not as it was written.
pub(crate) fn damaged(file: &FileName, place: &str, why: impl Into<String>) -> Error {
    Error::new(
        ErrorCode::SnapshotDamaged,
        format!("{file} in {place} is damaged: {}", why.into()),
    )
    .hint("restore it from a copy, or go on from an earlier snapshot; check the disk")
}

/// A file that a snapshot refers to is not there.
pub(crate) fn gone(file: &FileName, place: &str) -> Error {
    Error::new(
        ErrorCode::SnapshotDamaged,
        format!("{file} is missing in {place}"),
    )
    .hint("restore it from a copy, or go on from an earlier snapshot")
}

/// A file in a format that this version does not know.
pub(crate) fn other_version(file: &FileName, place: &str, version: &str) -> Error {
    Error::new(
        ErrorCode::VersionMismatch,
        format!("{file} in {place} is of version {version} of the format, which is not known here"),
    )
    .hint("read it by the version of Ardea that wrote it, or by a later one")
}

/// A file of another job.
pub(crate) fn other_job(file: &FileName, place: &str, found: &str, wanted: &str) -> Error {
    Error::new(
        ErrorCode::WrongCluster,
        format!("{file} in {place} is of the job {found:?}, not of {wanted:?}"),
    )
    .hint("give each job a folder of its own")
}

/// There is no such snapshot.
pub(crate) fn no_such(id: SnapshotId, place: &str) -> Error {
    Error::new(
        ErrorCode::NoSuchSnapshot,
        format!("there is no snapshot {id} in {place}"),
    )
    .hint("choose one of those that are there")
}

/// The cuts do not make a snapshot together.
pub(crate) fn refused(id: SnapshotId, why: impl Into<String>) -> Error {
    Error::new(
        ErrorCode::SnapshotRefused,
        format!("the cuts make no snapshot {id}: {}", why.into()),
    )
    .hint("the snapshots before it stay as they are; please report it if it comes again")
}

/// What is handed over does not fit into the format.
pub(crate) fn too_large(what: &str, bytes: usize, most: usize) -> Error {
    Error::new(
        ErrorCode::LimitReached,
        format!("{what} has {bytes} bytes, {most} are the most"),
    )
    .hint("keep less under one key")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_as_such() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(unwritable("a", "/b", full()).code(), ErrorCode::DiskFull);
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(unwritable("a", "/b", denied).code(), ErrorCode::WriteFailed);
    }
}
