//! Reasons for which tasks cannot be placed.

use ardea_core::{Error, ErrorCode};
use thiserror::Error as ThisError;

/// The reason for which tasks cannot be placed.
#[derive(Clone, PartialEq, Debug, ThisError)]
pub enum PlacementError {
    /// A rate is not a number, infinite, negative or too large.
    #[error("a traffic rate cannot be {0}")]
    Rate(f64),
    /// An edge refers to a task that does not exist.
    #[error("traffic with task {task} was given, and there are {tasks} tasks")]
    UnknownTask {
        /// The task.
        task: usize,
        /// The number of tasks.
        tasks: usize,
    },
    /// No host has capacity.
    #[error("none of {hosts} hosts has free capacity")]
    NoCapacity {
        /// The number of hosts.
        hosts: usize,
    },
    /// The number of groups at which consolidation stops is zero.
    #[error("the threshold of consolidation cannot be zero")]
    ThresholdZero,
    /// A declared rate does not have the form `FROM>TO=RATE`, or names an unknown edge.
    #[error("{text:?} is not a rate of an edge: {why}")]
    Declaration {
        /// The declaration.
        text: String,
        /// The reason.
        why: String,
    },
}

impl PlacementError {
    /// Converts the reason to an error with a code and a hint.
    pub fn into_error(self, job: &str) -> Error {
        let (code, hint) = match &self {
            PlacementError::NoCapacity { .. } => (
                ErrorCode::ResourcesImpossible,
                "add a host, or stop other jobs",
            ),
            PlacementError::ThresholdZero => (ErrorCode::InvalidConfig, "use at least 1"),
            _ => (
                ErrorCode::InvalidConfig,
                "give records a second for edges of the job, such as lines>words=20000",
            ),
        };
        Error::new(code, format!("job {job:?} can't be placed by its traffic"))
            .because(self)
            .hint(hint)
    }
}
