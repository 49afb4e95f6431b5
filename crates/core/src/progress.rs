//! The result of a cooperative step.

use std::ops::BitOr;

/// The result of a step: whether it made progress, and whether it is done.
///
/// A worker thread rests if no step made progress, and does not call a finished step again
/// ("Hazelcast Jet", section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Progress {
    /// True if the step moved something: an immediate call may move more.
    pub made: bool,
    /// True if the step has nothing left to do, ever.
    pub done: bool,
}

impl Progress {
    /// No progress; more to do later.
    pub const NONE: Progress = Progress {
        made: false,
        done: false,
    };
    /// Progress; more to do.
    pub const MADE: Progress = Progress {
        made: true,
        done: false,
    };
    /// Finished.
    pub const DONE: Progress = Progress {
        made: true,
        done: true,
    };

    /// Finished, and nothing was to do.
    pub const IDLE: Progress = Progress {
        made: false,
        done: true,
    };

    /// Returns [`Progress::DONE`] if `done`, else [`Progress::MADE`].
    pub const fn done_if(done: bool) -> Progress {
        Progress { made: true, done }
    }
}

/// Combines two steps: progress if either made some, done if both are.
impl BitOr for Progress {
    type Output = Progress;
    fn bitor(self, other: Progress) -> Progress {
        Progress {
            made: self.made | other.made,
            done: self.done & other.done,
        }
    }
}
