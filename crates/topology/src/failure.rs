//! Why user code could not deal with a tuple.

use std::error::Error as StdError;
use std::fmt;

use ardea_core::{Error, ErrorCode};

/// What a bolt or spout returns: done, or why not.
pub type Outcome<T = ()> = std::result::Result<T, Failure>;

/// Why a tuple could not be dealt with. Made from any error by `?`, and from a text by [`Failure::new`].
///
/// A failure of a bolt fails the tuple at hand, and the job goes on; the failure is counted and kept as a sample. Only what says that
/// the topology itself is wrong (a stream or field that is not declared), that the engine can't go on, or that no other tuple would
/// fare better ([`Failure::of_the_job`]) fails the job.
pub struct Failure(Box<dyn StdError + Send + Sync>);

impl Failure {
    /// With this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Failure(reason.into().into())
    }

    /// That fails the whole job, whatever its code: the fault is not the tuple's, and the next would fare no better, as where an output
    /// can't be written. On a cluster it ends the instance, which is made anew.
    ///
    /// ```
    /// use ardea_core::{Error, ErrorCode};
    /// use ardea_topology::Failure;
    ///
    /// let full = Error::new(ErrorCode::WriteFailed, "cannot write to the printer");
    /// assert_eq!(Failure::of_the_job(full.clone()).to_string(), full.to_string());
    /// ```
    pub fn of_the_job(error: Error) -> Self {
        Failure(Box::new(OfTheJob(error)))
    }

    /// The error that fails the whole job, if it is one.
    pub(crate) fn fatal(&self) -> Option<Error> {
        if let Some(OfTheJob(error)) = self.0.downcast_ref() {
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

    /// As an error of the user's code.
    pub(crate) fn into_error(self, what: &str) -> Error {
        let cause = match self.0.downcast::<OfTheJob>() {
            Ok(of_the_job) => return of_the_job.0,
            Err(cause) => cause,
        };
        match cause.downcast::<Error>() {
            Ok(error) => *error,
            Err(other) => Error::new(ErrorCode::UserError, what).because(other),
        }
    }
}

/// An error that fails the job whatever its code.
#[derive(Debug)]
struct OfTheJob(Error);

impl fmt::Display for OfTheJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for OfTheJob {}

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
