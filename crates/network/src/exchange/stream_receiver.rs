//! The receiving end of a stream from a peer, over successive connections.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Chunk, ChunkCodec, ErrorCode, Result};

use crate::exchange::port_slot::{LinkNumber, NewPort, PortSlot};
use crate::exchange::receiver::{EdgeReceiver, Received, ReceiverConfig};

/// A received item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamItem {
    /// The next frame of the peer.
    Frame(Received),
    /// The stream starts again over another connection.
    Restarted {
        /// True if the peer is another process than before.
        is_new_process: bool,
    },
}

/// The receiving end of a stream from one peer, over successive connections.
pub struct StreamReceiver {
    slot: Arc<PortSlot>,
    codec: Arc<dyn ChunkCodec>,
    config: ReceiverConfig,
    live: Option<(EdgeReceiver, LinkNumber)>,
    /// The incarnation of the peer of the last connection, if there has been one.
    peer_incarnation: Option<u64>,
    /// The number of connections so far.
    connections: u64,
}

impl StreamReceiver {
    /// Creates the receiver of a port slot, not yet connected.
    pub fn new(slot: Arc<PortSlot>, codec: Arc<dyn ChunkCodec>, config: ReceiverConfig) -> Self {
        StreamReceiver {
            slot,
            codec,
            config,
            live: None,
            peer_incarnation: None,
            connections: 0,
        }
    }

    /// Returns the slot of the stream's ports.
    pub fn slot(&self) -> &Arc<PortSlot> {
        &self.slot
    }

    /// Returns true if there is no connection at the moment.
    pub fn is_disconnected(&self) -> bool {
        self.live.is_none() && !self.slot.has_port()
    }

    /// Returns true if the peer is gone permanently.
    pub fn is_aborted(&self) -> bool {
        self.slot.is_aborted() && self.is_disconnected()
    }

    /// Returns true if a frame has been received over the current connection.
    pub fn has_begun(&self) -> bool {
        let live = self.live.as_ref();
        live.is_some_and(|(receiver, _)| receiver.last_sequence() > 0)
    }

    /// Returns the next received item, if there is one. Records are put into `chunk`, which must be
    /// empty before the call.
    ///
    /// # Errors
    /// If a payload cannot be decoded.
    pub fn receive(&mut self, now: Duration, chunk: &mut Chunk) -> Result<Option<StreamItem>> {
        loop {
            let Some((receiver, link)) = &mut self.live else {
                match self.connect(now) {
                    None => return Ok(None),
                    Some(Connected::First) => continue,
                    Some(Connected::Again { is_new_process }) => {
                        return Ok(Some(StreamItem::Restarted { is_new_process }));
                    }
                }
            };
            match receiver.receive(now, chunk) {
                Err(error) if error.code() == ErrorCode::Network => {
                    self.slot.report_invalid(*link, &error);
                    self.live = None;
                }
                Ok(None) if receiver.is_done() && self.slot.has_port() => self.live = None,
                other => return other.map(|came| came.map(StreamItem::Frame)),
            }
        }
    }

    /// Returns the size of the last received frame.
    pub fn last_frame_bytes(&self) -> u64 {
        let live = self.live.as_ref();
        live.map_or(0, |(receiver, _)| receiver.last_frame_bytes())
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> u64 {
        self.connections
    }

    /// Returns the encoded ends of sources that came with the last end of a micro-batch.
    pub fn source_ends(&self) -> &[u8] {
        let live = self.live.as_ref();
        live.map_or(&[], |(receiver, _)| receiver.source_ends())
    }

    /// Reports encoded ends of sources to the peer.
    pub fn report_source_ends(&mut self, ends: Vec<u8>) {
        if let Some((receiver, _)) = &mut self.live {
            receiver.report_source_ends(ends);
        }
    }

    /// Returns the latest time of the next call of [`receive`](Self::receive).
    pub fn next_call(&self) -> Option<Duration> {
        self.live.as_ref()?.0.next_call()
    }

    fn connect(&mut self, now: Duration) -> Option<Connected> {
        let NewPort {
            port,
            link,
            incarnation,
        } = self.slot.take()?;
        let (stream, codec) = (self.slot.stream, Arc::clone(&self.codec));
        let receiver = EdgeReceiver::new(stream, port, codec, self.config, now);
        self.live = Some((receiver, link));
        self.connections += 1;
        match self.peer_incarnation.replace(incarnation) {
            None => Some(Connected::First),
            Some(before) => Some(Connected::Again {
                is_new_process: before != incarnation,
            }),
        }
    }
}

enum Connected {
    First,
    Again { is_new_process: bool },
}
