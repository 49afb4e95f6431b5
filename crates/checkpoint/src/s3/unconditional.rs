//! The error of an object store that is unsuitable for checkpoints.

use ardea_core::{Error, ErrorCode};

/// Returns the error of a store without conditional writes.
pub(crate) fn unconditional(place: &str, why: &str) -> Error {
    let what = format!(
        "the store of {place} has no conditional writes, which keep two processes from both going on with a job"
    );
    Error::new(ErrorCode::StoreUnsuitable, what)
        .because(why)
        .hint("use a store that has them (Amazon S3, MinIO, Ceph from version 19), or a folder on a disk")
}
