//! The sending end of an edge to one other worker.

use std::ops::RangeInclusive;
use std::sync::Arc;

use ardea_core::{Chunk, Epoch, Error, ErrorCode, Marker, MicroBatch, Result};

use crate::exchange::block::{Block, BlockPool};
use crate::exchange::flow::{Grant, SendWindow};
use crate::exchange::frame::{Payload, SendBuffer};
use crate::exchange::header::{HEADER_BYTES, Header, Kind};
use crate::exchange::ids::{InstanceNumber, StreamId};
use crate::exchange::port::Port;
use ardea_codec::Wire;
use ardea_core::ChunkCodec;

/// Configuration of an [`EdgeSender`].
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    /// Target size of a payload, in bytes.
    pub frame_bytes: usize,
    /// Largest payload that the peer's link accepts. A single record that is larger is an error.
    pub max_payload: usize,
    /// Number of blocks of about `frame_bytes` that may be in flight to the network.
    pub blocks: usize,
    /// Sequence number of the stream's first frame: above 1 if the stream continues after a
    /// disconnection.
    pub first_sequence: u64,
}

impl Default for SenderConfig {
    fn default() -> Self {
        SenderConfig {
            frame_bytes: 56 << 10,
            max_payload: 16 << 20,
            blocks: 8,
            first_sequence: 1,
        }
    }
}

/// Encodes the records and markers that an edge sends to one other worker: one ordered stream, with
/// records for single instances there and markers for all of them.
///
/// A full window or queue is not an error: unsent data stays with the caller, and the port's owner
/// is woken when sending is possible.
#[derive(Debug)]
pub struct EdgeSender {
    stream: StreamId,
    source: InstanceNumber,
    epoch: Epoch,
    port: Port,
    codec: CodecRef,
    config: SenderConfig,
    window: SendWindow,
    pool: BlockPool,
    building: Option<Block>,
    /// A full block that the link had no room for.
    held: Option<SendBuffer>,
    next_sequence: u64,
    acknowledged: u64,
    bytes_sent: u64,
    /// The sources' ends that the receiver has reported.
    source_ends: Option<Vec<u8>>,
}

pub(crate) struct CodecRef(pub(crate) Arc<dyn ChunkCodec>);

impl std::fmt::Debug for CodecRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChunkCodec")
    }
}

impl EdgeSender {
    /// Creates the sender of `stream` through `port`, for the instance `source`, or for
    /// [all](InstanceNumber::ALL) of this worker.
    pub fn new(
        stream: StreamId,
        source: InstanceNumber,
        port: Port,
        codec: Arc<dyn ChunkCodec>,
        config: SenderConfig,
    ) -> Self {
        EdgeSender {
            stream,
            source,
            epoch: Epoch(0),
            port,
            codec: CodecRef(codec),
            window: SendWindow::default(),
            pool: BlockPool::new(config.frame_bytes + (8 << 10), config.blocks.max(2)),
            building: None,
            held: None,
            next_sequence: config.first_sequence,
            acknowledged: config.first_sequence.saturating_sub(1),
            bytes_sent: 0,
            source_ends: None,
            config,
        }
    }

    /// Sends records from the front of `chunk` to one instance, as many as the window and the link
    /// allow; the rest stays. Returns true if no record is left in `chunk`.
    ///
    /// # Errors
    /// The peer is disconnected; the chunk holds records that the codec can't encode, or a record
    /// too large for any frame.
    pub fn send(&mut self, target: InstanceNumber, chunk: &mut Chunk) -> Result<bool> {
        self.process_grants()?;
        while !chunk.is_empty() {
            if !self.may_write() {
                return Ok(false);
            }
            let mut header = self.header(Kind::Records);
            header.target = target;
            let allowed = usize::try_from(self.window.available()).unwrap_or(usize::MAX);
            let limit = self.config.frame_bytes.min(allowed.max(1024));
            let codec = Arc::clone(&self.codec.0);
            let most = self.config.max_payload;
            self.write(header, |header, out| {
                let start = out.len();
                let records = codec.encode(chunk, limit, out)?;
                header.records = records as u16;
                if out.len() - start > most {
                    return Err(too_large(out.len() - start, most));
                }
                Ok(())
            })?;
        }
        Ok(true)
    }

    /// Sends a frame of `records` encoded records to one instance. Returns false if it cannot be
    /// sent now.
    ///
    /// # Errors
    /// The peer is disconnected.
    pub fn send_encoded(
        &mut self,
        target: InstanceNumber,
        records: u16,
        payload: &[u8],
    ) -> Result<bool> {
        self.process_grants()?;
        if !self.may_write() {
            return Ok(false);
        }
        let mut header = self.header(Kind::Records);
        header.target = target;
        header.records = records;
        self.write(header, |_, out| {
            out.extend_from_slice(payload);
            Ok(())
        })?;
        Ok(true)
    }

    /// Sends a marker to all instances, behind the records sent before. Returns false if the marker
    /// cannot be sent now.
    ///
    /// # Errors
    /// The peer is disconnected.
    pub fn mark(&mut self, marker: Marker) -> Result<bool> {
        self.process_grants()?;
        if !self.may_write() {
            return Ok(false);
        }
        let kind = match marker {
            Marker::Watermark(_) => Kind::Watermark,
            Marker::Idle => Kind::Idle,
            Marker::Barrier(_) => Kind::Barrier,
            Marker::BatchEnd(_) => Kind::BatchEnd,
            Marker::Latency(_) => Kind::Latency,
            Marker::Done => Kind::Done,
        };
        let mut header = self.header(kind);
        if let Marker::Barrier(epoch) = marker {
            header.epoch = epoch;
            self.epoch = epoch.next();
        }
        self.write(header, |_, out| {
            match marker {
                Marker::Watermark(watermark) => watermark.put(out),
                Marker::BatchEnd(batch) => batch.0.put(out),
                Marker::Latency(born) => born.put(out),
                _ => {}
            }
            Ok(())
        })?;
        Ok(true)
    }

    /// Sends the end of a micro-batch with encoded ends of sources, behind the records sent before.
    /// Returns false if it cannot be sent now.
    ///
    /// # Errors
    /// The peer is disconnected.
    pub fn end_batch(&mut self, batch: MicroBatch, source_ends: &[u8]) -> Result<bool> {
        self.process_grants()?;
        if !self.may_write() {
            return Ok(false);
        }
        let header = self.header(Kind::BatchEnd);
        self.write(header, |_, out| {
            batch.0.put(out);
            out.extend_from_slice(source_ends);
            Ok(())
        })?;
        Ok(true)
    }

    /// Returns the encoded ends of sources that the receiver has reported, once.
    pub fn take_source_ends(&mut self) -> Option<Vec<u8>> {
        self.source_ends.take()
    }

    /// Reports to `target`, behind the data sent before, that no instance of this worker currently
    /// sends to it. Returns false if the report cannot be sent now.
    ///
    /// # Errors
    /// The peer is disconnected.
    pub fn leave(&mut self, target: InstanceNumber) -> Result<bool> {
        self.process_grants()?;
        if !self.may_write() {
            return Ok(false);
        }
        let mut header = self.header(Kind::Leave);
        header.target = target;
        self.write(header, |_, _| Ok(()))?;
        Ok(true)
    }

    /// Hands the buffered frames to the link. Must be called at the end of each slice. Returns true
    /// if no frame is left in this sender.
    ///
    /// # Errors
    /// The peer is disconnected.
    pub fn flush(&mut self) -> Result<bool> {
        self.process_grants()?;
        if let Some(block) = self.building.take() {
            if self.held.is_some() {
                self.building = Some(block);
            } else {
                let parcel = SendBuffer::Bundle(Payload::in_block(&block, 0, block.len()));
                self.pool.lend(&block);
                self.held = self.port.send(parcel).err();
            }
        }
        Ok(self.held.is_none() && self.building.is_none())
    }

    /// Returns the sequence numbers of the frames sent and not acknowledged. After a disconnection,
    /// these frames may have been lost.
    pub fn in_flight(&self) -> RangeInclusive<u64> {
        self.acknowledged + 1..=self.next_sequence - 1
    }

    /// Returns the sequence number of the last acknowledged frame.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Returns the number of bytes of all frames sent so far, whether they arrived or not.
    pub fn bytes_sent(&self) -> u64 {
        self.bytes_sent
    }

    /// Returns the number of bytes sent and not acknowledged.
    pub fn bytes_in_flight(&self) -> u64 {
        self.window.in_flight()
    }

    /// Returns true if the receiver's window blocks sending.
    pub fn is_shut(&self) -> bool {
        self.window.is_shut()
    }

    /// Returns the number of blocks allocated so far; constant in a steady state.
    pub fn blocks_made(&self) -> u64 {
        self.pool.made()
    }

    fn header(&self, kind: Kind) -> Header {
        let mut header = Header::new(kind, self.stream);
        header.source = self.source;
        header.epoch = self.epoch;
        header.sequence = self.next_sequence;
        header
    }

    /// Applies received grants, retries a held buffer, and checks for a disconnection.
    fn process_grants(&mut self) -> Result<()> {
        while let Some(frame) = self.port.receive() {
            if frame.header.kind == Kind::SourceEnds {
                self.source_ends = Some(frame.payload.to_vec());
                continue;
            }
            let mut numbers = &frame.payload[..];
            let (Kind::Grant, Ok(consumed), Ok(allowed)) = (
                frame.header.kind,
                u64::get(&mut numbers),
                u64::get(&mut numbers),
            ) else {
                continue;
            };
            let acknowledged = frame.header.sequence;
            let granted = self.window.granted(Grant { consumed, allowed });
            if granted.is_err() || acknowledged >= self.next_sequence {
                return Err(Error::new(
                    ErrorCode::Network,
                    format!(
                        "{} acknowledged frames that were never sent on {}",
                        self.port.peer(),
                        self.stream
                    ),
                )
                .hint("run the same version of ardea on all workers"));
            }
            self.acknowledged = self.acknowledged.max(acknowledged);
        }
        if let Some(parcel) = self.held.take() {
            self.held = self.port.send(parcel).err();
        }
        match self.port.disconnected() {
            Some(gone) => Err(gone.clone().into()),
            None => Ok(()),
        }
    }

    /// Returns true if a frame can be written now: the window is open, and there is a block with
    /// room.
    fn may_write(&mut self) -> bool {
        if self.window.is_shut() {
            self.window.wait();
            return false;
        }
        if self.held.is_some() {
            return false;
        }
        if self.building.is_none() {
            self.building = self.pool.take_within().or_else(|| {
                self.port.wait_for_room();
                self.pool.take_within()
            });
            if let Some(block) = &mut self.building {
                Arc::make_mut(block).clear();
            }
        }
        self.building.is_some()
    }

    /// Writes a frame into the current block, which [`may_write`](Self::may_write) has provided.
    fn write(
        &mut self,
        mut header: Header,
        payload: impl FnOnce(&mut Header, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let Some(block) = &mut self.building else {
            return Ok(());
        };
        // The block is not shared yet, so this copies nothing.
        let out = Arc::make_mut(block);
        let start = out.len();
        out.resize(start + HEADER_BYTES, 0);
        let written = payload(&mut header, out);
        if written.is_err() {
            out.truncate(start);
            return written;
        }
        let bytes = out.len() - start;
        header.waited = self.window.sent(bytes as u64);
        self.bytes_sent += bytes as u64;
        out[start..start + HEADER_BYTES].copy_from_slice(&header.encode(bytes - HEADER_BYTES));
        self.next_sequence += 1;
        if out.len() >= self.config.frame_bytes {
            self.flush()?;
        }
        Ok(())
    }
}

fn too_large(bytes: usize, most: usize) -> Error {
    Error::new(
        ErrorCode::LimitReached,
        format!("a record takes {bytes} bytes on the wire, and a frame at most {most}"),
    )
    .hint("send large objects through storage and a reference to them through the job")
}
