//! Spouts and bolts in processes of their own: results, acks, guarantees and failures.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ardea_checkpoint::local::{FaultTolerance, JobEnd, RunFaultTolerant};
use ardea_core::{ErrorCode, Guarantee, Result};
use ardea_topology::{
    Bolt, Collector, ComponentState, Outcome, Outputs, Reliability, Topology, TopologyBuilder,
    Tuple,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::guest::{BAD, command};
use crate::halves::Process;
use crate::parts::{Arrivals, Numbers, Seen, each, emitting, node, notes, run, until};
use crate::reliability::tracked;

/// The counts by word.
type Counts = Arc<Mutex<BTreeMap<String, u64>>>;

/// The text in place of a process id after the end of a job.
const OVER: &str = "over";

/// Kills the first processes that stop at the gate, and lets the others continue; returns the
/// number of kills.
fn guard_gate(gate: &UnixListener, times: usize) -> usize {
    let mut kills = 0;
    for process in gate.incoming() {
        let (mut process, mut line) = (BufReader::new(process.unwrap()), String::new());
        process.read_line(&mut line).unwrap();
        if line.trim() == OVER {
            break;
        }
        // The host may have killed it before.
        let id = line.trim().parse().ok().and_then(Pid::from_raw);
        let must_die = id.filter(|_| kills < times);
        kills += usize::from(must_die.is_some_and(|id| kill_process(id, Signal::KILL).is_ok()));
    }
    kills
}

/// Ends the guard of a gate when it is dropped.
struct EndOnDrop<'a>(&'a Path);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        let guard = UnixStream::connect(self.0);
        guard.unwrap().write_all(OVER.as_bytes()).unwrap();
    }
}

/// Runs `job` while its processes are killed; returns its outcome and the number of kills. `job`
/// gets the path of the gate.
pub fn run_killed<R>(times: usize, job: impl FnOnce(&str) -> R) -> (R, usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gate");
    let gate = UnixListener::bind(&path).unwrap();
    thread::scope(|scope| {
        let guard = scope.spawn(|| guard_gate(&gate, times));
        let outcome = {
            let _over = EndOnDrop(&path);
            job(&path.display().to_string())
        };
        (outcome, guard.join().unwrap())
    })
}

/// A bolt that counts words, in Rust.
fn counting(counts: &Counts) -> impl Bolt + use<> {
    let counts = Arc::clone(counts);
    each(move |_, tuple, _| {
        let word = tuple.str("word")?.to_string();
        *counts.lock().unwrap().entry(word).or_default() += 1;
        Ok(())
    })
}

/// Counts the words of numbers; `split` adds the bolt of this name.
fn word_count(
    reliability: Reliability,
    seen: &Arc<Mutex<Seen>>,
    split: impl FnOnce(&mut TopologyBuilder),
) -> BTreeMap<String, u64> {
    let counts = Counts::default();
    let mut builder = TopologyBuilder::new("word count");
    builder.reliability(reliability);
    let seen = Arc::clone(seen);
    builder.spout("numbers", 1, move || Numbers::tracked(20_000, &seen));
    let words = || Outputs::fields(["line"]);
    builder
        .bolt("lines", 1, move || {
            emitting(words(), |_, tuple, out| {
                let (number, word) = (tuple.int("number")?, tuple.str("word")?);
                Ok(out.emit([format!("{word} n{} {word}", number % 7)])?)
            })
        })
        .shuffle("numbers");
    split(&mut builder);
    let shared = Arc::clone(&counts);
    builder
        .bolt("count", 2, move || counting(&shared))
        .fields("split", ["word"]);
    run(&builder.build().unwrap());
    let counts = counts.lock().unwrap().clone();
    assert_eq!(counts.values().sum::<u64>(), 60_000);
    counts
}

fn split_in_rust(builder: &mut TopologyBuilder) {
    let words = || Outputs::fields(["word"]);
    let split = builder.bolt("split", 2, move || {
        emitting(words(), |_, tuple, out| {
            for word in tuple.str("line")?.split_whitespace() {
                out.emit([word])?;
            }
            Ok(())
        })
    });
    split.shuffle("lines");
}

#[test]
fn a_word_count_with_a_bolt_in_a_process_equals_that_in_rust() {
    for reliability in [Reliability::AtMostOnce, Reliability::AtLeastOnce] {
        let expected = word_count(reliability, &Arc::default(), split_in_rust);
        let seen = Arc::default();
        let counts = word_count(reliability, &seen, |builder| {
            let words = Outputs::fields(["word"]);
            let split = builder.bolt_in_process("split", 2, command("split"), words);
            split.shuffle("lines");
        });
        assert!(counts == expected);
        let seen = seen.lock().unwrap();
        assert_eq!((seen.acked.len(), seen.failed.len()), (20_000, 0));
    }
}

#[test]
fn a_word_count_is_equal_while_the_process_of_a_bolt_is_killed() {
    let expected = word_count(Reliability::AtLeastOnce, &Arc::default(), split_in_rust);
    let seen = Arc::default();
    let (counts, kills) = run_killed(3, |gate| {
        word_count(Reliability::AtLeastOnce, &seen, |builder| {
            let command = command("split").parameter("gate", gate).batch_bytes(2_000);
            let words = Outputs::fields(["word"]);
            let split = builder.bolt_in_process("split", 1, command, words);
            split.shuffle("lines");
        })
    });
    assert_eq!(kills, 3);
    assert!(counts == expected);
    assert_eq!(seen.lock().unwrap().acked.len(), 20_000);
}

/// Runs numbers through the bolt `behaviour`; returns the topology.
fn through(builder: &mut TopologyBuilder, behaviour: &str, tick: bool) -> Arrivals {
    let arrivals = Arrivals::default();
    let noted = Arc::clone(&arrivals);
    let number = Outputs::fields(["number"]);
    let bolt = builder.bolt_in_process("bolt", 2, command(behaviour), number);
    let bolt = bolt.shuffle("numbers");
    if tick {
        bolt.tick_every(Duration::from_millis(20));
    }
    builder
        .bolt("notes", 1, move || notes(&noted))
        .shuffle("bolt");
    arrivals
}

fn sum_of(arrivals: &Arrivals) -> u64 {
    arrivals
        .lock()
        .unwrap()
        .iter()
        .map(|(_, number)| number)
        .sum()
}

#[test]
fn tuples_that_a_process_holds_are_acked_when_it_releases_them() {
    for (behaviour, tick) in [("hold", true), ("hold until the end", false)] {
        let (mut builder, seen) = tracked(3_000, 1);
        let arrivals = through(&mut builder, behaviour, tick);
        run(&builder.build().unwrap());
        let seen = seen.lock().unwrap();
        assert_eq!(
            (seen.acked.len(), seen.failed.len()),
            (3_000, 0),
            "{behaviour}"
        );
        assert_eq!(sum_of(&arrivals), 3_000 * 2_999 / 2, "{behaviour}");
    }
}

#[test]
fn held_tuples_of_a_dead_process_fail_and_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let once = folder.path().join("once").display().to_string();
    let (mut builder, seen) = tracked(3_000, 1);
    let number = Outputs::fields(["number"]);
    let command = command("hold").parameter("once", once);
    builder
        .bolt_in_process("bolt", 1, command, number)
        .shuffle("numbers")
        .tick_every(Duration::from_millis(20));
    builder
        .bolt("sink", 1, || each(|_, _, _| Ok(())))
        .shuffle("bolt");
    run(&builder.build().unwrap());
    let seen = seen.lock().unwrap();
    assert_eq!(seen.acked.len(), 3_000);
    assert!(!seen.failed.is_empty());
}

#[test]
fn failed_rows_and_unreadable_tuples_fail_their_message() {
    for behaviour in ["fail row", "garbage"] {
        let (mut builder, seen) = tracked(100, 1);
        // Without a replay the spout would be done: it counts the failures.
        builder.reliability(Reliability::AtMostOnce);
        let arrivals = through(&mut builder, behaviour, false);
        let running = run(&builder.build().unwrap());
        assert_eq!(running.job().dead_letters().count(), 1, "{behaviour}");
        let letter = &running.job().dead_letters().sample()[0];
        assert_eq!(letter.raw, format!("[0,{BAD},\"word{BAD}\"]").into_bytes());
        assert!(letter.origin.contains("numbers"), "{letter:?}");
        assert_eq!(arrivals.lock().unwrap().len(), 99, "{behaviour}");
        assert_eq!(seen.lock().unwrap().acked.len(), 100);
    }
}

#[test]
fn a_tuple_that_kills_its_process_becomes_a_dead_letter() {
    let mut builder = TopologyBuilder::new("poison");
    builder.spout("numbers", 1, || Numbers::untracked(300));
    let arrivals = through(&mut builder, "abort", false);
    let running = run(&builder.build().unwrap());
    assert_eq!(running.job().dead_letters().count(), 1);
    let letter = &running.job().dead_letters().sample()[0];
    assert!(letter.reason.contains("3 times"), "{}", letter.reason);
    assert_eq!(arrivals.lock().unwrap().len(), 299);
}

#[test]
fn a_tuple_that_has_killed_its_process_fails_at_each_replay() {
    let (mut builder, _) = tracked(100, 1);
    through(&mut builder, "abort", false);
    let node = node();
    let running = builder.build().unwrap().submit(&node).unwrap();
    until("the tuple fails again and again", || {
        running.job().dead_letters().count() >= 5
    });
    running.job().cancel();
}

#[test]
fn a_process_emits_to_one_instance_of_a_direct_stream() {
    let (mut builder, seen) = tracked(500, 1);
    let (direct, plain) = (Arrivals::default(), Arrivals::default());
    let outputs = Outputs::fields(["number"]).direct_stream("direct", ["number"]);
    builder
        .bolt_in_process("bolt", 1, command("direct"), outputs)
        .shuffle("numbers");
    let noted = Arc::clone(&direct);
    builder
        .bolt("direct", 3, move || notes(&noted))
        .direct(("bolt", "direct"));
    let noted = Arc::clone(&plain);
    builder
        .bolt("plain", 1, move || notes(&noted))
        .shuffle("bolt");
    run(&builder.build().unwrap());
    assert_eq!(seen.lock().unwrap().acked.len(), 500);
    let direct = direct.lock().unwrap();
    assert!(direct.iter().all(|(instance, _)| *instance == 1));
    assert_eq!((direct.len(), plain.lock().unwrap().len()), (500, 500));
}

#[test]
fn a_spout_in_a_process_gets_acks_and_emits_failed_messages_again() {
    let mut builder = TopologyBuilder::new("spout");
    builder.reliability(Reliability::AtLeastOnce);
    builder.max_spout_pending(100.try_into().unwrap());
    let outputs = Outputs::fields(["number", "key"]);
    let command = command("numbers").parameter("end", 5_000);
    builder.spout_in_process("numbers", 2, command, outputs);
    let arrivals = Arrivals::default();
    let (noted, tried) = (Arc::clone(&arrivals), Arc::new(AtomicU64::new(0)));
    let failures = Arc::clone(&tried);
    builder
        .bolt("moody", 1, move || {
            let (noted, tried) = (Arc::clone(&noted), Arc::clone(&failures));
            each(move |instance, tuple, _| {
                let number = tuple.int("number")? as u64;
                if tried.load(Ordering::Relaxed) < 50 && number.is_multiple_of(7) {
                    tried.fetch_add(1, Ordering::Relaxed);
                    return Err(ardea_topology::Failure::new("not yet"));
                }
                noted.lock().unwrap().push((instance, number));
                Ok(())
            })
        })
        .shuffle("numbers");
    let running = run(&builder.build().unwrap());
    let spout = &running.spouts()[0];
    assert_eq!((spout.acked, spout.failed, spout.pending), (5_000, 50, 0));
    let mut numbers: Vec<u64> = arrivals.lock().unwrap().iter().map(|it| it.1).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..5_000).collect::<Vec<_>>());
}

#[test]
fn a_tuple_that_is_never_acked_times_out() {
    let (mut builder, seen) = tracked(100, 1);
    builder.message_timeout(Duration::from_millis(300));
    through(&mut builder, "never acks", false);
    let node = node();
    let running = builder.build().unwrap().submit(&node).unwrap();
    until("the message times out", || {
        running.spouts()[0].timed_out >= 1 && seen.lock().unwrap().acked.len() >= 99
    });
    running.job().cancel();
}

/// Returns the error of a topology with the bolt `behaviour`.
fn error_of(behaviour: &str, tick: bool) -> ardea_core::Error {
    let (mut builder, _) = tracked(100, 1);
    through(&mut builder, behaviour, tick);
    let node = node();
    let running = builder.build().unwrap().submit(&node).unwrap();
    running.job().wait(Duration::from_secs(60));
    running.join().unwrap_err()
}

#[test]
fn answers_that_break_the_protocol_fail_the_job_and_name_the_fault() {
    for (behaviour, code, reason) in [
        (
            "wrong stream",
            ErrorCode::InstanceProcessFailed,
            "stream 7 of 1",
        ),
        ("wrong row", ErrorCode::InstanceProcessFailed, "row 1000000"),
        ("wrong width", ErrorCode::InvalidJob, "2 fields"),
        (
            "numbers",
            ErrorCode::InvalidJob,
            "can't be a bolt, only spout",
        ),
    ] {
        let error = error_of(behaviour, false);
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    let error = error_of("acks nothing", true);
    assert_eq!(error.code(), ErrorCode::InstanceProcessFailed, "{error}");
    assert!(error.to_string().contains("row 7 of batch 7"), "{error}");
}

#[test]
fn answers_of_a_spout_that_break_the_protocol_fail_the_job() {
    for (behaviour, reason) in [("too many", "were requested"), ("wrong wait", "wait -2")] {
        let mut builder = TopologyBuilder::new(behaviour);
        let outputs = Outputs::fields(["number"]);
        builder.spout_in_process("numbers", 1, command(behaviour), outputs);
        builder
            .bolt("sink", 1, || each(|_, _, _| Ok(())))
            .shuffle("numbers");
        let error = builder.build().unwrap().run().unwrap_err();
        assert_eq!(error.code(), ErrorCode::InstanceProcessFailed, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn output_of_a_tick_at_the_end_is_emitted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gate");
    let gate = UnixListener::bind(&path).unwrap();
    gate.set_nonblocking(true).unwrap();
    let mut builder = TopologyBuilder::new("tick");
    builder.spout("numbers", 1, || Numbers::untracked(1));
    let command = command("tick").parameter("gate", path.display().to_string());
    builder
        .bolt_in_process("bolt", 1, command, Outputs::fields(["number"]))
        .shuffle("numbers")
        .tick_every(Duration::from_nanos(1));
    builder
        .bolt("sink", 1, || each(|_, _, _| Ok(())))
        .shuffle("bolt");
    let process = Process::of(&builder.build().unwrap());
    let mut bolt = process.start("bolt", 0, |_| {});
    until("the process has finished", || bolt.end_input().done);
    let mut ticking = None;
    until("the process handles a tick", || {
        bolt.wake();
        ticking = gate.accept().ok();
        ticking.is_some()
    });
    assert!(!bolt.complete().done);
    drop(ticking);
    until("the process has ended", || bolt.complete().done);
    let tuples = process.encode("bolt", &mut bolt);
    assert_eq!(tuples.iter().map(|(count, _)| count).sum::<usize>(), 1);
}

#[test]
fn a_bolt_without_state_that_holds_tuples_is_refused_under_a_guarantee() {
    let mut builder = TopologyBuilder::new("held");
    let numbers = command("numbers").parameter("end", 1_000);
    let fields = Outputs::fields(["number", "key"]);
    builder.spout_in_process("numbers", 1, numbers, fields);
    let fields = Outputs::fields(["number"]);
    builder
        .bolt_in_process("bolt", 1, command("hold until the end"), fields)
        .shuffle("numbers");
    let tolerance = FaultTolerance::in_memory().guarantee(Guarantee::ExactlyOnce);
    let topology = builder.build().unwrap();
    let outcome = topology.run_fault_tolerant(&tolerance).map(|it| it.end);
    let error = outcome.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob, "{error}");
    assert!(error.to_string().contains("has no state"), "{error}");
}

/// Stores the last count of each word; restores need no state of it.
struct LastCounts(Counts);

impl Bolt for LastCounts {
    fn state(&mut self) -> ComponentState<'_> {
        ComponentState::Stateless
    }

    fn execute(&mut self, tuple: &Tuple<'_>, _: &mut Collector<'_>) -> Outcome {
        let (key, count) = (tuple.int("key")?, tuple.int("count")?);
        let mut counts = self.0.lock().unwrap();
        counts.insert(key.to_string(), count as u64);
        Ok(())
    }
}

/// A spout and a bolt with state, both in processes.
fn stateful(counts: &Counts, end: u64, gate: &str) -> Result<Topology> {
    let mut builder = TopologyBuilder::new("stateful");
    let numbers = command("numbers")
        .parameter("end", end)
        .parameter("gate", gate);
    let fields = Outputs::fields(["number", "key"]);
    builder.spout_in_process("numbers", 1, numbers, fields);
    let pass = || Outputs::fields(["key"]);
    builder
        .bolt("pass", 1, move || Pass(pass()))
        .shuffle("numbers");
    let count = command("count").parameter("gate", gate).batch_bytes(1_000);
    let fields = Outputs::fields(["key", "count"]);
    builder
        .bolt_in_process("count", 2, count, fields)
        .fields("pass", ["key"]);
    let counts = Arc::clone(counts);
    builder
        .bolt("last", 1, move || LastCounts(Arc::clone(&counts)))
        .shuffle("count");
    builder.build()
}

/// Passes on the key, slowly.
struct Pass(Outputs);

impl Bolt for Pass {
    fn outputs(&self) -> Outputs {
        self.0.clone()
    }

    fn state(&mut self) -> ComponentState<'_> {
        ComponentState::Stateless
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut Collector<'_>) -> Outcome {
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_micros(40) {
            std::hint::spin_loop();
        }
        Ok(out.emit([tuple.int("key")?])?)
    }
}

#[test]
fn counts_are_exact_while_processes_of_spouts_and_bolts_are_killed() {
    const END: u64 = 40_000;
    let counts = Counts::default();
    let state = tempfile::tempdir().unwrap();
    let (end, kills) = run_killed(4, |gate| {
        let tolerance = FaultTolerance::in_folder(state.path())
            .guarantee(Guarantee::ExactlyOnce)
            .every(Duration::from_millis(40))
            .pause(Duration::ZERO)
            .attempts(1_000);
        let topology = stateful(&counts, END, gate).unwrap();
        topology.run_fault_tolerant(&tolerance).map(|it| it.end)
    });
    assert_eq!(end.unwrap(), JobEnd::Completed);
    assert!(kills >= 1, "no process was killed");
    let counts = counts.lock().unwrap();
    assert_eq!(counts.len(), 10);
    assert!(
        counts.values().all(|count| *count == END / 10),
        "{counts:?}"
    );
}
