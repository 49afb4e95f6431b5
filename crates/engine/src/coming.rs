//! Producers that are about to come in another process, as seen by those who read from there.
//!
//! At the beginning of each stream a process says the watermark [`NONE`](ardea_core::Watermark::NONE). While placements change, every process
//! says it once more for each change by which producers are about to come to it; one that begins a stream because of the change says it
//! once for both. And every process that reads the stream is told of the change as well. The two come in any order. Between them, the end
//! of the stream is the end of those that were there before, and does not count.

/// Who comes to another process by a change, as seen by one who reads what comes from there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Comers {
    /// Nobody.
    Nobody,
    /// Producers that send to others only.
    ForOthers,
    /// Producers that may send to it.
    ForThis,
}

/// What is known of producers that are about to come at the other end of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Coming {
    /// The stream has not begun: the first thing that it says is its beginning. What was told of a change meanwhile counts from there, as
    /// who is at its other end was there before that change.
    Unheard(Option<Comers>),
    /// The stream is about to begin anew: the first thing that it says is its beginning, and tells of those who come as well.
    Unbegun,
    /// None are.
    Nobody,
    /// There are to be, and they have not spoken.
    Expected,
    /// They have spoken, and may have ended by now, before it was told of them.
    Spoken,
}

impl Coming {
    /// There is another change, and these come by it.
    pub(crate) fn told(&mut self, comers: Comers) {
        *self = match (comers, *self) {
            (_, Coming::Unheard(_)) => Coming::Unheard(Some(comers)),
            (Comers::Nobody, Coming::Unbegun) => Coming::Unbegun,
            (Comers::Nobody, _) | (_, Coming::Spoken) => Coming::Nobody,
            _ => Coming::Expected,
        };
    }

    /// The stream has said that they come.
    pub(crate) fn speak(&mut self) {
        match *self {
            Coming::Unheard(_) | Coming::Unbegun => self.begin(),
            Coming::Expected => *self = Coming::Nobody,
            Coming::Nobody | Coming::Spoken => *self = Coming::Spoken,
        }
    }

    /// The stream has said something else.
    pub(crate) fn begin(&mut self) {
        match *self {
            Coming::Unheard(told) => self.learn(Coming::Nobody, told),
            Coming::Unbegun => *self = Coming::Nobody,
            Coming::Nobody | Coming::Expected | Coming::Spoken => {}
        }
    }

    /// What those know who have read the stream from its beginning, and have not been told of what was told here since.
    pub(crate) fn greeted(&mut self, known: Coming) {
        match *self {
            Coming::Unheard(told) => self.learn(known, told),
            _ => *self = known,
        }
    }

    fn learn(&mut self, known: Coming, told: Option<Comers>) {
        *self = known;
        if let Some(comers) = told {
            self.told(comers);
        }
    }

    /// Whether the stream has said nothing since it began, or begins anew.
    pub(crate) fn is_to_begin(self) -> bool {
        matches!(self, Coming::Unheard(_) | Coming::Unbegun)
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
        let mut coming = Coming::Unheard(None);
        coming.speak();
        for _ in 0..2 {
            coming.told(Comers::ForThis);
            assert!(coming.is_expected());
            coming.speak();
            assert!(!coming.is_expected());
            coming.speak();
            coming.told(Comers::ForOthers);
            assert!(!coming.is_expected(), "they have spoken before");
        }
        coming.told(Comers::ForThis);
        coming.told(Comers::Nobody);
        assert!(!coming.is_expected(), "they do not come after all");
    }

    #[test]
    fn the_beginning_of_a_stream_is_not_taken_for_those_of_a_change_that_was_told_before() {
        let mut coming = Coming::Unheard(None);
        coming.told(Comers::ForThis);
        coming.speak();
        assert!(coming.is_expected(), "that was its beginning");
        coming.speak();
        assert_eq!(coming, Coming::Nobody);
        let mut coming = Coming::Unheard(None);
        coming.told(Comers::Nobody);
        coming.speak();
        assert_eq!(coming, Coming::Nobody);
        let mut anew = Coming::Unbegun;
        anew.told(Comers::Nobody);
        assert_eq!(anew, Coming::Unbegun);
        anew.told(Comers::ForThis);
        anew.speak();
        assert_eq!(anew, Coming::Nobody, "it told of them as it began");
    }

    #[test]
    fn what_was_told_before_a_greeting_came_through_the_queue_counts_behind_it() {
        for (known, told, then) in [
            (Coming::Nobody, None, Coming::Nobody),
            (Coming::Nobody, Some(Comers::ForThis), Coming::Expected),
            (Coming::Expected, Some(Comers::Nobody), Coming::Nobody),
            (Coming::Spoken, Some(Comers::ForOthers), Coming::Nobody),
            (
                Coming::Unheard(None),
                Some(Comers::ForThis),
                Coming::Unheard(Some(Comers::ForThis)),
            ),
        ] {
            let mut coming = Coming::Unheard(None);
            if let Some(comers) = told {
                coming.told(comers);
            }
            coming.greeted(known);
            assert_eq!(coming, then);
        }
    }
}
