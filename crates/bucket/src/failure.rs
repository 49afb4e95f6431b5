//! Errors of an object store with buckets.

use ardea_core::{Error, ErrorCode};
use object_store::Error as StoreError;

/// Returns the error of a failed read or write.
pub fn failed(code: ErrorCode, what: &str, place: &str, error: &StoreError) -> Error {
    let done = match code {
        ErrorCode::ReadFailed => "read",
        _ => "written",
    };
    let (why, hint) = match error {
        error if has_no_bucket(error) => (
            "there is no such bucket".to_string(),
            "create the bucket, or check its name and the endpoint",
        ),
        error if is_access_denied(error) => (
            "the store denies access".to_string(),
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

/// Returns true if the error means that the store does not implement the request.
pub fn is_not_implemented(error: &StoreError) -> bool {
    let text = error.to_string();
    matches!(
        error,
        StoreError::NotImplemented { .. } | StoreError::NotSupported { .. }
    ) || text.contains("NotImplemented")
        || text.contains("501 Not Implemented")
}

/// Returns true if the error means that the bucket does not exist. Callers handle missing objects
/// themselves.
pub fn has_no_bucket(error: &StoreError) -> bool {
    matches!(error, StoreError::NotFound { .. }) || has_status(error, 404)
}

/// Returns true if the error means that the store denies access.
pub fn is_access_denied(error: &StoreError) -> bool {
    match error {
        StoreError::Unauthenticated { .. } | StoreError::PermissionDenied { .. } => true,
        error => has_status(error, 401) || has_status(error, 403),
    }
}

/// Returns true if the error means that the object does not exist, in a bucket that exists.
pub fn is_missing(error: &StoreError) -> bool {
    matches!(error, StoreError::NotFound { .. }) && !error.to_string().contains("NoSuchBucket")
}

/// Returns true if the error means that the object has changed since it was opened.
pub fn is_changed(error: &StoreError) -> bool {
    matches!(error, StoreError::Precondition { .. }) || has_status(error, 412)
}

/// Returns true if the error means that the store does not answer, or cannot at present. The same
/// request may succeed later.
pub fn is_unavailable(error: &StoreError) -> bool {
    let StoreError::Generic { .. } = error else {
        return false;
    };
    let text = error.to_string();
    !text.contains("status code: 4")
        || text.contains("status code: 408")
        || text.contains("status code: 429")
}

/// Returns true if the store has answered with the HTTP status `status`. For listings the client's
/// error text has only this number.
fn has_status(error: &StoreError, status: u16) -> bool {
    let told = format!("status code: {status}");
    matches!(error, StoreError::Generic { .. }) && error.to_string().contains(&told)
}

/// Returns the first line of the client's error message; further lines are the store's error page.
pub fn reason(error: &StoreError) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(400).collect()
}
