//! Spouts and bolts of the topology's own program, isolated by processes: results, acks, ticks,
//! guarantees and failures.
//!
//! The process of an instance is this test program with one test selected. Its environment names
//! the topology, which it builds again.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{abort, exit};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ardea_checkpoint::local::{FaultTolerance, JobEnd, RunFaultTolerant};
use ardea_core::{
    Checkpointed, Epoch, Guarantee, Isolation, Progress, RestoredState, Result, SnapshotRequest,
    SnapshotWriter, StateShape,
};
use ardea_engine::{Job, JobConfig, Parallelisms, Program};
use ardea_instance::{COMPONENT_VARIABLE, InstanceCommand};
use ardea_state::{InstanceValue, KeyedState};
use ardea_topology::{
    Bolt, Collector, ComponentContext, ComponentState, Failure, MessageId, Next, Outcome, Outputs,
    PendingTuple, Reliability, Spout, SpoutCollector, Topology, TopologyBuilder, Tuple,
};

use crate::in_process::run_killed;
use crate::parts::{Numbers, Seen, each, emitting, node};

/// The environment variable with the name of the topology.
const TOPOLOGY: &str = "ARDEA_TEST_TOPOLOGY";
/// The environment variable with the socket at which the test decides about a process.
const GATE: &str = "ARDEA_TEST_GATE";
/// The number on which a bolt misbehaves.
const BAD: i64 = 13;
/// The number of tuples of a topology with state.
const END: u64 = 40_000;

#[test]
fn the_process_of_an_isolated_component() {
    let Ok(component) = std::env::var(COMPONENT_VARIABLE) else {
        return;
    };
    let name = std::env::var(TOPOLOGY).unwrap();
    let served = topology(&name, "", &Observed::default()).serve_instance(&component);
    exit(i32::from(served.is_err()));
}

/// The observations of a topology.
#[derive(Clone, Default)]
struct Observed {
    counts: Arc<Mutex<BTreeMap<String, u64>>>,
    processes: Arc<Mutex<BTreeSet<i64>>>,
    seen: Arc<Mutex<Seen>>,
}

impl Observed {
    fn count(&self, word: String, count: u64) {
        *self.counts.lock().unwrap().entry(word).or_default() += count;
    }

    fn counts(&self) -> BTreeMap<String, u64> {
        self.counts.lock().unwrap().clone()
    }

    fn acked(&self) -> usize {
        self.seen.lock().unwrap().acked.len()
    }
}

/// A topology as it runs on a cluster, in one process.
struct Distributed(Topology);

impl Job for Distributed {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn program(&self, parallelism: &Parallelisms) -> Result<Program> {
        self.0.program(parallelism)
    }
}

/// Runs a topology to its end. Returns the number of dead letters, and the first of them.
fn run(name: &str, observed: &Observed) -> Result<(u64, Option<ardea_core::DeadLetter>)> {
    let node = node();
    let job = Distributed(topology(name, "", observed));
    let handle = job.start(&node, JobConfig::named(name))?;
    let status = handle.wait(Duration::from_secs(60));
    assert!(status.is_over(), "{status:?}");
    handle.join()?;
    let letters = handle.dead_letters();
    Ok((letters.count(), letters.first().cloned()))
}

/// Builds the topology `name`. The processes of its components stop at the socket `gate`.
fn topology(name: &str, gate: &str, observed: &Observed) -> Topology {
    let mut builder = TopologyBuilder::new(name);
    let program = InstanceCommand::new(std::env::current_exe().unwrap()).args([
        "own_process::the_process_of_an_isolated_component",
        "--exact",
        "--nocapture",
    ]);
    builder.own_program(
        program
            .env(TOPOLOGY, name)
            .env(GATE, gate)
            .batch_bytes(4_000),
    );
    if name.contains("tracked") {
        builder.reliability(Reliability::AtLeastOnce);
    }
    let seen = Arc::clone(&observed.seen);
    if !matches!(name, "stateful" | "tracked spout") {
        builder.spout("numbers", 1, move || Numbers::tracked(5_000, &seen));
    }
    let all = observed.clone();
    let counting = move || {
        let all = all.clone();
        each(move |_, tuple, _| {
            all.processes.lock().unwrap().insert(tuple.int("process")?);
            all.count(tuple.str("word")?.to_owned(), 1);
            Ok(())
        })
    };
    let bolt = match name {
        "words" | "tracked words" => builder.bolt("bolt", 2, || {
            emitting(words(), |_, tuple, out| {
                let (number, word) = (tuple.int("number")?, tuple.str("word")?);
                out.emit((word, process()))?;
                Ok(out.emit((format!("n{}", number % 7), process()))?)
            })
        }),
        "tracked hold" => builder.bolt("bolt", 2, Hold::default),
        "bad" | "tracked bad" => builder.bolt("bolt", 1, || {
            emitting(words(), |_, tuple, out| match tuple.int("number")? {
                BAD => Err(Failure::new("13 is unlucky")),
                _ => Ok(out.emit((tuple.str("word")?, process()))?),
            })
        }),
        "poison" => builder.bolt("bolt", 1, || {
            emitting(words(), |_, tuple, out| match tuple.int("number")? {
                BAD => abort(),
                _ => Ok(out.emit((tuple.str("word")?, process()))?),
            })
        }),
        "fatal" => builder.bolt("bolt", 1, || {
            emitting(words(), |_, tuple, out| match tuple.int("number")? {
                BAD => Ok(out.emit_to("nowhere", [1])?),
                _ => Ok(out.emit((tuple.str("word")?, process()))?),
            })
        }),
        "tracked spout" => {
            builder
                .spout("numbers", 2, Replaying::default)
                .isolation(Isolation::Process);
            builder.bolt("bolt", 1, Moody::default)
        }
        _ => return stateful(builder, observed),
    };
    let bolt = bolt.shuffle("numbers");
    if name != "tracked spout" {
        bolt.isolation(Isolation::Process);
    }
    builder.bolt("count", 1, counting).shuffle("bolt");
    builder.build().unwrap()
}

fn words() -> Outputs {
    Outputs::fields(["word", "process"])
}

fn process() -> i64 {
    i64::from(std::process::id())
}

/// Holds tuples until the next tick or the end, and then emits one for all of them.
#[derive(Default)]
struct Hold(Vec<PendingTuple>);

impl Hold {
    fn release(&mut self, out: &mut Collector<'_>) -> Outcome {
        let held = std::mem::take(&mut self.0);
        let count = held.len();
        if count > 0 {
            out.tied_to(&held, |out| {
                (0..count).try_for_each(|_| out.emit(("held", process())))?;
                Ok(())
            })?;
            held.into_iter().for_each(|held| out.ack(held));
        }
        Ok(())
    }
}

impl Bolt for Hold {
    fn outputs(&self) -> Outputs {
        words()
    }

    fn tick_interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(5))
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut Collector<'_>) -> Outcome {
        let held = out.hold(tuple);
        self.0.push(held);
        // Some are released in the batch that also brings other tuples.
        match tuple.int("number")? % 97 {
            0 => self.release(out),
            _ => Ok(()),
        }
    }

    fn tick(&mut self, out: &mut Collector<'_>) -> Outcome {
        self.release(out)
    }

    fn finish(&mut self, out: &mut Collector<'_>) -> Outcome {
        self.release(out)
    }
}

/// Emits the numbers below 5,000 of its instance, and failed ones again.
#[derive(Default)]
struct Replaying {
    next: u64,
    step: u64,
    failed: Vec<u64>,
}

impl Spout for Replaying {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["number", "process"])
    }

    fn open(&mut self, context: &ComponentContext) -> Outcome {
        self.next = u64::from(context.instance().index);
        self.step = u64::from(context.instance().parallelism);
        assert_eq!(context.instances_of("numbers"), Some(2));
        Ok(())
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        let number = match self.failed.pop() {
            Some(number) => number,
            None if self.next >= 5_000 => return Ok(Next::Done),
            None => {
                self.next += self.step;
                self.next - self.step
            }
        };
        out.emit_tracked(MessageId(number), (number as i64, process()))?;
        Ok(Next::More)
    }

    fn fail(&mut self, message: MessageId) {
        self.failed.push(message.0);
    }
}

/// Fails the first 50 tuples whose number is a multiple of seven.
#[derive(Default)]
struct Moody(u32);

impl Bolt for Moody {
    fn outputs(&self) -> Outputs {
        words()
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut Collector<'_>) -> Outcome {
        let number = tuple.int("number")?;
        if self.0 < 50 && number % 7 == 0 {
            self.0 += 1;
            return Err(Failure::new("not yet"));
        }
        out.emit((format!("{number}"), tuple.int("process")?))?;
        Ok(())
    }
}

/// A state, and whether one of its checkpoints was committed.
struct Watched<C> {
    state: C,
    has_committed: bool,
}

impl<C: Checkpointed> Checkpointed for Watched<C> {
    fn states(&mut self) -> Vec<StateShape> {
        self.state.states()
    }

    fn take_snapshot(&mut self, request: SnapshotRequest) -> Result<()> {
        self.state.take_snapshot(request)
    }

    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        self.state.write_snapshot(writer)
    }

    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        self.state.restore(state)
    }

    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        self.state.on_restored(epoch)
    }

    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        self.has_committed = true;
        self.state.on_checkpoint_committed(epoch)
    }
}

impl<C> Watched<C> {
    fn new(state: C) -> Self {
        Watched {
            state,
            has_committed: false,
        }
    }

    /// Waits at the gate after the first commit: the test lets this process continue, or kills it.
    fn stop_at_gate(&mut self) {
        if std::mem::take(&mut self.has_committed)
            && let Ok(gate) = std::env::var(GATE)
            && let Ok(mut test) = UnixStream::connect(gate)
        {
            // The test has ended if it fails.
            let _ = writeln!(test, "{}", std::process::id());
            let _ = test.read_to_end(&mut Vec::new());
        }
    }
}

/// Emits the remainders by ten of the numbers below [`END`].
struct Remainders(Watched<InstanceValue<u64>>);

impl Spout for Remainders {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["key"])
    }

    fn state(&mut self) -> ComponentState<'_> {
        ComponentState::Checkpointed(&mut self.0)
    }

    fn open(&mut self, context: &ComponentContext) -> Outcome {
        self.0.state.open(context.instance_context());
        Ok(())
    }

    fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
        self.0.stop_at_gate();
        if *self.0.state == END {
            return Ok(Next::Done);
        }
        out.emit([(*self.0.state % 10) as i64])?;
        *self.0.state += 1;
        // The rest of the time is for checkpoints.
        match *self.0.state % 50 {
            0 => Ok(Next::Wait(Duration::from_micros(1_500))),
            _ => Ok(Next::More),
        }
    }
}

/// Counts by key, and emits the counts at the end.
struct Count(Watched<KeyedState<i64, u64>>);

impl Bolt for Count {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["key", "count"])
    }

    fn state(&mut self) -> ComponentState<'_> {
        ComponentState::Checkpointed(&mut self.0)
    }

    fn prepare(&mut self, context: &ComponentContext) -> Outcome {
        self.0.state.open(context.instance_context())?;
        Ok(())
    }

    fn execute(&mut self, tuple: &Tuple<'_>, _: &mut Collector<'_>) -> Outcome {
        self.0.stop_at_gate();
        let key = tuple.int("key")?;
        *self.0.state.entry(Cow::Owned(key), || 0)?.1 += 1;
        Ok(())
    }

    fn finish(&mut self, out: &mut Collector<'_>) -> Outcome {
        for key in 0..10 {
            if let Some(count) = self.0.state.value(&key) {
                out.emit((key, *count as i64))?;
            }
        }
        Ok(())
    }
}

/// Stores the last count of each key; restores need no state of it.
struct Last(Observed);

impl Bolt for Last {
    fn state(&mut self) -> ComponentState<'_> {
        ComponentState::Stateless
    }

    fn execute(&mut self, tuple: &Tuple<'_>, _: &mut Collector<'_>) -> Outcome {
        let (key, count) = (tuple.int("key")?, tuple.int("count")?);
        let mut counts = self.0.counts.lock().unwrap();
        counts.insert(key.to_string(), count as u64);
        Ok(())
    }
}

fn stateful(mut builder: TopologyBuilder, observed: &Observed) -> Topology {
    let next = || Remainders(Watched::new(InstanceValue::new("next", 0)));
    builder
        .spout("numbers", 1, next)
        .isolation(Isolation::Process);
    let counts = || Count(Watched::new(KeyedState::checkpointed("counts")));
    builder
        .bolt("count", 2, counts)
        .fields("numbers", ["key"])
        .isolation(Isolation::Process);
    let observed = observed.clone();
    builder
        .bolt("last", 1, move || Last(observed.clone()))
        .shuffle("count");
    builder.build().unwrap()
}

#[test]
fn a_word_count_with_isolated_bolts_counts_each_word_and_runs_in_other_processes() {
    for name in ["words", "tracked words"] {
        let observed = Observed::default();
        assert_eq!(run(name, &observed).unwrap(), (0, None));
        let mut expected = BTreeMap::<String, u64>::new();
        for number in 0..5_000 {
            *expected.entry(crate::parts::word_of(number)).or_default() += 1;
            *expected.entry(format!("n{}", number % 7)).or_default() += 1;
        }
        assert!(observed.counts() == expected, "{name}");
        assert_eq!(observed.acked(), 5_000, "{name}");
        let processes = observed.processes.lock().unwrap();
        assert!(!processes.contains(&process()), "{name}");
        assert_eq!(processes.len(), 2, "{name}");
    }
}

#[test]
fn tuples_that_an_isolated_bolt_holds_are_acked_when_it_releases_them() {
    let observed = Observed::default();
    run("tracked hold", &observed).unwrap();
    assert_eq!(observed.counts()["held"], 5_000);
    let seen = observed.seen.lock().unwrap();
    assert_eq!((seen.acked.len(), seen.failed.len()), (5_000, 0));
}

#[test]
fn a_tuple_that_an_isolated_bolt_fails_becomes_a_dead_letter_in_its_own_words() {
    let observed = Observed::default();
    let (letters, first) = run("bad", &observed).unwrap();
    let first = first.unwrap();
    assert_eq!(letters, 1);
    assert_eq!(first.raw, format!("{BAD}, \"word{BAD}\"").into_bytes());
    assert!(first.reason.contains("unlucky"), "{first:?}");
    assert!(first.origin.contains("numbers"), "{first:?}");
    let words: u64 = observed.counts().values().sum();
    assert_eq!(words, 4_999);
}

#[test]
fn a_tuple_that_kills_the_process_of_an_isolated_bolt_becomes_a_dead_letter() {
    let observed = Observed::default();
    let (letters, first) = run("poison", &observed).unwrap();
    let first = first.unwrap();
    assert_eq!(letters, 1);
    assert!(first.reason.contains("3 times"), "{first:?}");
    let words: u64 = observed.counts().values().sum();
    assert_eq!(words, 4_999);
}

#[test]
fn an_error_of_an_isolated_bolt_fails_the_job_in_its_own_words() {
    let error = run("fatal", &Observed::default()).unwrap_err();
    assert!(error.to_string().contains("nowhere"), "{error}");
    assert_eq!(error.vertex(), Some(("bolt", 0)));
}

#[test]
fn an_isolated_spout_gets_acks_and_emits_failed_messages_again() {
    let observed = Observed::default();
    let (letters, _) = run("tracked spout", &observed).unwrap();
    assert_eq!(letters, 50);
    let counts = observed.counts();
    assert_eq!(counts.len(), 5_000);
    assert!(counts.values().all(|count| *count == 1));
    assert_eq!(observed.processes.lock().unwrap().len(), 2);
}

#[test]
fn counts_are_exact_while_processes_of_isolated_spouts_and_bolts_are_killed() {
    let observed = Observed::default();
    let state = tempfile::tempdir().unwrap();
    let (end, kills) = run_killed(4, |gate| {
        let tolerance = FaultTolerance::in_folder(state.path())
            .guarantee(Guarantee::ExactlyOnce)
            .every(Duration::from_millis(40))
            .pause(Duration::ZERO)
            .attempts(1_000);
        let job = Distributed(topology("stateful", gate, &observed));
        job.run_fault_tolerant(&tolerance).map(|it| it.end)
    });
    assert_eq!(end.unwrap(), JobEnd::Completed);
    assert!(kills >= 1, "no process was killed");
    let counts = observed.counts();
    assert_eq!(counts.len(), 10);
    assert!(
        counts.values().all(|count| *count == END / 10),
        "{counts:?}"
    );
}
