//! Producers that are about to come in another process, as seen by those who read from there.
//!
//! While placements change, every process says at the beginning of each stream that producers are about to come to it, by the watermark
//! [`NONE`](ardea_core::Watermark::NONE), once at the start and once for each change; and every process that reads the stream is told of the change as well.
//! The two come in any order. Between them, the end of the stream is the end of those that were there before, and does not count.

/// What is known of producers that are about to come at the other end of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Coming {
    /// The stream has not begun, or is about to begin anew: the first thing that it says is its beginning.
    Unbegun,
    /// None are.
    Nobody,
    /// There are to be, and they have not spoken.
    Expected,
    /// They have spoken, and may have ended by now, before it was told of them.
    Spoken,
}

impl Coming {
    /// There is another change, and producers come by it, or none.
    pub(crate) fn told(&mut self, are_coming: bool) {
        *self = match (are_coming, *self) {
            (true, Coming::Spoken) | (false, _) => Coming::Nobody,
            (true, _) => Coming::Expected,
        };
    }

    /// The stream has said that they come.
    pub(crate) fn speak(&mut self) {
        *self = match *self {
            Coming::Unbegun | Coming::Expected => Coming::Nobody,
            Coming::Nobody | Coming::Spoken => Coming::Spoken,
        };
    }

    /// The stream has said something else.
    pub(crate) fn begin(&mut self) {
        if *self == Coming::Unbegun {
            *self = Coming::Nobody;
        }
    }

    /// Whether an end of the stream does not count.
    pub(crate) fn is_expected(self) -> bool {
        self == Coming::Expected
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn producers_are_expected_until_they_speak_whichever_comes_first() {
        let mut coming = Coming::Unbegun;
        coming.speak();
        for _ in 0..2 {
            coming.told(true);
            assert!(coming.is_expected());
            coming.speak();
            assert!(!coming.is_expected());
            coming.speak();
            coming.told(true);
            assert!(!coming.is_expected(), "they have spoken before");
        }
        coming.told(true);
        coming.told(false);
        assert!(!coming.is_expected(), "they do not come after all");
    }
}
