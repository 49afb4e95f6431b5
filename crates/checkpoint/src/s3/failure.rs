//! What went wrong, for people.

use ardea_core::{Error, ErrorCode};
use object_store::Error as StoreError;

/// Something could not be read or written.
pub(crate) fn failed(code: ErrorCode, what: &str, place: &str, error: &StoreError) -> Error {
    let done = match code {
        ErrorCode::ReadFailed => "read",
        _ => "written",
    };
    let (why, hint) = match error {
        error if has_no_bucket(error) => (
            "there is no such bucket".to_string(),
            "create the bucket, or check its name and the endpoint",
        ),
        error if is_kept_out(error) => (
            "the store does not let us in".to_string(),
            "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and what they may do in the bucket: list, read, write and delete; a process has those that it was started with, and a container of a cluster those of its host then: `ardea restart JOB CONTAINER`",
        ),
        StoreError::AlreadyExists { .. } | StoreError::Precondition { .. } => (
            "the name is taken by other bytes".to_string(),
            "let one process at a time run the job",
        ),
        other => (
            reason(other),
            "check that the store answers, the endpoint and the credentials (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)",
        ),
    };
    Error::new(code, format!("{what} in {place} can't be {done}"))
        .because(why)
        .hint(hint)
}

/// The store has no conditional writes.
pub(crate) fn unconditional(place: &str, why: &str) -> Error {
    let what = format!(
        "the store of {place} has no conditional writes, which keep two processes from both going on with a job"
    );
    Error::new(ErrorCode::StoreUnsuitable, what)
        .because(why)
        .hint("use a store that has them (Amazon S3, MinIO, Ceph from version 19), or a folder on a disk")
}

/// Tells whether the store says that it does not know what it was asked for.
pub(crate) fn is_not_implemented(error: &StoreError) -> bool {
    let text = error.to_string();
    matches!(
        error,
        StoreError::NotImplemented { .. } | StoreError::NotSupported { .. }
    ) || text.contains("NotImplemented")
        || text.contains("501 Not Implemented")
}

/// Of one object it would be told otherwise.
fn has_no_bucket(error: &StoreError) -> bool {
    matches!(error, StoreError::NotFound { .. }) || has_status(error, 404)
}

/// Whether the store knows who asks, and does not let them.
fn is_kept_out(error: &StoreError) -> bool {
    match error {
        StoreError::Unauthenticated { .. } | StoreError::PermissionDenied { .. } => true,
        error => has_status(error, 401) || has_status(error, 403),
    }
}

/// Whether the store has answered with that status. Where objects are listed the client tells it by the number alone.
fn has_status(error: &StoreError, status: u16) -> bool {
    let told = format!("status code: {status}");
    matches!(error, StoreError::Generic { .. }) && error.to_string().contains(&told)
}

/// The first line of what the client says: further ones are the store's own page.
fn reason(error: &StoreError) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(400).collect()
}
