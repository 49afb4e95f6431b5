//! The receiving end of an edge from one other worker.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Chunk, Epoch, Error, ErrorCode, Marker, Result, Timestamp, Watermark};

use crate::exchange::flow::{Grant, ReceiveEvent, ReceiveWindow, WindowConfig};
use crate::exchange::frame::{Frame, Parcel, Payload};
use crate::exchange::header::{Header, Kind};
use crate::exchange::ids::{InstanceNumber, StreamId};
use crate::exchange::port::Port;
use crate::exchange::sender::CodecRef;
use ardea_codec::Wire;
use ardea_core::ChunkCodec;

/// How a receiver takes what comes.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    /// How its window behaves. Its greatest must be within what the link allows.
    pub window: WindowConfig,
    /// The number of the first frame that is new: above 1 if the stream continues one that was cut. Earlier ones are duplicates.
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

/// What came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// Records, in the chunk that was given.
    Records {
        /// The instance that they are for.
        target: InstanceNumber,
        /// The epoch that they belong to.
        epoch: Epoch,
    },
    /// A marker, for all instances, behind the records before it.
    Marker(Marker),
    /// Nobody over there sends to this instance at the moment.
    Leave(InstanceNumber),
}

/// Decodes what an edge receives from one other worker, in order and once, and grants that worker its window.
#[derive(Debug)]
pub struct EdgeReceiver {
    stream: StreamId,
    port: Port,
    codec: CodecRef,
    window: ReceiveWindow,
    /// The frame that was given out last: it counts as dealt with when the next one is asked for.
    given: u64,
    /// A grant that the link had no room for; a later one takes its place.
    held: Option<Grant>,
    next_sequence: u64,
    duplicates: u64,
    is_done: bool,
}

impl EdgeReceiver {
    /// The receiver of `stream` through `port`; it grants its sender the first window at once.
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
            next_sequence: config.first_sequence,
            duplicates: 0,
            is_done: false,
        };
        receiver.grant(None);
        receiver
    }

    /// The next thing that came, if there is one; records are put into `chunk`, which must be empty. Asking for the next one says
    /// that the last one has been passed on.
    ///
    /// # Errors
    /// The peer is gone and all that it sent has been taken, unless the stream has ended; frames are missing; a payload can't be
    /// decoded.
    pub fn receive(&mut self, now: Duration, chunk: &mut Chunk) -> Result<Option<Received>> {
        self.settle(now);
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
        match self.port.gone() {
            Some(gone) if !self.is_done => Err(Error::from(gone.clone())),
            _ => Ok(None),
        }
    }

    /// When [`receive`](Self::receive) has to be called again at the latest.
    pub fn next_call(&self) -> Option<Duration> {
        self.window.next_tick()
    }

    /// Whether the stream has ended and all of it has been given out. If its sender begins anew behind the end, it has not ended after all.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// The size of the frame that was given out last, if there was one since it was asked for the last time.
    pub fn last_frame_bytes(&self) -> u64 {
        self.given
    }

    /// Frames that came again and were left out.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// The number of the last frame that was given out, zero before the first.
    pub fn last_sequence(&self) -> u64 {
        self.next_sequence - 1
    }

    /// The present window, in bytes.
    pub fn window(&self) -> u64 {
        self.window.window()
    }

    /// Counts what was given out last as dealt with, and tells the sender what it has to know.
    fn settle(&mut self, now: Duration) {
        // What waits for this receiver tells a slow one from one whose sender is held up by its window.
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

    fn grant(&mut self, grant: Option<Grant>) {
        self.held = grant.or(self.held);
        let Some(grant) = self.held else {
            return;
        };
        let mut header = Header::new(Kind::Grant, self.stream);
        header.sequence = self.next_sequence - 1;
        let mut numbers = [0; 16];
        numbers[..8].copy_from_slice(&grant.consumed.to_le_bytes());
        numbers[8..].copy_from_slice(&grant.allowed.to_le_bytes());
        let parcel = Parcel::Frame(Frame {
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
        // What follows an end is another life of the stream.
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
                let watermark = Watermark::get(&mut &frame.payload[..])
                    .map_err(|error| self.wrong(format!("a watermark can't be read: {error}")))?;
                Received::Marker(Marker::Watermark(watermark))
            }
            Kind::Latency => {
                let born = Timestamp::get(&mut &frame.payload[..])
                    .map_err(|error| self.wrong(format!("a time can't be read: {error}")))?;
                Received::Marker(Marker::Latency(born))
            }
            Kind::Idle => Received::Marker(Marker::Idle),
            Kind::Leave => Received::Leave(header.target),
            Kind::EpochEnd => Received::Marker(Marker::EpochEnd(header.epoch)),
            Kind::Done => Received::Marker(Marker::Done),
            Kind::Grant | Kind::Hello | Kind::Refusal | Kind::Heartbeat => {
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
