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
        StoreError::NotFound { .. } => (
            "there is no such bucket".to_string(),
            "create the bucket, or check its name and the endpoint",
        ),
        error if is_kept_out(error) => (
            "the store does not let us in".to_string(),
            "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and what they may do in the bucket: list, read, write and delete",
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

/// Whether the store knows who asks, and does not let them. Where objects are listed the client tells that by the status alone.
fn is_kept_out(error: &StoreError) -> bool {
    match error {
        StoreError::Unauthenticated { .. } | StoreError::PermissionDenied { .. } => true,
        StoreError::Generic { .. } => {
            let text = error.to_string();
            ["401", "403"]
                .iter()
                .any(|code| text.contains(&format!("status code: {code}")))
        }
        _ => false,
    }
}

/// The first line of what the client says: further ones are the store's own page.
fn reason(error: &StoreError) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(400).collect()
}
