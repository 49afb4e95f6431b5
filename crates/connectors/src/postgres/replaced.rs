//! Tables that are not those that a job has used before.

/// Decides about a sink whose table was dropped and created again, or emptied, since a job that
/// keeps its state wrote to it last.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OnReplaced {
    /// Fails the job, and says what is missing.
    #[default]
    Fail,
    /// Goes on with the table as it is, and says so on standard error.
    Continue,
}
