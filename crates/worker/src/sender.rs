//! The sending end of an edge to another container, as a processor.

use std::sync::Arc;

use ardea_core::{
    Chunk, EdgeEndpoint, Epoch, Inbox, InstanceContext, Marker, Ordinal, Outbox, Processor,
    Progress, Result, SourceControl, Timestamp, Waker, Watermark,
};
use ardea_network::exchange::InstanceNumber;

use crate::endpoint_slot::{EndpointGuard, EndpointSlot};
use crate::send_endpoint::SendEndpoint;

/// The processor that sends the records of its input *i* to the consumer's instance *i* in another
/// container. The combined watermark of all inputs is sent to all of the consumer's instances in
/// that container.
///
/// While the consumer is slow or its container is unavailable, records stay in the inputs and
/// producers get backpressure.
pub(crate) struct SenderP {
    berth: Arc<EndpointSlot<SendEndpoint>>,
    lent: Option<EndpointGuard<SendEndpoint>>,
    waker: Waker,
    chunk: Chunk,
    /// True if all inputs are idle and the receiver has not been notified of that yet.
    idle_pending: bool,
    /// True if all inputs have ended. An ended input may start again.
    is_finished: bool,
}

impl SenderP {
    pub(crate) fn new(berth: Arc<EndpointSlot<SendEndpoint>>) -> Self {
        SenderP {
            berth,
            lent: None,
            waker: Waker::none(),
            chunk: Chunk::default(),
            idle_pending: false,
            is_finished: false,
        }
    }

    /// Borrows the endpoint; `None` until the endpoint's previous user has returned it.
    fn end(&mut self) -> Option<&mut SendEndpoint> {
        if self.lent.is_none() {
            self.lent = self.berth.borrow(&self.waker);
            self.lent.as_mut()?.end()?.begin();
        }
        self.lent.as_mut()?.end()
    }

    /// Returns the endpoint for sending, and reopens a finished stream.
    fn open_end(&mut self) -> Option<&mut SendEndpoint> {
        let has_reopened = std::mem::take(&mut self.is_finished);
        let end = self.end()?;
        if has_reopened {
            end.begin();
        }
        Some(end)
    }

    fn say(&mut self, say: impl FnOnce(&mut SendEndpoint) -> Result<bool>) -> Result<Progress> {
        self.send_idle()?;
        match self.open_end() {
            Some(end) => say(end).map(Progress::done_if),
            None => Ok(Progress::NONE),
        }
    }

    fn send_idle(&mut self) -> Result<()> {
        if self.idle_pending
            && let Some(end) = self.end()
            && end.mark(Marker::Idle)?
        {
            self.idle_pending = false;
        }
        Ok(())
    }

    /// Ends the stream, or sends pending frames. Returns true once no frame is pending.
    fn finish(&mut self) -> Result<bool> {
        let was_finished = self.is_finished;
        let Some(end) = self.end() else {
            return Ok(false);
        };
        match was_finished {
            false => end.finish()?,
            true => end.flush()?,
        }
        let is_flushed = end.is_flushed();
        self.is_finished = true;
        Ok(is_flushed)
    }
}

impl Processor for SenderP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.waker = context.waker.clone();
        self.end();
        Ok(())
    }

    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        // The input is active again.
        self.idle_pending = false;
        let mut chunk = std::mem::take(&mut self.chunk);
        inbox.swap(&mut chunk);
        let sent = match self.open_end() {
            Some(end) => end.send(InstanceNumber(u32::from(input.0)), &mut chunk),
            None => Ok(false),
        };
        inbox.swap(&mut chunk);
        self.chunk = chunk;
        sent.map(|_| ())
    }

    fn on_watermark(&mut self, watermark: Watermark, _: &mut Outbox) -> Result<Progress> {
        self.say(|end| end.mark(Marker::Watermark(watermark)))
    }

    fn on_wake(&mut self, _: &mut Outbox) -> Result<()> {
        self.send_idle()
    }

    fn on_epoch(&mut self, epoch: Epoch, _: &mut Outbox) -> Result<Progress> {
        self.say(|end| end.mark(Marker::Barrier(epoch)))
    }

    fn on_edge_done(&mut self, input: Ordinal, _: &mut Outbox) -> Result<Progress> {
        self.say(|end| end.leave(InstanceNumber(u32::from(input.0))))
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        // The processor is never done, because the end must be repeated to restarted peers.
        self.finish().map(|_| Progress::NONE)
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }

    fn edge_endpoint(&mut self) -> Option<&mut dyn EdgeEndpoint> {
        Some(self)
    }
}

impl SourceControl for SenderP {
    fn on_drain(&mut self, _: &mut Outbox) -> Result<Progress> {
        self.finish().map(Progress::done_if)
    }
}

impl EdgeEndpoint for SenderP {
    fn on_idle(&mut self) -> bool {
        self.idle_pending = true;
        false
    }

    fn on_latency(&mut self, born: Timestamp) -> Result<bool> {
        if let Some(end) = self.open_end() {
            // A latency marker that cannot be sent now is dropped. Otherwise it would measure the
            // wait in this endpoint.
            let _ = end.mark(Marker::Latency(born))?;
        }
        Ok(true)
    }

    fn on_slice_end(&mut self) -> Result<()> {
        self.send_idle()?;
        match self.end() {
            Some(end) => end.flush(),
            None => Ok(()),
        }
    }
}
