//! The output of a tasklet: its records into the queues of their consumers.

use std::mem;
use std::sync::Arc;

use ardea_core::{
    Chunk, FarNews, InstanceMetrics, Marker, Outbox, Replicate, Result, Routing, Scatter, Watermark,
};

use crate::coming::{Comers, Coming};
use crate::queue::{Message, QueueSender};

mod switching;

pub(crate) use switching::{NewLane, NewLanes};
use switching::{Said, Switching};

/// How a chunk is laid onto the queues of one edge.
pub(crate) enum Route {
    /// There is none: records are dropped, and counted.
    Nowhere,
    /// All to the only queue.
    Single,
    /// To the next queue that has room.
    RoundRobin { next: usize },
    /// The same among those whose places these are: their consumers are in this process.
    Among { places: Vec<usize>, next: usize },
    /// Each record to the queue of its consumer; those that don't fill a chunk yet gather in the consumer's place of `staged`.
    Scatter {
        scatter: Arc<dyn Scatter>,
        staged: Vec<Chunk>,
    },
    /// A copy into every queue.
    Broadcast(Arc<dyn Replicate>),
}

impl Route {
    /// How an edge of this routing goes to so many consumers, of which `local` are in this process, by their places.
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

/// The queues of one edge that leads out of a tasklet.
pub(crate) struct OutputEdge {
    route: Route,
    /// The first ones lead to the consumers by their numbers, as many as there are; the others only hear of time and ends.
    lanes: Vec<QueueSender>,
    consumers: usize,
    /// The places of those that lead to consumers in this process.
    local: Vec<usize>,
    chunk_records: usize,
    /// How many queues have got the marker at hand.
    marked: usize,
    /// How many records have been laid onto the queues.
    routed: u64,
    said: Said,
    /// Present while queues come and go.
    switching: Option<Box<Switching>>,
    farewell: Farewell,
    /// A marker that some queues have got when the tasklet failed.
    unfinished: Option<Marker>,
    lost: u64,
}

/// What the consumers hear when the tasklet ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Farewell {
    /// The end.
    #[default]
    Whole,
    /// The end of what came from here, while others may go on: nothing of the end of all time.
    Quiet,
    /// Nothing: another will go on in its place, and time waits for it.
    None,
}

impl OutputEdge {
    /// Over these queues, of which the first `consumers` get records; `local` are the places of those whose consumers are in this
    /// process.
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
            said: Said::default(),
            switching: None,
            farewell: Farewell::Whole,
            unfinished: None,
            lost: 0,
        }
    }

    /// Of an edge that comes from another process.
    pub(crate) fn crossing(mut self) -> Self {
        self.said.coming = Some(Coming::Unheard(None));
        self
    }

    /// One more, without queues, of a tasklet that writes its markers to all outputs; `like` is another of them.
    pub(crate) fn another(like: Option<&OutputEdge>, chunk_records: usize) -> Self {
        let none = OutputEdge::new(&Routing::Forward, Vec::new(), 0, Vec::new(), chunk_records);
        let mut edge = none.crossing();
        if let Some(like) = like {
            edge.said = like.said.again(like.routed);
        }
        edge
    }

    /// Of the outputs of one edge that comes from another process: if records have gone over one of them since all were told of a
    /// silence, none of them is silent.
    pub(crate) fn agree(outputs: &mut [OutputEdge]) {
        let mut edges = outputs.iter();
        if edges.any(|edge| edge.said.has_broken_silence(edge.routed)) {
            outputs
                .iter_mut()
                .for_each(|edge| edge.said.break_silence());
        }
    }

    /// Of an edge that comes from another process: there is another change of the job, by which producers come there, or none do. Those
    /// that are joined to it meanwhile do not hear of an end that does not count.
    pub(crate) fn expect(&mut self, comers: Comers) {
        if let Some(coming) = &mut self.said.coming {
            coming.told(comers);
        }
    }

    /// Says what the consumers hear at the end.
    pub(crate) fn bid(&mut self, farewell: Farewell) {
        self.farewell = farewell;
    }

    /// The tasklet has failed while this marker was on its way: the queues that have not got it get it all the same.
    pub(crate) fn interrupt(&mut self, marker: Option<Marker>) {
        if self.marked > 0 && self.unfinished.is_none() {
            self.unfinished = marker;
        }
    }

    /// The queues, which nobody has been told the end of.
    pub(crate) fn into_lanes(self) -> Vec<QueueSender> {
        self.lanes
    }

    /// The position on this output of the record at `index` of the chunk at hand.
    pub(crate) fn position(&self, index: usize) -> u64 {
        self.routed + index as u64
    }

    /// How many records have been dropped because there was no consumer, or none any more; since the last look.
    pub(crate) fn take_lost(&mut self) -> u64 {
        let swallowed = self.lanes.iter_mut().map(QueueSender::take_swallowed);
        mem::take(&mut self.lost) + swallowed.sum::<u64>()
    }

    /// Moves what it can from the outbox's lane into the queues; says whether anything moved.
    ///
    /// Records scattered over several consumers gather until a chunk is full or a marker follows; [`flush`](Self::flush) sends
    /// them at the end of the slice at the latest.
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
                // A marker that some queues have got goes to the same ones' siblings first.
                moved = self.send_marker(outbox, lane, metrics);
            }
            if !self.switch() {
                return Ok(moved);
            }
        }
        loop {
            let step = if outbox.has_records(lane) {
                let records = outbox.chunk_mut(lane).len() as u64;
                let step = self.send_chunk(outbox, lane)?;
                if step {
                    self.routed += records;
                    metrics.count_out(records);
                }
                step
            } else if outbox.peek_marker(lane).is_some() {
                self.send_marker(outbox, lane, metrics)
            } else if let Some(news) = outbox.peek_news(lane) {
                self.send_news(news, outbox, lane)
            } else {
                return Ok(moved);
            };
            if !step {
                return Ok(moved);
            }
            moved = true;
        }
    }

    /// Sends gathered records although their chunks are not full, as far as there is room.
    pub(crate) fn flush(&mut self) {
        self.send_staged(1);
        if self.switching.is_some() {
            self.switch();
        }
    }

    /// Whether no gathered records wait, and no queue that has to be told of its end.
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
            Route::Broadcast(replicate) => {
                // All are asked, so that each that is full wakes us.
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

    /// Sends the staged chunks that hold at least `least` records; says whether any went.
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
            Marker::Watermark(Watermark::END) => self.farewell != Farewell::Whole,
            Marker::Done => self.farewell == Farewell::None,
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
            metrics.note_watermark(watermark);
        }
        outbox.take_marker(lane);
        true
    }

    /// Sends a marker to the queues that have not got it; whether all have.
    fn send_to_all(&mut self, marker: Marker) -> bool {
        while let Some(sender) = self.lanes.get_mut(self.marked) {
            if !sender.has_room() {
                return false;
            }
            sender.send(Message::Marker(marker));
            self.marked += 1;
        }
        self.marked = 0;
        self.said.note(marker, self.routed);
        true
    }

    /// Of an end of an edge from another process, which has one queue a lane, or none.
    fn send_news(&mut self, news: FarNews, outbox: &mut Outbox, lane: usize) -> bool {
        if !self.lanes.iter_mut().all(QueueSender::has_room) {
            return false;
        }
        for sender in &mut self.lanes {
            sender.send(Message::News(news));
        }
        if news == FarNews::Anew {
            self.said.begin_anew();
        }
        outbox.take_news(lane);
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
