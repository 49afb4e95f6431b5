//! The sending end of a stream to a peer, over successive connections.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ardea_core::{
    Chunk, ChunkCodec, Epoch, Error, ErrorCode, Marker, MicroBatch, Result, Watermark,
};

use crate::exchange::ids::InstanceNumber;
use crate::exchange::kept_output::RetainedOutput;
use crate::exchange::port_slot::{LinkNumber, NewPort, PortSlot};
use crate::exchange::sender::{EdgeSender, SenderConfig};

mod keeping;

use keeping::RetainedStream;

/// Configuration of a [`StreamSender`].
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamSenderConfig {
    /// The configuration of each connection's sender.
    pub sender: SenderConfig,
    /// True if the stream sends nothing more after it has lost records with a connection.
    pub fails_on_loss: bool,
}

/// The sending end of a stream to one peer, over successive connections.
///
/// Without a connection nothing is sent, so producers get backpressure. A new connection starts
/// with the state that a receiver needs: the watermark, the last epoch ended, and whether the
/// stream has ended.
pub struct StreamSender {
    slot: Arc<PortSlot>,
    codec: Arc<dyn ChunkCodec>,
    config: StreamSenderConfig,
    live: Option<LiveConnection>,
    /// True if records of the stream have been lost with a connection.
    has_lost: bool,
    watermark: Option<Watermark>,
    is_idle: bool,
    /// The last epoch whose barrier was sent. The barrier is sent again over a new connection;
    /// receivers ignore duplicates.
    ended: Option<Epoch>,
    is_done: bool,
    /// The target instances that no local producer sends to any more.
    left: BTreeSet<InstanceNumber>,
    counts: StreamCounts,
    /// Present if the stream keeps its output for a peer that may be restored alone.
    keeping: Option<Box<RetainedStream>>,
}

/// The counters of a sending end.
#[derive(Clone, Debug, Default)]
pub struct StreamCounts {
    /// The number of records lost with connections.
    pub lost: Arc<AtomicU64>,
    /// The number of bytes in frames with records.
    pub bytes: Arc<AtomicU64>,
}

/// A frame without records.
#[derive(Clone, Copy, Debug)]
enum ControlFrame {
    Marker(Marker),
    Leave(InstanceNumber),
}

/// The state of the current connection.
struct LiveConnection {
    sender: EdgeSender,
    link: LinkNumber,
    /// The frames that must be sent over this connection before any other.
    first: VecDeque<ControlFrame>,
    /// The records in flight: for each entry, the number of the last frame and the number of
    /// records.
    under_way: VecDeque<(u64, u64)>,
    /// True if the network did not accept all buffered data.
    is_holding: bool,
}

impl LiveConnection {
    fn say(&mut self, word: ControlFrame) -> Result<bool> {
        match word {
            ControlFrame::Marker(marker) => self.sender.mark(marker),
            ControlFrame::Leave(target) => self.sender.leave(target),
        }
    }

    /// Removes the acknowledged records from the records in flight.
    fn settle(&mut self) {
        let acknowledged = self.sender.acknowledged();
        while let Some((frame, _)) = self.under_way.front() {
            if *frame > acknowledged {
                break;
            }
            self.under_way.pop_front();
        }
    }

    fn note(&mut self, records: usize) {
        if records > 0 {
            let last = *self.sender.in_flight().end();
            self.under_way.push_back((last, records as u64));
        }
    }
}

impl StreamSender {
    /// Creates the sender of a port slot.
    pub fn new(
        slot: Arc<PortSlot>,
        codec: Arc<dyn ChunkCodec>,
        config: StreamSenderConfig,
        counts: StreamCounts,
    ) -> Self {
        StreamSender {
            slot,
            codec,
            config,
            live: None,
            has_lost: false,
            watermark: None,
            is_idle: false,
            ended: None,
            is_done: false,
            left: BTreeSet::new(),
            counts,
            keeping: None,
        }
    }

    /// Lets the stream keep its output, and repeat it to a peer that was restored alone.
    pub fn keeping(mut self, output: RetainedOutput) -> Self {
        self.keeping = Some(Box::new(RetainedStream::new(output)));
        self
    }

    /// Returns true if the peer is gone permanently.
    fn is_unreachable(&self) -> bool {
        self.slot.is_aborted() && !self.slot.has_port() && self.live.is_none()
    }

    /// Starts the output of the next user, after all output of the previous user.
    pub fn begin(&mut self) {
        self.is_done = false;
        self.is_idle = false;
        self.ended = None;
        self.watermark = None;
        self.left.clear();
    }

    /// Returns the slot of the stream's ports.
    pub fn slot(&self) -> &Arc<PortSlot> {
        &self.slot
    }

    /// Sends the end of an ended stream over a new connection. Called while the stream has no user.
    pub fn service(&mut self) {
        // Only an ended stream has pending frames. An error means that the peer is gone.
        if self.is_done {
            let _ = self.flush();
        }
    }

    /// Sends records from the front of `chunk` to the instance `target`. Returns true if `chunk` is
    /// empty afterwards.
    ///
    /// # Errors
    /// If the codec cannot encode a record, or an encoded record exceeds the frame size.
    pub fn send(&mut self, target: InstanceNumber, chunk: &mut Chunk) -> Result<bool> {
        if self.is_unreachable() {
            self.count_lost(chunk.len() as u64);
            self.check_lost()?;
            chunk.clear();
            return Ok(true);
        }
        if self.keeping.is_some() {
            return self.send_kept(target, chunk);
        }
        self.is_idle = false;
        if !self.left.is_empty() {
            self.left.remove(&target);
        }
        let before = chunk.len();
        let Some(live) = self.ready()? else {
            return Ok(false);
        };
        let bytes_before = live.sender.bytes_sent();
        let sent = live.sender.send(target, chunk);
        let bytes = live.sender.bytes_sent() - bytes_before;
        live.settle();
        live.note(before - chunk.len());
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.handle_outcome(sent)
    }

    /// Sends a marker to all target instances. Returns false if the marker cannot be sent now.
    ///
    /// # Errors
    /// Only internal errors.
    pub fn mark(&mut self, marker: Marker) -> Result<bool> {
        if self.keeping.is_some() && !self.is_unreachable() {
            return self.mark_kept(marker);
        }
        self.say(ControlFrame::Marker(marker))
    }

    /// Sends the end of a micro-batch with encoded ends of sources. Returns false if it cannot be
    /// sent now.
    ///
    /// # Errors
    /// Only internal errors.
    pub fn end_batch(&mut self, batch: MicroBatch, source_ends: &[u8]) -> Result<bool> {
        if self.is_unreachable() {
            return Ok(true);
        }
        if self.keeping.is_some() {
            return self.end_batch_kept(batch, source_ends);
        }
        let Some(live) = self.ready()? else {
            return Ok(false);
        };
        let sent = live.sender.end_batch(batch, source_ends);
        self.handle_outcome(sent)
    }

    /// Returns the encoded ends of sources that the peer has reported, once.
    pub fn take_source_ends(&mut self) -> Option<Vec<u8>> {
        self.live.as_mut()?.sender.take_source_ends()
    }

    /// Signals that no local producer sends to the instance `target` at the moment. Returns false
    /// if the signal cannot be sent now.
    ///
    /// # Errors
    /// Only internal errors.
    pub fn leave(&mut self, target: InstanceNumber) -> Result<bool> {
        if self.keeping.is_some() && !self.is_unreachable() {
            return self.leave_kept(target);
        }
        self.say(ControlFrame::Leave(target))
    }

    fn say(&mut self, word: ControlFrame) -> Result<bool> {
        if !self.is_unreachable() {
            let Some(live) = self.ready()? else {
                return Ok(false);
            };
            let said = live.say(word);
            if !self.handle_outcome(said)? {
                return Ok(false);
            }
        }
        self.remember(word);
        Ok(true)
    }

    /// Ends the stream. If the end marker cannot be sent now, [`service`](Self::service)
    /// sends it later, also to each new incarnation of the peer.
    pub fn finish(&mut self) -> Result<()> {
        if self.keeping.is_some() && !self.is_unreachable() {
            return self.finish_kept();
        }
        // If the end marker can't be sent now, it will be the first frame of the next connection.
        let marked = self.mark(Marker::Done)?;
        self.is_done = true;
        if !marked && let Some(live) = &mut self.live {
            live.first.push_back(ControlFrame::Marker(Marker::Done));
        }
        self.flush()
    }

    /// Sends pending frames and buffered data, as far as the network accepts them.
    ///
    /// # Errors
    /// Only internal errors.
    pub fn flush(&mut self) -> Result<()> {
        // A new connection must get its initial frames even without new data. The receiver may wait
        // for a barrier that was lost.
        match self.keeping.is_some() {
            true => self.pump().map(drop)?,
            false => self.ready().map(drop)?,
        }
        let Some(live) = &mut self.live else {
            return Ok(());
        };
        let flushed = live.sender.flush();
        let is_flushed = self.handle_outcome(flushed)?;
        if let Some(live) = &mut self.live {
            live.is_holding = !is_flushed;
        }
        Ok(())
    }

    /// Returns true if nothing is pending. Without a connection, only the initial frames of the
    /// next connection can be pending.
    pub fn is_flushed(&self) -> bool {
        let is_sent = |keeping: &RetainedStream| keeping.is_sent();
        let has_kept_all = self.keeping.as_deref().is_none_or(is_sent);
        let live = self.live.as_ref();
        let is_live_flushed = live.is_none_or(|live| live.first.is_empty() && !live.is_holding);
        has_kept_all && is_live_flushed
    }

    fn remember(&mut self, word: ControlFrame) {
        match word {
            ControlFrame::Marker(Marker::Watermark(watermark)) => {
                self.watermark = Some(watermark);
                self.is_idle = false;
            }
            ControlFrame::Marker(Marker::Idle) => self.is_idle = true,
            ControlFrame::Marker(Marker::Done) => self.is_done = true,
            ControlFrame::Marker(Marker::Barrier(epoch)) => self.ended = Some(epoch),
            ControlFrame::Marker(Marker::BatchEnd(_) | Marker::Latency(_)) => {}
            ControlFrame::Leave(target) => {
                self.left.insert(target);
            }
        }
    }

    /// Returns the frames that a new connection starts with.
    fn initial_frames(&self) -> VecDeque<ControlFrame> {
        // The start of the stream, unless nothing has been sent yet.
        let begins = self.watermark.map(|_| Watermark::NONE);
        let time = self.watermark.filter(|time| *time > Watermark::NONE);
        let [begins, time] = [begins, time].map(|mark| mark.map(Marker::Watermark));
        let idle = self.is_idle.then_some(Marker::Idle);
        // Without the barrier the receiver would wait until the epoch is aborted. The barrier
        // precedes the watermark, because results of the watermark must not enter the barrier's
        // snapshot if they belong after it. An earlier watermark is only repeated.
        let ended = self.ended.map(Marker::Barrier);
        let done = self.is_done.then_some(Marker::Done);
        let markers = [begins, ended, time, idle];
        let markers = markers.into_iter().flatten().map(ControlFrame::Marker);
        let left = self.left.iter().copied().map(ControlFrame::Leave);
        markers
            .chain(left)
            .chain(done.map(ControlFrame::Marker))
            .collect()
    }

    /// Returns the current connection once its initial frames have been sent.
    fn ready(&mut self) -> Result<Option<&mut LiveConnection>> {
        if let Some(new) = self.slot.take() {
            self.drop_connection();
            self.check_lost()?;
            let first = self.initial_frames();
            self.connect(new, first);
        }
        self.send_first()
    }

    fn connect(&mut self, new: NewPort, first: VecDeque<ControlFrame>) {
        let (stream, codec) = (self.slot.stream, Arc::clone(&self.codec));
        let (all, config) = (InstanceNumber::ALL, self.config.sender);
        self.live = Some(LiveConnection {
            sender: EdgeSender::new(stream, all, new.port, codec, config),
            link: new.link,
            first,
            under_way: VecDeque::new(),
            is_holding: false,
        });
    }

    /// Sends the initial frames of the current connection. Returns the connection when it has got
    /// them.
    fn send_first(&mut self) -> Result<Option<&mut LiveConnection>> {
        while let Some(live) = &mut self.live
            && let Some(word) = live.first.front().copied()
        {
            let said = live.say(word);
            if !self.handle_outcome(said)? {
                return Ok(None);
            }
            if let Some(live) = &mut self.live {
                live.first.pop_front();
            }
        }
        Ok(self.live.as_mut())
    }

    /// Handles the outcome of a send. If the connection is lost, counts the records in flight as
    /// lost and returns false.
    fn handle_outcome(&mut self, outcome: Result<bool>) -> Result<bool> {
        match outcome {
            Err(error) if error.code() == ErrorCode::Network => {
                self.complain(&error);
                self.drop_connection();
                Ok(false)
            }
            outcome => outcome,
        }
    }

    /// Reports an invalid stream, so that the network reopens the connection if it still exists.
    fn complain(&self, error: &Error) {
        if let Some(live) = &self.live {
            self.slot.report_invalid(live.link, error);
        }
    }

    fn drop_connection(&mut self) {
        if let Some(mut live) = self.live.take() {
            live.settle();
            let lost: u64 = live.under_way.iter().map(|(_, records)| records).sum();
            self.count_lost(lost);
        }
    }

    fn count_lost(&mut self, records: u64) {
        self.counts.lost.fetch_add(records, Ordering::Relaxed);
        self.has_lost |= records > 0;
    }

    /// Fails if records have been lost within an execution attempt, because a later barrier would
    /// commit an epoch without those records. Lost markers need no check: they are repeated, or
    /// without them the epoch is not committed.
    fn check_lost(&self) -> Result<()> {
        if !self.has_lost || !self.config.fails_on_loss {
            return Ok(());
        }
        let what = format!(
            "records for container {} were lost with a connection",
            self.slot.peer.0
        );
        Err(Error::new(ErrorCode::PeerLost, what)
            .hint("no action is required: the job restores the latest committed checkpoint"))
    }
}
