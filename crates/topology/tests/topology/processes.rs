//! Topologies over several processes: transferred tuples and acks, lost workers, rescaled
//! components.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::halves::{Driven, Process};
use crate::parts::{Arrivals, Numbers, Seen, each, emitting, node, notes, until};
use ardea_core::{ErrorCode, Routing};
use ardea_engine::{Job, JobConfig, Parallelisms};
use ardea_topology::{
    Bolt, Collector, ComponentContext, Outcome, Outputs, Reliability, TopologyBuilder, Tuple,
};

const END: u64 = 3000;

type Shared = Arc<Mutex<Seen>>;

/// At least once: spout "numbers" (tracked, below `END`), and the components that `declare` adds.
/// No message times out within the test.
fn tracked(declare: impl FnOnce(&mut TopologyBuilder)) -> (TopologyBuilder, Shared) {
    let seen = Shared::default();
    let shared = Arc::clone(&seen);
    let mut builder = TopologyBuilder::new("processes");
    builder.reliability(Reliability::AtLeastOnce);
    builder.message_timeout(Duration::from_secs(3600));
    builder.spout("numbers", 1, move || Numbers::tracked(END, &shared));
    declare(&mut builder);
    (builder, seen)
}

fn noting(builder: &mut TopologyBuilder) -> Arrivals {
    let arrivals = Arrivals::default();
    let noted = Arc::clone(&arrivals);
    builder
        .bolt("notes", 1, move || notes(&noted))
        .shuffle("numbers");
    arrivals
}

fn acked(seen: &Shared) -> Vec<u64> {
    let mut acked = seen.lock().unwrap().acked.clone();
    acked.sort_unstable();
    acked
}

/// Runs the spout in `here` until it is done, and passes its tuples to the bolt in `there`.
fn run_to_end(here: &Process, spout: &mut Driven, there: &Process, bolt: &mut Driven) {
    let mut calls = 0;
    while !spout.complete().done {
        calls += 1;
        assert!(calls < 10_000, "it does not end");
        let payloads = here.encode("numbers", spout);
        there.feed("notes", bolt, &payloads);
        here.deliver("numbers", 0, &there.collect("numbers", 0));
    }
}

#[test]
fn acks_reach_a_spout_in_another_process() {
    let mut arrivals = Arrivals::default();
    let (builder, seen) = tracked(|builder| arrivals = noting(builder));
    let topology = builder.build().unwrap();
    let (here, there) = (Process::of(&topology), Process::of(&topology));
    let woken = there.carry("numbers", 0);
    let mut spout = here.start("numbers", 0, |_| {});
    let mut bolt = there.start("notes", 0, |_| {});
    run_to_end(&here, &mut spout, &there, &mut bolt);
    assert_eq!(acked(&seen), (0..END).collect::<Vec<_>>());
    assert_eq!(arrivals.lock().unwrap().len() as u64, END);
    assert!(woken.load(Ordering::SeqCst) > 0);
}

#[test]
fn what_was_pending_when_a_process_was_lost_comes_again_and_its_late_acks_change_nothing() {
    let (builder, seen) = tracked(|builder| drop(noting(builder)));
    let topology = builder.build().unwrap();
    let (here, lost, other) = (
        Process::of(&topology),
        Process::of(&topology),
        Process::of(&topology),
    );
    lost.carry("numbers", 0);
    other.carry("numbers", 0);
    let mut spout = here.start("numbers", 0, |_| {});
    let mut late = Vec::new();
    let mut bolt = lost.start("notes", 0, |_| {});
    while late.len() < 2 {
        spout.call();
        lost.feed("notes", &mut bolt, &here.encode("numbers", &mut spout));
        late.extend(lost.collect("numbers", 0));
    }
    let pending = seen.lock().unwrap().most_pending;
    assert!(pending > 0 && seen.lock().unwrap().acked.is_empty());
    let woken = spout.woken.load(Ordering::SeqCst);
    here.0.side_channels[0].process_lost();
    assert!(spout.woken.load(Ordering::SeqCst) > woken);
    spout.call();
    assert_eq!(seen.lock().unwrap().failed.len(), pending);
    here.deliver("numbers", 0, &late);
    let mut bolt = other.start("notes", 0, |_| {});
    run_to_end(&here, &mut spout, &other, &mut bolt);
    assert_eq!(acked(&seen), (0..END).collect::<Vec<_>>());
    assert_eq!(seen.lock().unwrap().failed.len(), pending);
}

#[test]
fn what_was_pending_when_an_instance_elsewhere_was_lost_comes_again() {
    let (builder, seen) = tracked(|builder| drop(noting(builder)));
    let topology = builder.build().unwrap();
    let (here, there) = (Process::of(&topology), Process::of(&topology));
    there.carry("numbers", 0);
    let mut spout = here.start("numbers", 0, |_| {});
    while seen.lock().unwrap().most_pending < 10 {
        spout.call();
    }
    let pending = seen.lock().unwrap().most_pending;
    // It fails with its input, and is restarted; its process stays alive.
    drop(here.encode("numbers", &mut spout));
    let channel = &there.0.side_channels[0];
    channel.instance_lost(there.vertex("numbers"));
    assert!(
        there.collect("numbers", 0).is_empty(),
        "with a spout nobody's tuples are lost"
    );
    channel.instance_lost(there.vertex("notes"));
    here.deliver("numbers", 0, &there.collect("numbers", 0));
    spout.call();
    assert_eq!(seen.lock().unwrap().failed.len(), pending);
    let mut bolt = there.start("notes", 0, |_| {});
    run_to_end(&here, &mut spout, &there, &mut bolt);
    assert_eq!(acked(&seen), (0..END).collect::<Vec<_>>());
    assert_eq!(seen.lock().unwrap().failed.len(), pending);
}

#[test]
fn a_running_topology_replays_at_once_when_a_process_is_lost() {
    let tried = Arc::new(Mutex::new(HashSet::new()));
    let lost = Arc::clone(&tried);
    let (builder, seen) = tracked(|builder| {
        builder
            .bolt("forgetful", 2, move || {
                let lost = Arc::clone(&lost);
                each(move |_, tuple, out| {
                    if lost.lock().unwrap().insert(tuple.int("number")?) {
                        // As if it was lost.
                        drop(out.hold(tuple));
                    }
                    Ok(())
                })
            })
            .shuffle("numbers");
    });
    let program = builder.build().unwrap().program(&Parallelisms::new());
    let program = program.unwrap();
    let node = node();
    let job = node.submit(&program.dag, JobConfig::named("lost")).unwrap();
    let tried = || tried.lock().unwrap().len() as u64;
    // Once while it runs, and once when nothing else would replay the lost messages.
    until("some is lost", || tried() > END / 10);
    program.side_channels[0].process_lost();
    until("all has been tried", || tried() == END);
    program.side_channels[0].process_lost();
    until("all has been replayed", || job.status().is_over());
    job.join().unwrap();
    assert_eq!(acked(&seen), (0..END).collect::<Vec<_>>());
    assert!(seen.lock().unwrap().failed.len() as u64 >= END);
}

#[test]
fn a_spout_that_has_moved_emits_no_more_and_waits_for_nobody() {
    let (builder, seen) = tracked(|builder| drop(noting(builder)));
    let topology = builder.build().unwrap();
    let here = Process::of(&topology);
    let mut spout = here.start("numbers", 0, |_| {});
    spout.call();
    here.encode("numbers", &mut spout);
    let pending = seen.lock().unwrap().most_pending;
    here.carry("numbers", 0);
    for _ in 0..3 {
        assert!(!spout.complete().done);
        assert!(here.encode("numbers", &mut spout).is_empty());
    }
    assert_eq!(seen.lock().unwrap().failed.len(), pending);
    assert!(spout.drain().done);
    // Back again: it continues.
    here.0.side_channels[0].stop_forwarding(here.vertex("numbers"), 0);
    spout.call();
    assert!(!here.encode("numbers", &mut spout).is_empty());
}

#[test]
fn a_tuple_for_all_is_acked_by_as_many_as_there_are_now() {
    let arrivals = Arrivals::default();
    let noted = Arc::clone(&arrivals);
    let (builder, seen) = tracked(|builder| {
        builder
            .bolt("notes", 1, move || notes(&noted))
            .all("numbers");
    });
    let topology = builder.build().unwrap();
    let (here, there) = (Process::of(&topology), Process::of(&topology));
    there.carry("numbers", 0);
    let mut spout = here.start("numbers", 0, |_| {});
    let mut bolts = Vec::new();
    for instances in [1, 3, 2] {
        while bolts.len() < instances {
            bolts.push(there.start("notes", bolts.len() as u32, |_| {}));
        }
        let channel = &here.0.side_channels[0];
        channel.rescaled(here.vertex("notes"), instances as u32);
        let acked = || seen.lock().unwrap().acked.len();
        let before = acked();
        spout.signals.resume();
        spout.call();
        spout.signals.pause();
        let payloads = here.encode("numbers", &mut spout);
        let tuples: usize = payloads.iter().map(|(count, _)| count).sum();
        for (place, bolt) in bolts.iter_mut().take(instances).enumerate() {
            assert_eq!(acked(), before, "{place} of {instances} have acked");
            there.feed("notes", bolt, &payloads);
            here.deliver("numbers", 0, &there.collect("numbers", 0));
            spout.call();
        }
        assert!(tuples > 0);
        assert_eq!(acked(), before + tuples);
    }
}

/// Emits to the last instance of "notes".
struct Aim(Option<ComponentContext>, Arc<AtomicU32>);

impl Bolt for Aim {
    fn outputs(&self) -> Outputs {
        Outputs::none().direct_stream("aimed", ["number"])
    }

    fn prepare(&mut self, context: &ComponentContext) -> Outcome {
        self.0 = Some(context.clone());
        Ok(())
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut Collector<'_>) -> Outcome {
        let context = self.0.as_ref().unwrap();
        let last = context.instances_of("notes").unwrap() - 1;
        self.1.store(last, Ordering::SeqCst);
        Ok(out.emit_direct(last, "aimed", [tuple.int("number")?])?)
    }
}

#[test]
fn a_direct_stream_reaches_an_instance_that_was_added_while_it_ran() {
    let last = Arc::new(AtomicU32::new(0));
    let shared = Arc::clone(&last);
    let (builder, _) = tracked(|builder| {
        builder
            .bolt("aim", 1, move || Aim(None, Arc::clone(&shared)))
            .shuffle("numbers");
        builder
            .bolt("notes", 1, || notes(&Arrivals::default()))
            .direct(("aim", "aimed"));
    });
    let here = Process::of(&builder.build().unwrap());
    let mut spout = here.start("numbers", 0, |_| {});
    let mut aim = here.start("aim", 0, |_| {});
    for instances in [1, 4, 2] {
        here.0.side_channels[0].rescaled(here.vertex("notes"), instances);
        spout.call();
        let payloads = here.encode("numbers", &mut spout);
        here.feed("aim", &mut aim, &payloads[..1]);
        assert!(!here.encode("aim", &mut aim).is_empty());
        assert_eq!(last.load(Ordering::SeqCst), instances - 1);
    }
}

#[test]
fn a_paused_job_is_a_deactivated_topology_that_still_hears_of_its_messages() {
    let (builder, seen) = tracked(|builder| drop(noting(builder)));
    let topology = builder.build().unwrap();
    let (here, there) = (Process::of(&topology), Process::of(&topology));
    there.carry("numbers", 0);
    let mut bolt = there.start("notes", 0, |_| {});
    let mut spout = here.start("numbers", 0, |signals| signals.pause());
    assert!(spout.processor().source().pauses_itself());
    assert!(!spout.complete().done);
    assert!(here.encode("numbers", &mut spout).is_empty());
    assert_eq!(seen.lock().unwrap().deactivations, 0, "it was never active");
    spout.signals.resume();
    spout.call();
    let payloads = here.encode("numbers", &mut spout);
    assert!(!payloads.is_empty());
    spout.signals.pause();
    there.feed("notes", &mut bolt, &payloads);
    assert!(!spout.complete().made);
    let woken = spout.woken.load(Ordering::SeqCst);
    here.deliver("numbers", 0, &there.collect("numbers", 0));
    assert_eq!(spout.woken.load(Ordering::SeqCst), woken + 1, "it rested");
    spout.call();
    assert!(here.encode("numbers", &mut spout).is_empty());
    let most = seen.lock().unwrap().most_pending;
    assert_eq!(seen.lock().unwrap().acked.len(), most);
    assert_eq!(seen.lock().unwrap().deactivations, 1);
    spout.signals.resume();
    run_to_end(&here, &mut spout, &there, &mut bolt);
    assert_eq!(acked(&seen), (0..END).collect::<Vec<_>>());
}

#[test]
fn all_processes_make_the_same_graph_however_it_is_scaled() {
    let (builder, _) = tracked(|builder| {
        let pass = || emitting(Outputs::fields(["number"]), |_, _, _| Ok(()));
        builder.bolt("pass", 1, pass).local_or_shuffle("numbers");
        builder.bolt("every", 2, pass).all("pass");
        builder.bolt("one", 2, pass).global("pass").shuffle("every");
    });
    let topology = builder.build().unwrap();
    let shape = |parallelism: &[(&str, u32)]| {
        let parallelism = parallelism.iter();
        let parallelism = parallelism.map(|(name, instances)| (name.to_string(), *instances));
        let program = topology.program(&parallelism.collect()).unwrap();
        assert_eq!(program.side_channels.len(), 1);
        assert_eq!(program.side_channels[0].vertices().len(), 1);
        let edges = program.dag.edges().iter().map(|edge| {
            assert!(edge.wanted_codec().is_some());
            let routing = edge.wanted_routing().name();
            (edge.source(), edge.target(), routing)
        });
        edges.collect::<Vec<_>>()
    };
    let scaled = [("numbers", 3), ("pass", 4), ("every", 1), ("one", 9)];
    assert_eq!(shape(&[]), shape(&scaled));
    assert!(
        shape(&[])
            .iter()
            .any(|(_, _, name)| *name == Routing::LocalOrRoundRobin.name())
    );
}

#[test]
fn numbers_of_instances_that_make_no_sense_are_refused() {
    let (builder, _) = tracked(|builder| drop(noting(builder)));
    let topology = builder.build().unwrap();
    assert_eq!(Job::name(&topology), "processes");
    for (name, instances, told) in [
        (
            "note",
            2,
            "the topology \"processes\" has no component \"note\"; did you mean \"notes\"? \
             the components are numbers, notes",
        ),
        ("notes", 0, "\"notes\" has a parallelism of zero"),
        ("numbers", 16_385, "at most 16384"),
    ] {
        let parallelism = Parallelisms::from([(name.to_string(), instances)]);
        let error = topology.program(&parallelism).err().unwrap();
        assert_eq!(error.code(), ErrorCode::InvalidJob);
        assert!(error.to_string().contains(told), "{error}\n{told}");
    }
}

#[test]
fn letters_that_are_none_and_instances_that_are_none_are_refused() {
    let (builder, _) = tracked(|builder| drop(noting(builder)));
    let here = Process::of(&builder.build().unwrap());
    let channel = &here.0.side_channels[0];
    let (spout, bolt) = (here.vertex("numbers"), here.vertex("notes"));
    for (vertex, instance, letter) in [
        (spout, 0, &b""[..]),
        (spout, 0, b"garbage"),
        (
            spout,
            0,
            &[2, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255],
        ),
        (spout, 0, &[2, 2, 0, 0, 0, 0]),
        (spout, 16_384, &[2, 0, 0, 0, 0, 0]),
        (bolt, 0, &[2, 0, 0, 0, 0, 0]),
    ] {
        let error = channel.deliver(vertex, instance, letter).unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadRecord, "{letter:?}");
    }
    assert!(channel.deliver(spout, 0, &[2, 0, 0, 0, 0, 0]).is_ok());
    assert!(!channel.collect(spout, 0, &mut Vec::new()), "it lives here");
    assert!(!channel.collect(bolt, 0, &mut Vec::new()));
}

#[test]
fn without_acks_there_are_no_mailboxes_and_still_numbers_of_instances() {
    let mut builder = TopologyBuilder::new("at most once");
    builder.spout("numbers", 1, || Numbers::untracked(10));
    let asked = Arc::new(AtomicBool::new(false));
    let shared = Arc::clone(&asked);
    builder
        .bolt("notes", 1, move || {
            let asked = Arc::clone(&shared);
            each(move |_, _, _| {
                asked.store(true, Ordering::SeqCst);
                Ok(())
            })
        })
        .shuffle("numbers");
    let here = Process::of(&builder.build().unwrap());
    let channel = &here.0.side_channels[0];
    assert!(channel.vertices().is_empty());
    channel.process_lost();
    channel.rescaled(here.vertex("notes"), 7);
    let mut spout = here.start("numbers", 0, |_| {});
    let mut bolt = here.start("notes", 0, |_| {});
    spout.call();
    here.feed("notes", &mut bolt, &here.encode("numbers", &mut spout));
    assert!(asked.load(Ordering::SeqCst));
}

#[test]
fn a_spout_that_leaves_emits_nothing_new_and_stays_until_what_failed_is_acked() {
    let (builder, seen) = tracked(|builder| drop(noting(builder)));
    let topology = builder.build().unwrap();
    let (here, there) = (Process::of(&topology), Process::of(&topology));
    there.carry("numbers", 0);
    let mut spout = here.start("numbers", 0, |_| {});
    spout.call();
    drop(here.encode("numbers", &mut spout));
    let pending = seen.lock().unwrap().most_pending;
    assert!(pending > 0 && (pending as u64) < END);
    assert!(!spout.drain().done, "nothing of it is acked");
    // The tuples in flight are lost with another process.
    here.0.side_channels[0].process_lost();
    let mut bolt = there.start("notes", 0, |_| {});
    until("all is acked that was emitted", || {
        let is_done = spout.drain().done;
        there.feed("notes", &mut bolt, &here.encode("numbers", &mut spout));
        here.deliver("numbers", 0, &there.collect("numbers", 0));
        is_done
    });
    assert_eq!(seen.lock().unwrap().failed.len(), pending);
    assert_eq!(acked(&seen), (0..pending as u64).collect::<Vec<_>>());
}
