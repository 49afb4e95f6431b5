//! Acks, failures, timeouts, and the limit of pending messages.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::parts::{Arrivals, Numbers, Seen, each, emitting, notes, run};
use ardea_core::ErrorCode;
use ardea_topology::{
    Bolt, Collector, Failure, Outcome, Outputs, PendingTuple, Reliability, TopologyBuilder, Tuple,
};

/// At least once, with one tracked spout of this parallelism that emits the numbers below `end`.
pub fn tracked(end: u64, parallelism: u32) -> (TopologyBuilder, Arc<Mutex<Seen>>) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut builder = TopologyBuilder::new("reliability");
    builder.reliability(Reliability::AtLeastOnce);
    let shared = Arc::clone(&seen);
    builder.spout("numbers", parallelism, move || {
        Numbers::tracked(end, &shared)
    });
    (builder, seen)
}

fn assert_all_acked(seen: &Arc<Mutex<Seen>>, end: u64) {
    let mut acked = seen.lock().unwrap().acked.clone();
    acked.sort_unstable();
    assert_eq!(acked, (0..end).collect::<Vec<_>>());
}

#[test]
fn every_message_is_acked_once_with_a_fan_out_of_a_hundred_and_several_subscribers() {
    const END: u64 = 2000;
    let (mut builder, seen) = tracked(END, 2);
    let count = Arc::new(AtomicU64::new(0));
    builder
        .bolt("fan", 2, || {
            emitting(Outputs::fields(["number", "part"]), |_, tuple, out| {
                for part in 0..100 {
                    out.emit((tuple.int("number")?, part))?;
                }
                Ok(())
            })
        })
        .shuffle("numbers");
    for (name, instances) in [("fields", 3), ("every", 2), ("pass", 2)] {
        let count = Arc::clone(&count);
        let bolt = builder.bolt(name, instances, move || {
            let count = Arc::clone(&count);
            emitting(Outputs::fields(["number", "part"]), move |_, tuple, out| {
                count.fetch_add(1, Ordering::Relaxed);
                Ok(out.emit(tuple)?)
            })
        });
        match name {
            "fields" => bolt.fields("fan", ["part"]),
            "every" => bolt.all("fan"),
            _ => bolt.local_or_shuffle("fan"),
        };
    }
    let last = Arc::clone(&count);
    builder
        .bolt("last", 2, move || {
            let last = Arc::clone(&last);
            each(move |_, _, _| {
                last.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
        })
        .shuffle("pass")
        .all("every");
    let running = run(&builder.build().unwrap());
    assert_all_acked(&seen, END);
    assert!(seen.lock().unwrap().failed.is_empty());
    let spout = &running.spouts()[0];
    assert_eq!((spout.emitted, spout.acked, spout.pending), (END, END, 0));
    assert!(spout.complete_latency.is_some());
    // fields 1, every 2, pass 1; last: from pass 1, from every 2 × 2.
    assert_eq!(count.load(Ordering::Relaxed), END * 100 * 9);
}

#[test]
fn what_a_bolt_fails_is_told_to_the_spout_and_comes_again() {
    const END: u64 = 5000;
    let (mut builder, seen) = tracked(END, 2);
    let arrivals = Arrivals::default();
    let noted = Arc::clone(&arrivals);
    let tried = Arc::new(Mutex::new(HashSet::new()));
    builder
        .bolt("moody", 2, move || {
            let tried = Arc::clone(&tried);
            emitting(Outputs::fields(["number"]), move |_, tuple, out| {
                let number = tuple.int("number")?;
                out.emit([number])?;
                if number % 7 == 0 && tried.lock().unwrap().insert(number) {
                    return Err(Failure::new("not at the first time"));
                }
                Ok(())
            })
        })
        .shuffle("numbers");
    builder
        .bolt("notes", 2, move || notes(&noted))
        .fields("moody", ["number"]);
    let running = run(&builder.build().unwrap());
    assert_all_acked(&seen, END);
    let failed = seen.lock().unwrap().failed.len() as u64;
    assert_eq!(failed, END.div_ceil(7));
    assert_eq!(running.spouts()[0].failed, failed);
    assert_eq!(running.job().dead_letters().count(), failed);
    let letter = &running.job().dead_letters().sample()[0];
    assert_eq!(
        (letter.vertex.as_str(), letter.reason.as_str()),
        ("moody", "not at the first time")
    );
    // At least once: tuples emitted before the failure arrived as well.
    assert_eq!(arrivals.lock().unwrap().len() as u64, END + failed);
}

#[test]
fn what_is_never_acked_fails_when_its_time_is_over_and_comes_again() {
    const END: u64 = 300;
    let (mut builder, seen) = tracked(END, 1);
    builder.message_timeout(Duration::from_millis(300));
    let tried = Arc::new(Mutex::new(HashSet::new()));
    builder
        .bolt("forgetful", 2, move || {
            let tried = Arc::clone(&tried);
            each(move |_, tuple, out| {
                let number = tuple.int("number")?;
                if number % 3 == 0 && tried.lock().unwrap().insert(number) {
                    drop(out.hold(tuple));
                }
                Ok(())
            })
        })
        .shuffle("numbers");
    let running = run(&builder.build().unwrap());
    let mut acked: Vec<u64> = seen.lock().unwrap().acked.clone();
    acked.sort_unstable();
    acked.dedup();
    assert_eq!(acked.len() as u64, END);
    assert!(running.spouts()[0].timed_out >= END / 3);
}

#[test]
fn no_more_messages_are_pending_than_was_said() {
    const END: u64 = 20_000;
    let (mut builder, seen) = tracked(END, 1);
    builder.max_spout_pending(NonZeroUsize::new(10).unwrap());
    builder
        .bolt("sink", 2, || each(|_, _, _| Ok(())))
        .shuffle("numbers");
    run(&builder.build().unwrap());
    assert_all_acked(&seen, END);
    let most = seen.lock().unwrap().most_pending;
    assert!((1..=10).contains(&most), "{most}");
}

#[test]
fn a_slow_bolt_slows_the_spout_and_nothing_is_lost() {
    const END: u64 = 60_000;
    let (mut builder, seen) = tracked(END, 1);
    let arrivals = Arrivals::default();
    let noted = Arc::clone(&arrivals);
    builder
        .bolt("slow", 2, move || {
            let mut note = notes(&noted);
            each(move |_, tuple, out: &mut Collector<'_>| {
                let until = Instant::now() + Duration::from_micros(20);
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
                note.execute(tuple, out)
            })
        })
        .shuffle("numbers");
    run(&builder.build().unwrap());
    assert_all_acked(&seen, END);
    assert_eq!(arrivals.lock().unwrap().len() as u64, END);
    // Two queues of 16 chunks of 1024, a chunk at each end, and one being filled.
    let most = seen.lock().unwrap().most_pending;
    assert!(most <= 2 * 18 * 1024, "{most} were under way");
}

#[test]
fn without_acks_a_failed_tuple_is_counted_and_nothing_waits_for_it() {
    const END: u64 = 1000;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let shared = Arc::clone(&seen);
    let mut builder = TopologyBuilder::new("at most once");
    builder.spout("numbers", 1, move || Numbers::tracked(END, &shared));
    builder
        .bolt("sink", 1, || each(|_, _, _| Err(Failure::new("no"))))
        .shuffle("numbers");
    let running = run(&builder.build().unwrap());
    assert_all_acked(&seen, END);
    assert!(seen.lock().unwrap().failed.is_empty());
    assert_eq!(running.job().dead_letters().count(), END);
    assert_eq!(running.job().sum("sink", |metrics| metrics.bad), END);
}

/// Releases held tuples in pairs, anchoring one new tuple to them; at the end, the rest.
#[derive(Default)]
struct Pairs {
    held: Vec<(PendingTuple, i64)>,
}

impl Pairs {
    fn let_go(&mut self, out: &mut Collector<'_>) -> Outcome {
        let sum: i64 = self.held.iter().map(|(_, number)| number).sum();
        let held = self.held.iter().map(|(held, _)| held);
        out.tied_to(held, |out| Ok(out.emit([sum])?))?;
        for (held, _) in self.held.drain(..) {
            out.ack(held);
        }
        Ok(())
    }
}

impl Bolt for Pairs {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["number"])
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut Collector<'_>) -> Outcome {
        self.held.push((out.hold(tuple), tuple.int("number")?));
        match self.held.len() {
            2 => self.let_go(out),
            _ => Ok(()),
        }
    }

    fn finish(&mut self, out: &mut Collector<'_>) -> Outcome {
        self.let_go(out)
    }
}

#[test]
fn a_tuple_made_from_several_that_were_held_belongs_to_the_trees_of_all() {
    const END: u64 = 1001;
    let (mut builder, seen) = tracked(END, 1);
    builder.message_timeout(Duration::from_secs(20));
    let failed = Arc::new(AtomicBool::new(false));
    let sum = Arc::new(AtomicU64::new(0));
    let total = Arc::clone(&sum);
    builder.bolt("pairs", 1, Pairs::default).global("numbers");
    builder
        .bolt("sum", 2, move || {
            let (failed, total) = (Arc::clone(&failed), Arc::clone(&total));
            each(move |_, tuple, _| {
                if !failed.swap(true, Ordering::SeqCst) {
                    return Err(Failure::new("the first of all"));
                }
                total.fetch_add(tuple.int_at(0)? as u64, Ordering::SeqCst);
                Ok(())
            })
        })
        .shuffle("pairs");
    run(&builder.build().unwrap());
    assert_all_acked(&seen, END);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.failed.len(), 2, "both of a pair: {:?}", seen.failed);
    assert_eq!(sum.load(Ordering::SeqCst), (0..END).sum::<u64>());
}

/// Forwards tuples at once, and acks each when the next one arrives.
#[derive(Default)]
struct Late(Option<PendingTuple>);

impl Bolt for Late {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["number"])
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut Collector<'_>) -> Outcome {
        out.emit([tuple.field_at(0)?])?;
        let before = self.0.replace(out.hold(tuple));
        before.into_iter().for_each(|held| out.ack(held));
        Ok(())
    }

    fn finish(&mut self, out: &mut Collector<'_>) -> Outcome {
        self.0.take().into_iter().for_each(|held| out.ack(held));
        Ok(())
    }
}

#[test]
fn what_is_emitted_for_a_tuple_that_is_held_belongs_to_its_tree() {
    const END: u64 = 3000;
    let (mut builder, seen) = tracked(END, 1);
    let arrivals = Arrivals::default();
    let noted = Arc::clone(&arrivals);
    builder.bolt("late", 2, Late::default).shuffle("numbers");
    builder
        .bolt("notes", 2, move || notes(&noted))
        .shuffle("late");
    run(&builder.build().unwrap());
    assert_all_acked(&seen, END);
    assert!(seen.lock().unwrap().failed.is_empty());
    assert_eq!(arrivals.lock().unwrap().len() as u64, END);
}

#[test]
fn a_panic_fails_the_job_and_names_the_tuple() {
    let mut builder = TopologyBuilder::new("panic");
    builder.spout("numbers", 1, || Numbers::untracked(100_000));
    builder
        .bolt("brittle", 1, || {
            each(|_, tuple, _| {
                assert_ne!(tuple.int_at(0).unwrap(), 4321, "that one");
                Ok(())
            })
        })
        .shuffle("numbers");
    let error = builder.build().unwrap().run().unwrap_err();
    assert_eq!(error.code(), ErrorCode::UserPanic);
    assert_eq!(error.vertex(), Some(("brittle", 0)));
    assert_eq!(error.record(), Some((0, 4321)));
}

#[test]
fn a_tuple_that_does_not_fit_its_stream_fails_the_job() {
    for (wrong, told) in [
        (
            "fields",
            "emitted 2 fields on \"default\", which declares 1 (number)",
        ),
        ("stream", "did you mean \"late\"?"),
        ("field", "has no field \"nmber\""),
        ("direct", "use `emit_direct`"),
        (
            "target",
            "emitted to instance 5 on \"aimed\", whose subscribers have 1",
        ),
    ] {
        let mut builder = TopologyBuilder::new("wrong");
        builder.spout("numbers", 1, || Numbers::untracked(10));
        builder
            .bolt("emit", 1, move || {
                let outputs = Outputs::fields(["number"])
                    .stream("late", ["number"])
                    .direct_stream("aimed", ["number"]);
                emitting(outputs, move |_, tuple, out| {
                    match wrong {
                        "fields" => out.emit((1, 2))?,
                        "stream" => out.emit_to("lat", [1])?,
                        "field" => out.emit([tuple.int("nmber")?])?,
                        "direct" => out.emit_to("aimed", [1])?,
                        _ => out.emit_direct(5, "aimed", [1])?,
                    }
                    Ok(())
                })
            })
            .shuffle("numbers");
        builder
            .bolt("sink", 1, || each(|_, _, _| Ok(())))
            .shuffle("emit")
            .direct(("emit", "aimed"));
        let error = builder.build().unwrap().run().unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidJob, "{error}");
        assert!(error.to_string().contains(told), "{error}");
        assert_eq!(error.vertex(), Some(("emit", 0)));
    }
}
