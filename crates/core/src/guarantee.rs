//! What a job promises of its records when something fails.

use std::fmt;

/// What a job promises of its records when something fails.
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
    /// Nothing: state is not kept, and what was under way is lost.
    #[default]
    None,
    /// Every record counts in the state, some may do so twice: an instance doesn't wait for the slower of its inputs at the end of an
    /// epoch, so that its cut holds records of the next one.
    AtLeastOnce,
    /// Every record counts in the state once: an instance that has come to the end of an epoch on one input holds that input until it
    /// has come there on all.
    ExactlyOnce,
}

impl Guarantee {
    /// Whether instances have to remember beyond their own lives.
    pub const fn keeps_state(self) -> bool {
        !matches!(self, Guarantee::None)
    }

    /// Its name in settings.
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
