//! The step at the receiving end of an edge from another process.

use std::time::Duration;

use ardea_core::{Chunk, Marker, Ordinal, Outbox, Progress, Result};

use super::ends::{ReceiveEnd, RemoteItem};
use super::signals::PendingSignals;

/// Maximum time between two calls of the step.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Maximum wait for the start of a stream that no instance needs any more.
const NEVER_BEGUN: Duration = Duration::from_secs(1);

/// The step that emits the records of an edge from another process. Its output *i* leads to the
/// consumer's local instance *i*.
pub(crate) struct Receiving {
    pub(crate) end: Box<dyn ReceiveEnd>,
    /// The received records; the next field is the output that they are for.
    chunk: Chunk,
    target: Option<Ordinal>,
    /// The signals that follow the content of the outbox.
    pub(crate) signals: PendingSignals,
    /// True if the stream has ended. An ended stream may start again.
    has_ended: bool,
    /// The time at which the stream was found to be no longer needed.
    unneeded_since: Option<Duration>,
    misrouted: u64,
}

impl Receiving {
    pub(crate) fn new(end: Box<dyn ReceiveEnd>) -> Self {
        Receiving {
            end,
            chunk: Chunk::default(),
            target: None,
            signals: PendingSignals::default(),
            has_ended: false,
            unneeded_since: None,
            misrouted: 0,
        }
    }

    /// Returns the number of records for outputs that do not exist, since the last call.
    pub(crate) fn take_misrouted(&mut self) -> u64 {
        std::mem::take(&mut self.misrouted)
    }

    /// Emits the received items. Done only if the end is not needed any more, when no more data can
    /// arrive over the stream.
    pub(crate) fn complete(
        &mut self,
        is_drained: bool,
        now: Duration,
        outbox: &mut Outbox,
    ) -> Result<Progress> {
        if !is_drained {
            self.unneeded_since = None;
        }
        let mut made = false;
        while self.pass_on(outbox)? {
            let came = self.end.receive(now, outbox.lanes(), &mut self.chunk)?;
            let Some(came) = came else {
                return Ok(self.wait(is_drained, now, made, outbox));
            };
            made = true;
            if !self.accept(came, outbox) {
                // Later items wait until the engine has processed this one.
                break;
            }
        }
        Ok(Progress { made, done: false })
    }

    /// Moves the received records to their output. Returns false if there is no room.
    fn pass_on(&mut self, outbox: &mut Outbox) -> Result<bool> {
        let Some(target) = self.target else {
            return Ok(true);
        };
        if target.index() >= outbox.lanes() {
            // The records were routed by a plan from before the start of this process. Producers
            // switch to a later plan only after all processes know that plan.
            self.misrouted += self.chunk.len() as u64;
            self.chunk.clear();
        } else if !outbox.offer_chunk(target, &mut self.chunk)? {
            return Ok(false);
        }
        self.target = None;
        Ok(true)
    }

    /// Handles a received item. Returns false if later items must wait.
    fn accept(&mut self, came: RemoteItem, outbox: &mut Outbox) -> bool {
        // A target beyond the valid range matches no output.
        let output = |target: u32| Ordinal(u16::try_from(target).unwrap_or(u16::MAX));
        self.has_ended = came == RemoteItem::Marker(Marker::Done);
        match came {
            RemoteItem::Records { target } => self.target = Some(output(target)),
            RemoteItem::Marker(marker) => outbox.marker(marker),
            RemoteItem::ProducersLeft { target } => {
                let output = output(target).index();
                if output < outbox.lanes() {
                    self.signals.producers_left(output);
                }
                return false;
            }
            RemoteItem::Restarted => {
                self.signals.restarted(outbox.lanes());
                return false;
            }
        }
        true
    }

    /// Ends a step without further items.
    fn wait(
        &mut self,
        is_drained: bool,
        now: Duration,
        made: bool,
        outbox: &mut Outbox,
    ) -> Progress {
        let state = self.end.stream_state();
        if !self.has_ended && state.is_some_and(|state| state.is_aborted) {
            // The other process is gone without ending the stream. If it does come back, the stream
            // starts again.
            outbox.marker(Marker::Done);
            self.has_ended = true;
            return Progress::MADE;
        }
        let next_call = state.and_then(|state| state.next_call);
        outbox.wake_at(next_call.unwrap_or(now + LONGEST_REST));
        if made || !is_drained {
            return Progress { made, done: false };
        }
        let since = *self.unneeded_since.get_or_insert(now);
        let is_over = state.is_some_and(|state| {
            let never_begins = !state.has_begun && now >= since + NEVER_BEGUN;
            self.has_ended || state.is_disconnected || never_begins
        });
        match is_over {
            true => Progress::DONE,
            false => Progress::NONE,
        }
    }
}
