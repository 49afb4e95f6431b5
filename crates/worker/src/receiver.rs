//! The receiving end of an edge from another container, as a processor.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Chunk, Clock, InstanceContext, Marker, Ordinal, Outbox, OutboxRuntime, Processor, Progress,
    Result, SourceControl, Waker,
};
use ardea_network::exchange::Received;

use crate::endpoint_slot::{EndpointGuard, EndpointSlot};
use crate::receive_endpoint::{ReceiveEndpoint, ReceivedItem};
use crate::traffic::Arrivals;

/// Maximum time between two calls of the processor.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Maximum wait for the start of a stream that no instance needs any more.
const NEVER_BEGUN: Duration = Duration::from_secs(1);

/// The processor that emits the records of an edge from another container. Its output *i* leads to
/// the consumer's local instance *i*.
pub(crate) struct ReceiverP {
    berth: Arc<EndpointSlot<ReceiveEndpoint>>,
    lent: Option<EndpointGuard<ReceiveEndpoint>>,
    waker: Waker,
    clock: Clock,
    /// The received records; the next field is the output that they are for.
    chunk: Chunk,
    target: Option<Ordinal>,
    arrivals: Arrivals,
    /// True if the stream has ended. An ended stream may start again.
    has_ended: bool,
    /// The time at which the stream was found to be no longer needed.
    unneeded_since: Option<Duration>,
}

enum Taken {
    Nothing,
    Something,
    Leave,
}

impl ReceiverP {
    pub(crate) fn new(berth: Arc<EndpointSlot<ReceiveEndpoint>>, arrivals: Arrivals) -> Self {
        ReceiverP {
            berth,
            arrivals,
            lent: None,
            waker: Waker::none(),
            clock: Clock::system(),
            chunk: Chunk::default(),
            target: None,
            has_ended: false,
            unneeded_since: None,
        }
    }

    fn end(&mut self) -> Option<&mut ReceiveEndpoint> {
        if self.lent.is_none() {
            self.lent = self.berth.borrow(&self.waker);
        }
        self.lent.as_mut()?.end()
    }

    /// Moves the received records to their output, as far as there is room.
    fn pass_on(&mut self, outbox: &mut Outbox) -> Result<bool> {
        let Some(target) = self.target else {
            return Ok(true);
        };
        if target.index() >= outbox.lanes() {
            // The records were routed by a plan from before the start of this process. Producers
            // switch to a later plan only after all processes know that plan.
            outbox.count_misrouted(self.chunk.len());
            self.chunk.clear();
            self.target = None;
            return Ok(true);
        }
        let passed = outbox.offer_chunk(target, &mut self.chunk)?;
        if passed {
            self.target = None;
        }
        Ok(passed)
    }

    /// Receives the next item.
    fn take(&mut self, now: Duration, outbox: &mut Outbox) -> Result<Taken> {
        let mut chunk = std::mem::take(&mut self.chunk);
        let came = match self.end() {
            Some(end) => end.receive(now, &mut chunk),
            None => Ok(None),
        };
        self.chunk = chunk;
        let Some(came) = came? else {
            return Ok(Taken::Nothing);
        };
        self.has_ended = came == ReceivedItem::Frame(Received::Marker(Marker::Done));
        match came {
            ReceivedItem::Restarted => {
                outbox.signal_restart();
                return Ok(Taken::Leave);
            }
            ReceivedItem::Frame(Received::Records { target, .. }) => {
                // A target beyond the valid range matches no output.
                let target = Ordinal(u16::try_from(target.0).unwrap_or(u16::MAX));
                self.target = Some(target);
                if target.index() < outbox.lanes() {
                    let bytes = self.end().map_or(0, |end| end.last_frame_bytes());
                    self.arrivals.count(target.index(), bytes);
                }
            }
            ReceivedItem::Frame(Received::Leave(target)) => {
                let target = Ordinal(u16::try_from(target.0).unwrap_or(u16::MAX));
                if target.index() < outbox.lanes() {
                    outbox.signal_producers_left(target)?;
                }
                return Ok(Taken::Leave);
            }
            ReceivedItem::Frame(Received::Marker(marker)) => outbox.marker(marker),
        }
        Ok(Taken::Something)
    }

    /// Emits the received items.
    fn emit(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let now = self.clock.now();
        let mut made = false;
        while self.pass_on(outbox)? {
            match self.take(now, outbox)? {
                Taken::Nothing => break,
                Taken::Something => made = true,
                Taken::Leave => {
                    // Later items wait until the engine has processed this one.
                    return Ok(Progress::MADE);
                }
            }
        }
        if self.is_abandoned() {
            outbox.marker(Marker::Done);
            self.has_ended = true;
            return Ok(Progress::MADE);
        }
        let next_call = self.end().and_then(|end| end.next_call());
        outbox.wake_at(next_call.unwrap_or(now + LONGEST_REST));
        Ok(Progress { made, done: false })
    }

    /// Returns true if the peer is gone permanently without ending the stream. If the peer does
    /// come back, the stream starts again.
    fn is_abandoned(&mut self) -> bool {
        let is_told = self.has_ended || self.target.is_some();
        !is_told && self.end().is_some_and(|end| end.is_aborted())
    }

    /// Returns true if no more data can arrive over the stream.
    fn is_over(&mut self, now: Duration) -> bool {
        let since = *self.unneeded_since.get_or_insert(now);
        let has_ended = self.has_ended;
        self.end().is_some_and(|end| {
            let has_begun = end.has_begun();
            has_ended || end.is_disconnected() || (!has_begun && now >= since + NEVER_BEGUN)
        })
    }
}

impl Processor for ReceiverP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.waker = context.waker.clone();
        self.clock = context.clock.clone();
        self.end();
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.unneeded_since = None;
        self.emit(outbox)
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }
}

impl SourceControl for ReceiverP {
    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let progress = self.emit(outbox)?;
        if progress.made || self.target.is_some() || !self.is_over(self.clock.now()) {
            return Ok(progress);
        }
        Ok(Progress::DONE)
    }
}
