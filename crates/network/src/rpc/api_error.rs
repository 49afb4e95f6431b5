//! Errors on the wire.

use ardea_core::{Error, ErrorCode};
use serde::{Deserialize, Serialize};

/// An error as sent to another process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApiError {
    /// The stable code, such as `ARD-604`.
    pub code: String,
    /// The failed operation, its object, and the cause.
    pub message: String,
    /// The suggested next step, if known.
    pub hint: Option<String>,
}

impl From<&Error> for ApiError {
    fn from(error: &Error) -> Self {
        ApiError {
            code: error.code().as_str().to_string(),
            message: error.message(),
            hint: error.hint_text().map(str::to_string),
        }
    }
}

impl From<ApiError> for Error {
    /// A code unknown to this version becomes part of the message.
    fn from(fault: ApiError) -> Error {
        let error = match ErrorCode::from_name(&fault.code) {
            Some(code) => Error::new(code, fault.message),
            None => Error::new(
                ErrorCode::BadResponse,
                format!("{}: {}", fault.code, fault.message),
            ),
        };
        match fault.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_comes_out_of_its_fault_as_it_went_in() {
        let error = Error::new(ErrorCode::NameTaken, "cannot submit")
            .because(std::io::Error::other("there is one"))
            .hint("choose another name");
        let fault = ApiError::from(&error);
        assert_eq!(fault.code, "ARD-603");
        assert_eq!(fault.message, "cannot submit: there is one");
        assert_eq!(Error::from(fault).to_string(), error.to_string());
    }

    #[test]
    fn a_code_of_a_later_version_is_still_told() {
        let fault = ApiError {
            code: "ARD-999".into(),
            message: "something new".into(),
            hint: None,
        };
        let error = Error::from(fault);
        assert_eq!(error.code(), ErrorCode::BadResponse);
        assert!(error.to_string().contains("ARD-999: something new"));
    }
}
