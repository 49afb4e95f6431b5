//! Calls that are not caused by tuples: activation, deactivation, and ticks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::parts::{Arrivals, Seen, each, node, notes, until};
use crate::reliability::tracked;
use ardea_topology::{Bolt, Collector, Outcome, Outputs, Tuple};

/// The number of activations and deactivations of the spout.
fn told(seen: &Mutex<Seen>) -> (u32, u32) {
    let seen = seen.lock().unwrap();
    (seen.activations, seen.deactivations)
}

#[test]
fn a_deactivated_topology_emits_nothing_until_it_is_activated_again() {
    let (mut builder, seen) = tracked(u64::MAX, 1);
    builder
        .bolt("sink", 1, || each(|_, _, _| Ok(())))
        .shuffle("numbers");
    let node = node();
    let running = builder.build().unwrap().submit(&node).unwrap();
    let acked = || running.spouts()[0].acked;
    until("something was acked", || acked() > 0);
    assert_eq!(told(&seen), (1, 0), "it begins active");
    running.deactivate();
    until("the spout was told and all is acked", || {
        seen.lock().unwrap().deactivations == 1 && running.spouts()[0].pending == 0
    });
    let before = running.spouts()[0].emitted;
    for _ in 0..200 {
        assert_eq!(running.spouts()[0].emitted, before);
        std::thread::yield_now();
    }
    running.activate();
    until("the spout emits again", || {
        running.spouts()[0].emitted > before
    });
    assert_eq!(told(&seen), (2, 1), "it was told before it emitted");
    running.job().drain();
    running.join().unwrap();
    let spout = &running.spouts()[0];
    assert_eq!(
        (spout.emitted, spout.pending),
        (spout.acked, 0),
        "drained: all is acked"
    );
}

/// Emits its number of ticks.
#[derive(Default)]
struct Ticks(i64);

impl Bolt for Ticks {
    fn outputs(&self) -> Outputs {
        Outputs::fields(["number"])
    }

    fn execute(&mut self, _: &Tuple<'_>, _: &mut Collector<'_>) -> Outcome {
        Ok(())
    }

    fn tick(&mut self, out: &mut Collector<'_>) -> Outcome {
        self.0 += 1;
        Ok(out.emit([self.0])?)
    }
}

#[test]
fn ticks_come_between_tuples_and_without_them() {
    let (mut builder, _) = tracked(u64::MAX, 1);
    let arrivals = Arrivals::default();
    let noted = Arc::clone(&arrivals);
    builder
        .bolt("ticks", 1, Ticks::default)
        .shuffle("numbers")
        .tick_every(Duration::from_millis(2));
    builder
        .bolt("notes", 1, move || notes(&noted))
        .shuffle("ticks");
    let node = node();
    let running = builder.build().unwrap().submit(&node).unwrap();
    until("three ticks came", || arrivals.lock().unwrap().len() >= 3);
    running.deactivate();
    let before = arrivals.lock().unwrap().len();
    until("three more came", || {
        arrivals.lock().unwrap().len() >= before + 3
    });
    running.job().cancel();
    let numbers: Vec<u64> = arrivals.lock().unwrap().iter().map(|(_, n)| *n).collect();
    assert!(
        numbers
            .iter()
            .zip(1..)
            .all(|(number, tick)| *number == tick)
    );
}
