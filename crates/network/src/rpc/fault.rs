//! Errors on the wire.

use ardea_core::{Error, ErrorCode};
use serde::{Deserialize, Serialize};

/// An error as another process is told it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fault {
    /// The stable code, such as `ARD-604`.
    pub code: String,
    /// What failed, on what, and why.
    pub message: String,
    /// What to do next, if that is known.
    pub hint: Option<String>,
}

impl From<&Error> for Fault {
    fn from(error: &Error) -> Self {
        Fault {
            code: error.code().as_str().to_string(),
            message: error.message(),
            hint: error.what_next().map(str::to_string),
        }
    }
}

impl From<Fault> for Error {
    /// A code that this version doesn't know becomes part of the message.
    fn from(fault: Fault) -> Error {
        let error = match ErrorCode::named(&fault.code) {
            Some(code) => Error::new(code, fault.message),
            None => Error::new(
                ErrorCode::BadAnswer,
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
        let fault = Fault::from(&error);
        assert_eq!(fault.code, "ARD-603");
        assert_eq!(fault.message, "cannot submit: there is one");
        assert_eq!(Error::from(fault).to_string(), error.to_string());
    }

    #[test]
    fn a_code_of_a_later_version_is_still_told() {
        let fault = Fault {
            code: "ARD-999".into(),
            message: "something new".into(),
            hint: None,
        };
        let error = Error::from(fault);
        assert_eq!(error.code(), ErrorCode::BadAnswer);
        assert!(error.to_string().contains("ARD-999: something new"));
    }
}
