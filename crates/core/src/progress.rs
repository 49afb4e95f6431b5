//! The two bits that every cooperative step returns.

use std::ops::BitOr;

/// What a step did: whether it made progress, and whether it is done.
///
/// These two bits are all that the loop on each core needs to know: without progress it may rest, and what is done is
/// not called again ("Hazelcast Jet", section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Progress {
    /// Something moved: calling again at once may move more.
    pub made: bool,
    /// This step has nothing left to do, for ever.
    pub done: bool,
}

impl Progress {
    /// Nothing moved, and there is more to do later.
    pub const NONE: Progress = Progress {
        made: false,
        done: false,
    };
    /// Something moved, and there is more to do.
    pub const MADE: Progress = Progress {
        made: true,
        done: false,
    };
    /// Finished.
    pub const DONE: Progress = Progress {
        made: true,
        done: true,
    };

    /// [`Progress::DONE`] if `done`, else [`Progress::MADE`].
    pub const fn done_if(done: bool) -> Progress {
        Progress { made: true, done }
    }
}

/// Progress of two steps together: made if either made some, done if both are.
impl BitOr for Progress {
    type Output = Progress;
    fn bitor(self, other: Progress) -> Progress {
        Progress {
            made: self.made | other.made,
            done: self.done & other.done,
        }
    }
}
