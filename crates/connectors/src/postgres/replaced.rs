//! Policy for replaced tables.

/// Policy for a sink table that was dropped and created again, or truncated, since the job last
/// wrote to it. Applies to jobs with checkpoints.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OnReplaced {
    /// Fail the job with a description of the missing rows.
    #[default]
    Fail,
    /// Continue with the table as it is, and log the loss on standard error.
    Continue,
}
