//! The sending end of an edge to one other container, as a step of the job.

use std::sync::Arc;

use ardea_core::{
    Chunk, Epoch, Inbox, InstanceContext, Marker, Ordinal, Outbox, Processor, Progress, Result,
    Timestamp, Waker, Watermark,
};
use ardea_network::exchange::InstanceNumber;

use crate::berth::{Berth, Lent};
use crate::send_end::SendEnd;

/// Sends what comes on input *i* to the consumer's instance *i*, which lives in another container; what all inputs say about time goes to
/// all its instances there.
///
/// While the network takes nothing, because the consumer is slow or its container is away, records stay where they are, and producers
/// feel it.
pub(crate) struct SenderP {
    berth: Arc<Berth<SendEnd>>,
    lent: Option<Lent<SendEnd>>,
    waker: Waker,
    chunk: Chunk,
    /// All inputs are silent, and the receiver does not know yet.
    owes_idle: bool,
    /// All inputs have ended; one may begin again.
    is_finished: bool,
}

impl SenderP {
    pub(crate) fn new(berth: Arc<Berth<SendEnd>>) -> Self {
        SenderP {
            berth,
            lent: None,
            waker: Waker::none(),
            chunk: Chunk::default(),
            owes_idle: false,
            is_finished: false,
        }
    }

    /// The end, as soon as whoever had it before has given it back.
    fn end(&mut self) -> Option<&mut SendEnd> {
        if self.lent.is_none() {
            self.lent = self.berth.lend(&self.waker);
            self.lent.as_mut()?.end()?.begin();
        }
        self.lent.as_mut()?.end()
    }

    /// The end, to send something over it.
    fn open_end(&mut self) -> Option<&mut SendEnd> {
        let has_reopened = std::mem::take(&mut self.is_finished);
        let end = self.end()?;
        if has_reopened {
            end.begin();
        }
        Some(end)
    }

    fn say(&mut self, say: impl FnOnce(&mut SendEnd) -> Result<bool>) -> Result<Progress> {
        self.tell_idle()?;
        match self.open_end() {
            Some(end) => say(end).map(Progress::done_if),
            None => Ok(Progress::NONE),
        }
    }

    fn tell_idle(&mut self) -> Result<()> {
        if self.owes_idle
            && let Some(end) = self.end()
            && end.mark(Marker::Idle)?
        {
            self.owes_idle = false;
        }
        Ok(())
    }

    /// Says that all inputs have ended, and what could not be said before; whether all is on its way.
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
        // It speaks again.
        self.owes_idle = false;
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

    fn on_idle(&mut self) {
        self.owes_idle = true;
    }

    fn on_wake(&mut self, _: &mut Outbox) -> Result<()> {
        self.tell_idle()
    }

    fn on_epoch(&mut self, epoch: Epoch, _: &mut Outbox) -> Result<Progress> {
        self.say(|end| end.mark(Marker::EpochEnd(epoch)))
    }

    fn on_latency(&mut self, born: Timestamp) -> Result<bool> {
        if let Some(end) = self.open_end() {
            // What can't be sent now would tell of this end's waiting only later: the next one does.
            let _ = end.mark(Marker::Latency(born))?;
        }
        Ok(true)
    }

    fn on_edge_done(&mut self, input: Ordinal, _: &mut Outbox) -> Result<Progress> {
        self.say(|end| end.leave(InstanceNumber(u32::from(input.0))))
    }

    fn on_slice_end(&mut self) -> Result<()> {
        self.tell_idle()?;
        match self.end() {
            Some(end) => end.flush(),
            None => Ok(()),
        }
    }

    fn complete(&mut self, _: &mut Outbox) -> Result<Progress> {
        // It never ends by itself: a container that is started again has to be told once more.
        self.finish().map(|_| Progress::NONE)
    }

    fn on_drain(&mut self, _: &mut Outbox) -> Result<Progress> {
        self.finish().map(Progress::done_if)
    }
}
