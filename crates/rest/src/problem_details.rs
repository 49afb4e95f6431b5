//! Error responses as of RFC 9457, problem details for HTTP APIs.

use ardea_core::Error;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The media type of error responses.
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// The body of an error response, as of RFC 9457. A client may also read it as an
/// [`ApiError`](crate::ApiError).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ProblemDetails {
    /// The HTTP status in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The failed operation, its object, and the cause.
    pub detail: String,
    /// The stable code, such as `ARD-604`.
    pub code: String,
    /// The same text as `detail`.
    pub message: String,
    /// The suggested next step, if known.
    pub hint: Option<String>,
}

impl ProblemDetails {
    /// Creates the body for an error.
    pub(crate) fn of(status: StatusCode, error: &Error) -> Self {
        let detail = error.message();
        ProblemDetails {
            title: status.canonical_reason().unwrap_or_default().to_string(),
            status: status.as_u16(),
            message: detail.clone(),
            detail,
            code: error.code().as_str().to_string(),
            hint: error.hint_text().map(str::to_string),
        }
    }
}

#[cfg(test)]
mod tests {
    use ardea_core::ErrorCode;

    use super::*;
    use crate::ApiError;

    #[test]
    fn a_client_reads_the_error_out_of_the_problem_details() {
        let error = Error::new(ErrorCode::NameTaken, "cannot submit").hint("choose another name");
        let problem = ProblemDetails::of(StatusCode::CONFLICT, &error);
        assert_eq!((problem.status, &*problem.title), (409, "Conflict"));
        let json = serde_json::to_string(&problem).unwrap();
        let read: ApiError = serde_json::from_str(&json).unwrap();
        assert_eq!(Error::from(read).to_string(), error.to_string());
    }
}
