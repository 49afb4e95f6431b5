//! The job: a spout, and stages of bolts that record the time since the stage before.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ardea::cluster::Modules;
use ardea_core::{Instance, Result};
use ardea_topology::{
    Bolt, Collector, ComponentContext, Next, Outcome, Outputs, Spout, SpoutCollector, Topology,
    TopologyBuilder, Tuple,
};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::params::{TopologyKind, TopologyParams};
use crate::cluster::{ControlledLoad, Order, Times, delayed_modules, latencies_in};
use crate::usage::monotonic_nanos;
use crate::wordcount::Words;
use crate::{LATE_RESULTS_TIMEOUT, nanoseconds};

/// The minimum time for which a spout waits for the next message to be due.
const LEAST_WAIT: Duration = Duration::from_micros(50);

/// Poll interval of a spout while it waits for the start signal.
const BEGIN_WAIT: Duration = Duration::from_millis(1);

/// Sleep of a spout that has stopped emitting.
const SILENT_WAIT: Duration = Duration::from_millis(100);

/// The words of a sentence, and the distinct words.
const SENTENCE_WORDS: usize = 10;
const DISTINCT_WORDS: usize = 10_000;

/// The longest run whose seconds are recorded.
const MOST_SECONDS: usize = 3_600;

/// The parameters of a run, sent to each container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StagedLoad {
    stages: Vec<(String, StageWork)>,
    sentences: bool,
    parallelism: u32,
    bytes: u32,
    /// Messages a second, over all spouts.
    rate: u64,
    delay_nanos: u64,
}

/// The work of a stage on a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum StageWork {
    /// Passes it on.
    Pass,
    /// Emits its words.
    Split,
    /// Counts it, as a word.
    Count,
    /// Ends its way.
    End,
}

impl StagedLoad {
    pub(super) fn of(topology: TopologyKind, params: &TopologyParams, rate: u64) -> Self {
        let stage = |name: &str, work| (name.to_string(), work);
        let stages = match topology {
            TopologyKind::Sol => (1..=params.layers)
                .map(|layer| match layer == params.layers {
                    true => (format!("layer-{layer}"), StageWork::End),
                    false => (format!("layer-{layer}"), StageWork::Pass),
                })
                .collect(),
            TopologyKind::Words => vec![
                stage("split", StageWork::Split),
                stage("sum", StageWork::Count),
            ],
            TopologyKind::Throughput => vec![stage("bolt", StageWork::End)],
        };
        StagedLoad {
            stages,
            sentences: topology == TopologyKind::Words,
            parallelism: params.parallelism,
            bytes: params.bytes,
            rate,
            delay_nanos: u64::try_from(params.delay.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Returns the number of tuples that reach the last stage for a message.
    pub(super) fn tuples_of_message(&self) -> u64 {
        match self.sentences {
            true => SENTENCE_WORDS as u64,
            false => 1,
        }
    }

    /// Returns the names of the stages.
    pub(super) fn stages(&self) -> impl Iterator<Item = &str> {
        self.stages.iter().map(|(name, _)| name.as_str())
    }
}

/// State shared by the instances of a container.
struct Staged {
    load: StagedLoad,
    words: Words,
    times: Times,
    is_over: AtomicBool,
    /// Tuples that reach the last stage: expected, and received.
    emitted: AtomicU64,
    counted: AtomicU64,
    /// Sums over the measured tuples, in nanoseconds: at the spout, between stages, and of the last
    /// stage's tuples from the due time on.
    source: Sum,
    between: Vec<Sum>,
    whole: Sum,
    /// The same as `whole` for the messages that were due in each second since the start.
    seconds: Vec<Sum>,
    latencies: Mutex<Histogram<u64>>,
}

/// A sum, and the number of its parts.
#[derive(Default)]
struct Sum {
    nanos: AtomicU64,
    count: AtomicU64,
}

impl Sum {
    fn add(&self, nanos: u64) {
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn tell(&self, name: &str, numbers: &mut BTreeMap<String, u64>) {
        let count = self.count.load(Ordering::Relaxed);
        if count > 0 {
            numbers.insert(format!("{name}_ns"), self.nanos.load(Ordering::Relaxed));
            numbers.insert(format!("{name}_count"), count);
        }
    }
}

/// Returns the topology of a container, and the handle by which the bench controls it.
pub(crate) fn topology(load: &StagedLoad) -> Result<(Topology, Arc<dyn ControlledLoad>)> {
    let sums = |count: usize| (0..count).map(|_| Sum::default()).collect();
    let staged = Arc::new(Staged {
        words: Words::generated(DISTINCT_WORDS),
        times: Times::unknown(),
        is_over: AtomicBool::new(false),
        emitted: AtomicU64::new(0),
        counted: AtomicU64::new(0),
        source: Sum::default(),
        between: sums(load.stages.len()),
        whole: Sum::default(),
        seconds: sums(MOST_SECONDS),
        latencies: Mutex::new(nanoseconds()?),
        load: load.clone(),
    });
    let mut builder = TopologyBuilder::new("layouts");
    let shared = Arc::clone(&staged);
    let spout = move || MessageSpout::new(Arc::clone(&shared));
    builder.spout("source", load.parallelism, spout);
    let mut before = "source".to_string();
    for (index, (name, work)) in load.stages.iter().enumerate() {
        let (shared, work) = (Arc::clone(&staged), *work);
        let stage = move || StageBolt {
            staged: Arc::clone(&shared),
            index,
            work,
            counts: HashMap::new(),
        };
        let bolt = builder.bolt(name, load.parallelism, stage);
        match work {
            StageWork::Count => bolt.fields(before.as_str(), ["text"]),
            _ => bolt.shuffle(before.as_str()),
        };
        before.clone_from(name);
    }
    Ok((builder.build()?, staged))
}

impl Staged {
    /// Records a tuple of the last stage.
    fn is_through(&self, due: u64, now: u64) {
        self.counted.fetch_add(1, Ordering::Relaxed);
        let took = now.saturating_sub(due);
        let start = self.times.start().unwrap_or(due);
        let second = due.saturating_sub(start) / 1_000_000_000;
        if let Some(second) = self.seconds.get(second as usize) {
            second.add(took);
        }
        if self.counts(due) {
            self.whole.add(took);
            let latencies = self.latencies.lock();
            let mut latencies = latencies.unwrap_or_else(PoisonError::into_inner);
            latencies.saturating_record(took);
        }
    }

    /// Returns true if a message due at `due` is measured.
    fn counts(&self, due: u64) -> bool {
        (self.times.from()..self.times.until()).contains(&due)
    }
}

impl ControlledLoad for Staged {
    fn handle_order(&self, order: Order) {
        match order {
            Order::Begin { start, from, until } => self.times.set(start, from, until),
            Order::Over => self.is_over.store(true, Ordering::Relaxed),
            Order::BeginAt { .. } | Order::ResetMoments | Order::ReportSample { .. } => {}
        }
    }

    fn numbers(&self) -> BTreeMap<String, u64> {
        let mut numbers = BTreeMap::new();
        let counters = [("emitted", &self.emitted), ("counted", &self.counted)];
        for (name, counter) in counters {
            numbers.insert(name.to_string(), counter.load(Ordering::Relaxed));
        }
        self.source.tell("source", &mut numbers);
        self.whole.tell("whole", &mut numbers);
        for (index, stage) in self.between.iter().enumerate() {
            stage.tell(&format!("between_{index}"), &mut numbers);
        }
        for (second, sum) in self.seconds.iter().enumerate() {
            sum.tell(&format!("second_{second}"), &mut numbers);
        }
        numbers
    }

    fn latencies(&self) -> Vec<(u64, u64)> {
        latencies_in(&self.latencies)
    }

    fn modules(&self) -> Modules {
        match self.load.delay_nanos {
            0 => Modules::builtin(),
            nanos => delayed_modules(Duration::from_nanos(nanos)),
        }
    }
}

/// A spout that emits each message when it is due.
struct MessageSpout {
    staged: Arc<Staged>,
    instance: Instance,
    /// The number of messages that were due before the next one; `None` before the start.
    turn: Option<u64>,
    message: String,
    word: usize,
}

impl MessageSpout {
    fn new(staged: Arc<Staged>) -> Self {
        MessageSpout {
            message: "m".repeat(staged.load.bytes as usize),
            staged,
            instance: Instance::ONLY,
            turn: None,
            word: 0,
        }
    }

    /// Returns the time at which the message of a turn is due.
    fn due(&self, start: u64, turn: u64) -> u64 {
        let number = u128::from(turn) * u128::from(self.instance.parallelism)
            + u128::from(self.instance.index);
        start + (number * 1_000_000_000 / u128::from(self.staged.load.rate)) as u64
    }

    /// Returns the first turn that is due at `now`: a spout that has moved does not make up for the
    /// time without it.
    fn turn_at(&self, start: u64, now: u64) -> u64 {
        let elapsed = u128::from(now.saturating_sub(start));
        let messages = elapsed * u128::from(self.staged.load.rate) / 1_000_000_000;
        messages.div_ceil(u128::from(self.instance.parallelism)) as u64
    }

    /// Returns true if all measured messages were emitted, or emitting them takes too long.
    fn is_done(&self, due: u64, now: u64) -> bool {
        let until = self.staged.times.until();
        let is_late = now > until.saturating_add(LATE_RESULTS_TIMEOUT.as_nanos() as u64);
        self.staged.is_over.load(Ordering::Relaxed) && (due >= until || is_late)
    }

    fn write_sentence(&mut self) {
        self.message.clear();
        for _ in 0..SENTENCE_WORDS {
            // A prime step visits all words.
            self.word = (self.word + 7_919) % DISTINCT_WORDS;
            self.message.push_str(self.staged.words.get(self.word));
            self.message.push(' ');
        }
    }
}

impl Spout for MessageSpout {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["text", "due", "sent"])
    }

    fn open(&mut self, context: &ComponentContext) -> Outcome {
        self.instance = context.instance();
        self.word = self.instance.index as usize * 101;
        Ok(())
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        let Some(start) = self.staged.times.start() else {
            return Ok(Next::Wait(BEGIN_WAIT));
        };
        let now = monotonic_nanos();
        let turn = self.turn.unwrap_or_else(|| self.turn_at(start, now));
        let due = self.due(start, turn);
        if self.is_done(due, now) {
            return Ok(Next::Wait(SILENT_WAIT));
        }
        self.turn = Some(turn);
        if due > now {
            return Ok(Next::Wait(Duration::from_nanos(due - now).max(LEAST_WAIT)));
        }
        if self.staged.load.sentences {
            self.write_sentence();
        }
        out.emit((self.message.as_str(), due as i64, now as i64))?;
        self.turn = Some(turn + 1);
        let staged = &self.staged;
        if staged.counts(due) {
            staged.source.add(now - due);
        }
        let tuples = staged.load.tuples_of_message();
        staged.emitted.fetch_add(tuples, Ordering::Relaxed);
        Ok(Next::More)
    }
}

/// A bolt of a stage.
struct StageBolt {
    staged: Arc<Staged>,
    index: usize,
    work: StageWork,
    counts: HashMap<String, u64>,
}

impl Bolt for StageBolt {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["text", "due", "sent"])
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut Collector<'_>) -> Outcome {
        let now = monotonic_nanos();
        let text = tuple.str_at(0)?;
        let (due, sent) = (tuple.int_at(1)? as u64, tuple.int_at(2)? as u64);
        if self.staged.counts(due) {
            self.staged.between[self.index].add(now.saturating_sub(sent));
        }
        match self.work {
            StageWork::Pass => out.emit((text, due as i64, monotonic_nanos() as i64))?,
            StageWork::Split => {
                for word in text.split_ascii_whitespace() {
                    out.emit((word, due as i64, monotonic_nanos() as i64))?;
                }
            }
            StageWork::Count => {
                match self.counts.get_mut(text) {
                    Some(count) => *count += 1,
                    None => {
                        self.counts.insert(text.to_string(), 1);
                    }
                }
                self.staged.is_through(due, monotonic_nanos());
            }
            StageWork::End => self.staged.is_through(due, monotonic_nanos()),
        }
        Ok(())
    }
}
