//! The spout that emits random words, and the bolt that counts them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ardea_core::{Instance, Result};
use ardea_topology::{
    Bolt, Collector, ComponentContext, MessageId, Next, Outcome, Outputs, Spout, SpoutCollector,
    Tuple, Tuples,
};
use hdrhistogram::Histogram;

use super::table::WordCounts;
use super::words::{Draws, Words};
use crate::cluster::Times;
use crate::usage::monotonic_nanos;
use crate::{LATE_RESULTS_TIMEOUT, nanoseconds};

/// The minimum time for which a spout waits for the next words to be due, since each wait costs a
/// wake-up.
const LEAST_WAIT: Duration = Duration::from_micros(50);

/// Sleep of a spout that has stopped emitting.
const SILENT_WAIT: Duration = Duration::from_millis(100);

/// Poll interval of a spout while it waits for the start signal.
const BEGIN_WAIT: Duration = Duration::from_millis(1);

/// State shared by the instances of a run in one process. Each counter has one writer.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) words: Words,
    /// Tuples a second over all spouts, which take turns; as fast as possible if `None`.
    pub(super) rate: Option<u64>,
    pub(super) acks: bool,
    /// True if the job ends when the run is over; otherwise the spouts only stop emitting.
    pub(super) ends: bool,
    pub(super) times: Times,
    pub(super) is_over: AtomicBool,
    /// Tuples acked, or counted where there are no acks.
    pub(super) done: Vec<Counter>,
    pub(super) emitted: Vec<Counter>,
    pub(super) failed: Vec<Counter>,
    /// Words, and distinct words, counted by the bolts.
    pub(super) counted: Vec<Counter>,
    pub(super) distinct: Vec<Counter>,
    pub(super) latencies: Mutex<Histogram<u64>>,
}

/// A counter on separate cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: usize) {
        self.set(self.get() + count as u64);
    }

    pub(super) fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Returns the shared state of a run with `instances` instances of each component over all
    /// processes.
    pub(super) fn new(
        words: Words,
        instances: u32,
        acks: bool,
        rate: Option<u64>,
        ends: bool,
    ) -> Result<Self> {
        let counters = || (0..instances).map(|_| Counter::default()).collect();
        Ok(Shared {
            words,
            rate,
            acks,
            ends,
            times: Times::unknown(),
            is_over: AtomicBool::new(false),
            done: counters(),
            emitted: counters(),
            failed: counters(),
            counted: counters(),
            distinct: counters(),
            latencies: Mutex::new(nanoseconds()?),
        })
    }

    /// Records the latencies of tuples with these due times, in nanoseconds.
    fn record(&self, due_nanos: impl Iterator<Item = u64>) {
        let now = monotonic_nanos();
        let counts = self.times.from()..self.times.until();
        let mut histogram = self
            .latencies
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for due in due_nanos.filter(|due| counts.contains(due)) {
            histogram.saturating_record(now.saturating_sub(due));
        }
    }
}

pub(super) fn sum(counters: &[Counter]) -> u64 {
    counters.iter().map(Counter::get).sum()
}

/// A spout that emits random words: as fast as possible, or each when it is due.
pub(super) struct WordSpout {
    shared: Arc<Shared>,
    draws: Draws,
    instance: Instance,
    emitted: u64,
}

impl WordSpout {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        WordSpout {
            shared,
            draws: Draws::new(0),
            instance: Instance::ONLY,
            emitted: 0,
        }
    }

    /// Returns the time at which the next tuple is due, in nanoseconds.
    #[inline]
    fn due(&self, start: u64, rate: u64) -> u64 {
        let turn = u128::from(self.emitted) * u128::from(self.instance.parallelism);
        let number = turn + u128::from(self.instance.index);
        let after = number * 1_000_000_000 / u128::from(rate);
        start + after as u64
    }

    /// Returns true if all tuples due in the measured time were emitted, or emitting them takes too
    /// long.
    fn is_done(&self, start: u64, now: u64) -> bool {
        let until = self.shared.times.until();
        let owes = |rate| self.due(start, rate) < until;
        let may_go_on = now < until.saturating_add(LATE_RESULTS_TIMEOUT.as_nanos() as u64);
        self.shared.is_over.load(Ordering::Relaxed)
            && !(may_go_on && self.shared.rate.is_some_and(owes))
    }

    /// Emits the tuples that are due, as far as there is room.
    #[inline]
    fn emit_due(&mut self, out: &mut SpoutCollector<'_>, start: u64, now: u64) -> Outcome<Next> {
        loop {
            let due = self.shared.rate.map_or(now, |rate| self.due(start, rate));
            if due > now {
                return Ok(Next::Wait(Duration::from_nanos(due - now).max(LEAST_WAIT)));
            }
            self.emit(out, due)?;
            if out.is_full() {
                return Ok(Next::More);
            }
        }
    }

    #[inline]
    fn emit(&mut self, out: &mut SpoutCollector<'_>, due: u64) -> Outcome {
        let word = self.draws.next(&self.shared.words);
        self.emitted += 1;
        match (self.shared.acks, self.shared.rate) {
            (true, _) => out.emit_tracked(MessageId(due), [word])?,
            (false, None) => out.emit([word])?,
            (false, Some(_)) => out.emit((word, due as i64))?,
        }
        Ok(())
    }
}

impl Spout for WordSpout {
    fn outputs(&self) -> Outputs {
        // Without acks the bolt measures the latency, so the due time is sent along.
        if self.shared.acks || self.shared.rate.is_none() {
            Outputs::fields(["word"])
        } else {
            Outputs::fields(["word", "due"])
        }
    }

    fn open(&mut self, context: &ComponentContext) -> Outcome {
        self.instance = context.instance();
        self.draws = Draws::new(1000 + u64::from(self.instance.index));
        Ok(())
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        self.emit(out, monotonic_nanos())?;
        Ok(Next::More)
    }

    fn next_batch(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        let Some(start) = self.shared.times.start() else {
            return Ok(Next::Wait(BEGIN_WAIT));
        };
        let now = monotonic_nanos();
        if self.is_done(start, now) {
            return Ok(match self.shared.ends {
                true => Next::Done,
                false => Next::Wait(SILENT_WAIT),
            });
        }
        let next = self.emit_due(out, start, now);
        self.shared.emitted[self.instance.index as usize].set(self.emitted);
        next
    }

    fn ack(&mut self, message: MessageId) {
        self.ack_batch(&[message]);
    }

    fn ack_batch(&mut self, messages: &[MessageId]) {
        self.shared.done[self.instance.index as usize].add(messages.len());
        let due = messages.iter().map(|message| message.0);
        self.shared.record(due);
    }

    fn fail(&mut self, _: MessageId) {
        self.shared.failed[self.instance.index as usize].add(1);
    }
}

/// A bolt that counts words, a chunk at a time.
pub(super) struct CountBolt {
    shared: Arc<Shared>,
    instance: Instance,
    counts: WordCounts,
}

impl CountBolt {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        CountBolt {
            shared,
            instance: Instance::ONLY,
            counts: WordCounts::default(),
        }
    }
}

impl Bolt for CountBolt {
    fn prepare(&mut self, context: &ComponentContext) -> Outcome {
        self.instance = context.instance();
        Ok(())
    }

    fn execute(&mut self, tuple: &Tuple<'_>, _: &mut Collector<'_>) -> Outcome {
        self.counts
            .add_all([tuple.str_at(0)?.as_bytes()].into_iter());
        Ok(())
    }

    fn execute_batch(&mut self, tuples: &Tuples<'_>, _: &mut Collector<'_>) -> Outcome<usize> {
        self.counts.add_all(tuples.payloads(0));
        if !self.shared.acks {
            self.shared.done[self.instance.index as usize].add(tuples.len());
            if self.shared.rate.is_some() {
                let due = tuples
                    .iter()
                    .map(|tuple| tuple.int_at(1).unwrap_or(0) as u64);
                self.shared.record(due);
            }
        }
        self.shared.counted[self.instance.index as usize].add(tuples.len());
        self.shared.distinct[self.instance.index as usize].set(self.counts.distinct() as u64);
        Ok(tuples.len())
    }
}
