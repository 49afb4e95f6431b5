//! The sending end of an edge to another container.

use std::sync::Arc;

use ardea_core::{Chunk, Marker, Result, Waker};
use ardea_engine::SendEnd;
use ardea_network::exchange::{InstanceNumber, StreamSender};

use crate::endpoint_slot::{EndpointSlot, EndpointUser};

/// The sending end of an edge to another container. Nothing is sent until the previous user of the
/// endpoint has returned it.
pub(crate) struct RemoteSender {
    endpoint: EndpointUser<StreamSender>,
    /// True if the stream was ended. It starts again with the next data.
    is_finished: bool,
}

impl RemoteSender {
    pub(crate) fn new(slot: Arc<EndpointSlot<StreamSender>>) -> Self {
        RemoteSender {
            endpoint: EndpointUser::new(slot),
            is_finished: false,
        }
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
        self.endpoint.get().map_or(Ok(()), StreamSender::flush)
    }
}
