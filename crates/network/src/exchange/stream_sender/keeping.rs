//! A stream that keeps its output, for a peer that may be restored alone.
//!
//! All frames pass through the kept output. So the frames of a restored peer, and those that follow
//! live, are one sequence.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use ardea_core::{Chunk, Error, ErrorCode, Marker, MicroBatch, Result, Watermark};

use super::{ControlFrame, StreamSender};
use crate::exchange::ids::InstanceNumber;
use crate::exchange::kept_output::{RetainedFrame, RetainedOutput};
use crate::exchange::port_slot::NewPort;

/// The state of a stream that keeps its output.
pub(super) struct RetainedStream {
    output: RetainedOutput,
    /// The incarnation of the peer that the output was sent to, if there was a connection.
    incarnation: Option<u64>,
    /// True if frames were sent over the last connection.
    has_sent: bool,
    /// The port of a new process of the peer that is not known to be restored yet.
    waiting: Option<NewPort>,
    /// True if the end of the stream was requested and is not part of the output yet.
    owes_end: bool,
}

impl RetainedStream {
    pub(super) fn new(output: RetainedOutput) -> Self {
        RetainedStream {
            output,
            incarnation: None,
            has_sent: false,
            waiting: None,
            owes_end: false,
        }
    }

    /// Returns true if all output has been sent.
    pub(super) fn is_sent(&self) -> bool {
        !self.owes_end && self.output.is_sent()
    }
}

impl StreamSender {
    /// Adds records to the kept output, and sends it. Returns false while earlier output has not
    /// been sent.
    pub(super) fn send_kept(&mut self, target: InstanceNumber, chunk: &mut Chunk) -> Result<bool> {
        let config = self.config.sender;
        while !chunk.is_empty() {
            if !self.pump()? {
                return Ok(false);
            }
            let Some(keeping) = &mut self.keeping else {
                return Ok(false);
            };
            let limits = (config.frame_bytes, config.max_payload);
            keeping
                .output
                .add_records(target, chunk, &*self.codec, limits)?;
        }
        self.pump()?;
        Ok(true)
    }

    pub(super) fn mark_kept(&mut self, marker: Marker) -> Result<bool> {
        if !self.pump()? {
            return Ok(false);
        }
        if let (Marker::Latency(_), Some(live)) = (marker, &mut self.live) {
            let sent = live.sender.mark(marker);
            return self.handle_outcome(sent);
        }
        if let Some(keeping) = &mut self.keeping {
            keeping.output.add_marker(marker);
        }
        self.pump()?;
        Ok(true)
    }

    pub(super) fn end_batch_kept(&mut self, batch: MicroBatch, source_ends: &[u8]) -> Result<bool> {
        if !self.pump()? {
            return Ok(false);
        }
        if let Some(keeping) = &mut self.keeping {
            keeping.output.add_batch_end(batch, source_ends);
        }
        self.pump()?;
        Ok(true)
    }

    pub(super) fn leave_kept(&mut self, target: InstanceNumber) -> Result<bool> {
        if !self.pump()? {
            return Ok(false);
        }
        if let Some(keeping) = &mut self.keeping {
            keeping.output.add_leave(target);
        }
        self.pump()?;
        Ok(true)
    }

    pub(super) fn finish_kept(&mut self) -> Result<()> {
        if !self.is_done
            && let Some(keeping) = &mut self.keeping
        {
            (self.is_done, keeping.owes_end) = (true, true);
        }
        self.flush()
    }

    /// Sends the kept output that has not been sent. Returns true if none is left and there is a
    /// connection.
    ///
    /// # Errors
    /// If the connection was lost and the peer cannot be restored alone.
    pub(super) fn pump(&mut self) -> Result<bool> {
        self.take_port()?;
        if self.send_first()?.is_none() {
            return Ok(false);
        }
        loop {
            let (Some(keeping), Some(live)) = (&mut self.keeping, &mut self.live) else {
                return Ok(false);
            };
            let Some(frame) = keeping.output.next() else {
                if !std::mem::take(&mut keeping.owes_end) {
                    return Ok(true);
                }
                keeping.output.add_marker(Marker::Done);
                continue;
            };
            let bytes_before = live.sender.bytes_sent();
            let sent = match frame {
                RetainedFrame::Records {
                    target,
                    records,
                    payload,
                } => live.sender.send_encoded(target, records, payload),
                RetainedFrame::BatchEnd(batch, ends) => live.sender.end_batch(batch, ends),
                RetainedFrame::Marker(marker) => live.sender.mark(marker),
                RetainedFrame::Leave(target) => live.sender.leave(target),
            };
            let bytes = match frame {
                RetainedFrame::Records { .. } => live.sender.bytes_sent() - bytes_before,
                _ => 0,
            };
            self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
            if !self.handle_outcome(sent)? {
                return Ok(false);
            }
            if let Some(keeping) = &mut self.keeping {
                keeping.output.advance();
                keeping.has_sent = true;
            }
        }
    }

    /// Takes the port of a new connection: of the first process of the peer, or of one that was
    /// restored alone.
    fn take_port(&mut self) -> Result<()> {
        if let Some(new) = self.slot.take() {
            self.drop_connection();
            if let Some(keeping) = &mut self.keeping {
                keeping.waiting = Some(new);
            }
        }
        let Some(keeping) = &mut self.keeping else {
            return Ok(());
        };
        let Some(new) = &keeping.waiting else {
            return Ok(());
        };
        let restored = keeping
            .output
            .keeping()
            .restored_from(self.slot.peer, new.incarnation);
        let from = match keeping.incarnation {
            None => None,
            // Frames may be missing, and the peer has not gone back.
            Some(before) if before == new.incarnation && keeping.has_sent => {
                let what = format!(
                    "the connection to container {} was lost, and records possibly with it",
                    self.slot.peer.0
                );
                return Err(Error::new(ErrorCode::PeerLost, what).hint(
                    "no action is required: the job restores the latest committed checkpoint",
                ));
            }
            Some(before) if before == new.incarnation => restored,
            Some(_) if restored.is_none() => return Ok(()),
            Some(_) => restored,
        };
        let mut first = VecDeque::new();
        if let Some(from) = from {
            let start = keeping.output.rewind(from)?;
            let begins = start.watermark.map(|_| Watermark::NONE);
            let time = start.watermark.filter(|time| *time > Watermark::NONE);
            let markers = begins.into_iter().chain(time).map(Marker::Watermark);
            first.extend(markers.map(ControlFrame::Marker));
            first.extend(start.left.into_iter().map(ControlFrame::Leave));
        }
        if let Some(new) = keeping.waiting.take() {
            (keeping.incarnation, keeping.has_sent) = (Some(new.incarnation), false);
            self.connect(new, first);
        }
        Ok(())
    }
}
