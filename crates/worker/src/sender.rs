//! The sending end of an edge to another container.

use std::sync::Arc;

use ardea_core::{Chunk, Marker, MicroBatch, Result, Waker};
use ardea_engine::{SendEnd, SourceLog, SourceLogReader};
use ardea_network::exchange::{InstanceNumber, StreamSender};

use crate::endpoint_slot::{EndpointSlot, EndpointUser};

/// The sending end of an edge to another container. Nothing is sent until the previous user of the
/// endpoint has returned it.
pub(crate) struct RemoteSender {
    endpoint: EndpointUser<StreamSender>,
    /// True if the stream was ended. It starts again with the next data.
    is_finished: bool,
    /// Present if this worker may be restored alone.
    log: Option<LogStream>,
}

/// The ends of the micro-batches of sources that a stream sends with its own.
struct LogStream {
    reader: SourceLogReader,
    /// The encoded ends that are not sent yet.
    unsent: Vec<u8>,
}

impl RemoteSender {
    pub(crate) fn new(slot: Arc<EndpointSlot<StreamSender>>) -> Self {
        RemoteSender {
            endpoint: EndpointUser::new(slot),
            is_finished: false,
            log: None,
        }
    }

    /// Sends the micro-batches of the sources in `log` to the consumer.
    pub(crate) fn with_log(mut self, log: Option<&Arc<SourceLog>>) -> Self {
        self.log = log.map(|log| LogStream {
            reader: SourceLogReader::new(Arc::clone(log)),
            unsent: Vec::new(),
        });
        self
    }

    /// Sends the end of a micro-batch, with those of sources.
    fn end_batch(&mut self, batch: MicroBatch) -> Result<bool> {
        let Some(LogStream { reader, unsent }) = &mut self.log else {
            return Ok(false);
        };
        reader.take_new(unsent);
        let sent = match self.endpoint.get() {
            Some(endpoint) => endpoint.end_batch(batch, unsent)?,
            None => false,
        };
        if sent {
            unsent.clear();
        }
        Ok(sent)
    }

    /// Returns the endpoint for sending, and reopens a finished stream.
    fn open_endpoint(&mut self) -> Option<&mut StreamSender> {
        let has_reopened = std::mem::take(&mut self.is_finished);
        let endpoint = self.endpoint.get()?;
        if has_reopened {
            endpoint.begin();
        }
        Some(endpoint)
    }
}

impl SendEnd for RemoteSender {
    fn open(&mut self, waker: Waker) {
        self.endpoint.open(waker);
    }

    fn send(&mut self, target: u32, chunk: &mut Chunk) -> Result<bool> {
        match self.open_endpoint() {
            Some(endpoint) => endpoint.send(InstanceNumber(target), chunk),
            None => Ok(false),
        }
    }

    fn mark(&mut self, marker: Marker) -> Result<bool> {
        if let Marker::BatchEnd(batch) = marker
            && self.log.is_some()
        {
            self.open_endpoint();
            return self.end_batch(batch);
        }
        match self.open_endpoint() {
            Some(endpoint) => endpoint.mark(marker),
            None => Ok(false),
        }
    }

    fn leave(&mut self, target: u32) -> Result<bool> {
        match self.open_endpoint() {
            Some(endpoint) => endpoint.leave(InstanceNumber(target)),
            None => Ok(false),
        }
    }

    fn finish(&mut self) -> Result<bool> {
        let Some(endpoint) = self.endpoint.get() else {
            return Ok(false);
        };
        match self.is_finished {
            false => endpoint.finish()?,
            true => endpoint.flush()?,
        }
        self.is_finished = true;
        Ok(endpoint.is_flushed())
    }

    fn flush(&mut self) -> Result<()> {
        let Some(endpoint) = self.endpoint.get() else {
            return Ok(());
        };
        endpoint.flush()?;
        if let Some(log) = &mut self.log
            && let Some(ends) = endpoint.take_source_ends()
        {
            log.reader.report(&ends)?;
        }
        Ok(())
    }
}
