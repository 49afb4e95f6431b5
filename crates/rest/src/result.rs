//! The result types of cluster operations.

use std::future::Future;
use std::pin::Pin;

use ardea_core::Error;

/// The result of a cluster operation.
pub type Answer<T> = Result<T, ClusterError>;

/// A boxed future of a result. It is boxed because the server uses its cluster as `dyn Cluster`.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Answer<T>> + Send + 'a>>;

/// The reason why a host returns no result.
#[derive(Clone, Debug)]
pub enum ClusterError {
    /// The operation failed. Nothing was changed, unless the error states otherwise.
    Failed(Error),
    /// No host can execute the operation at present, and nothing was changed. That holds for any
    /// error code. The client should retry.
    RetryLater(Error),
    /// Another host leads the job. The client must repeat the request at that host.
    Elsewhere {
        /// URL of that host's REST interface: `http://10.0.0.7:7400`.
        base: String,
    },
}

impl From<Error> for ClusterError {
    fn from(error: Error) -> Self {
        ClusterError::Failed(error)
    }
}
