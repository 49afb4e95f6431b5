//! The output of a tasklet: sends its records to the queues of their consumers.

use std::mem;
use std::sync::Arc;

use ardea_core::{
    Chunk, InstanceMetrics, Marker, MicroBatch, Outbox, OutboxRuntime, Replicate, Result, Routing,
    Scatter, Watermark,
};

use crate::channels::pending_producers::{ExpectedProducers, ProducerState};
use crate::channels::queue::{Message, QueueSender};
use crate::remote::RemoteSignal;

mod block_routing;
mod switching;

use block_routing::BlockRouting;

pub(crate) use switching::{NewLane, NewLanes};
use switching::{SentMarkers, Switching};

/// The distribution of a chunk over the queues of one edge.
pub(crate) enum Route {
    /// No consumer: records are dropped and counted.
    Nowhere,
    /// All records to the only queue.
    Single,
    /// To the next queue that has room.
    RoundRobin { next: usize },
    /// To the next queue that has room among `places`, whose consumers are in this process.
    Among { places: Vec<usize>, next: usize },
    /// In blocks by their position in the micro-batch.
    Dealt(BlockRouting),
    /// Each record to the queue of its consumer. Incomplete chunks are collected in `staged`, by
    /// consumer.
    Scatter {
        scatter: Arc<dyn Scatter>,
        staged: Vec<Chunk>,
    },
    /// A copy to every queue.
    Broadcast(Arc<dyn Replicate>),
}

impl Route {
    /// Creates the route for a routing and a number of consumers; `local` are the indices of the
    /// consumers in this process.
    pub(crate) fn of(routing: &Routing, consumers: usize, local: &[usize]) -> Self {
        let is_mixed = !local.is_empty() && local.len() < consumers;
        match routing {
            _ if consumers == 0 => Route::Nowhere,
            _ if consumers == 1 => Route::Single,
            Routing::Forward | Routing::AllToOne => Route::Single,
            Routing::LocalOrRoundRobin if is_mixed => Route::Among {
                places: local.to_vec(),
                next: 0,
            },
            Routing::RoundRobin | Routing::LocalOrRoundRobin => Route::RoundRobin { next: 0 },
            Routing::Keyed(scatter) | Routing::Custom(scatter) => Route::Scatter {
                scatter: Arc::clone(scatter),
                staged: (0..consumers).map(|_| Chunk::default()).collect(),
            },
            Routing::Broadcast(replicate) => Route::Broadcast(Arc::clone(replicate)),
        }
    }
}

/// The queues of one outgoing edge of a tasklet.
pub(crate) struct OutputEdge {
    route: Route,
    /// The first `consumers` queues lead to the consumers by index; the others get only watermarks
    /// and end-of-stream markers.
    lanes: Vec<QueueSender>,
    consumers: usize,
    /// The indices of consumers in this process.
    local: Vec<usize>,
    chunk_records: usize,
    /// Number of queues that have got the current marker.
    marked: usize,
    /// Number of records sent or staged.
    routed: u64,
    sent_markers: SentMarkers,
    /// Present while queues are being replaced.
    switching: Option<Box<Switching>>,
    close_mode: CloseMode,
    /// A marker that only some queues had got when the tasklet failed.
    unfinished: Option<Marker>,
    lost: u64,
}

/// The notification of the consumers when the tasklet ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum CloseMode {
    /// End of stream.
    #[default]
    Whole,
    /// The end of this producer only, while others may go on: no end watermark.
    Quiet,
    /// No notification: a successor will continue, and the watermark waits for it.
    None,
}

impl OutputEdge {
    /// Creates an output over these queues, of which the first `consumers` get records; `local` are
    /// the indices of consumers in this process.
    pub(crate) fn new(
        routing: &Routing,
        lanes: Vec<QueueSender>,
        consumers: usize,
        local: Vec<usize>,
        chunk_records: usize,
    ) -> Self {
        OutputEdge {
            route: Route::of(routing, consumers, &local),
            lanes,
            consumers,
            local,
            chunk_records,
            marked: 0,
            routed: 0,
            sent_markers: SentMarkers::default(),
            switching: None,
            close_mode: CloseMode::Whole,
            unfinished: None,
            lost: 0,
        }
    }

    /// Makes the choice of consumers independent of the room in their queues, for micro-batches.
    pub(crate) fn dealt_in_order(mut self) -> Self {
        if matches!(self.route, Route::RoundRobin { .. }) {
            self.route = Route::Dealt(BlockRouting::default());
        }
        self
    }

    /// Marks the output as one of an edge from another process.
    pub(crate) fn crossing(mut self) -> Self {
        self.sent_markers.producers = Some(ProducerState::NotStarted(None));
        self
    }

    /// Creates an output without queues for the receiving end of an edge, which writes its markers
    /// to all outputs. The new output has got the markers of `like`, an existing one.
    pub(crate) fn another(like: Option<&OutputEdge>, chunk_records: usize) -> Self {
        let none = OutputEdge::new(&Routing::Forward, Vec::new(), 0, Vec::new(), chunk_records);
        let mut edge = none.crossing();
        if let Some(like) = like {
            edge.sent_markers = like.sent_markers.again(like.routed);
        }
        edge
    }

    /// Aligns the outputs of one edge from another process: if records were sent on one of them
    /// after its idle or end marker, none of the outputs is idle or ended.
    pub(crate) fn agree(outputs: &mut [OutputEdge]) {
        let mut edges = outputs.iter();
        if edges.any(|edge| edge.sent_markers.has_broken_silence(edge.routed)) {
            outputs
                .iter_mut()
                .for_each(|edge| edge.sent_markers.break_silence());
        }
    }

    /// Announces the producers `comers`, expected at the other end of an edge from another process.
    /// Until they have started, consumers added later do not get an end-of-stream marker.
    pub(crate) fn expect(&mut self, comers: ExpectedProducers) {
        if let Some(coming) = &mut self.sent_markers.producers {
            coming.handle_notification(comers);
        }
    }

    /// Sets the notification of the consumers at the end.
    pub(crate) fn set_close_mode(&mut self, farewell: CloseMode) {
        self.close_mode = farewell;
    }

    /// Stores a marker that was being sent when the tasklet failed; the remaining queues still get
    /// it.
    pub(crate) fn interrupt(&mut self, marker: Option<Marker>) {
        if self.marked > 0 && self.unfinished.is_none() {
            self.unfinished = marker;
        }
    }

    /// Returns the queues without sending end-of-stream markers.
    pub(crate) fn into_lanes(self) -> Vec<QueueSender> {
        self.lanes
    }

    /// Returns the position on this output of the record at `index` of the current chunk.
    pub(crate) fn position(&self, index: usize) -> u64 {
        self.routed + index as u64
    }

    /// Returns the number of records dropped for lack of a consumer since the last call.
    pub(crate) fn take_lost(&mut self) -> u64 {
        let swallowed = self.lanes.iter_mut().map(QueueSender::take_swallowed);
        mem::take(&mut self.lost) + swallowed.sum::<u64>()
    }

    /// Moves as much as possible from the outbox's lane into the queues; returns true if anything
    /// moved.
    ///
    /// Records for several consumers are collected until a chunk is full or a marker follows;
    /// [`flush`](Self::flush) sends them at the end of the slice.
    pub(crate) fn drain(
        &mut self,
        outbox: &mut Outbox,
        lane: usize,
        metrics: &InstanceMetrics,
    ) -> Result<bool> {
        let mut moved = false;
        if let Some(marker) = self.unfinished {
            if !self.send_to_all(marker) {
                return Ok(false);
            }
            self.unfinished = None;
        }
        if self.switching.is_some() {
            if self.marked > 0 {
                // Completes a marker that some queues have already got.
                moved = self.send_marker(outbox, lane, metrics);
            }
            if !self.switch() {
                return Ok(moved);
            }
        }
        loop {
            let step = if outbox.has_records(lane) {
                let before = outbox.chunk_mut(lane).len();
                let step = self.send_chunk(outbox, lane)?;
                let sent = (before - outbox.chunk_mut(lane).len()) as u64;
                if sent > 0 {
                    self.routed += sent;
                    metrics.count_out(sent);
                    moved = true;
                }
                step
            } else if outbox.peek_marker(lane).is_some() {
                self.send_marker(outbox, lane, metrics)
            } else {
                return Ok(moved);
            };
            if !step {
                return Ok(moved);
            }
            moved = true;
        }
    }

    /// Sends staged records although their chunks are not full, as far as there is room.
    pub(crate) fn flush(&mut self) {
        self.send_staged(1);
        if self.switching.is_some() {
            self.switch();
        }
    }

    /// Returns true if no records are staged and no replaced queue waits for its end-of-stream
    /// marker.
    pub(crate) fn is_flushed(&self) -> bool {
        self.is_unstaged() && self.switching.is_none()
    }

    fn is_unstaged(&self) -> bool {
        match &self.route {
            Route::Scatter { staged, .. } => staged.iter().all(Chunk::is_empty),
            _ => true,
        }
    }

    fn send_chunk(&mut self, outbox: &mut Outbox, lane: usize) -> Result<bool> {
        let consumers = &mut self.lanes[..self.consumers];
        match &mut self.route {
            Route::Single => Ok(send_whole(&mut consumers[0], outbox, lane)),
            Route::RoundRobin { next } => {
                let count = consumers.len();
                for step in 0..count {
                    let index = (*next + step) % count;
                    if send_whole(&mut consumers[index], outbox, lane) {
                        *next = (index + 1) % count;
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Route::Among { places, next } => {
                let count = places.len();
                for step in 0..count {
                    let index = (*next + step) % count;
                    if send_whole(&mut consumers[places[index]], outbox, lane) {
                        *next = (index + 1) % count;
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Route::Dealt(dealing) => dealing.send(consumers, outbox, lane, self.chunk_records),
            Route::Broadcast(replicate) => {
                // Checks all queues, so that each full one wakes this tasklet later.
                let ready = consumers
                    .iter_mut()
                    .fold(true, |all, sender| sender.has_room() & all);
                if !ready {
                    return Ok(false);
                }
                let Some((last, others)) = consumers.split_last_mut() else {
                    return Ok(false);
                };
                for sender in others {
                    let mut copy = sender.spare();
                    replicate.replicate(outbox.chunk_mut(lane), &mut copy)?;
                    sender.send(Message::Chunk(copy));
                }
                Ok(send_whole(last, outbox, lane))
            }
            Route::Scatter { .. } => {
                self.send_staged(self.chunk_records);
                let Route::Scatter { scatter, staged } = &mut self.route else {
                    return Ok(false);
                };
                if staged.iter().any(|chunk| chunk.len() >= self.chunk_records) {
                    return Ok(false);
                }
                scatter.scatter(outbox.chunk_mut(lane), staged, self.chunk_records)?;
                Ok(true)
            }
            Route::Nowhere => {
                let chunk = outbox.chunk_mut(lane);
                self.lost += chunk.len() as u64;
                chunk.clear();
                Ok(true)
            }
        }
    }

    /// Sends staged chunks of at least `least` records; returns true if any was sent.
    fn send_staged(&mut self, least: usize) -> bool {
        let Route::Scatter { staged, .. } = &mut self.route else {
            return false;
        };
        let mut sent = false;
        for (chunk, sender) in staged.iter_mut().zip(&mut self.lanes) {
            if chunk.len() >= least && sender.has_room() {
                let spare = sender.spare();
                sender.send(Message::Chunk(mem::replace(chunk, spare)));
                sent = true;
            }
        }
        sent
    }

    fn send_marker(&mut self, outbox: &mut Outbox, lane: usize, metrics: &InstanceMetrics) -> bool {
        let mut moved = self.send_staged(1);
        if !self.is_unstaged() {
            return moved;
        }
        let Some(marker) = outbox.peek_marker(lane) else {
            return moved;
        };
        let is_unsaid = match marker {
            Marker::Watermark(Watermark::END) => self.close_mode != CloseMode::Whole,
            Marker::Done => self.close_mode == CloseMode::None,
            _ => false,
        };
        if is_unsaid {
            self.marked = 0;
            outbox.take_marker(lane);
            return true;
        }
        let before = self.marked;
        let is_sent = self.send_to_all(marker);
        moved |= is_sent || self.marked > before;
        if !is_sent {
            return moved;
        }
        if let Marker::Watermark(watermark) = marker {
            metrics.record_watermark(watermark);
        }
        if let Route::Dealt(dealing) = &mut self.route {
            match marker {
                Marker::BatchEnd(batch) => dealing.begin(batch.next(), self.consumers),
                // A restored output does not know the number of the last micro-batch.
                Marker::Barrier(_) => dealing.begin(MicroBatch(0), self.consumers),
                _ => {}
            }
        }
        outbox.take_marker(lane);
        true
    }

    /// Sends a marker to the queues that have not got it; returns true if all have.
    fn send_to_all(&mut self, marker: Marker) -> bool {
        while let Some(sender) = self.lanes.get_mut(self.marked) {
            if !sender.has_room() {
                return false;
            }
            sender.send(Message::Marker(marker));
            self.marked += 1;
        }
        self.marked = 0;
        self.sent_markers.note(marker, self.routed);
        true
    }

    /// Sends a remote signal, if there is room and no queue is being replaced. An output with such
    /// signals has at most one queue.
    pub(crate) fn send_signal(&mut self, news: RemoteSignal) -> bool {
        if self.switching.is_some() || !self.lanes.iter_mut().all(QueueSender::has_room) {
            return false;
        }
        for sender in &mut self.lanes {
            sender.send(Message::Signal(news));
        }
        if news == RemoteSignal::Restarted {
            self.sent_markers.restart();
        }
        true
    }
}

fn send_whole(sender: &mut QueueSender, outbox: &mut Outbox, lane: usize) -> bool {
    if !sender.has_room() {
        return false;
    }
    if let Some(chunk) = outbox.take_chunk(lane, || sender.spare()) {
        sender.send(Message::Chunk(chunk));
    }
    true
}

impl std::fmt::Debug for OutputEdge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OutputEdge(to {} queues)", self.lanes.len())
    }
}
