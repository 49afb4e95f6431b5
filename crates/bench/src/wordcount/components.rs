//! The spout that emits random words, and the bolt that counts them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ardea_core::{Clock, Instance};
use ardea_topology::{
    Bolt, Collector, ComponentContext, MessageId, Next, Outcome, Outputs, Spout, SpoutCollector,
    Tuple, Tuples,
};
use hdrhistogram::Histogram;

use super::table::WordCounts;
use super::words::{Draws, Words};
use crate::PATIENCE;

/// The least that a spout waits for the next words to be due: each wait costs a wake-up.
const LEAST_WAIT: Duration = Duration::from_micros(50);

/// What the instances of a run share. Counters are written by one instance each.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) words: Words,
    /// Tuples a second over all spouts, which take turns; as fast as possible without.
    pub(super) rate: Option<u64>,
    pub(super) acks: bool,
    /// When the first tuple is due, and from when to when latencies count, on the node's clock.
    pub(super) start: Duration,
    pub(super) from: Duration,
    pub(super) until: Duration,
    pub(super) is_over: AtomicBool,
    /// Tuples dealt with: acked, or counted where there are no acks.
    pub(super) done: Vec<Counter>,
    /// Words, and distinct ones, that the bolts counted.
    pub(super) counted: AtomicU64,
    pub(super) distinct: AtomicU64,
    pub(super) latencies: Mutex<Histogram<u64>>,
}

/// In cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counter(AtomicU64);

impl Counter {
    fn add(&self, count: usize) {
        let sum = self.0.load(Ordering::Relaxed) + count as u64;
        self.0.store(sum, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Counts how long after they were due these were dealt with.
    fn record(&self, now: Duration, due_nanos: impl Iterator<Item = u64>) {
        let counts = self.from.as_nanos() as u64..self.until.as_nanos() as u64;
        let mut histogram = self
            .latencies
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for due in due_nanos.filter(|due| counts.contains(due)) {
            histogram.saturating_record((now.as_nanos() as u64).saturating_sub(due));
        }
    }
}

/// Emits random words: as fast as possible, or each when it is due.
pub(super) struct WordSpout {
    shared: Arc<Shared>,
    draws: Draws,
    clock: Clock,
    instance: Instance,
    emitted: u64,
}

impl WordSpout {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        WordSpout {
            shared,
            draws: Draws::new(0),
            clock: Clock::system(),
            instance: Instance::ONLY,
            emitted: 0,
        }
    }

    /// When the next tuple is due, in nanoseconds.
    #[inline]
    fn due(&self, rate: u64) -> u64 {
        let turn = u128::from(self.emitted) * u128::from(self.instance.parallelism);
        let number = turn + u128::from(self.instance.index);
        let after = number * 1_000_000_000 / u128::from(rate);
        self.shared.start.as_nanos() as u64 + after as u64
    }

    /// Whether all has been emitted that was due in the measured time, or that takes too long.
    fn is_done(&self, now: u64) -> bool {
        let until = self.shared.until;
        let owes = |rate| self.due(rate) < until.as_nanos() as u64;
        let may_go_on = now < (until + PATIENCE).as_nanos() as u64;
        self.shared.is_over.load(Ordering::Relaxed)
            && !(may_go_on && self.shared.rate.is_some_and(owes))
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
        // Without acks the bolt measures how long a word took, so the time goes with it.
        if self.shared.acks || self.shared.rate.is_none() {
            Outputs::fields(["word"])
        } else {
            Outputs::fields(["word", "due"])
        }
    }

    fn open(&mut self, context: &ComponentContext) -> Outcome {
        self.clock = context.clock().clone();
        self.instance = context.instance();
        self.draws = Draws::new(1000 + u64::from(self.instance.index));
        Ok(())
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        let now = self.clock.now().as_nanos() as u64;
        self.emit(out, now)?;
        Ok(Next::More)
    }

    fn next_batch(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        let now = self.clock.now().as_nanos() as u64;
        if self.is_done(now) {
            return Ok(Next::Done);
        }
        loop {
            let due = self.shared.rate.map_or(now, |rate| self.due(rate));
            if due > now {
                return Ok(Next::Wait(Duration::from_nanos(due - now).max(LEAST_WAIT)));
            }
            self.emit(out, due)?;
            if out.is_full() {
                return Ok(Next::More);
            }
        }
    }

    fn ack(&mut self, message: MessageId) {
        self.ack_batch(&[message]);
    }

    fn ack_batch(&mut self, messages: &[MessageId]) {
        self.shared.done[self.instance.index as usize].add(messages.len());
        let due = messages.iter().map(|message| message.0);
        self.shared.record(self.clock.now(), due);
    }
}

/// Counts words, a chunk at a time.
pub(super) struct CountBolt {
    shared: Arc<Shared>,
    clock: Clock,
    instance: Instance,
    counts: WordCounts,
}

impl CountBolt {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        CountBolt {
            shared,
            clock: Clock::system(),
            instance: Instance::ONLY,
            counts: WordCounts::default(),
        }
    }
}

impl Bolt for CountBolt {
    fn prepare(&mut self, context: &ComponentContext) -> Outcome {
        self.clock = context.clock().clone();
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
                self.shared.record(self.clock.now(), due);
            }
        }
        Ok(tuples.len())
    }

    fn close(&mut self) {
        self.shared
            .counted
            .fetch_add(self.counts.total(), Ordering::Relaxed);
        let distinct = self.counts.distinct() as u64;
        self.shared.distinct.fetch_add(distinct, Ordering::Relaxed);
    }
}
