//! Errors of the checkpoint store.

use std::io;

use ardea_core::{Error, ErrorCode};

use crate::store::{CheckpointId, FileName};

/// Returns the error of a file operation; `DiskFull` if the disk is full.
fn on_file(code: ErrorCode, what: String, error: io::Error) -> Error {
    if matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    ) {
        return Error::new(ErrorCode::DiskFull, what)
            .because(error)
            .hint("make space there; checkpoints that are there already stay");
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

/// Returns the error of a damaged file.
pub(crate) fn damaged(file: &FileName, place: &str, why: impl Into<String>) -> Error {
    Error::new(
        ErrorCode::CheckpointDamaged,
        format!("{file} in {place} is damaged: {}", why.into()),
    )
    .hint("restore it from a copy, or go on from an earlier checkpoint; check the disk")
}

/// Returns the error of a missing file that a checkpoint refers to.
pub(crate) fn gone(file: &FileName, place: &str) -> Error {
    Error::new(
        ErrorCode::CheckpointDamaged,
        format!("{file} is missing in {place}"),
    )
    .hint("restore it from a copy, or go on from an earlier checkpoint")
}

/// Returns the error of a file in an unknown version of the format.
pub(crate) fn other_version(file: &FileName, place: &str, version: &str) -> Error {
    Error::new(
        ErrorCode::VersionMismatch,
        format!("{file} in {place} is of version {version} of the format, which is not known here"),
    )
    .hint("read it by the version of Ardea that wrote it, or by a later one")
}

/// Returns the error of a file that belongs to another job.
pub(crate) fn other_job(file: &FileName, place: &str, found: &str, wanted: &str) -> Error {
    Error::new(
        ErrorCode::WrongCluster,
        format!("{file} in {place} is of the job {found:?}, not of {wanted:?}"),
    )
    .hint("give each job a folder of its own")
}

/// Returns the error of a missing checkpoint.
pub(crate) fn no_such(id: CheckpointId, place: &str) -> Error {
    Error::new(
        ErrorCode::NoSuchCheckpoint,
        format!("there is no checkpoint {id} in {place}"),
    )
    .hint("choose one of those that are there")
}

/// Returns the error of a commit whose snapshots do not fit together.
pub(crate) fn refused(id: CheckpointId, why: impl Into<String>) -> Error {
    Error::new(
        ErrorCode::CheckpointRefused,
        format!("the snapshots make no checkpoint {id}: {}", why.into()),
    )
    .hint("the checkpoints before it stay as they are; please report it if it comes again")
}

/// Returns the error of a key, value or name that exceeds the limits of the format.
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
