//! A minimal runtime for one processor: callbacks with or without room, emptied outputs, deadlines.

use std::time::Duration;

use ardea_core::{
    Chunk, Inbox, InstanceContext, ManualClock, Marker, MicroBatch, Ordinal, Outbox, OutboxRuntime,
    Processor, Progress, Result, Watermark,
};

/// The number of calls of one callback after which a processor is considered stuck.
const MAX_CALLS: usize = 1_000_000;

/// The capacity of the outbox per call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rooms {
    /// Room per lane, in records.
    pub(crate) room: usize,
    /// The outbox refuses every n-th call. Zero never refuses.
    pub(crate) refuse_every: usize,
    /// The maximum number of records that may exceed the room at once: a whole chunk to an empty
    /// lane.
    pub(crate) whole_chunk: usize,
}

/// One output of a processor on a lane.
pub(crate) enum Written {
    Records(Chunk),
    Marker(Marker),
}

/// A processor under test.
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
    /// Initializes `processor`, and wakes it if it requested a wake-up. `hand` moves the context's
    /// clock.
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

    /// Delivers a chunk until it is read completely.
    pub(crate) fn chunk(&mut self, input: Ordinal, chunk: Chunk) -> Result<()> {
        let mut inbox = std::mem::take(&mut self.inboxes[input.index()]);
        inbox.fill(chunk);
        for _ in 0..MAX_CALLS {
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

    pub(crate) fn batch_end(&mut self, batch: MicroBatch) -> Result<()> {
        self.until_done(|processor, outbox| processor.on_batch_end(batch, outbox))
    }

    pub(crate) fn edge_done(&mut self, input: Ordinal) -> Result<()> {
        self.until_done(|processor, outbox| processor.on_edge_done(input, outbox))
    }

    pub(crate) fn complete(&mut self) -> Result<()> {
        self.until_done(|processor, outbox| processor.complete(outbox))
    }

    /// Advances the clock.
    pub(crate) fn advance(&mut self, by: Duration) -> Result<()> {
        self.hand.advance(by);
        self.wake_if_due()
    }

    /// Runs one callback, with or without room, and collects its outputs.
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
        for _ in 0..MAX_CALLS {
            if self.call(&mut callback)?.done {
                return self.wake_if_due();
            }
        }
        panic!("the processor never gets done");
    }

    /// Wakes the processor while its deadline has passed.
    fn wake_if_due(&mut self) -> Result<()> {
        for _ in 0..MAX_CALLS {
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
