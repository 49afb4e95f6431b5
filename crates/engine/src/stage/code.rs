//! The code of a stage: the processor of an instance, or the end of an edge to or from another
//! process.

use ardea_core::{
    Checkpointed, Epoch, Inbox, InstanceContext, Marker, MicroBatch, NoState, Ordinal, Outbox,
    Processor, Progress, Result, Timestamp, Watermark,
};

use crate::recording::RecordedProcessor;
use crate::remote::{Receiving, Sending};

/// The code that a stage calls. A call of an end costs no more than one of a processor.
pub(crate) enum Code {
    Processor(Box<dyn Processor>),
    /// A processor whose micro-batches are recorded.
    Recorded(Box<RecordedProcessor>),
    Sending(Box<Sending>),
    Receiving(Box<Receiving>),
}

/// An event that a stage handles until its code is done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Callback {
    Watermark(Watermark),
    Epoch(Epoch),
    EdgeDone(Ordinal),
}

impl Code {
    /// Returns the processor, if the code is one.
    #[inline]
    pub(crate) fn processor(&mut self) -> Option<&mut dyn Processor> {
        match self {
            Code::Processor(processor) => Some(&mut **processor),
            Code::Recorded(processor) => Some(&mut **processor),
            Code::Sending(_) | Code::Receiving(_) => None,
        }
    }

    /// Returns the sending end, if the code is one.
    #[inline]
    fn sending(&mut self) -> Option<&mut Sending> {
        match self {
            Code::Sending(sending) => Some(sending),
            _ => None,
        }
    }

    /// Returns the receiving end, if the code is one.
    #[inline]
    pub(super) fn receiving(&mut self) -> Option<&mut Receiving> {
        match self {
            Code::Receiving(receiving) => Some(receiving),
            _ => None,
        }
    }

    pub(super) fn init(&mut self, context: &InstanceContext) -> Result<()> {
        match self {
            Code::Sending(sending) => sending.end.open(context.waker.clone()),
            Code::Receiving(receiving) => receiving.end.open(context.waker.clone()),
            Code::Processor(_) | Code::Recorded(_) => {}
        }
        let Some(processor) = self.processor() else {
            return Ok(());
        };
        processor.init(context)?;
        context.state_registry.check(processor)
    }

    #[inline]
    pub(super) fn process(
        &mut self,
        input: Ordinal,
        inbox: &mut Inbox,
        outbox: &mut Outbox,
    ) -> Result<()> {
        if let Some(processor) = self.processor() {
            return processor.process(input, inbox, outbox);
        }
        let sending = self.sending();
        sending.map_or(Ok(()), |sending| sending.process(input, inbox))
    }

    /// Handles an event. Called until it returns done.
    pub(super) fn handle(&mut self, event: Callback, outbox: &mut Outbox) -> Result<Progress> {
        if let Some(processor) = self.processor() {
            return match event {
                Callback::Watermark(watermark) => processor.on_watermark(watermark, outbox),
                Callback::Epoch(epoch) => processor.on_epoch(epoch, outbox),
                Callback::EdgeDone(input) => processor.on_edge_done(input, outbox),
            };
        }
        let sending = self.sending();
        sending.map_or(Ok(Progress::DONE), |sending| sending.handle(event))
    }

    /// Handles the end of a micro-batch. Called until it returns done.
    pub(super) fn on_batch_end(
        &mut self,
        batch: MicroBatch,
        outbox: &mut Outbox,
    ) -> Result<Progress> {
        match self.processor() {
            Some(processor) => processor.on_batch_end(batch, outbox),
            None => Ok(Progress::IDLE),
        }
    }

    /// Emits the remaining output, or ends as if the input had ended if `is_drained`.
    #[inline]
    pub(super) fn complete(
        &mut self,
        is_drained: bool,
        context: &InstanceContext,
        outbox: &mut Outbox,
    ) -> Result<Progress> {
        match self {
            Code::Sending(sending) => return sending.complete(is_drained),
            Code::Receiving(receiving) => {
                return receiving.complete(is_drained, context.clock.now(), outbox);
            }
            Code::Processor(_) | Code::Recorded(_) => {}
        }
        match self.processor() {
            Some(processor) if is_drained => processor.source().on_drain(outbox),
            Some(processor) => processor.complete(outbox),
            None => Ok(Progress::DONE),
        }
    }

    pub(super) fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        if let Some(processor) = self.processor() {
            return processor.on_wake(outbox);
        }
        self.sending().map_or(Ok(()), Sending::send_idle)
    }

    /// Handles idleness of all inputs. Returns true if the code passes the marker on itself, later.
    pub(super) fn on_idle(&mut self) -> Result<bool> {
        if let Some(sending) = self.sending() {
            sending.owes_idle = true;
        }
        self.defer(Marker::Idle)
    }

    /// Handles a latency marker created at `born`. Returns true if the code forwards the marker
    /// itself, and not by the outbox.
    pub(super) fn on_latency(&mut self, born: Timestamp) -> Result<bool> {
        match self.sending() {
            Some(sending) => sending.on_latency(born).map(|()| true),
            None => self.defer(Marker::Latency(born)),
        }
    }

    /// Passes the end of a micro-batch on: to another process, behind records that are in another
    /// process, or to the outbox. Returns false if that is not possible now; called again then.
    pub(super) fn end_batch(&mut self, batch: MicroBatch, outbox: &mut Outbox) -> Result<bool> {
        match self {
            Code::Sending(sending) => return sending.end_batch(batch),
            Code::Recorded(processor) => {
                if !processor.end_batch(batch, outbox)? {
                    return Ok(false);
                }
            }
            Code::Processor(_) | Code::Receiving(_) => {}
        }
        if !self.defer(Marker::BatchEnd(batch))? {
            outbox.marker(Marker::BatchEnd(batch));
        }
        Ok(true)
    }

    /// Lets the processor defer a marker behind records in another process. Returns true if it
    /// does.
    fn defer(&mut self, marker: Marker) -> Result<bool> {
        let deferral = self.processor().and_then(|it| it.marker_deferral());
        deferral.map_or(Ok(false), |deferral| deferral.defer(marker))
    }

    /// Sends what the sending end has batched, at the end of a slice.
    #[inline]
    pub(super) fn end_slice(&mut self) -> Result<()> {
        self.sending().map_or(Ok(()), Sending::end_slice)
    }

    /// Returns the state of the instance, or [`NoState`].
    pub(crate) fn state(&mut self) -> &mut dyn Checkpointed {
        match self.processor() {
            Some(processor) => processor.state(),
            // A value without size: nothing is allocated.
            None => Box::leak(Box::new(NoState)),
        }
    }

    pub(super) fn close(&mut self) {
        match self {
            Code::Processor(processor) => processor.close(),
            Code::Recorded(processor) => processor.close(),
            Code::Sending(sending) => sending.end.close(),
            Code::Receiving(receiving) => receiving.end.close(),
        }
    }
}
