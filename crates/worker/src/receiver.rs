//! The receiving end of an edge from another container.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ardea_core::{Chunk, Error, ErrorCode, Marker, Result, Waker};
use ardea_engine::{ReceiveEnd, RemoteItem, StreamState};
use ardea_network::exchange::{Received, StreamItem, StreamReceiver};

use crate::endpoint_slot::{EndpointSlot, EndpointUser};
use crate::traffic::Arrivals;
use crate::whole_batches::BatchBuffer;

/// The receiving end of an edge from another container. Nothing is received until the previous user
/// of the endpoint has returned it.
pub(crate) struct RemoteReceiver {
    endpoint: EndpointUser<StreamReceiver>,
    arrivals: Arrivals,
    /// Present if the peer may be restored alone.
    batches: Option<Box<BatchBuffer>>,
    /// A received chunk whose micro-batch may be incomplete; empty between calls.
    incoming: Chunk,
    /// The number of connections over which the peer has got the ends of its sources.
    reported: u64,
}

impl RemoteReceiver {
    pub(crate) fn new(slot: Arc<EndpointSlot<StreamReceiver>>, arrivals: Arrivals) -> Self {
        RemoteReceiver {
            endpoint: EndpointUser::new(slot),
            arrivals,
            batches: None,
            incoming: Chunk::default(),
            reported: 0,
        }
    }

    /// Lets the end pass on complete micro-batches only, of a peer that may be restored alone.
    /// Those that come again are counted in `repeated`.
    pub(crate) fn by_whole_batches(mut self, repeated: &Arc<AtomicU64>) -> Self {
        self.batches = Some(Box::new(BatchBuffer::new(Arc::clone(repeated))));
        self
    }

    /// Returns the next item of a complete micro-batch.
    fn receive_whole(
        &mut self,
        now: Duration,
        instances: usize,
        chunk: &mut Chunk,
    ) -> Result<Option<RemoteItem>> {
        loop {
            let Some(batches) = &mut self.batches else {
                return Ok(None);
            };
            if let Some(item) = batches.next(chunk) {
                return Ok(Some(item));
            }
            let Some(endpoint) = self.endpoint.get() else {
                return Ok(None);
            };
            let received = endpoint.receive(now, &mut self.incoming)?;
            let is_new = endpoint.connections() != self.reported;
            match received {
                None if !is_new => return Ok(None),
                None => {}
                Some(StreamItem::Restarted {
                    is_new_process: true,
                }) => batches.restarted()?,
                Some(StreamItem::Restarted { .. }) => {
                    let what = "the connection to another container was lost, and records possibly with it";
                    return Err(Error::new(ErrorCode::PeerLost, what).hint(
                        "no action is required: the job restores the latest committed checkpoint",
                    ));
                }
                Some(StreamItem::Frame(frame)) => {
                    let bytes = endpoint.last_frame_bytes();
                    let item = item_of(frame, (instances, bytes), &mut self.arrivals);
                    if let RemoteItem::Marker(Marker::BatchEnd(_)) = item {
                        batches.add_source_ends(endpoint.source_ends())?;
                    }
                    batches.add(item, &mut self.incoming)?;
                }
            }
            if is_new {
                self.reported = endpoint.connections();
                endpoint.report_source_ends(batches.source_ends());
            }
        }
    }
}

/// Returns the item of a frame of `bytes` bytes, and counts the bytes.
fn item_of(
    frame: Received,
    (instances, bytes): (usize, u64),
    arrivals: &mut Arrivals,
) -> RemoteItem {
    match frame {
        Received::Marker(marker) => RemoteItem::Marker(marker),
        Received::Leave(target) => RemoteItem::ProducersLeft { target: target.0 },
        Received::Records { target, .. } => {
            if (target.0 as usize) < instances {
                arrivals.count(target.0 as usize, bytes);
            }
            RemoteItem::Records { target: target.0 }
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
        if self.batches.is_some() {
            return self.receive_whole(now, instances, chunk);
        }
        let Some(endpoint) = self.endpoint.get() else {
            return Ok(None);
        };
        Ok(match endpoint.receive(now, chunk)? {
            None => None,
            Some(StreamItem::Restarted { .. }) => Some(RemoteItem::Restarted),
            Some(StreamItem::Frame(frame)) => {
                let bytes = endpoint.last_frame_bytes();
                Some(item_of(frame, (instances, bytes), &mut self.arrivals))
            }
        })
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
