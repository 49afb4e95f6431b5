//! Why user code could not deal with a tuple.

use std::error::Error as StdError;
use std::fmt;

use ardea_core::{Error, ErrorCode};

/// What a bolt or spout returns: done, or why not.
pub type Outcome<T = ()> = std::result::Result<T, Failure>;

/// Why a tuple could not be dealt with. Made from any error by `?`, and from a text by [`Failure::new`].
///
/// A failure of a bolt fails the tuple at hand, and the job goes on; the failure is counted and kept as a sample. Only what says that
/// the topology itself is wrong (a stream or field that is not declared) or that the engine can't go on fails the job.
pub struct Failure(Box<dyn StdError + Send + Sync>);

impl Failure {
    /// With this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Failure(reason.into().into())
    }

    /// The error that fails the whole job, if it is one.
    pub(crate) fn fatal(&self) -> Option<Error> {
        let error = self.0.downcast_ref::<Error>()?;
        matches!(
            error.code(),
            ErrorCode::InvalidJob
                | ErrorCode::NoSuchOutput
                | ErrorCode::LimitReached
                | ErrorCode::Internal
        )
        .then(|| error.clone())
    }

    /// As an error of the user's code.
    pub(crate) fn into_error(self, what: &str) -> Error {
        match self.0.downcast::<Error>() {
            Ok(error) => *error,
            Err(other) => Error::new(ErrorCode::UserError, what).because(other),
        }
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure(Box::new(error))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
