//! The policy for sources whose restored position is not valid any more.

/// The policy for a source that cannot resume at its restored position: the next records were
/// removed, or the log, stream or table is another one.
///
/// The documentation of each source lists the cases that it detects, and where it resumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnLostPosition {
    /// Fails the job. The error names the restored position and the available ones.
    #[default]
    Fail,
    /// Resumes with the available data, and reports it on standard error.
    Continue,
}
