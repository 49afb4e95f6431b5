//! The error messages of invalid topologies.

use std::time::Duration;

use crate::parts::{Numbers, each, emitting};
use ardea_core::ErrorCode;
use ardea_topology::{
    BoltDeclarer, Next, Outcome, Outputs, Reliability, Spout, SpoutCollector, StreamRef,
    TopologyBuilder,
};

/// Returns the error of a topology with a spout "numbers" (number, word), a bolt "split" (word;
/// "late": word; direct "aimed": word), and a bolt "count" with the inputs that `declare` declares.
fn error(declare: impl FnOnce(BoltDeclarer<'_>) -> BoltDeclarer<'_>) -> String {
    let mut builder = TopologyBuilder::new("wrong");
    builder.spout("numbers", 1, || Numbers::untracked(1));
    builder
        .bolt("split", 1, || {
            let outputs = Outputs::fields(["word"])
                .stream("late", ["word"])
                .direct_stream("aimed", ["word"]);
            emitting(outputs, |_, _, _| Ok(()))
        })
        .shuffle("numbers");
    declare(builder.bolt("count", 1, || each(|_, _, _| Ok(()))));
    let error = builder.build().unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    error.to_string()
}

#[test]
fn a_component_without_a_name_is_refused() {
    for name in ["", " ", "two\nlines", "a\u{202e}b"] {
        let mut builder = TopologyBuilder::new("wrong");
        builder.spout(name, 1, || Numbers::untracked(1));
        let error = builder.build().unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidJob);
        assert!(error.to_string().contains("can be named"), "{error}");
    }
}

#[test]
fn an_edge_to_what_is_not_there_is_refused_with_what_there_is() {
    for (found, told) in [
        (
            error(|bolt| bolt.shuffle("splt")),
            "there is no component \"splt\" for the edge \"splt\" (stream \"default\") → \"count\", shuffle; \
             did you mean \"split\"? the components are numbers, split, count",
        ),
        (
            error(|bolt| bolt.all(("split", "lte"))),
            "\"split\" has no stream \"lte\" for the edge \"split\" (stream \"lte\") → \"count\", all; \
             did you mean \"late\"? its streams are default, late, aimed",
        ),
        (
            error(|bolt| bolt.fields("split", ["words"])),
            "there is no field \"words\" for the edge \"split\" (stream \"default\") → \"count\", fields(words); \
             did you mean \"word\"? the stream's fields are word",
        ),
        (
            error(|bolt| bolt.fields("numbers", ["colour"])),
            "the stream's fields are number, word",
        ),
        (error(|bolt| bolt.fields("split", [])), "groups by no field"),
        (
            error(|bolt| bolt.shuffle(("split", "aimed"))),
            "reads a stream that is direct; read it with .direct(…)",
        ),
        (
            error(|bolt| bolt.direct("split")),
            "reads a stream that is not direct",
        ),
        (
            error(|bolt| bolt.all(StreamRef::from("split").latency(Duration::from_secs(2)))),
            "→ \"count\", all has a latency budget of more than 1s; set a shorter budget",
        ),
        (error(|bolt| bolt), "the bolt \"count\" has no input"),
        (
            error(|bolt| bolt.shuffle("split").tick_every(Duration::ZERO)),
            "tick every zero seconds",
        ),
    ] {
        assert!(found.contains(told), "{found}\n{told}");
    }
}

#[test]
fn a_cycle_is_refused_with_its_way_round() {
    let mut builder = TopologyBuilder::new("round");
    builder.spout("numbers", 1, || Numbers::untracked(1));
    let pass = || emitting(Outputs::fields(["word"]), |_, _, _| Ok(()));
    builder.bolt("a", 1, pass).shuffle("numbers").shuffle("c");
    builder.bolt("b", 1, pass).shuffle("a");
    builder.bolt("c", 1, pass).shuffle("b");
    builder.bolt("d", 1, pass).shuffle("c").shuffle("a");
    let error = builder.build().unwrap_err().to_string();
    let told = "tuples would go round: \"a\" → \"b\" → \"c\" → \"a\"; remove one of these edges, such as \"c\" → \"a\"";
    assert!(error.contains(told), "{error}");
}

/// Returns the error of a topology with this addition.
fn build(add: &dyn Fn(&mut TopologyBuilder)) -> String {
    let mut builder = TopologyBuilder::new("wrong");
    add(&mut builder);
    builder.build().unwrap_err().to_string()
}

#[test]
fn names_and_numbers_that_make_no_sense_are_refused() {
    let spout = || Numbers::untracked(1);
    let twice = build(&|builder| {
        builder.spout("same", 1, spout);
        builder
            .bolt("same", 1, || each(|_, _, _| Ok(())))
            .shuffle("same");
    });
    assert!(
        twice.contains("two components are named \"same\""),
        "{twice}"
    );
    let zero = build(&|builder| {
        builder.spout("none", 0, spout);
    });
    assert!(
        zero.contains("\"none\" has a parallelism of zero"),
        "{zero}"
    );
    let empty = build(&|_| {});
    assert!(empty.contains("has no spout"), "{empty}");
    let crowd = build(&|builder| {
        builder.reliability(Reliability::AtLeastOnce);
        builder.spout("many", 16_385, spout);
    });
    assert!(
        crowd.contains(
            "the spout \"many\" has 16385 instances, and at most 16384 can be tracked with acks"
        ),
        "{crowd}"
    );
    let various = build(&|builder| {
        builder.reliability(Reliability::AtLeastOnce);
        for number in 0..65 {
            builder.spout(&format!("spout {number}"), 1, spout);
        }
    });
    assert!(
        various.contains("has 65 spouts, and at most 64 can be tracked with acks"),
        "{various}"
    );
    for cores in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let greedy = build(&|builder| {
            builder.spout("numbers", 1, spout).cpu(cores);
        });
        let told = format!("\"numbers\" wants {cores} cores for each instance");
        assert!(greedy.contains(&told), "{greedy}");
    }
    let bare = build(&|builder| {
        builder.spout("numbers", 1, spout).memory(0);
    });
    assert!(
        bare.contains("\"numbers\" wants no memory at all"),
        "{bare}"
    );
}

#[test]
fn a_spout_that_nobody_reads_is_refused_unless_it_declares_no_output() {
    let unread = build(&|builder| {
        builder.spout("numbers", 1, || Numbers::untracked(1));
        builder.spout("idle", 1, || Numbers::untracked(1));
        let sink = || each(|_, _, _| Ok(()));
        builder.bolt("sink", 1, sink).shuffle("numbers");
    });
    let told = "the spout \"idle\" has no subscriber; add a bolt that reads \"idle\"";
    assert!(unread.contains(told), "{unread}");
    let mut builder = TopologyBuilder::new("right");
    builder.spout("effects", 1, || Silent);
    assert!(builder.build().is_ok());
}

/// A spout without output.
struct Silent;

impl Spout for Silent {
    fn outputs(&self) -> Outputs {
        Outputs::none()
    }

    fn next_tuple(&mut self, _: &mut SpoutCollector<'_>) -> Outcome<Next> {
        Ok(Next::Done)
    }
}

#[test]
fn fields_that_make_no_sense_are_refused() {
    for (outputs, told) in [
        (
            Outputs::fields(["a", "a"]),
            "declares the field \"a\" twice",
        ),
        (Outputs::fields([]), "has no field"),
        (
            Outputs::fields(["a"]).stream("default", ["a"]),
            "declares two streams \"default\"",
        ),
    ] {
        let error = build(&move |builder| {
            let outputs = outputs.clone();
            builder.spout("numbers", 1, || Numbers::untracked(1));
            builder
                .bolt("odd", 1, move || {
                    emitting(outputs.clone(), |_, _, _| Ok(()))
                })
                .shuffle("numbers");
        });
        assert!(error.contains(told), "{error}");
    }
}
