//! A source of generated records at a steady rate, independent of backpressure.

mod due;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Bounded, Boundedness, Checkpointed, Clock, Error, ErrorCode, Instance, InstanceContext, Lane,
    Ordinal, Outbox, Parallelism, Processor, Progress, RecordGuard, Result, Source, SourceControl,
    Timestamp, Unbounded, Watermark,
};

use crate::sequence_splits::SequenceSplits;
use due::Schedule;

/// Returns a source of the records `make(i)` for i = 0, 1, 2 …, due i / `rate` seconds after the
/// start.
///
/// See [`AtRate`] for the meaning of "due".
pub fn at_rate<T, F>(
    rate: u64,
    make: F,
) -> AtRate<T, impl Fn(u64) -> Option<T> + Send + Sync + 'static, Unbounded>
where
    T: Send + 'static,
    F: Fn(u64) -> T + Send + Sync + 'static,
{
    AtRate {
        plan: Plan {
            rate,
            limit: u64::MAX,
            quantum: DEFAULT_QUANTUM,
            stride: Duration::ZERO,
            since: None,
        },
        make: move |index| Some(make(index)),
        parallelism: Parallelism::ONE,
        kind: PhantomData,
    }
}

const DEFAULT_QUANTUM: Duration = Duration::from_micros(100);

/// The maximum interval between watermarks while no record is due.
const WATERMARK_PERIOD: Duration = Duration::from_millis(10);

/// A source of generated records at a steady rate.
///
/// * The load is open-loop: due times depend only on the rate and the start. A job that falls
///   behind receives all due records as soon as it accepts them, and their event times show the
///   delay.
/// * The event time of record i is its due time: the wall-clock time of the start, or the time set
///   with [`since`](AtRate::since), plus i / rate seconds.
/// * A record is emitted when it is due, but not before a quantum (100 µs) has passed since the
///   last batch. At high rates a batch contains the records of one quantum.
/// * Each batch ends with a watermark: the present time, or the next due time if that is earlier.
/// * The instances split the records: each of n instances generates every n-th.
/// * A restored job continues with the next record and the original start. Records that became due
///   during the outage are emitted at once, with their due times as event times.
/// * Operators applied to the generator itself ([`map`](AtRate::map), [`filter`](AtRate::filter),
///   [`filter_map`](AtRate::filter_map)) are compiled into its loop, and only their results are
///   written to a queue. The same operators on the resulting stream give the same results, but
///   write and read each record once more.
///
/// ```
/// use ardea_connectors::generate;
/// use ardea_core::{Source, Unbounded};
///
/// let even: Source<String, Unbounded> = generate::at_rate(1_000_000, |i| i * i)
///     .filter(|square| square % 2 == 0)
///     .map(|square| square.to_string())
///     .build();
/// ```
#[derive(Debug)]
pub struct AtRate<T, F, B> {
    plan: Plan,
    make: F,
    parallelism: Parallelism,
    kind: PhantomData<fn() -> (T, B)>,
}

/// The schedule of a generator.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Records per second.
    rate: u64,
    /// The total number of records.
    limit: u64,
    quantum: Duration,
    stride: Duration,
    /// The due time of the first record; `None` if it is the start of the instance.
    since: Option<Timestamp>,
}

impl<T, F, B> AtRate<T, F, B>
where
    T: Send + 'static,
    F: Fn(u64) -> Option<T> + Send + Sync + 'static,
    B: Boundedness,
{
    /// Applies `f` to each record.
    pub fn map<U, G>(self, f: G) -> AtRate<U, impl Fn(u64) -> Option<U> + Send + Sync + 'static, B>
    where
        U: Send + 'static,
        G: Fn(T) -> U + Send + Sync + 'static,
    {
        self.filter_map(move |record| Some(f(record)))
    }

    /// Retains the records for which `keep` is true.
    pub fn filter<G>(
        self,
        keep: G,
    ) -> AtRate<T, impl Fn(u64) -> Option<T> + Send + Sync + 'static, B>
    where
        G: Fn(&T) -> bool + Send + Sync + 'static,
    {
        self.filter_map(move |record| keep(&record).then_some(record))
    }

    /// Applies `f` to each record and emits the result, if any.
    ///
    /// Rate, [`limit`](AtRate::limit) and due times refer to the records passed to `f`.
    pub fn filter_map<U, G>(
        self,
        f: G,
    ) -> AtRate<U, impl Fn(u64) -> Option<U> + Send + Sync + 'static, B>
    where
        U: Send + 'static,
        G: Fn(T) -> Option<U> + Send + Sync + 'static,
    {
        let make = self.make;
        AtRate {
            plan: self.plan,
            make: move |index| f(make(index)?),
            parallelism: self.parallelism,
            kind: PhantomData,
        }
    }

    /// Sets the minimum interval between two batches. A longer `quantum` costs less CPU time and
    /// delays a record by up to `quantum`.
    pub fn quantum(mut self, quantum: Duration) -> Self {
        self.plan.quantum = quantum;
        self
    }

    /// Emits a watermark only when event time passes a multiple of `stride` (counted from 1970),
    /// instead of with each batch.
    ///
    /// With a stride that divides the slide of the windows, results are not delayed and fewer
    /// watermarks are processed.
    pub fn watermark_stride(mut self, stride: Duration) -> Self {
        self.plan.stride = stride;
        self
    }

    /// Sets the due time of the first record; by default it is the start. Records that are due
    /// before the start are emitted at once. So several runs generate the same records with the
    /// same event times.
    ///
    /// ```
    /// use ardea_connectors::generate;
    /// use ardea_core::{Source, Timestamp, Unbounded};
    ///
    /// let midnight = Timestamp::from_secs(1_763_769_600);
    /// let same_for_all: Source<u64, Unbounded> = generate::at_rate(1_000, |i| i).since(midnight).build();
    /// ```
    pub fn since(mut self, first: Timestamp) -> Self {
        self.plan.since = Some(first);
        self
    }

    /// Limits the total number of records.
    pub fn limit(mut self, records: u64) -> AtRate<T, F, Bounded> {
        self.plan.limit = records;
        AtRate {
            plan: self.plan,
            make: self.make,
            parallelism: self.parallelism,
            kind: PhantomData,
        }
    }

    /// Sets the number of instances; each generates a share of the rate.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = parallelism.into();
        self
    }

    /// Builds the source for a pipeline.
    pub fn build(self) -> Source<T, B> {
        let AtRate {
            plan,
            make,
            parallelism,
            ..
        } = self;
        let make = Arc::new(make);
        let supply = move |instance: Instance| -> Result<Box<dyn Processor>> {
            if plan.rate == 0 {
                return Err(
                    Error::new(ErrorCode::InvalidConfig, "a generator has a rate of zero")
                        .hint("give it at least one record per second"),
                );
            }
            Ok(Box::new(AtRateP::<T, F>::new(
                plan,
                Arc::clone(&make),
                instance,
            )))
        };
        Source::new(format!("{}/s", plan.rate), Arc::new(supply))
            .parallelism(parallelism)
            .repeatable()
    }
}

impl<T, F, B> From<AtRate<T, F, B>> for Source<T, B>
where
    T: Send + 'static,
    F: Fn(u64) -> Option<T> + Send + Sync + 'static,
    B: Boundedness,
{
    fn from(source: AtRate<T, F, B>) -> Self {
        source.build()
    }
}

/// The start of an instance, from which due times count.
#[derive(Clone, Copy, Debug)]
struct Start {
    /// The time of the first call, or the later due time of the first record, on the instance's
    /// clock.
    called: Duration,
    /// The nanoseconds from the due time of the first record to `called`.
    before: u64,
    /// The due time of the first record, as wall-clock time.
    wall: Timestamp,
}

struct AtRateP<T, F> {
    plan: Plan,
    make: Arc<F>,
    numbers: SequenceSplits,
    /// The due time of the next number.
    due: Schedule,
    clock: Clock,
    /// The start; `None` before the first call.
    start: Option<Start>,
    watermark: Timestamp,
    record: PhantomData<fn() -> T>,
}

impl<T, F> AtRateP<T, F>
where
    T: Send + 'static,
    F: Fn(u64) -> Option<T> + Send + Sync,
{
    fn new(plan: Plan, make: Arc<F>, instance: Instance) -> Self {
        AtRateP {
            due: Schedule::at(
                plan.rate,
                instance.index.into(),
                instance.parallelism.into(),
            ),
            numbers: SequenceSplits::new(instance, plan.limit),
            plan,
            make,
            clock: Clock::system(),
            start: None,
            watermark: Timestamp::MIN,
            record: PhantomData,
        }
    }

    /// Starts now, or with the start time of an earlier attempt.
    fn begin(&mut self, now: Duration) -> Start {
        let today = self.clock.wall();
        let first = self.plan.since.unwrap_or(today);
        let wall = *self.numbers.began.get_or_insert(first);
        let start = Start {
            // The source waits for a start in the future.
            called: now.saturating_add(wall.since(today)),
            before: today.since(wall).as_nanos() as u64,
            wall,
        };
        self.start = Some(start);
        start
    }

    /// Emits the records that are due `elapsed` nanoseconds after the start, as far as the lane has
    /// room. Returns the number of due records, including those dropped by the generator's
    /// operators.
    fn emit(&mut self, lane: &mut Lane<'_, T>, elapsed: u64, wall: Timestamp) -> usize {
        let room = lane.room();
        let start_micros = wall.as_micros();
        let mut made = 0;
        let mut guard = RecordGuard::new();
        let rows = lane.rows();
        while let Some(run) = self.numbers.front() {
            self.due.seek(run);
            let count = run.count.min((room - made) as u64);
            let mut of_run = 0;
            while of_run < count && self.due.nanos <= elapsed {
                let time = Timestamp::from_micros(start_micros + (self.due.nanos / 1_000) as i64);
                if let Some(record) = (self.make)(self.due.index) {
                    rows.push(record, time);
                }
                self.due.advance();
                of_run += 1;
                guard.advance();
            }
            self.numbers.advance(of_run);
            made += of_run as usize;
            if of_run < run.count {
                break;
            }
        }
        made
    }

    /// Emits the watermark if it has passed a multiple of the stride; without a stride, after
    /// records or [`WATERMARK_PERIOD`].
    fn emit_watermark(&mut self, upto: Timestamp, made: usize, outbox: &mut Outbox) {
        let stride = self.plan.stride.as_micros() as i64;
        let wanted = if stride > 0 {
            upto.as_micros().div_euclid(stride) > self.watermark.as_micros().div_euclid(stride)
        } else {
            made > 0 || upto.since(self.watermark) >= WATERMARK_PERIOD
        };
        if wanted && upto > self.watermark {
            self.watermark = upto;
            outbox.watermark(Watermark(upto));
        }
    }

    /// Returns the duration from `now` until the watermark must advance even without records.
    fn promise_after(&self, now: Timestamp) -> Duration {
        match self.plan.stride.as_micros() as i64 {
            stride if stride > 0 => {
                Duration::from_micros((stride - now.as_micros().rem_euclid(stride)) as u64)
            }
            _ => WATERMARK_PERIOD,
        }
    }
}

impl<T, F> Processor for AtRateP<T, F>
where
    T: Send + 'static,
    F: Fn(u64) -> Option<T> + Send + Sync,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.clock = context.clock.clone();
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.numbers.is_at_end() {
            return Ok(Progress::DONE);
        }
        let now = self.clock.now();
        let start = match self.start {
            Some(start) => start,
            None => self.begin(now),
        };
        if now < start.called {
            outbox.wake_at(start.called);
            return Ok(Progress::NONE);
        }
        let elapsed = start.before + now.saturating_sub(start.called).as_nanos() as u64;
        let mut lane = outbox.lane::<T>(Ordinal::FIRST)?;
        if lane.is_full() {
            return Ok(Progress::NONE);
        }
        let made = self.emit(&mut lane, elapsed, start.wall);
        if self.numbers.is_at_end() {
            return Ok(Progress::DONE);
        }
        let settled = start.wall + Duration::from_nanos(elapsed.min(self.due.nanos));
        self.emit_watermark(settled, made, outbox);
        if self.due.nanos <= elapsed {
            return Ok(Progress::MADE);
        }
        let next_due = Duration::from_nanos(self.due.nanos - elapsed);
        let wake = next_due
            .min(self.promise_after(settled))
            .max(self.plan.quantum);
        outbox.wake_at(now.saturating_add(wake));
        Ok(if made > 0 {
            Progress::MADE
        } else {
            Progress::NONE
        })
    }

    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.numbers)
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(&mut self.numbers)
    }
}

#[cfg(test)]
mod tests;
