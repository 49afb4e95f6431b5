//! What an operation of a cluster comes to.

use std::future::Future;
use std::pin::Pin;

use ardea_core::Error;

/// What an operation of a cluster comes to.
pub type Answer<T> = Result<T, Unanswered>;

/// An answer that takes its time: a future in a box, since a server holds its cluster as `dyn Cluster`.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Answer<T>> + Send + 'a>>;

/// Why there is no answer here.
#[derive(Clone, Debug)]
pub enum Unanswered {
    /// It failed; nothing was done, unless the error says otherwise.
    Failed(Error),
    /// Nobody can answer at the moment, and nothing was done, whatever the error's code: a client asks again.
    NotYet(Error),
    /// Another host can answer, the one that leads the job. A client asks it the same there.
    Elsewhere {
        /// Where its interface is: `http://10.0.0.7:7400`.
        base: String,
    },
}

impl From<Error> for Unanswered {
    fn from(error: Error) -> Self {
        Unanswered::Failed(error)
    }
}
