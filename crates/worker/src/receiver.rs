//! The receiving end of an edge from another container.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Chunk, Result, Waker};
use ardea_engine::{ReceiveEnd, RemoteItem, StreamState};
use ardea_network::exchange::{Received, StreamItem, StreamReceiver};

use crate::endpoint_slot::{EndpointSlot, EndpointUser};
use crate::traffic::Arrivals;

/// The receiving end of an edge from another container. Nothing is received until the previous user
/// of the endpoint has returned it.
pub(crate) struct RemoteReceiver {
    endpoint: EndpointUser<StreamReceiver>,
    arrivals: Arrivals,
}

impl RemoteReceiver {
    pub(crate) fn new(slot: Arc<EndpointSlot<StreamReceiver>>, arrivals: Arrivals) -> Self {
        RemoteReceiver {
            endpoint: EndpointUser::new(slot),
            arrivals,
        }
    }
}

impl ReceiveEnd for RemoteReceiver {
    fn open(&mut self, waker: Waker) {
        self.endpoint.open(waker);
    }

    fn receive(
        &mut self,
        now: Duration,
        instances: usize,
        chunk: &mut Chunk,
    ) -> Result<Option<RemoteItem>> {
        let Some(endpoint) = self.endpoint.get() else {
            return Ok(None);
        };
        Ok(endpoint.receive(now, chunk)?.map(|item| match item {
            StreamItem::Restarted => RemoteItem::Restarted,
            StreamItem::Frame(Received::Marker(marker)) => RemoteItem::Marker(marker),
            StreamItem::Frame(Received::Leave(target)) => {
                RemoteItem::ProducersLeft { target: target.0 }
            }
            StreamItem::Frame(Received::Records { target, .. }) => {
                if (target.0 as usize) < instances {
                    let bytes = endpoint.last_frame_bytes();
                    self.arrivals.count(target.0 as usize, bytes);
                }
                RemoteItem::Records { target: target.0 }
            }
        }))
    }

    fn stream_state(&mut self) -> Option<StreamState> {
        let endpoint = self.endpoint.get()?;
        Some(StreamState {
            next_call: endpoint.next_call(),
            has_begun: endpoint.has_begun(),
            is_disconnected: endpoint.is_disconnected(),
            is_aborted: endpoint.is_aborted(),
        })
    }
}
