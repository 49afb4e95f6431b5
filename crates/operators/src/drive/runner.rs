//! Plays the runtime for one processor: callbacks with room or without, outputs moved on, deadlines kept.

use std::time::Duration;

use ardea_core::{
    Chunk, Inbox, InstanceContext, ManualClock, Marker, Ordinal, Outbox, Processor, Progress,
    Result, Watermark,
};

/// After so many calls of one callback without an end, a processor is stuck.
const PATIENCE: usize = 1_000_000;

/// How much room the outbox has, call by call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rooms {
    /// Records a lane.
    pub(crate) room: usize,
    /// Every so many calls there is none; zero never refuses.
    pub(crate) refuse_every: usize,
    /// Up to so many records may come at once although there is less room: a whole chunk to an empty lane.
    pub(crate) whole_chunk: usize,
}

/// What a processor wrote to a lane, in order.
pub(crate) enum Written {
    Records(Chunk),
    Marker(Marker),
}

/// A processor that is being driven.
pub(crate) struct Runner<'p> {
    processor: &'p mut dyn Processor,
    rooms: Rooms,
    outbox: Outbox,
    inboxes: Vec<Inbox>,
    pub(crate) written: Vec<(usize, Written)>,
    calls: usize,
    deadline: Option<Duration>,
    context: InstanceContext,
    hand: ManualClock,
}

impl<'p> Runner<'p> {
    /// Initialises `processor`, and wakes it if it asked for that. The context's clock is moved by `hand`.
    pub(crate) fn start(
        processor: &'p mut dyn Processor,
        (inputs, lanes): (u16, usize),
        rooms: Rooms,
        context: InstanceContext,
        hand: ManualClock,
    ) -> Result<Self> {
        processor.init(&context)?;
        let mut runner = Runner {
            processor,
            rooms,
            outbox: Outbox::new(lanes, rooms.room),
            inboxes: (0..inputs).map(|_| Inbox::default()).collect(),
            written: Vec::new(),
            calls: 0,
            deadline: None,
            context,
            hand,
        };
        runner.wake_if_due()?;
        Ok(runner)
    }

    /// Has a chunk read to its end.
    pub(crate) fn chunk(&mut self, input: Ordinal, chunk: Chunk) -> Result<()> {
        let mut inbox = std::mem::take(&mut self.inboxes[input.index()]);
        inbox.fill(chunk);
        for _ in 0..PATIENCE {
            if inbox.is_empty() {
                break;
            }
            self.call(|processor, outbox| processor.process(input, &mut inbox, outbox))?;
        }
        assert!(inbox.is_empty(), "the processor is stuck on {inbox:?}");
        self.inboxes[input.index()] = inbox;
        self.wake_if_due()
    }

    pub(crate) fn watermark(&mut self, watermark: Watermark) -> Result<()> {
        self.until_done(|processor, outbox| processor.on_watermark(watermark, outbox))
    }

    pub(crate) fn edge_done(&mut self, input: Ordinal) -> Result<()> {
        self.until_done(|processor, outbox| processor.on_edge_done(input, outbox))
    }

    pub(crate) fn complete(&mut self) -> Result<()> {
        self.until_done(|processor, outbox| processor.complete(outbox))
    }

    /// Lets time pass on the clock.
    pub(crate) fn advance(&mut self, by: Duration) -> Result<()> {
        self.hand.advance(by);
        self.wake_if_due()
    }

    /// One callback: with room or without, and its outputs collected.
    fn call<R>(
        &mut self,
        callback: impl FnOnce(&mut dyn Processor, &mut Outbox) -> Result<R>,
    ) -> Result<R> {
        self.calls += 1;
        let every = self.rooms.refuse_every;
        let (room, most) = match every > 0 && self.calls.is_multiple_of(every) {
            true => (0, 0),
            false => (self.rooms.room, self.rooms.room.max(self.rooms.whole_chunk)),
        };
        self.outbox.set_budget(room);
        let outcome = callback(self.processor, &mut self.outbox);
        let asked = self.outbox.take_wake_at();
        self.deadline = self.deadline.into_iter().chain(asked).min();
        for lane in 0..self.outbox.lanes() {
            if let Some(chunk) = self.outbox.take_chunk(lane, Chunk::default) {
                let count = chunk.len();
                assert!(count <= most, "{count} records where {most} had room");
                self.written.push((lane, Written::Records(chunk)));
            }
            while let Some(marker) = self.outbox.take_marker(lane) {
                self.written.push((lane, Written::Marker(marker)));
            }
        }
        outcome
    }

    fn until_done(
        &mut self,
        mut callback: impl FnMut(&mut dyn Processor, &mut Outbox) -> Result<Progress>,
    ) -> Result<()> {
        for _ in 0..PATIENCE {
            if self.call(&mut callback)?.done {
                return self.wake_if_due();
            }
        }
        panic!("the processor never gets done");
    }

    /// Wakes the processor as long as its deadline has come.
    fn wake_if_due(&mut self) -> Result<()> {
        for _ in 0..PATIENCE {
            let now = self.context.clock.now();
            if self.deadline.is_none_or(|deadline| deadline > now) {
                return Ok(());
            }
            self.deadline = None;
            self.call(|processor, outbox| processor.on_wake(outbox))?;
        }
        panic!("the processor never rests");
    }
}
