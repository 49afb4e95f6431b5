//! A scripted driver for one processor, with several chunk sizes and outbox capacities.

mod runner;

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Chunk, Clock, InstanceContext, ManualClock, Marker, MicroBatch, MicroBatchTime, Ordinal,
    Processor, Result, Rows, Timestamp, Watermark,
};

pub(crate) use runner::{Rooms, Runner, Written};

/// Returns the event time of second `n`.
pub(crate) fn at(n: i64) -> Timestamp {
    Timestamp::from_secs(n)
}

/// Returns records without event time.
pub(crate) fn untimed<T>(values: impl IntoIterator<Item = T>) -> Vec<(T, Timestamp)> {
    values
        .into_iter()
        .map(|value| (value, Timestamp::MIN))
        .collect()
}

#[derive(Clone)]
enum Step {
    /// Records of an input, in chunks of a given size.
    Records(Ordinal, Arc<dyn Fn(usize) -> Vec<Chunk>>),
    Watermark(Timestamp),
    BatchEnd(MicroBatch),
    EdgeDone(Ordinal),
    Advance(Duration),
}

/// One output of a processor on a lane.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum LaneOutput<U> {
    Record(U, Timestamp),
    Watermark(Timestamp),
    Other(Marker),
}

/// All outputs of a processor on a lane.
#[derive(Debug)]
pub(crate) struct Outcome<U>(Vec<LaneOutput<U>>);

impl<U: Clone> Outcome<U> {
    pub(crate) fn events(&self) -> &[LaneOutput<U>] {
        &self.0
    }

    pub(crate) fn records(&self) -> Vec<(U, Timestamp)> {
        let records = self.0.iter().filter_map(|seen| match seen {
            LaneOutput::Record(value, time) => Some((value.clone(), *time)),
            _ => None,
        });
        records.collect()
    }

    pub(crate) fn values(&self) -> Vec<U> {
        self.records().into_iter().map(|(value, _)| value).collect()
    }

    /// Panics if a record is earlier than a preceding watermark, or if a watermark decreases.
    pub(crate) fn assert_in_time(&self) {
        let mut watermark = Timestamp::MIN;
        for seen in &self.0 {
            match seen {
                LaneOutput::Record(_, time) => {
                    assert!(*time >= watermark, "{time:?} behind {watermark:?}")
                }
                LaneOutput::Watermark(next) => {
                    assert!(*next > watermark, "{next:?} after {watermark:?}");
                    watermark = *next;
                }
                LaneOutput::Other(_) => {}
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
                    .extend(records.map(|(value, time)| LaneOutput::Record(value, time)));
            }
            Written::Marker(Marker::Watermark(watermark)) => {
                self.0.push(LaneOutput::Watermark(watermark.0));
            }
            Written::Marker(other) => self.0.push(LaneOutput::Other(other)),
        }
        Ok(())
    }
}

/// A script for a processor, and the schedule that runs it.
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
    /// Runs `test` with single-record and batch input, little room, and an outbox that refuses
    /// every other call.
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

    /// Creates a driver whose outbox has room for `room` records.
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

    /// Ends a micro-batch of ten milliseconds.
    pub(crate) fn batch_end(mut self, batch: u64) -> Self {
        let length = Duration::from_millis(10);
        self.context.micro_batches = Some(MicroBatchTime::From1970(length));
        self.steps.push(Step::BatchEnd(MicroBatch(batch)));
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

    /// Runs the script and returns the outputs on the only lane.
    pub(crate) fn run<U: Send + 'static>(self, processor: &mut dyn Processor) -> Outcome<U> {
        self.try_run(processor).unwrap().swap_remove(0)
    }

    /// Runs the script and returns the outputs on each lane, all of one type.
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
                Step::BatchEnd(batch) => run.batch_end(*batch)?,
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
