//! Tests of written messages.

use std::sync::OnceLock;
use std::time::Duration;

use ardea_connectors::collections::items;
use ardea_connectors::nats::{Outgoing, write};
use ardea_core::{Epoch, ErrorCode, Instance, Sink};
use ardea_engine::{JobConfig, JobHandle, Node, NodeConfig};
use ardea_pipeline::Pipeline;
use ardea_testkit::ExternalHarness;
use async_nats::jetstream::stream::RetentionPolicy;

use super::environment::{
    all, count, create, create_for, eventually, own_server, shared_server, url,
};

fn submit(records: Vec<u64>, sink: impl Into<Sink<u64>>) -> JobHandle {
    let p = Pipeline::new("write");
    p.read_from(items(records)).write_to(sink.into());
    p.submit(node(), JobConfig::default()).unwrap()
}

/// Returns the `Node` that runs all jobs of this test program; dropping it would cancel the jobs.
fn node() -> &'static Node {
    static NODE: OnceLock<Node> = OnceLock::new();
    NODE.get_or_init(|| Node::start(NodeConfig::default()).unwrap())
}

fn texts(numbers: std::ops::Range<u64>) -> Vec<String> {
    numbers.map(|n| n.to_string()).collect()
}

/// Returns an encoder of numbers as messages of a stream.
fn numbered(
    stream: &'static str,
) -> impl Fn(&u64, &mut Outgoing) -> Result<(), String> + Send + Sync + 'static {
    move |n, out| {
        out.subject(format!("{stream}.number"))
            .payload(n.to_string());
        Ok(())
    }
}

#[test]
fn every_record_is_a_message_in_order() {
    let Some(url) = shared_server() else { return };
    create(&url, "plain", RetentionPolicy::Limits);
    submit((0..5_000).collect(), write(&url, numbered("plain")))
        .join()
        .unwrap();
    assert_eq!(all(&url, "plain"), texts(0..5_000));
}

#[test]
fn what_is_written_again_is_there_once() {
    let Some(url) = shared_server() else { return };
    create(&url, "again", RetentionPolicy::Limits);
    let sink = write(&url, |n: &u64, out: &mut Outgoing| {
        out.subject("again.n").id(n).payload(n.to_string());
        Ok(())
    });
    let supplier = sink.idempotent().build().into_parts().1;
    let begin = || ExternalHarness::begin(&supplier, "again", Instance::ONLY, None);
    let mut first = begin();
    first.write(0u64..300);
    first.end_epoch(Epoch(1), true);
    first.write(300u64..600);
    // Crash: records since the checkpoint are replayed.
    drop(first);
    let mut second = begin();
    second.write(300u64..900);
    second.end_epoch(Epoch(2), true);
    let mut there = all(&url, "again");
    there.sort_by_key(|text| text.parse::<u64>().unwrap());
    assert_eq!(there, texts(0..900));
}

#[test]
fn a_server_that_dies_is_waited_for_and_each_record_is_there_once() {
    const RECORDS: u64 = 30_000;
    let Some(server) = own_server() else { return };
    let url = url(&server);
    create(&url, "seen", RetentionPolicy::Limits);
    let job = submit((0..RECORDS).collect(), write(&url, numbered("seen")));
    eventually("something is written", || count(&url, "seen") > 0);
    server.kill();
    server.restart();
    job.join().unwrap();
    let mut there = all(&url, "seen");
    there.sort_by_key(|text| text.parse::<u64>().unwrap());
    assert_eq!(there, texts(0..RECORDS));
}

#[test]
fn records_without_an_id_fail_a_sink_that_is_said_to_be_idempotent() {
    let Some(url) = shared_server() else { return };
    let sink = write(&url, numbered("none")).idempotent();
    let error = submit(vec![1], sink).join().expect_err("there is no id");
    assert_eq!(error.code(), ErrorCode::InvalidJob);
}

#[test]
fn records_that_can_not_be_written_are_dead_letters() {
    let Some(url) = shared_server() else { return };
    create_for(&url, "large", 1_000);
    let sink = write(&url, |n: &u64, out: &mut Outgoing| {
        out.subject("large.n").payload("abc");
        match n {
            1 => return Err("not this one".to_string()),
            // Payloads larger than the server's limit, and larger than the stream's limit; an
            // invalid subject and an invalid id.
            2 => out.payload(vec![b'x'; 5 << 20]),
            3 => out.payload(vec![b'x'; 2_000]),
            4 => out.subject("large.n m"),
            5 => out.id("two\nlines"),
            _ => out,
        };
        Ok(())
    });
    let job = submit((0..7).collect(), sink);
    job.join().unwrap();
    let mut letters = job.dead_letters().sample();
    letters.sort_by(|one, other| one.origin.cmp(&other.origin));
    let origins: Vec<_> = letters.iter().map(|letter| &letter.origin[..]).collect();
    let bad = (1..=5).map(|n| format!("record {n}"));
    assert!(bad.eq(origins), "{letters:?}");
    assert_eq!(count(&url, "large"), 2);
}

#[test]
fn a_job_whose_server_is_away_can_be_cancelled() {
    let job = submit(vec![1, 2], write("nats://127.0.0.1:1", numbered("x")));
    job.cancel();
    assert!(job.wait(Duration::from_secs(60)).is_over());
}
