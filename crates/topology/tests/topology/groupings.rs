//! The target instances of each grouping.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::parts::{Arrivals, Numbers, each, emitting, notes, run, word_of};
use ardea_core::PartitionId;
use ardea_topology::{BoltDeclarer, Outputs, Spout, TopologyBuilder};

const NUMBERS: u64 = 20_000;

/// Sends numbers from two spouts to four bolts over the edge that `declare` declares. Returns the
/// instance of each number, in the order of the numbers.
fn arrivals(declare: impl FnOnce(BoltDeclarer<'_>) -> BoltDeclarer<'_>) -> Vec<(u32, u64)> {
    let arrivals = Arrivals::default();
    let noted = Arc::clone(&arrivals);
    let mut builder = TopologyBuilder::new("grouping");
    builder.spout("numbers", 2, || Numbers::untracked(NUMBERS));
    declare(builder.bolt("notes", 4, move || notes(&noted)));
    run(&builder.build().unwrap());
    let mut arrivals = std::mem::take(&mut *arrivals.lock().unwrap());
    arrivals.sort_unstable_by_key(|(instance, number)| (*number, *instance));
    arrivals
}

fn assert_each_came_once(arrivals: &[(u32, u64)]) {
    let numbers: Vec<u64> = arrivals.iter().map(|(_, number)| *number).collect();
    assert_eq!(numbers, (0..NUMBERS).collect::<Vec<_>>());
}

#[test]
fn of_a_million_tuples_none_goes_to_an_instance_that_does_not_own_its_key() {
    const MILLION: u64 = 1_000_000;
    let (right, wrong) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counts = (Arc::clone(&right), Arc::clone(&wrong));
    let mut builder = TopologyBuilder::new("fields");
    builder.spout("numbers", 2, || Numbers::untracked(MILLION));
    builder
        .bolt("check", 4, move || {
            let (right, wrong) = counts.clone();
            each(move |instance, tuple, _| {
                let word = tuple.str("word")?.to_string();
                let owner = PartitionId::of(&word).owner(4);
                let count = if owner == instance { &right } else { &wrong };
                count.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
        })
        .fields("numbers", ["word"]);
    run(&builder.build().unwrap());
    assert_eq!(right.load(Ordering::Relaxed), MILLION);
    assert_eq!(wrong.load(Ordering::Relaxed), 0);
}

#[test]
fn several_fields_are_one_key_of_a_pipeline() {
    let arrivals = arrivals(|bolt| bolt.fields("numbers", ["word", "number"]));
    assert_each_came_once(&arrivals);
    for (instance, number) in arrivals {
        let key = (word_of(number), number as i64);
        assert_eq!(instance, PartitionId::of(&key).owner(4));
    }
}

#[test]
fn shuffle_and_none_give_every_instance_something_and_no_tuple_twice() {
    for arrivals in [
        arrivals(|bolt| bolt.shuffle("numbers")),
        arrivals(|bolt| bolt.none("numbers")),
        arrivals(|bolt| bolt.local_or_shuffle("numbers")),
    ] {
        assert_each_came_once(&arrivals);
        for instance in 0..4 {
            assert!(arrivals.iter().any(|(at, _)| *at == instance), "{instance}");
        }
    }
}

#[test]
fn all_gives_every_instance_every_tuple() {
    let arrivals = arrivals(|bolt| bolt.all("numbers"));
    let expected = (0..NUMBERS).flat_map(|number| (0..4).map(move |instance| (instance, number)));
    assert_eq!(arrivals, expected.collect::<Vec<_>>());
}

#[test]
fn global_sends_all_to_the_first_instance() {
    let arrivals = arrivals(|bolt| bolt.global("numbers"));
    assert_each_came_once(&arrivals);
    assert!(arrivals.iter().all(|(instance, _)| *instance == 0));
}

#[test]
fn custom_goes_where_the_function_says() {
    let arrivals = arrivals(|bolt| {
        bolt.custom("numbers", |tuple, instances| {
            assert_eq!(instances, 4);
            // Beyond the parallelism: taken modulo.
            tuple.int("number").unwrap_or(0) as u32 + 4
        })
    });
    assert_each_came_once(&arrivals);
    assert!(
        arrivals
            .iter()
            .all(|(at, number)| u64::from(*at) == number % 4)
    );
}

#[test]
fn local_or_shuffle_between_equals_stays_with_the_senders_number() {
    let arrivals = Arrivals::default();
    let noted = Arc::clone(&arrivals);
    let mut builder = TopologyBuilder::new("local");
    builder.spout("numbers", 3, || Numbers::untracked(NUMBERS));
    builder
        .bolt("notes", 3, move || notes(&noted))
        .local_or_shuffle("numbers");
    run(&builder.build().unwrap());
    let arrivals = arrivals.lock().unwrap();
    assert_eq!(arrivals.len() as u64, NUMBERS);
    assert!(
        arrivals
            .iter()
            .all(|(at, number)| u64::from(*at) == number % 3)
    );
}

#[test]
fn a_direct_stream_goes_to_the_instance_that_its_sender_names() {
    let arrivals = Arrivals::default();
    let noted = Arc::clone(&arrivals);
    let mut builder = TopologyBuilder::new("direct");
    builder.spout("numbers", 1, || Numbers::untracked(NUMBERS));
    builder
        .bolt("aim", 2, || {
            let outputs = Outputs::none().direct_stream("aimed", ["number"]);
            emitting(outputs, |_, tuple, out| {
                let number = tuple.int("number")?;
                Ok(out.emit_direct(number as u32 % 3, "aimed", [number])?)
            })
        })
        .shuffle("numbers");
    builder
        .bolt("notes", 3, move || notes(&noted))
        .direct(("aim", "aimed"));
    run(&builder.build().unwrap());
    let arrivals = arrivals.lock().unwrap();
    assert_eq!(arrivals.len() as u64, NUMBERS);
    assert!(
        arrivals
            .iter()
            .all(|(at, number)| u64::from(*at) == number % 3)
    );
}

#[test]
fn each_subscriber_of_a_stream_gets_all_of_it_and_streams_are_apart() {
    let [even, all, odd] = [
        Arrivals::default(),
        Arrivals::default(),
        Arrivals::default(),
    ];
    let (to_even, to_all, to_odd) = (Arc::clone(&even), Arc::clone(&all), Arc::clone(&odd));
    let mut builder = TopologyBuilder::new("streams");
    builder.spout("numbers", 1, || Numbers::untracked(NUMBERS));
    builder
        .bolt("sort", 2, || {
            let outputs = Outputs::fields(["number"]).stream("odd", ["word", "number"]);
            emitting(outputs, |_, tuple, out| {
                let number = tuple.int_at(0)?;
                if number % 2 == 0 {
                    out.emit([tuple.field_at(0)?])?;
                } else {
                    out.emit_to("odd", (tuple.str("word")?, number))?;
                }
                Ok(())
            })
        })
        .shuffle("numbers");
    builder
        .bolt("even", 2, move || notes(&to_even))
        .fields("sort", ["number"]);
    builder
        .bolt("all", 2, move || notes(&to_all))
        .shuffle("sort")
        .fields(("sort", "odd"), ["word"]);
    builder
        .bolt("odd", 1, move || notes(&to_odd))
        .global(("sort", "odd"));
    run(&builder.build().unwrap());
    let sum = |arrivals: &Arrivals| arrivals.lock().unwrap().iter().map(|(_, n)| n).sum::<u64>();
    let (evens, odds): (u64, u64) = ((0..NUMBERS).step_by(2).sum(), (1..NUMBERS).step_by(2).sum());
    assert_eq!(sum(&even), evens);
    assert_eq!(sum(&odd), odds);
    assert_eq!(sum(&all), evens + odds);
    assert_eq!(Numbers::untracked(0).outputs().streams().count(), 1);
}
