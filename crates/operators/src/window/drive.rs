//! Drives a keyed processor through a list of steps, with an outbox that often refuses.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Chunk, Inbox, InstanceContext, InstanceMetrics, ManualClock, Marker, Ordinal, Outbox,
    Processor, Progress, Result, Rows, Timestamp, Watermark,
};

/// After so many calls without an end a processor is stuck.
const PATIENCE: usize = 1_000_000;

/// One thing that happens to a processor.
#[derive(Clone)]
pub(crate) enum Step {
    /// A chunk of records on an input.
    Rows(u16, Arc<dyn Fn() -> Chunk>),
    /// A watermark, in microseconds.
    Watermark(i64),
    /// Processing time goes on; the processor is woken if it asked for it.
    Advance(Duration),
    /// The end of time.
    End,
}

impl Step {
    /// A chunk of numbers with their times in microseconds.
    pub(crate) fn rows(rows: &[(u64, i64)]) -> Step {
        Step::rows_on(0, rows)
    }

    /// A chunk of any records, on the input of this ordinal.
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

/// What a processor emitted.
#[derive(Default)]
pub(crate) struct Outputs {
    chunks: Vec<(usize, Chunk)>,
    watermarks: Vec<i64>,
    pub(crate) metrics: Arc<InstanceMetrics>,
}

impl Outputs {
    /// The records of a lane with their times in microseconds.
    pub(crate) fn timed<T: Clone + Send + 'static>(mut self, lane: usize) -> Vec<(T, i64)> {
        self.take_timed(lane)
    }

    /// Takes the records of a lane out, with their times in microseconds.
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

    /// The watermarks of the first lane, in microseconds.
    pub(crate) fn watermarks(&self) -> Vec<i64> {
        self.watermarks.clone()
    }
}

/// Only the records.
pub(crate) fn untimed<T>(timed: Vec<(T, i64)>) -> Vec<T> {
    timed.into_iter().map(|(value, _)| value).collect()
}

/// Initialises `processor`, with two lanes of `room` records each, and runs it through `steps`.
pub(crate) fn drive(mut processor: impl Processor, steps: &[Step], room: usize) -> Outputs {
    run(&mut processor, steps, room)
}

/// Runs an existing processor through `steps`.
pub(crate) fn run(processor: &mut dyn Processor, steps: &[Step], room: usize) -> Outputs {
    try_run(processor, steps, room).unwrap()
}

/// As [`run`], for steps that may fail.
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
    processor.init(&context)?;
    let mut run = Run {
        outputs: Outputs {
            metrics: Arc::clone(&context.metrics),
            ..Outputs::default()
        },
        outbox: Outbox::new(3, room),
        room,
        calls: 0,
        wake_at: None,
    };
    for step in steps {
        match step {
            Step::Rows(input, chunk) => {
                let mut inbox = Inbox::default();
                inbox.fill(chunk());
                while !inbox.is_empty() {
                    run.call(|outbox| processor.process(Ordinal(*input), &mut inbox, outbox))?;
                }
            }
            Step::Watermark(at) => {
                let watermark = Watermark(Timestamp::from_micros(*at));
                run.until_done(|outbox| processor.on_watermark(watermark, outbox))?;
            }
            Step::Advance(by) => {
                hand.advance(*by);
                while run
                    .wake_at
                    .is_some_and(|deadline| deadline <= context.clock.now())
                {
                    run.wake_at = None;
                    run.call(|outbox| processor.on_wake(outbox))?;
                }
            }
            Step::End => {
                run.until_done(|outbox| processor.on_watermark(Watermark::END, outbox))?;
                run.until_done(|outbox| processor.complete(outbox))?;
            }
        }
    }
    Ok(run.outputs)
}

struct Run {
    outputs: Outputs,
    outbox: Outbox,
    room: usize,
    calls: usize,
    wake_at: Option<Duration>,
}

impl Run {
    /// One call; every third time the outbox has no room.
    fn call<R>(&mut self, callback: impl FnOnce(&mut Outbox) -> Result<R>) -> Result<R> {
        self.calls += 1;
        assert!(self.calls < PATIENCE, "the processor is stuck");
        let room = if self.calls.is_multiple_of(3) {
            0
        } else {
            self.room
        };
        self.outbox.set_budget(room);
        let result = callback(&mut self.outbox);
        self.wake_at = self.outbox.take_wake_at().or(self.wake_at);
        for lane in 0..self.outbox.lanes() {
            if let Some(chunk) = self.outbox.take_chunk(lane, Chunk::default) {
                assert!(
                    chunk.len() <= room,
                    "{} records where {room} had room",
                    chunk.len()
                );
                self.outputs.chunks.push((lane, chunk));
            }
            while let Some(marker) = self.outbox.take_marker(lane) {
                if let (0, Marker::Watermark(watermark)) = (lane, marker) {
                    self.outputs.watermarks.push(watermark.0.as_micros());
                }
            }
        }
        result
    }

    fn until_done(
        &mut self,
        mut callback: impl FnMut(&mut Outbox) -> Result<Progress>,
    ) -> Result<()> {
        while !self.call(&mut callback)?.done {}
        Ok(())
    }
}

/// The metrics' count of late records.
pub(crate) fn late(outputs: &Outputs) -> u64 {
    outputs.metrics.snapshot().late
}
