//! A topology of numbered tuples at a fixed rate, tracked until acked and emitted again when lost.
//! Benches use it that measure the times of events rather than volumes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ardea_core::{Instance, Result};
use ardea_topology::{
    Bolt, Collector, ComponentContext, MessageId, Next, Outcome, Outputs, Reliability, Spout,
    SpoutCollector, Topology, TopologyBuilder, Tuple,
};
use serde::{Deserialize, Serialize};

use crate::cluster::{ControlledLoad, Order, note_first};
use crate::usage::monotonic_nanos;

/// The minimum time for which a spout waits for the next numbers to be due.
const LEAST_WAIT: Duration = Duration::from_micros(50);

/// The bits of a number below the index of its spout.
const SPOUT_BITS: u32 = 40;

/// The parameters of this load, sent to each container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PulseLoad {
    /// The number of spouts, and of bolts.
    pub(crate) instances: u32,
    /// Numbers a second over all spouts.
    pub(crate) rate: u64,
}

/// Times of events in a container: nanoseconds of the machine's monotonic clock, zero for never.
#[derive(Debug, Default)]
struct Moments {
    /// The start of the program.
    up: u64,
    /// The first time that an instance was opened.
    opened: AtomicU64,
    /// The first time that a spout was asked for numbers.
    begun: AtomicU64,
    /// The first time that a bolt received a number.
    first: AtomicU64,
    /// The first time that a bolt received a number that was emitted again.
    again: AtomicU64,
    /// The number of tuples emitted for the first time, and of tuples acked.
    emitted: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
}

/// Returns the topology of a container, and the handle by which the bench controls it.
pub(crate) fn topology(load: &PulseLoad) -> Result<(Topology, Arc<dyn ControlledLoad>)> {
    let happened = Arc::new(Moments {
        up: monotonic_nanos(),
        ..Moments::default()
    });
    let mut builder = TopologyBuilder::new("pulse");
    builder.reliability(Reliability::AtLeastOnce);
    let (spout, bolt, rate) = (Arc::clone(&happened), Arc::clone(&happened), load.rate);
    builder.spout("numbers", load.instances, move || {
        NumberSpout::new(Arc::clone(&spout), rate)
    });
    builder
        .bolt("see", load.instances, move || {
            RecordingBolt(Arc::clone(&bolt))
        })
        .fields("numbers", ["number"]);
    Ok((builder.build()?, happened))
}

impl ControlledLoad for Moments {
    fn handle_order(&self, order: Order) {
        if order == Order::ResetMoments {
            self.again.store(0, Ordering::Relaxed);
        }
    }

    fn numbers(&self) -> BTreeMap<String, u64> {
        let counters = [
            ("opened", &self.opened),
            ("begun", &self.begun),
            ("first", &self.first),
            ("again", &self.again),
            ("emitted", &self.emitted),
            ("done", &self.done),
            ("failed", &self.failed),
        ];
        let read = counters
            .into_iter()
            .map(|(name, counter)| (name.to_string(), counter.load(Ordering::Relaxed)));
        read.chain([("up".to_string(), self.up)]).collect()
    }

    fn latencies(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }
}

struct NumberSpout {
    happened: Arc<Moments>,
    rate: u64,
    instance: Instance,
    /// The time of the first request for a number.
    begun: Option<u64>,
    emitted: u64,
    lost: VecDeque<u64>,
}

impl NumberSpout {
    fn new(happened: Arc<Moments>, rate: u64) -> Self {
        NumberSpout {
            happened,
            rate,
            instance: Instance::ONLY,
            begun: None,
            emitted: 0,
            lost: VecDeque::new(),
        }
    }

    fn number(&self) -> u64 {
        u64::from(self.instance.index) << SPOUT_BITS | self.emitted
    }

    /// Returns the nanoseconds until the next number is due.
    fn due_in(&mut self) -> u64 {
        let now = monotonic_nanos();
        let begun = *self.begun.get_or_insert_with(|| {
            note_first(&self.happened.begun);
            now
        });
        let turns = u128::from(self.emitted) * u128::from(self.instance.parallelism);
        let after = turns * 1_000_000_000 / u128::from(self.rate);
        (begun + after as u64).saturating_sub(now)
    }
}

impl Spout for NumberSpout {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["number", "again"])
    }

    fn open(&mut self, context: &ComponentContext) -> Outcome {
        self.instance = context.instance();
        note_first(&self.happened.opened);
        Ok(())
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        if let Some(number) = self.lost.pop_front() {
            out.emit_tracked(MessageId(number), (number as i64, 1_i64))?;
            return Ok(Next::More);
        }
        let wait = self.due_in();
        if wait > 0 {
            return Ok(Next::Wait(Duration::from_nanos(wait).max(LEAST_WAIT)));
        }
        let number = self.number();
        self.emitted += 1;
        out.emit_tracked(MessageId(number), (number as i64, 0_i64))?;
        self.happened.emitted.fetch_add(1, Ordering::Relaxed);
        Ok(Next::More)
    }

    fn next_failed(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        match self.lost.is_empty() {
            true => Ok(Next::Done),
            false => self.next_tuple(out),
        }
    }

    fn ack(&mut self, _: MessageId) {
        self.happened.done.fetch_add(1, Ordering::Relaxed);
    }

    fn fail(&mut self, message: MessageId) {
        self.happened.failed.fetch_add(1, Ordering::Relaxed);
        self.lost.push_back(message.0);
    }
}

struct RecordingBolt(Arc<Moments>);

impl Bolt for RecordingBolt {
    fn prepare(&mut self, _: &ComponentContext) -> Outcome {
        note_first(&self.0.opened);
        Ok(())
    }

    fn execute(&mut self, tuple: &Tuple<'_>, _: &mut Collector<'_>) -> Outcome {
        note_first(&self.0.first);
        if tuple.int_at(1)? == 1 {
            note_first(&self.0.again);
        }
        Ok(())
    }
}
