//! The receiving end of an edge from one other worker.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Chunk, Epoch, Error, ErrorCode, Marker, MicroBatch, Result, Timestamp, Watermark,
};

use crate::exchange::flow::{Grant, ReceiveEvent, ReceiveWindow, WindowConfig};
use crate::exchange::frame::{Frame, Payload, SendBuffer};
use crate::exchange::header::{Header, Kind};
use crate::exchange::ids::{InstanceNumber, StreamId};
use crate::exchange::port::Port;
use crate::exchange::sender::CodecRef;
use ardea_codec::Wire;
use ardea_core::ChunkCodec;

/// Configuration of an [`EdgeReceiver`].
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    /// Flow-control window. Its maximum must not exceed the link's `max_window`.
    pub window: WindowConfig,
    /// Sequence number of the first new frame: above 1 if the stream continues after a
    /// disconnection. Frames with smaller numbers are skipped as duplicates.
    pub first_sequence: u64,
}

impl Default for ReceiverConfig {
    fn default() -> Self {
        ReceiverConfig {
            window: WindowConfig::default(),
            first_sequence: 1,
        }
    }
}

/// An item received from an edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// Records, in the caller's chunk.
    Records {
        /// Target instance.
        target: InstanceNumber,
        /// Epoch of the records.
        epoch: Epoch,
    },
    /// A marker for all instances; the records before it have been returned.
    Marker(Marker),
    /// No instance on the sending worker currently sends to this instance.
    Leave(InstanceNumber),
}

/// Decodes the frames that an edge receives from one other worker, in order and once, and grants
/// that worker its window.
#[derive(Debug)]
pub struct EdgeReceiver {
    stream: StreamId,
    port: Port,
    codec: CodecRef,
    window: ReceiveWindow,
    /// Size of the frame returned last. It counts as processed when the next frame is requested.
    given: u64,
    /// A grant that the link had no room for; a later grant replaces it.
    held: Option<Grant>,
    /// The encoded ends of sources to report, while the link has no room for them.
    unsent_ends: Option<Vec<u8>>,
    /// The encoded ends of sources that came with the last end of a micro-batch.
    source_ends: Vec<u8>,
    next_sequence: u64,
    duplicates: u64,
    is_done: bool,
}

impl EdgeReceiver {
    /// Creates the receiver of `stream` through `port`; sends the first grant at once.
    pub fn new(
        stream: StreamId,
        port: Port,
        codec: Arc<dyn ChunkCodec>,
        config: ReceiverConfig,
        now: Duration,
    ) -> Self {
        let (window, first) = ReceiveWindow::open(now, config.window);
        let mut receiver = EdgeReceiver {
            stream,
            port,
            codec: CodecRef(codec),
            window,
            given: 0,
            held: Some(first),
            unsent_ends: None,
            source_ends: Vec::new(),
            next_sequence: config.first_sequence,
            duplicates: 0,
            is_done: false,
        };
        receiver.grant(None);
        receiver
    }

    /// Returns the next item, if any; records are put into `chunk`, which must be empty. The call
    /// acknowledges the previous item as processed.
    ///
    /// # Errors
    /// If frames are missing, or a payload can't be decoded. If the peer is disconnected before the
    /// end of the stream, once all its frames have been taken.
    pub fn receive(&mut self, now: Duration, chunk: &mut Chunk) -> Result<Option<Received>> {
        self.acknowledge_last(now);
        while let Some(frame) = self.port.receive() {
            let bytes = frame.wire_bytes() as u64;
            let waited = frame.header.waited;
            let grant = self.window.on(now, ReceiveEvent::Arrived { bytes, waited });
            self.grant(grant);
            if frame.header.sequence < self.next_sequence {
                self.duplicates += 1;
                let grant = self.window.on(now, ReceiveEvent::Consumed { bytes });
                self.grant(grant);
                continue;
            }
            self.given = bytes;
            return self.open(&frame, chunk).map(Some);
        }
        match self.port.disconnected() {
            Some(gone) if !self.is_done => Err(Error::from(gone.clone())),
            _ => Ok(None),
        }
    }

    /// Returns the latest time for the next call of [`receive`](Self::receive).
    pub fn next_call(&self) -> Option<Duration> {
        self.window.next_tick()
    }

    /// Returns true if the stream has ended and all its items have been returned. Becomes false
    /// again if the sender restarts the stream after its end.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Returns the size of the frame returned by the last call of [`receive`](Self::receive), or
    /// zero.
    pub fn last_frame_bytes(&self) -> u64 {
        self.given
    }

    /// Returns the number of duplicate frames that were skipped.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Returns the sequence number of the last returned frame, zero before the first.
    pub fn last_sequence(&self) -> u64 {
        self.next_sequence - 1
    }

    /// Returns the current window, in bytes.
    pub fn window(&self) -> u64 {
        self.window.window()
    }

    /// Counts the last returned item as processed, and sends a grant if one is due.
    fn acknowledge_last(&mut self, now: Duration) {
        // The queued bytes show if the receiver is slow, or its sender is blocked by the window.
        self.window.set_queued(self.port.queued_bytes() as u64);
        let bytes = std::mem::take(&mut self.given);
        let event = if bytes > 0 {
            ReceiveEvent::Consumed { bytes }
        } else {
            ReceiveEvent::Tick
        };
        let grant = self.window.on(now, event);
        self.grant(grant);
    }

    /// Returns the encoded ends of sources that came with the last end of a micro-batch.
    pub fn source_ends(&self) -> &[u8] {
        &self.source_ends
    }

    /// Reports encoded ends of sources to the sender.
    pub fn report_source_ends(&mut self, ends: Vec<u8>) {
        self.unsent_ends = Some(ends);
        self.grant(None);
    }

    fn send_source_ends(&mut self) {
        let Some(ends) = &self.unsent_ends else {
            return;
        };
        let parcel = SendBuffer::Frame(Frame {
            header: Header::new(Kind::SourceEnds, self.stream),
            payload: Payload::copy_of(ends),
        });
        if self.port.send(parcel).is_ok() {
            self.unsent_ends = None;
        }
    }

    fn grant(&mut self, grant: Option<Grant>) {
        self.send_source_ends();
        self.held = grant.or(self.held);
        let Some(grant) = self.held else {
            return;
        };
        let mut header = Header::new(Kind::Grant, self.stream);
        header.sequence = self.next_sequence - 1;
        let mut numbers = [0; 16];
        numbers[..8].copy_from_slice(&grant.consumed.to_le_bytes());
        numbers[8..].copy_from_slice(&grant.allowed.to_le_bytes());
        let parcel = SendBuffer::Frame(Frame {
            header,
            payload: Payload::copy_of(&numbers),
        });
        if self.port.send(parcel).is_ok() {
            self.held = None;
        }
    }

    fn open(&mut self, frame: &Frame, chunk: &mut Chunk) -> Result<Received> {
        let header = &frame.header;
        if header.sequence > self.next_sequence {
            return Err(self.wrong(format!(
                "frame {} came where {} was due",
                header.sequence, self.next_sequence
            )));
        }
        self.next_sequence += 1;
        // Frames after the end belong to a restarted stream.
        self.is_done = header.kind == Kind::Done;
        Ok(match header.kind {
            Kind::Records => {
                let records = usize::from(header.records);
                self.codec.0.decode(records, &frame.payload, chunk)?;
                return Ok(Received::Records {
                    target: header.target,
                    epoch: header.epoch,
                });
            }
            Kind::Watermark => {
                let watermark = Watermark::get(&mut &frame.payload[..]).map_err(|error| {
                    self.wrong(format!("a watermark can't be decoded: {error}"))
                })?;
                Received::Marker(Marker::Watermark(watermark))
            }
            Kind::Latency => {
                let born = Timestamp::get(&mut &frame.payload[..]).map_err(|error| {
                    self.wrong(format!("a latency marker can't be decoded: {error}"))
                })?;
                Received::Marker(Marker::Latency(born))
            }
            Kind::BatchEnd => {
                let mut payload = &frame.payload[..];
                let batch = u64::get(&mut payload).map_err(|error| {
                    self.wrong(format!(
                        "the end of a micro-batch can't be decoded: {error}"
                    ))
                })?;
                self.source_ends.clear();
                self.source_ends.extend_from_slice(payload);
                Received::Marker(Marker::BatchEnd(MicroBatch(batch)))
            }
            Kind::Idle => Received::Marker(Marker::Idle),
            Kind::Leave => Received::Leave(header.target),
            Kind::Barrier => Received::Marker(Marker::Barrier(header.epoch)),
            Kind::Done => Received::Marker(Marker::Done),
            Kind::Grant
            | Kind::Hello
            | Kind::Refusal
            | Kind::Heartbeat
            | Kind::Ring
            | Kind::SourceEnds => {
                return Err(self.wrong(format!("a {:?} frame came among the data", header.kind)));
            }
        })
    }

    fn wrong(&self, what: String) -> Error {
        Error::new(
            ErrorCode::Network,
            format!("{} from {}: {what}", self.stream, self.port.peer()),
        )
        .hint("run the same version of ardea on all workers; if they do, please report it")
    }
}
