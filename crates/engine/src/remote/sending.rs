//! The step at the sending end of an edge to another process.

use ardea_core::{Chunk, Inbox, Marker, MicroBatch, Ordinal, Progress, Result, Timestamp};

use super::ends::SendEnd;
use crate::stage::Callback;

/// The step that sends the records of its input *i* to the consumer's instance *i* in another
/// process. The combined watermark of all inputs is sent to all of the consumer's instances there.
///
/// While the consumer is slow or its process is unavailable, records stay in the inputs and
/// producers get backpressure.
pub(crate) struct Sending {
    pub(crate) end: Box<dyn SendEnd>,
    chunk: Chunk,
    /// True if all inputs are idle and the other process has not been notified of that yet.
    pub(crate) owes_idle: bool,
}

impl Sending {
    pub(crate) fn new(end: Box<dyn SendEnd>) -> Self {
        Sending {
            end,
            chunk: Chunk::default(),
            owes_idle: false,
        }
    }

    pub(crate) fn process(&mut self, input: Ordinal, inbox: &mut Inbox) -> Result<()> {
        // The input is active again.
        self.owes_idle = false;
        inbox.swap(&mut self.chunk);
        let sent = self.end.send(u32::from(input.0), &mut self.chunk);
        inbox.swap(&mut self.chunk);
        sent.map(drop)
    }

    /// Sends an event to the other end. No progress until it is sent, since the end then wakes its
    /// tasklet.
    pub(crate) fn handle(&mut self, event: Callback) -> Result<Progress> {
        self.send_idle()?;
        let is_sent = match event {
            Callback::Watermark(watermark) => self.end.mark(Marker::Watermark(watermark)),
            Callback::Epoch(epoch) => self.end.mark(Marker::Barrier(epoch)),
            Callback::EdgeDone(input) => self.end.leave(u32::from(input.0)),
        }?;
        Ok(match is_sent {
            true => Progress::DONE,
            false => Progress::NONE,
        })
    }

    /// Sends the end of a micro-batch. Returns false if it cannot be sent now.
    pub(crate) fn end_batch(&mut self, batch: MicroBatch) -> Result<bool> {
        self.send_idle()?;
        self.end.mark(Marker::BatchEnd(batch))
    }

    /// Ends the stream. Done only if the end is not needed any more, because the end of the stream
    /// must be repeated to restarted processes.
    pub(crate) fn complete(&mut self, is_drained: bool) -> Result<Progress> {
        let is_sent = self.end.finish()?;
        Ok(match is_drained {
            true => Progress::done_if(is_sent),
            false => Progress::NONE,
        })
    }

    /// Sends a latency marker. One that cannot be sent now is dropped; otherwise it would measure
    /// the wait here.
    pub(crate) fn on_latency(&mut self, born: Timestamp) -> Result<()> {
        self.end.mark(Marker::Latency(born)).map(drop)
    }

    pub(crate) fn send_idle(&mut self) -> Result<()> {
        if self.owes_idle && self.end.mark(Marker::Idle)? {
            self.owes_idle = false;
        }
        Ok(())
    }

    pub(crate) fn end_slice(&mut self) -> Result<()> {
        self.send_idle()?;
        self.end.flush()
    }
}
