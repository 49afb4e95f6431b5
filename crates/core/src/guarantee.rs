//! Processing guarantees of a job.

use std::fmt;

/// The processing guarantee of a job when something fails.
///
/// ```
/// use ardea_core::Guarantee;
///
/// assert_eq!(Guarantee::default(), Guarantee::None);
/// assert!(Guarantee::ExactlyOnce.keeps_state() && !Guarantee::None.keeps_state());
/// assert_eq!(Guarantee::AtLeastOnce.to_string(), "at-least-once");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Guarantee {
    /// No guarantee: state is not saved, and records in flight are lost.
    #[default]
    None,
    /// Each record takes effect in the state at least once. Instances do not align barriers, so a
    /// snapshot may hold records of the next epoch.
    AtLeastOnce,
    /// Each record takes effect in the state exactly once. Instances align barriers: an input at
    /// the end of an epoch is held until all inputs have reached it.
    ExactlyOnce,
}

impl Guarantee {
    /// Returns true if the state of instances is saved in snapshots.
    pub const fn keeps_state(self) -> bool {
        !matches!(self, Guarantee::None)
    }

    /// Returns the name in settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Guarantee::None => "none",
            Guarantee::AtLeastOnce => "at-least-once",
            Guarantee::ExactlyOnce => "exactly-once",
        }
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
