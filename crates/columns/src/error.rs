//! Errors of Arrow as errors of this project.

use ardea_core::{Error, ErrorCode};
use arrow_schema::ArrowError;

/// Returns an internal error: Arrow refuses what this crate has checked.
#[cold]
pub(crate) fn arrow_error(what: &str, error: ArrowError) -> Error {
    Error::new(ErrorCode::Internal, what).because(error)
}
