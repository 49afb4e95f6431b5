//! Tables that are not those that a job has used before.

/// Decides about a table that was dropped and created again, or emptied, since a job that keeps its
/// state used it last.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OnReplaced {
    /// Fails the job, and says what is missing.
    #[default]
    Fail,
    /// Goes on with the table as it is, and says so on standard error: a source behind the key that
    /// it read last, a sink with what comes next.
    Continue,
}
