//! Reports of failures that an instance handles itself.

use std::fmt;
use std::sync::Arc;

use crate::Error;

/// A receiver of the failures of an instance.
type Receiver = dyn Fn(Error) + Send + Sync;

/// The destination of failures that an instance handles itself, such as the end of a process that
/// runs its user code. By default they are not reported.
#[derive(Clone, Default)]
pub struct FailureReports {
    receiver: Option<Arc<Receiver>>,
    most_in_a_row: Option<u32>,
}

impl FailureReports {
    /// Creates a destination. `most_in_a_row` is the maximum number of consecutive failures that
    /// the instance may handle itself, if the job has one.
    pub fn new(
        receiver: impl Fn(Error) + Send + Sync + 'static,
        most_in_a_row: Option<u32>,
    ) -> Self {
        FailureReports {
            receiver: Some(Arc::new(receiver)),
            most_in_a_row,
        }
    }

    /// Reports a failure.
    pub fn report(&self, error: Error) {
        if let Some(receiver) = &self.receiver {
            receiver(error);
        }
    }

    /// Returns the maximum number of consecutive failures that the instance may handle itself, if
    /// the job has one.
    pub fn most_in_a_row(&self) -> Option<u32> {
        self.most_in_a_row
    }
}

impl fmt::Debug for FailureReports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FailureReports(at most {:?})", self.most_in_a_row)
    }
}
