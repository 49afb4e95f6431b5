//! Tracking of producers that a change of the placement will start in another process.
//!
//! Each process starts a stream with the watermark [`NONE`](ardea_core::Watermark::NONE), its start
//! marker. While placements change, a process repeats the marker for each change that starts
//! producers in it; a stream started by the change itself has one marker for both. Every process
//! that reads the stream is notified of the change as well. Marker and notification arrive in
//! either order. Between them an end-of-stream marker concerns only the earlier producers and is
//! ignored.

/// The producers that a change starts in another process, from the view of a reader of its stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExpectedProducers {
    /// None.
    NoProducers,
    /// Producers that send to other instances only.
    ForOthers,
    /// Producers that may send to this reader.
    ForThis,
}

/// The state of the expected producers of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProducerState {
    /// The stream has not begun; its first message is its start. An announced change takes effect
    /// at the start, since the present producers of the stream precede the change.
    NotStarted(Option<ExpectedProducers>),
    /// The stream is about to restart: its first message is its start, and also covers expected
    /// producers.
    Restarting,
    /// No producers are expected.
    NoProducers,
    /// Producers are expected, and their start marker has not arrived.
    Expected,
    /// The start marker arrived before the notification; the producers may have ended already.
    StartedEarly,
}

impl ProducerState {
    /// Handles the notification of a change that starts the producers `comers`.
    pub(crate) fn handle_notification(&mut self, comers: ExpectedProducers) {
        *self = match (comers, *self) {
            (_, ProducerState::NotStarted(_)) => ProducerState::NotStarted(Some(comers)),
            (ExpectedProducers::NoProducers, ProducerState::Restarting) => {
                ProducerState::Restarting
            }
            (ExpectedProducers::NoProducers, _) | (_, ProducerState::StartedEarly) => {
                ProducerState::NoProducers
            }
            _ => ProducerState::Expected,
        };
    }

    /// Handles a start marker.
    pub(crate) fn handle_start_marker(&mut self) {
        match *self {
            ProducerState::NotStarted(_) | ProducerState::Restarting => self.handle_message(),
            ProducerState::Expected => *self = ProducerState::NoProducers,
            ProducerState::NoProducers | ProducerState::StartedEarly => {
                *self = ProducerState::StartedEarly
            }
        }
    }

    /// Handles any other message of the stream.
    pub(crate) fn handle_message(&mut self) {
        match *self {
            ProducerState::NotStarted(told) => {
                self.apply_notification(ProducerState::NoProducers, told)
            }
            ProducerState::Restarting => *self = ProducerState::NoProducers,
            ProducerState::NoProducers | ProducerState::Expected | ProducerState::StartedEarly => {}
        }
    }

    /// Adopts `known`, the state of a reader that has followed the stream from its start, and then
    /// applies the notifications received here.
    pub(crate) fn adopt(&mut self, known: ProducerState) {
        match *self {
            ProducerState::NotStarted(told) => self.apply_notification(known, told),
            _ => *self = known,
        }
    }

    fn apply_notification(&mut self, known: ProducerState, told: Option<ExpectedProducers>) {
        *self = known;
        if let Some(comers) = told {
            self.handle_notification(comers);
        }
    }

    /// Returns true if the stream has not sent a message since it began, or restarted.
    pub(crate) fn has_not_started(self) -> bool {
        matches!(
            self,
            ProducerState::NotStarted(_) | ProducerState::Restarting
        )
    }

    /// Returns true if an end-of-stream marker must be ignored.
    pub(crate) fn is_expected(self) -> bool {
        self == ProducerState::Expected
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn producers_are_expected_until_they_speak_whichever_comes_first() {
        let mut coming = ProducerState::NotStarted(None);
        coming.handle_start_marker();
        for _ in 0..2 {
            coming.handle_notification(ExpectedProducers::ForThis);
            assert!(coming.is_expected());
            coming.handle_start_marker();
            assert!(!coming.is_expected());
            coming.handle_start_marker();
            coming.handle_notification(ExpectedProducers::ForOthers);
            assert!(!coming.is_expected(), "they have spoken before");
        }
        coming.handle_notification(ExpectedProducers::ForThis);
        coming.handle_notification(ExpectedProducers::NoProducers);
        assert!(!coming.is_expected(), "they do not come after all");
    }

    #[test]
    fn the_beginning_of_a_stream_is_not_taken_for_those_of_a_change_that_was_told_before() {
        let mut coming = ProducerState::NotStarted(None);
        coming.handle_notification(ExpectedProducers::ForThis);
        coming.handle_start_marker();
        assert!(coming.is_expected(), "that was its beginning");
        coming.handle_start_marker();
        assert_eq!(coming, ProducerState::NoProducers);
        let mut coming = ProducerState::NotStarted(None);
        coming.handle_notification(ExpectedProducers::NoProducers);
        coming.handle_start_marker();
        assert_eq!(coming, ProducerState::NoProducers);
        let mut anew = ProducerState::Restarting;
        anew.handle_notification(ExpectedProducers::NoProducers);
        assert_eq!(anew, ProducerState::Restarting);
        anew.handle_notification(ExpectedProducers::ForThis);
        anew.handle_start_marker();
        assert_eq!(
            anew,
            ProducerState::NoProducers,
            "it told of them as it began"
        );
    }

    #[test]
    fn what_was_told_before_a_greeting_came_through_the_queue_counts_behind_it() {
        for (known, told, then) in [
            (ProducerState::NoProducers, None, ProducerState::NoProducers),
            (
                ProducerState::NoProducers,
                Some(ExpectedProducers::ForThis),
                ProducerState::Expected,
            ),
            (
                ProducerState::Expected,
                Some(ExpectedProducers::NoProducers),
                ProducerState::NoProducers,
            ),
            (
                ProducerState::StartedEarly,
                Some(ExpectedProducers::ForOthers),
                ProducerState::NoProducers,
            ),
            (
                ProducerState::NotStarted(None),
                Some(ExpectedProducers::ForThis),
                ProducerState::NotStarted(Some(ExpectedProducers::ForThis)),
            ),
        ] {
            let mut coming = ProducerState::NotStarted(None);
            if let Some(comers) = told {
                coming.handle_notification(comers);
            }
            coming.adopt(known);
            assert_eq!(coming, then);
        }
    }
}
