//! Tests of lost positions and unreadable messages.

use std::sync::Arc;
use std::time::Duration;

use ardea_connectors::nats::{NatsSource, read};
use ardea_core::{Epoch, Error, ErrorCode, Instance, OnLostPosition, ProcessorSupplier};
use ardea_testkit::{CapturedEpoch, ExternalHarness};
use async_nats::jetstream::stream::RetentionPolicy;

use super::environment::{
    acknowledged, all, create, create_short, delete, delete_consumer, eventually, fill, own_server,
    publish_raw, shared_server, url,
};

type Source =
    NatsSource<String, fn(&ardea_connectors::nats::Message<'_>) -> Result<String, String>>;

fn source(url: &str, stream: &str) -> Source {
    let source = read(url, stream)
        .text()
        .consumer(format!("{stream}-reader"));
    source.patience(Duration::from_secs(2))
}

fn supplier(source: Source) -> Arc<dyn ProcessorSupplier> {
    source.build().into_parts().1
}

fn begin(source: Source, kept: Option<&CapturedEpoch>) -> ExternalHarness {
    ExternalHarness::begin(&supplier(source), "read", Instance::ONLY, kept)
}

/// Reads and commits `count` messages; returns the checkpoint.
fn read_some(source: Source, count: usize) -> CapturedEpoch {
    let mut life = begin(source, None);
    let mut texts = Vec::<String>::new();
    life.read(count, &mut texts);
    let kept = life.end_epoch(Epoch(1), true);
    life.commit(&kept);
    kept
}

/// Waits for the error of a source.
fn refused(life: &mut ExternalHarness) -> Error {
    let mut texts = Vec::<String>::new();
    let mut failed = None;
    eventually("it is refused", || {
        failed = life.try_read(100, &mut texts).err();
        failed.is_some()
    });
    failed.unwrap()
}

fn assert_says(error: &Error, parts: &[&str]) {
    assert_eq!(error.code(), ErrorCode::ReadFailed, "{error}");
    assert!(error.is_permanent(), "{error}");
    let text = error.to_string();
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn a_stream_that_was_made_anew_is_refused_when_the_job_goes_on_and_while_it_runs() {
    let Some(url) = shared_server() else { return };
    create(&url, "anew", RetentionPolicy::Limits);
    fill(&url, "anew", 0..10);
    let kept = read_some(source(&url, "anew"), 10);
    let mut running = begin(source(&url, "anew"), Some(&kept));
    let mut texts = Vec::<String>::new();
    fill(&url, "anew", 10..11);
    running.read(1, &mut texts);
    delete(&url, "anew");
    create(&url, "anew", RetentionPolicy::Limits);
    fill(&url, "anew", 0..100);
    assert_says(&refused(&mut running), &["anew", "created again"]);
    let mut next = begin(source(&url, "anew"), Some(&kept));
    assert_says(&refused(&mut next), &["anew", "created again"]);
}

#[test]
fn messages_that_were_removed_before_they_were_read_are_told_unless_that_is_accepted() {
    let Some(url) = shared_server() else { return };
    create_short(&url, "short", 20);
    fill(&url, "short", 0..10);
    let kept = read_some(source(&url, "short"), 5);
    // Messages 1 to 15 are removed; ten of them were not read.
    fill(&url, "short", 10..35);
    let mut next = begin(source(&url, "short"), Some(&kept));
    assert_says(&refused(&mut next), &["messages 6 to 15", "short"]);
    drop(next);
    let mut next = begin(
        source(&url, "short").on_lost_position(OnLostPosition::Continue),
        Some(&kept),
    );
    let mut texts = Vec::<String>::new();
    next.read(20, &mut texts);
    assert_eq!(texts, all(&url, "short"));
}

#[test]
fn a_job_goes_on_in_a_stream_whose_first_messages_were_gone_before_it_began() {
    let Some(url) = shared_server() else { return };
    create_short(&url, "late", 20);
    fill(&url, "late", 0..35);
    let kept = read_some(source(&url, "late"), 5);
    let mut next = begin(source(&url, "late"), Some(&kept));
    let mut texts = Vec::<String>::new();
    next.read(15, &mut texts);
    // Messages released by the previous attempt arrive in any order.
    texts.sort();
    let numbers: Vec<_> = (20..35).map(|number| number.to_string()).collect();
    assert_eq!(texts, numbers);
}

/// Reads ten of twenty messages, then the other ten. Returns the checkpoint after the first ten
/// messages.
fn read_on_and_go_back(url: &str, stream: &str) -> CapturedEpoch {
    fill(url, stream, 0..20);
    let mut life = begin(source(url, stream), None);
    let mut texts = Vec::<String>::new();
    life.read(10, &mut texts);
    let kept = life.end_epoch(Epoch(1), true);
    life.commit(&kept);
    life.read(10, &mut texts);
    let later = life.end_epoch(Epoch(2), true);
    life.commit(&later);
    let name = format!("{stream}-reader");
    eventually("all are acknowledged", || {
        acknowledged(url, stream, &name) == 20
    });
    kept
}

#[test]
fn a_job_that_goes_back_reads_again_what_its_consumer_has_acknowledged_since() {
    let Some(url) = shared_server() else { return };
    create(&url, "back", RetentionPolicy::Limits);
    let kept = read_on_and_go_back(&url, "back");
    let mut next = begin(source(&url, "back"), Some(&kept));
    let mut texts = Vec::<String>::new();
    next.read(10, &mut texts);
    texts.sort();
    let numbers: Vec<_> = (10..20).map(|number| number.to_string()).collect();
    assert_eq!(texts, numbers);
}

#[test]
fn a_consumer_that_was_deleted_is_made_anew_and_nothing_is_read_twice() {
    let Some(url) = shared_server() else { return };
    create(&url, "consumed", RetentionPolicy::Limits);
    fill(&url, "consumed", 0..10);
    let kept = read_some(source(&url, "consumed"), 10);
    let mut life = begin(source(&url, "consumed"), Some(&kept));
    let mut texts = Vec::<String>::new();
    fill(&url, "consumed", 10..15);
    life.read(5, &mut texts);
    delete_consumer(&url, "consumed", "consumed-reader");
    fill(&url, "consumed", 15..20);
    life.read(5, &mut texts);
    let numbers: Vec<_> = (10..20).map(|number| number.to_string()).collect();
    assert_eq!(texts, numbers);
}

#[test]
fn a_message_whose_headers_are_no_text_is_one_dead_letter_and_the_others_are_read() {
    // A dedicated server, as connections of other tests would break too.
    let Some(server) = own_server() else { return };
    let url = url(&server);
    create(&url, "odd", RetentionPolicy::Limits);
    fill(&url, "odd", 0..2);
    let headers = b"NATS/1.0\r\nName: M\xfcller\r\n\r\n";
    publish_raw(&url, "odd.number", headers, b"latin");
    fill(&url, "odd", 3..5);
    let mut life = begin(source(&url, "odd"), None);
    let mut texts = Vec::<String>::new();
    eventually("all are read", || {
        life.try_read(4 - texts.len(), &mut texts).unwrap();
        texts.len() == 4
    });
    texts.sort();
    assert_eq!(texts, ["0", "1", "3", "4"]);
    eventually("it is set aside", || {
        life.try_read(1, &mut texts).unwrap();
        life.dead_letters().count() == 1
    });
    let letter = &life.dead_letters().sample()[0];
    assert_eq!((&*letter.origin, &letter.raw[..]), ("odd@3", &b"latin"[..]));
}
