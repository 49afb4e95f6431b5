//! A scripted driver for keyed processors, with an outbox that often refuses.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Chunk, InstanceContext, InstanceMetrics, ManualClock, Marker, Ordinal, Processor, Result, Rows,
    Timestamp, Watermark,
};

use crate::test_driver::{Rooms, Runner, Written};

/// A step of a script.
#[derive(Clone)]
pub(crate) enum Step {
    /// A chunk of records on an input.
    Rows(u16, Arc<dyn Fn() -> Chunk>),
    /// A watermark, in microseconds.
    Watermark(i64),
    /// An advance of processing time. The processor is woken if it requested that.
    Advance(Duration),
    /// The end of time.
    End,
}

impl Step {
    /// Creates a chunk of numbers with their times in microseconds.
    pub(crate) fn rows(rows: &[(u64, i64)]) -> Step {
        Step::rows_on(0, rows)
    }

    /// Creates a chunk of records on an input.
    pub(crate) fn rows_on<T: Clone + Send + 'static>(input: u16, rows: &[(T, i64)]) -> Step {
        let rows = rows.to_vec();
        Step::Rows(
            input,
            Arc::new(move || {
                let timed = rows
                    .iter()
                    .map(|(v, at)| (v.clone(), Timestamp::from_micros(*at)));
                Chunk::new(timed.collect::<Rows<T>>())
            }),
        )
    }
}

/// The outputs of a processor.
#[derive(Default)]
pub(crate) struct Outputs {
    chunks: Vec<(usize, Chunk)>,
    watermarks: Vec<i64>,
    pub(crate) metrics: Arc<InstanceMetrics>,
}

impl Outputs {
    /// Returns the records of a lane with their times in microseconds.
    pub(crate) fn timed<T: Clone + Send + 'static>(mut self, lane: usize) -> Vec<(T, i64)> {
        self.take_timed(lane)
    }

    /// Removes and returns the records of a lane, with their times in microseconds.
    pub(crate) fn take_timed<T: Clone + Send + 'static>(&mut self, lane: usize) -> Vec<(T, i64)> {
        let of_lane = self.chunks.iter_mut().filter(|(at, _)| *at == lane);
        let timed = of_lane.flat_map(|(_, chunk)| {
            let rows = chunk.rows::<T>().unwrap();
            let count = rows.len();
            rows.drain_front(count)
                .map(|(value, time)| (value, time.as_micros()))
                .collect::<Vec<_>>()
        });
        timed.collect()
    }

    /// Returns the watermarks of the first lane, in microseconds.
    pub(crate) fn watermarks(&self) -> Vec<i64> {
        self.watermarks.clone()
    }
}

/// Returns the records without their times.
pub(crate) fn untimed<T>(timed: Vec<(T, i64)>) -> Vec<T> {
    timed.into_iter().map(|(value, _)| value).collect()
}

/// Initializes `processor` with two lanes of `room` records each, and runs it through `steps`.
pub(crate) fn drive(mut processor: impl Processor, steps: &[Step], room: usize) -> Outputs {
    run(&mut processor, steps, room)
}

/// Runs an existing processor through `steps`.
pub(crate) fn run(processor: &mut dyn Processor, steps: &[Step], room: usize) -> Outputs {
    try_run(processor, steps, room).unwrap()
}

/// Works like [`run`] for steps that may fail.
pub(crate) fn try_run(
    processor: &mut dyn Processor,
    steps: &[Step],
    room: usize,
) -> Result<Outputs> {
    let hand = ManualClock::new();
    let context = InstanceContext {
        clock: hand.clock(),
        ..InstanceContext::detached("window")
    };
    let mut outputs = Outputs {
        metrics: Arc::clone(&context.metrics),
        ..Outputs::default()
    };
    let rooms = Rooms {
        room,
        refuse_every: 3,
        whole_chunk: 0,
    };
    let mut run = Runner::start(processor, (3, 3), rooms, context, hand)?;
    for step in steps {
        match step {
            Step::Rows(input, chunk) => run.chunk(Ordinal(*input), chunk())?,
            Step::Watermark(at) => run.watermark(Watermark(Timestamp::from_micros(*at)))?,
            Step::Advance(by) => run.advance(*by)?,
            Step::End => {
                run.watermark(Watermark::END)?;
                run.complete()?;
            }
        }
    }
    for written in std::mem::take(&mut run.written) {
        match written {
            (lane, Written::Records(chunk)) => outputs.chunks.push((lane, chunk)),
            (0, Written::Marker(Marker::Watermark(watermark))) => {
                outputs.watermarks.push(watermark.0.as_micros());
            }
            _ => {}
        }
    }
    Ok(outputs)
}

/// Returns the number of late records in the metrics.
pub(crate) fn late(outputs: &Outputs) -> u64 {
    outputs.metrics.snapshot().late
}
