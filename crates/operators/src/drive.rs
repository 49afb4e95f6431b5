//! Drives one processor of this crate through a script, under several chunk sizes and rooms.

mod runner;

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Chunk, Clock, InstanceContext, ManualClock, Marker, Ordinal, Processor, Result, Rows,
    Timestamp, Watermark,
};

pub(crate) use runner::{Rooms, Runner, Written};

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

impl<U: Send + 'static> Outcome<U> {
    fn add(&mut self, written: Written) -> Result<()> {
        match written {
            Written::Records(mut chunk) => {
                let records = chunk.rows::<U>()?.drain_front(usize::MAX);
                self.0
                    .extend(records.map(|(value, time)| Seen::Record(value, time)));
            }
            Written::Marker(Marker::Watermark(watermark)) => {
                self.0.push(Seen::Watermark(watermark.0));
            }
            Written::Marker(other) => self.0.push(Seen::Other(other)),
        }
        Ok(())
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
        let rooms = Rooms {
            room: self.room,
            refuse_every: if self.refuse { 2 } else { 0 },
            whole_chunk: self.chunk,
        };
        let mut run = Runner::start(
            processor,
            (self.inputs, self.lanes),
            rooms,
            self.context,
            self.hand,
        )?;
        let mut open: Vec<Ordinal> = (0..self.inputs).map(Ordinal).collect();
        for step in &self.steps {
            match step {
                Step::Records(input, chunks) => {
                    for chunk in chunks(self.chunk) {
                        run.chunk(*input, chunk)?;
                    }
                }
                Step::Watermark(time) => run.watermark(Watermark(*time))?,
                Step::EdgeDone(input) => {
                    open.retain(|other| other != input);
                    run.edge_done(*input)?;
                }
                Step::Advance(by) => run.advance(*by)?,
            }
        }
        for input in open {
            run.edge_done(input)?;
        }
        run.complete()?;
        let mut seen: Vec<_> = (0..self.lanes).map(|_| Outcome(Vec::new())).collect();
        for (lane, written) in std::mem::take(&mut run.written) {
            seen[lane].add(written)?;
        }
        processor.close();
        Ok(seen)
    }
}
