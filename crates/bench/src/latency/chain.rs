//! The job: a spout, and steps that work on each tuple for a fixed time and emit it, with the times
//! that they record.

use std::collections::BTreeMap;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ardea::cluster::Modules;
use ardea_core::Result;
use ardea_topology::{
    Bolt, Collector, Next, Outcome, Outputs, Spout, SpoutCollector, Topology, TopologyBuilder,
    Tuple,
};
use ardea_worker::Transports;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::LatencyParams;
use super::flows::{Flows, RecordingTransport};
use crate::cluster::{ControlledLoad, Order, Times, latencies_in};
use crate::usage::monotonic_nanos;
use crate::{LATE_RESULTS_TIMEOUT, nanoseconds};

/// The minimum time for which the spout waits for the next tuple to be due.
const LEAST_WAIT: Duration = Duration::from_micros(50);

/// Poll interval of the spout while it waits for the start signal.
const BEGIN_WAIT: Duration = Duration::from_millis(1);

/// Sleep of a spout that has stopped emitting.
const SILENT_WAIT: Duration = Duration::from_millis(100);

/// The parameters of a run, sent to each container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ChainLoad {
    steps: u32,
    rate: u64,
    work_nanos: u64,
}

impl ChainLoad {
    pub(super) fn of(params: &LatencyParams) -> Self {
        ChainLoad {
            steps: params.steps,
            rate: params.rate,
            work_nanos: u64::try_from(params.work.as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

/// State shared by the instances of a container; each counter has one writer.
struct Chain {
    load: ChainLoad,
    times: Times,
    is_over: AtomicBool,
    emitted: AtomicU64,
    counted: AtomicU64,
    /// Sums over the measured tuples in nanoseconds: from the due time until emission, and until
    /// the end of the last step.
    source: AtomicU64,
    whole: AtomicU64,
    tuples: AtomicU64,
    steps: Vec<Step>,
    latencies: Mutex<Histogram<u64>>,
    flows: Arc<Flows>,
}

/// The times of a step in nanoseconds: from the emission of the step before until the receipt by
/// this step, and from then until its own emission.
#[derive(Default)]
struct Step {
    between: AtomicU64,
    service: AtomicU64,
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Chain {
    /// Returns true if a tuple due at `due` is measured.
    fn counts(&self, due: u64) -> bool {
        (self.times.from()..self.times.until()).contains(&due)
    }

    /// Records a tuple that has passed the last step.
    fn is_through(&self, due: u64, now: u64) {
        add(&self.counted, 1);
        if self.counts(due) {
            let took = now.saturating_sub(due);
            add(&self.tuples, 1);
            add(&self.whole, took);
            let latencies = self.latencies.lock();
            let mut latencies = latencies.unwrap_or_else(PoisonError::into_inner);
            latencies.saturating_record(took);
        }
    }
}

/// Returns the topology of a container, and the handle by which the bench controls it.
pub(crate) fn topology(load: &ChainLoad) -> Result<(Topology, Arc<dyn ControlledLoad>)> {
    let chain = Arc::new(Chain {
        load: load.clone(),
        times: Times::unknown(),
        is_over: AtomicBool::new(false),
        emitted: AtomicU64::new(0),
        counted: AtomicU64::new(0),
        source: AtomicU64::new(0),
        whole: AtomicU64::new(0),
        tuples: AtomicU64::new(0),
        steps: (0..load.steps).map(|_| Step::default()).collect(),
        latencies: Mutex::new(nanoseconds()?),
        flows: Arc::default(),
    });
    let mut builder = TopologyBuilder::new("latency");
    let shared = Arc::clone(&chain);
    let spout = move || Source {
        chain: Arc::clone(&shared),
        emitted: 0,
    };
    builder.spout("source", 1, spout);
    let mut before = "source".to_string();
    for index in 0..load.steps as usize {
        let shared = Arc::clone(&chain);
        let name = format!("step-{}", index + 1);
        let step = move || StepBolt {
            chain: Arc::clone(&shared),
            index,
        };
        builder.bolt(&name, 1, step).global(before.as_str());
        before = name;
    }
    Ok((builder.build()?, chain))
}

impl ControlledLoad for Chain {
    fn handle_order(&self, order: Order) {
        match order {
            Order::Begin { start, from, until } => {
                self.flows.count(from, until);
                self.times.set(start, from, until);
            }
            Order::Over => self.is_over.store(true, Ordering::Relaxed),
            Order::BeginAt { .. } | Order::ResetMoments | Order::ReportSample { .. } => {}
        }
    }

    fn numbers(&self) -> BTreeMap<String, u64> {
        let mut numbers = self.flows.numbers();
        let mut tell = |name: String, counter: &AtomicU64| {
            numbers.insert(name, counter.load(Ordering::Relaxed));
        };
        tell("emitted".into(), &self.emitted);
        tell("counted".into(), &self.counted);
        tell("source_ns".into(), &self.source);
        tell("whole_ns".into(), &self.whole);
        tell("tuples".into(), &self.tuples);
        for (index, step) in self.steps.iter().enumerate() {
            tell(format!("between_{index}_ns"), &step.between);
            tell(format!("service_{index}_ns"), &step.service);
        }
        numbers
    }

    fn latencies(&self) -> Vec<(u64, u64)> {
        latencies_in(&self.latencies)
    }

    fn modules(&self) -> Modules {
        let flows = Arc::clone(&self.flows);
        Modules::builtin().transport("auto", move |setup| {
            let inner = Transports::builtin().make("auto", setup)?;
            Ok(Box::new(RecordingTransport::new(inner, Arc::clone(&flows))))
        })
    }
}

/// A spout that emits each tuple when it is due.
struct Source {
    chain: Arc<Chain>,
    emitted: u64,
}

impl Source {
    /// Returns the time at which the next tuple is due.
    fn due(&self, start: u64) -> u64 {
        let after = u128::from(self.emitted) * 1_000_000_000 / u128::from(self.chain.load.rate);
        start + after as u64
    }

    /// Returns true if all measured tuples were emitted, or emitting them takes too long.
    fn is_done(&self, due: u64, now: u64) -> bool {
        let until = self.chain.times.until();
        let is_late = now > until.saturating_add(LATE_RESULTS_TIMEOUT.as_nanos() as u64);
        self.chain.is_over.load(Ordering::Relaxed) && (due >= until || is_late)
    }
}

impl Spout for Source {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["due", "sent"])
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        let chain = &self.chain;
        let Some(start) = chain.times.start() else {
            return Ok(Next::Wait(BEGIN_WAIT));
        };
        let (due, now) = (self.due(start), monotonic_nanos());
        if self.is_done(due, now) {
            return Ok(Next::Wait(SILENT_WAIT));
        }
        if due > now {
            return Ok(Next::Wait(Duration::from_nanos(due - now).max(LEAST_WAIT)));
        }
        if chain.counts(due) {
            add(&chain.source, now - due);
        }
        out.emit((due as i64, now as i64))?;
        self.emitted += 1;
        self.chain.emitted.store(self.emitted, Ordering::Relaxed);
        Ok(Next::More)
    }
}

/// A bolt that works on a tuple for a fixed time, and emits it.
struct StepBolt {
    chain: Arc<Chain>,
    index: usize,
}

impl Bolt for StepBolt {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["due", "sent"])
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut Collector<'_>) -> Outcome {
        let taken = monotonic_nanos();
        let (due, sent) = (tuple.int_at(0)? as u64, tuple.int_at(1)? as u64);
        let mut now = taken;
        while now - taken < self.chain.load.work_nanos {
            spin_loop();
            now = monotonic_nanos();
        }
        if self.chain.counts(due) {
            let step = &self.chain.steps[self.index];
            add(&step.between, taken.saturating_sub(sent));
            add(&step.service, now - taken);
        }
        match self.index + 1 == self.chain.steps.len() {
            true => self.chain.is_through(due, now),
            false => out.emit((due as i64, now as i64))?,
        }
        Ok(())
    }
}
