//! The receiving endpoint of a stream from a peer, over successive connections.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Chunk, ChunkCodec, ErrorCode, Result};
use ardea_network::exchange::{EdgeReceiver, Received, ReceiverConfig};

use crate::endpoint_slot::IdleEndpoint;
use crate::network::Network;
use crate::port_slot::{LinkNumber, PortSlot};

/// A received item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReceivedItem {
    /// The next frame of the peer.
    Frame(Received),
    /// The stream starts again over another connection.
    Restarted,
}

/// The receiving endpoint of one edge from one peer.
pub(crate) struct ReceiveEndpoint {
    station: Arc<PortSlot>,
    codec: Arc<dyn ChunkCodec>,
    config: ReceiverConfig,
    network: Network,
    live: Option<(EdgeReceiver, LinkNumber)>,
    /// True if there has been a connection.
    was_connected: bool,
}

impl ReceiveEndpoint {
    /// Creates the endpoint, not yet connected. `station` holds the stream between two connections.
    pub(crate) fn new(
        station: Arc<PortSlot>,
        codec: Arc<dyn ChunkCodec>,
        config: ReceiverConfig,
        network: Network,
    ) -> Self {
        ReceiveEndpoint {
            station,
            codec,
            config,
            network,
            live: None,
            was_connected: false,
        }
    }

    /// Returns true if there is no connection at the moment.
    pub(crate) fn is_disconnected(&self) -> bool {
        self.live.is_none() && !self.station.has_port()
    }

    /// Returns true if the peer is gone permanently.
    pub(crate) fn is_aborted(&self) -> bool {
        self.station.is_aborted() && self.is_disconnected()
    }

    /// Returns true if a frame has been received over the current connection.
    pub(crate) fn has_begun(&self) -> bool {
        let live = self.live.as_ref();
        live.is_some_and(|(receiver, _)| receiver.last_sequence() > 0)
    }

    /// Returns the next received item, if there is one. Records are put into `chunk`, which must be
    /// empty before the call.
    ///
    /// # Errors
    /// If a payload cannot be decoded.
    pub(crate) fn receive(
        &mut self,
        now: Duration,
        chunk: &mut Chunk,
    ) -> Result<Option<ReceivedItem>> {
        loop {
            let Some((receiver, link)) = &mut self.live else {
                match self.connect(now) {
                    None => return Ok(None),
                    Some(Connected::First) => continue,
                    Some(Connected::Again) => return Ok(Some(ReceivedItem::Restarted)),
                }
            };
            match receiver.receive(now, chunk) {
                Err(error) if error.code() == ErrorCode::Network => {
                    self.network
                        .report_invalid(self.station.site, *link, &error);
                    self.live = None;
                }
                Ok(None) if receiver.is_done() && self.station.has_port() => self.live = None,
                other => return other.map(|came| came.map(ReceivedItem::Frame)),
            }
        }
    }

    /// Returns the size of the last received frame.
    pub(crate) fn last_frame_bytes(&self) -> u64 {
        let live = self.live.as_ref();
        live.map_or(0, |(receiver, _)| receiver.last_frame_bytes())
    }

    /// Returns the latest time of the next call of [`receive`](Self::receive).
    pub(crate) fn next_call(&self) -> Option<Duration> {
        self.live.as_ref()?.0.next_call()
    }

    fn connect(&mut self, now: Duration) -> Option<Connected> {
        let (port, link) = self.station.take()?;
        let (stream, codec) = (self.station.stream, Arc::clone(&self.codec));
        let receiver = EdgeReceiver::new(stream, port, codec, self.config, now);
        self.live = Some((receiver, link));
        match std::mem::replace(&mut self.was_connected, true) {
            false => Some(Connected::First),
            true => Some(Connected::Again),
        }
    }
}

enum Connected {
    First,
    Again,
}

impl IdleEndpoint for ReceiveEndpoint {
    fn station(&self) -> &Arc<PortSlot> {
        &self.station
    }

    /// Does nothing: incoming data stays queued within the receive window.
    fn tend(&mut self, _: Duration) {}
}
