//! The failure of user code to process a tuple.

use std::error::Error as StdError;
use std::fmt;

use ardea_core::{Error, ErrorCode};

/// The result of a bolt or spout.
pub type Outcome<T = ()> = std::result::Result<T, Failure>;

/// The reason why a tuple could not be processed. Created from any error by `?`, and from a text by
/// [`Failure::new`].
///
/// A bolt's failure fails the current tuple, is counted and sampled, and the job continues. The job
/// fails only if the topology itself is wrong (an undeclared stream or field), the engine can't
/// continue, or no other tuple would succeed ([`Failure::of_the_job`]).
pub struct Failure(Box<dyn StdError + Send + Sync>);

impl Failure {
    /// Creates a failure with this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Failure(reason.into().into())
    }

    /// Creates a failure that fails the whole job, regardless of the code of `error`. Use it for
    /// faults that are independent of the tuple, such as an output that can't be written. On a
    /// cluster, the failure ends the instance, which is restarted.
    ///
    /// ```
    /// use ardea_core::{Error, ErrorCode};
    /// use ardea_topology::Failure;
    ///
    /// let full = Error::new(ErrorCode::WriteFailed, "cannot write to the printer");
    /// assert_eq!(Failure::of_the_job(full.clone()).to_string(), full.to_string());
    /// ```
    pub fn of_the_job(error: Error) -> Self {
        Failure(Box::new(FatalError(error)))
    }

    /// Returns the error if this failure fails the whole job, otherwise `None`.
    pub(crate) fn fatal(&self) -> Option<Error> {
        if let Some(FatalError(error)) = self.0.downcast_ref() {
            return Some(error.clone());
        }
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

    /// Converts the failure to an error of user code. `what` says what could not be done.
    pub(crate) fn into_error(self, what: &str) -> Error {
        let cause = match self.0.downcast::<FatalError>() {
            Ok(of_the_job) => return of_the_job.0,
            Err(cause) => cause,
        };
        match cause.downcast::<Error>() {
            Ok(error) => *error,
            Err(other) => Error::new(ErrorCode::UserError, what).because(other),
        }
    }
}

/// An error that fails the job regardless of its code.
#[derive(Debug)]
struct FatalError(Error);

impl fmt::Display for FatalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for FatalError {}

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
