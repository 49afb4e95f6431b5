//! The receiving end of a stream from a peer, over all connections to it.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Chunk, ChunkCodec, ErrorCode, Result};
use ardea_network::exchange::{EdgeReceiver, Received, ReceiverConfig};

use crate::berth::Resting;
use crate::network::Network;
use crate::station::{LinkNumber, Station};

/// What came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Came {
    /// The next thing that the peer said.
    Said(Received),
    /// The stream begins anew, over another connection.
    Anew,
}

/// Receives what one edge has from one peer.
pub(crate) struct ReceiveEnd {
    station: Arc<Station>,
    codec: Arc<dyn ChunkCodec>,
    config: ReceiverConfig,
    network: Network,
    live: Option<(EdgeReceiver, LinkNumber)>,
    /// Whether there has been a connection.
    was_connected: bool,
}

impl ReceiveEnd {
    /// The end at this station.
    pub(crate) fn new(
        station: Arc<Station>,
        codec: Arc<dyn ChunkCodec>,
        config: ReceiverConfig,
        network: Network,
    ) -> Self {
        ReceiveEnd {
            station,
            codec,
            config,
            network,
            live: None,
            was_connected: false,
        }
    }

    /// Whether there is no connection at the moment.
    pub(crate) fn is_cut(&self) -> bool {
        self.live.is_none() && !self.station.has_port()
    }

    /// Whether the peer is gone for good.
    pub(crate) fn is_given_up(&self) -> bool {
        self.station.is_given_up() && self.is_cut()
    }

    /// Whether anything has come over the present connection.
    pub(crate) fn has_begun(&self) -> bool {
        let live = self.live.as_ref();
        live.is_some_and(|(receiver, _)| receiver.last_sequence() > 0)
    }

    /// The next thing that came, if there is one; records are put into `chunk`, which must be empty.
    ///
    /// # Errors
    /// If a payload can't be decoded.
    pub(crate) fn receive(&mut self, now: Duration, chunk: &mut Chunk) -> Result<Option<Came>> {
        loop {
            let Some((receiver, link)) = &mut self.live else {
                match self.connect(now) {
                    None => return Ok(None),
                    Some(Connected::First) => continue,
                    Some(Connected::Again) => return Ok(Some(Came::Anew)),
                }
            };
            match receiver.receive(now, chunk) {
                Err(error) if error.code() == ErrorCode::Network => {
                    self.network.complain(self.station.site, *link, &error);
                    self.live = None;
                }
                Ok(None) if receiver.is_done() && self.station.has_port() => self.live = None,
                other => return other.map(|came| came.map(Came::Said)),
            }
        }
    }

    /// The size of the frame that came last.
    pub(crate) fn last_frame_bytes(&self) -> u64 {
        let live = self.live.as_ref();
        live.map_or(0, |(receiver, _)| receiver.last_frame_bytes())
    }

    /// When [`receive`](Self::receive) has to be called again at the latest.
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

impl Resting for ReceiveEnd {
    fn station(&self) -> &Arc<Station> {
        &self.station
    }

    /// Nothing: what comes waits for whoever will need it, within its window.
    fn tend(&mut self, _: Duration) {}
}
