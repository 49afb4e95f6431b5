//! Drives one processor of this crate through a script, under several chunk sizes and rooms.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Chunk, Clock, Inbox, InstanceContext, ManualClock, Marker, Ordinal, Outbox, Processor,
    Progress, Result, Rows, Timestamp, Watermark,
};

/// After so many calls of one callback without an end, a processor is stuck.
const PATIENCE: usize = 100_000;

/// The second `n` of event time.
pub(crate) fn at(n: i64) -> Timestamp {
    Timestamp::from_secs(n)
}

/// Records without event time.
pub(crate) fn untimed<T>(values: impl IntoIterator<Item = T>) -> Vec<(T, Timestamp)> {
    values
        .into_iter()
        .map(|value| (value, Timestamp::MIN))
        .collect()
}

#[derive(Clone)]
enum Step {
    /// Records for an input, in chunks of a given size.
    Records(Ordinal, Arc<dyn Fn(usize) -> Vec<Chunk>>),
    Watermark(Timestamp),
    EdgeDone(Ordinal),
    Advance(Duration),
}

/// What a processor wrote to a lane.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Seen<U> {
    Record(U, Timestamp),
    Watermark(Timestamp),
    Other(Marker),
}

/// All that a processor wrote to a lane.
#[derive(Debug)]
pub(crate) struct Outcome<U>(Vec<Seen<U>>);

impl<U: Clone> Outcome<U> {
    pub(crate) fn events(&self) -> &[Seen<U>] {
        &self.0
    }

    pub(crate) fn records(&self) -> Vec<(U, Timestamp)> {
        let records = self.0.iter().filter_map(|seen| match seen {
            Seen::Record(value, time) => Some((value.clone(), *time)),
            _ => None,
        });
        records.collect()
    }

    pub(crate) fn values(&self) -> Vec<U> {
        self.records().into_iter().map(|(value, _)| value).collect()
    }

    /// Panics if a record has an event time before a watermark that it follows, or a watermark runs backwards.
    pub(crate) fn assert_in_time(&self) {
        let mut watermark = Timestamp::MIN;
        for seen in &self.0 {
            match seen {
                Seen::Record(_, time) => {
                    assert!(*time >= watermark, "{time:?} behind {watermark:?}")
                }
                Seen::Watermark(next) => {
                    assert!(*next > watermark, "{next:?} after {watermark:?}");
                    watermark = *next;
                }
                Seen::Other(_) => {}
            }
        }
    }
}

/// A script for a processor, and the schedule to run it under.
#[derive(Clone)]
pub(crate) struct Drive {
    steps: Vec<Step>,
    inputs: u16,
    lanes: usize,
    chunk: usize,
    room: usize,
    refuse: bool,
    pub(crate) context: InstanceContext,
    hand: ManualClock,
}

impl Default for Drive {
    fn default() -> Self {
        let hand = ManualClock::new();
        let clock: Clock = hand.clock();
        Drive {
            steps: Vec::new(),
            inputs: 1,
            lanes: 1,
            chunk: 1024,
            room: 1024,
            refuse: false,
            context: InstanceContext {
                clock,
                ..InstanceContext::detached("under test")
            },
            hand,
        }
    }
}

impl Drive {
    /// Runs `test` with one by one and batch input, little room, and an outbox that refuses every other call.
    pub(crate) fn every_schedule(test: impl Fn(Drive)) {
        for (chunk, room, refuse) in [
            (1024, 1024, false),
            (1, 1, false),
            (7, 3, false),
            (3, 7, true),
            (5, 1, true),
        ] {
            test(Drive {
                chunk,
                room,
                refuse,
                ..Drive::default()
            });
        }
    }

    /// A drive whose outbox has room for so many records.
    pub(crate) fn with_room(room: usize) -> Drive {
        Drive {
            room,
            ..Drive::default()
        }
    }

    pub(crate) fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = lanes;
        self
    }

    pub(crate) fn records<T>(self, records: impl IntoIterator<Item = (T, Timestamp)>) -> Self
    where
        T: Clone + Send + 'static,
    {
        self.records_on(Ordinal::FIRST, records)
    }

    pub(crate) fn records_on<T>(
        mut self,
        input: Ordinal,
        records: impl IntoIterator<Item = (T, Timestamp)>,
    ) -> Self
    where
        T: Clone + Send + 'static,
    {
        let records: Vec<_> = records.into_iter().collect();
        let chunks = move |size: usize| {
            records
                .chunks(size)
                .map(|chunk| Chunk::new(chunk.iter().cloned().collect::<Rows<T>>()))
                .collect()
        };
        self.inputs = self.inputs.max(input.0 + 1);
        self.steps.push(Step::Records(input, Arc::new(chunks)));
        self
    }

    pub(crate) fn watermark(mut self, time: Timestamp) -> Self {
        self.steps.push(Step::Watermark(time));
        self
    }

    pub(crate) fn edge_done(mut self, input: Ordinal) -> Self {
        self.inputs = self.inputs.max(input.0 + 1);
        self.steps.push(Step::EdgeDone(input));
        self
    }

    pub(crate) fn advance(mut self, by: Duration) -> Self {
        self.steps.push(Step::Advance(by));
        self
    }

    /// What the processor writes to its only lane.
    pub(crate) fn run<U: Send + 'static>(self, processor: &mut dyn Processor) -> Outcome<U> {
        self.try_run(processor).unwrap().swap_remove(0)
    }

    /// What the processor writes to each lane, all of one type.
    pub(crate) fn run_lanes<U: Send + 'static>(
        self,
        processor: &mut dyn Processor,
    ) -> Vec<Outcome<U>> {
        self.try_run(processor).unwrap()
    }

    pub(crate) fn try_run<U: Send + 'static>(
        self,
        processor: &mut dyn Processor,
    ) -> Result<Vec<Outcome<U>>> {
        let mut run = Run {
            outbox: Outbox::new(self.lanes, self.room),
            inboxes: (0..self.inputs).map(|_| Inbox::default()).collect(),
            seen: (0..self.lanes).map(|_| Outcome(Vec::new())).collect(),
            calls: 0,
            deadline: None,
            drive: &self,
        };
        processor.init(&self.context)?;
        let mut open: Vec<bool> = vec![true; usize::from(self.inputs)];
        run.wake(processor)?;
        for step in &self.steps {
            match step {
                Step::Records(input, chunks) => {
                    for chunk in chunks(self.chunk) {
                        run.chunk(*input, chunk, processor)?;
                    }
                }
                Step::Watermark(time) => {
                    run.until_done(|outbox| processor.on_watermark(Watermark(*time), outbox))?;
                }
                Step::EdgeDone(input) => {
                    open[input.index()] = false;
                    run.until_done(|outbox| processor.on_edge_done(*input, outbox))?;
                }
                Step::Advance(by) => {
                    self.hand.advance(*by);
                }
            }
            run.wake(processor)?;
        }
        for input in (0..self.inputs)
            .map(Ordinal)
            .filter(|input| open[input.index()])
        {
            run.until_done(|outbox| processor.on_edge_done(input, outbox))?;
        }
        run.until_done(|outbox| processor.complete(outbox))?;
        processor.close();
        Ok(run.seen)
    }
}

/// A run under way.
struct Run<'a, U> {
    drive: &'a Drive,
    outbox: Outbox,
    inboxes: Vec<Inbox>,
    seen: Vec<Outcome<U>>,
    calls: usize,
    deadline: Option<Duration>,
}

impl<U: Send + 'static> Run<'_, U> {
    /// One callback: with room or without, and its outputs collected.
    fn call<R>(&mut self, callback: impl FnOnce(&mut Outbox) -> Result<R>) -> Result<R> {
        self.calls += 1;
        let refused = self.drive.refuse && self.calls.is_multiple_of(2);
        self.outbox
            .set_budget(if refused { 0 } else { self.drive.room });
        let outcome = callback(&mut self.outbox);
        self.deadline = self.outbox.take_wake_at();
        for (lane, seen) in self.seen.iter_mut().enumerate() {
            if let Some(mut chunk) = self.outbox.take_chunk(lane, Chunk::default) {
                let limit = if refused {
                    0
                } else {
                    self.drive.room.max(self.drive.chunk)
                };
                assert!(
                    chunk.len() <= limit,
                    "{} records where {limit} had room",
                    chunk.len()
                );
                let count = chunk.len();
                let rows = chunk.rows::<U>()?;
                seen.0.extend(
                    rows.drain_front(count)
                        .map(|(value, time)| Seen::Record(value, time)),
                );
            }
            while let Some(marker) = self.outbox.take_marker(lane) {
                seen.0.push(match marker {
                    Marker::Watermark(watermark) => Seen::Watermark(watermark.0),
                    other => Seen::Other(other),
                });
            }
        }
        outcome
    }

    fn chunk(&mut self, input: Ordinal, chunk: Chunk, processor: &mut dyn Processor) -> Result<()> {
        let mut inbox = std::mem::take(&mut self.inboxes[input.index()]);
        inbox.fill(chunk);
        for _ in 0..PATIENCE {
            if inbox.is_empty() {
                break;
            }
            self.call(|outbox| processor.process(input, &mut inbox, outbox))?;
        }
        assert!(inbox.is_empty(), "the processor is stuck on {inbox:?}");
        self.inboxes[input.index()] = inbox;
        self.wake(processor)
    }

    fn until_done(
        &mut self,
        mut callback: impl FnMut(&mut Outbox) -> Result<Progress>,
    ) -> Result<()> {
        for _ in 0..PATIENCE {
            if self.call(&mut callback)?.done {
                return Ok(());
            }
        }
        panic!("the processor never gets done");
    }

    /// Wakes the processor as long as its deadline has come.
    fn wake(&mut self, processor: &mut dyn Processor) -> Result<()> {
        for _ in 0..PATIENCE {
            match self.deadline {
                Some(deadline) if deadline <= self.drive.context.clock.now() => {}
                _ => return Ok(()),
            }
            self.call(|outbox| processor.on_wake(outbox))?;
        }
        panic!("the processor never rests");
    }
}
