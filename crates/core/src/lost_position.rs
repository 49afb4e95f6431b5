//! Sources whose remembered position means nothing any more.

/// Decides about a source that cannot go on where it was: what comes next was removed, or the log,
/// the stream or the table is another one.
///
/// The documentation of each source says what it notices, and where it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnLostPosition {
    /// Fails the job. The error says what was remembered, and what there is.
    #[default]
    Fail,
    /// Goes on with what there is, and says so on standard error.
    Continue,
}
