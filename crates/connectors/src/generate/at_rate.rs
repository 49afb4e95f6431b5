//! Records at a steady rate, whatever the job makes of them.

mod due;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Bounded, Boundedness, Clock, Cut, CutWriter, Epoch, Error, ErrorCode, Instance,
    InstanceContext, Lane, Ordinal, Outbox, Parallelism, Processor, Progress, RecordGuard,
    RestoredState, Result, Source, StateShape, Timestamp, Unbounded, Watermark,
};

use crate::numbers::Numbers;
use due::Due;

/// The record `make(i)` for each i = 0, 1, 2 …, due i / `rate` seconds after the start.
///
/// See [`AtRate`] for what "due" means.
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

/// How long the watermark may stand still between two records that are far apart.
const WATERMARK_PERIOD: Duration = Duration::from_millis(10);

/// A source of generated records at a steady rate.
///
/// * The loop is open: when a record is due depends on the rate and the start alone. A job that falls behind gets all due
///   records as soon as it takes them, and their event times show how late they are.
/// * A record's event time is when it is due: the time of day at the instance's start, or the one [given](AtRate::since), plus i / rate.
/// * A record is emitted as soon as it is due, but not before a quantum (100 µs) has passed since the last batch: at high
///   rates a batch holds the records of one quantum.
/// * Each batch ends with the watermark of what is still to come: no more than now, no more than the next due time.
/// * Several instances split the records: each makes every n-th.
/// * A job that keeps its state goes on with the record that comes next, and with the same start: records are due when they would have been
///   had nothing happened, so those that were due while the job was away come at once, with the times at which they were due.
/// * Steps that are given to the generator itself ([`map`](AtRate::map), [`filter`](AtRate::filter),
///   [`filter_map`](AtRate::filter_map)) are compiled into its loop: what they drop is never stored, and only what they
///   return is. The same steps on the stream behind it do the same, at the price of a record written and read again.
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

/// What is made when.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Records per second.
    rate: u64,
    /// How many there are in all.
    limit: u64,
    quantum: Duration,
    stride: Duration,
    /// When the first record is due, if not at the instance's start.
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

    /// Keeps the records for which `keep` is true.
    pub fn filter<G>(
        self,
        keep: G,
    ) -> AtRate<T, impl Fn(u64) -> Option<T> + Send + Sync + 'static, B>
    where
        G: Fn(&T) -> bool + Send + Sync + 'static,
    {
        self.filter_map(move |record| keep(&record).then_some(record))
    }

    /// Applies `f` to each record and keeps what it returns, if anything.
    ///
    /// Rate, [`limit`](AtRate::limit) and due times count the records before this step.
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

    /// Sets the shortest time between two batches. Longer quanta cost less and delay a record by up to a quantum.
    pub fn quantum(mut self, quantum: Duration) -> Self {
        self.plan.quantum = quantum;
        self
    }

    /// Emits a watermark only when it passes a multiple of `stride` (counted from 1970), instead of with each batch.
    ///
    /// With a stride that divides the windows' slide no result comes later, and fewer watermarks are handled.
    pub fn watermark_stride(mut self, stride: Duration) -> Self {
        self.plan.stride = stride;
        self
    }

    /// Has the first record be due at this time of day instead of at the start, and all others as much later: what was due by the start comes at
    /// once. So several runs make the same records with the same times.
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

    /// Ends after `records` records in all.
    pub fn limit(mut self, records: u64) -> AtRate<T, F, Bounded> {
        self.plan.limit = records;
        AtRate {
            plan: self.plan,
            make: self.make,
            parallelism: self.parallelism,
            kind: PhantomData,
        }
    }

    /// Sets how many instances generate, each its share of the rate.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.parallelism = parallelism.into();
        self
    }

    /// The source, for a pipeline.
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
        Source::new(format!("{}/s", plan.rate), Arc::new(supply)).parallelism(parallelism)
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

/// When an instance began, for what is due.
#[derive(Clone, Copy, Debug)]
struct Start {
    /// On the instance's clock, when it was first called, or when the first record is due if that is later.
    called: Duration,
    /// How many nanoseconds had passed by then, in earlier lives.
    before: u64,
    /// As the time of day.
    wall: Timestamp,
}

struct AtRateP<T, F> {
    plan: Plan,
    make: Arc<F>,
    numbers: Numbers,
    /// When the next of the numbers is due.
    due: Due,
    clock: Clock,
    /// Known from the first call on.
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
            due: Due::at(
                plan.rate,
                instance.index.into(),
                instance.parallelism.into(),
            ),
            numbers: Numbers::new(instance, plan.limit),
            plan,
            make,
            clock: Clock::system(),
            start: None,
            watermark: Timestamp::MIN,
            record: PhantomData,
        }
    }

    /// Begins now, or goes on with the start of an earlier life.
    fn begin(&mut self, now: Duration) -> Start {
        let today = self.clock.wall();
        let first = self.plan.since.unwrap_or(today);
        let wall = *self.numbers.began.get_or_insert(first);
        let start = Start {
            // One that lies ahead is waited for.
            called: now.saturating_add(wall.since(today)),
            before: today.since(wall).as_nanos() as u64,
            wall,
        };
        self.start = Some(start);
        start
    }

    /// Emits what is due `elapsed` nanoseconds after the start, as far as there is room; says how many were due, those that the
    /// generator's steps dropped included.
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

    /// Passes the watermark on if it has moved enough.
    fn promise(&mut self, upto: Timestamp, made: usize, outbox: &mut Outbox) {
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

    /// How long after `now` the watermark wants to move on by itself.
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
        if self.is_at_end() {
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
        if self.is_at_end() {
            return Ok(Progress::DONE);
        }
        let settled = start.wall + Duration::from_nanos(elapsed.min(self.due.nanos));
        self.promise(settled, made, outbox);
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

    fn states(&self) -> Vec<StateShape> {
        Numbers::states()
    }

    fn take_cut(&mut self, _: Cut) -> Result<()> {
        self.numbers.take_cut()
    }

    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        self.numbers.write_cut(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.numbers.restore(state)
    }

    fn on_restored(&mut self, _: Epoch) -> Result<Progress> {
        self.numbers.resume()?;
        Ok(Progress::DONE)
    }

    fn is_at_end(&self) -> bool {
        self.numbers.is_at_end()
    }
}

#[cfg(test)]
mod tests;
