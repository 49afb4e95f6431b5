//! Tests of reading each message once, across crashes.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ardea_connectors::nats::read;
use ardea_core::{Epoch, ErrorCode, Instance, ProcessorSupplier};
use ardea_testkit::{CapturedEpoch, ExternalHarness, TestRandom};
use async_nats::jetstream::stream::RetentionPolicy;

use super::environment::{count, create, eventually, fill, own_server, shared_server, url};

fn source(url: &str, stream: &str) -> Arc<dyn ProcessorSupplier> {
    let source = read(url, stream)
        .decode(|message| message.text()?.parse::<u64>().map_err(|e| e.to_string()))
        .consumer(format!("{stream}-reader"))
        .patience(Duration::from_secs(2));
    source.build().into_parts().1
}

fn begin(source: &Arc<dyn ProcessorSupplier>, kept: Option<&CapturedEpoch>) -> ExternalHarness {
    ExternalHarness::begin(source, "read", Instance::ONLY, kept)
}

fn assert_each_once(mut numbers: Vec<u64>, count: u64) {
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..count));
}

#[test]
fn messages_are_acknowledged_when_they_are_committed_and_not_before() {
    let Some(url) = shared_server() else { return };
    create(&url, "acks", RetentionPolicy::WorkQueue);
    fill(&url, "acks", 0..100);
    let mut numbers = Vec::new();
    let mut life = begin(&source(&url, "acks"), None);
    life.read(60, &mut numbers);
    let kept = life.end_epoch(Epoch(1), true);
    assert_eq!(count(&url, "acks"), 100);
    life.commit(&kept);
    eventually("what is committed is acknowledged", || {
        count(&url, "acks") == 40
    });
    life.read(40, &mut numbers);
    assert!(life.awaits_commit());
    let kept = life.end_epoch(Epoch(2), false);
    life.commit(&kept);
    assert!(!life.awaits_commit());
    eventually("the rest too", || count(&url, "acks") == 0);
    assert_each_once(numbers, 100);
}

fn each_once_whatever_dies(url: &str, stream: &str, mut disturb: impl FnMut()) {
    const MESSAGES: u64 = 2_000;
    let source = source(url, stream);
    fill(url, stream, 0..MESSAGES);
    let mut lot = TestRandom::new(5);
    let (mut numbers, mut committed) = (Vec::new(), None::<CapturedEpoch>);
    let mut since = Vec::new();
    let mut life = begin(&source, None);
    for epoch in 1.. {
        let left = MESSAGES as usize - numbers.len() - since.len();
        if left == 0 && since.is_empty() {
            break;
        }
        life.read(left.min(lot.below(300)), &mut since);
        let kept = life.end_epoch(Epoch(epoch), lot.below(3) == 0);
        let is_committed = lot.below(3) > 0;
        if is_committed {
            numbers.append(&mut since);
            committed = Some(kept.clone());
        }
        if epoch % 5 == 0 {
            disturb();
        }
        match lot.below(4) {
            // Crash before or after the commit, with loss of all records since the last checkpoint.
            0 => {
                if is_committed && lot.below(2) == 0 {
                    life.begin_commit(Epoch(epoch));
                }
                since.clear();
                drop(life);
                life = begin(&source, committed.as_ref());
            }
            // Neither commit nor abort arrives.
            1 => {}
            _ if is_committed => life.commit(&kept),
            _ => life.abort(Epoch(epoch)),
        }
    }
    assert_each_once(numbers, MESSAGES);
}

#[test]
fn each_message_counts_once_whenever_the_job_dies() {
    let Some(url) = shared_server() else { return };
    create(&url, "dying", RetentionPolicy::WorkQueue);
    each_once_whatever_dies(&url, "dying", || {});
}

#[test]
fn each_message_counts_once_also_when_the_server_dies() {
    let Some(server) = own_server() else { return };
    let url = url(&server);
    create(&url, "killed", RetentionPolicy::Limits);
    each_once_whatever_dies(&url, "killed", || {
        server.kill();
        server.restart();
    });
}

#[test]
fn what_is_remembered_is_bounded() {
    let Some(url) = shared_server() else { return };
    create(&url, "bounded", RetentionPolicy::Limits);
    fill(&url, "bounded", 0..500);
    let most = NonZeroU32::new(100).unwrap();
    let source = read(&url, "bounded").text().in_flight(most).build();
    let mut life = begin(&source.into_parts().1, None);
    let mut texts = Vec::<String>::new();
    life.read(100, &mut texts);
    for _ in 0..5 {
        assert!(!life.try_read(100, &mut texts).unwrap());
    }
    assert_eq!(texts.len(), 100, "the others wait for the commit");
    let kept = life.end_epoch(Epoch(1), true);
    life.commit(&kept);
    life.read(100, &mut texts);
    assert_eq!(texts.len(), 200);
}

#[test]
fn a_message_that_is_no_record_is_a_dead_letter_and_no_stream_fails_the_job() {
    let Some(url) = shared_server() else { return };
    create(&url, "odd", RetentionPolicy::Limits);
    fill(&url, "odd", 0..3);
    let refuses = read(&url, "odd").decode(|message| match message.text()? {
        "1" => Err("not this one".to_string()),
        other => Ok(other.to_string()),
    });
    let mut life = begin(&refuses.build().into_parts().1, None);
    let mut texts = Vec::<String>::new();
    life.read(2, &mut texts);
    assert_eq!(texts, ["0", "2"]);
    assert_eq!(life.dead_letters().sample()[0].origin, "odd@2");

    let mut lost = begin(&source(&url, "nowhere"), None);
    let mut numbers = Vec::<u64>::new();
    let mut failed = Ok(false);
    eventually("it is told", || {
        failed = lost.try_read(10, &mut numbers);
        failed.is_err()
    });
    let error = failed.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[test]
fn several_instances_are_refused() {
    let source = source("nats://localhost", "s");
    let instance = Instance {
        index: 0,
        parallelism: 2,
    };
    let error = ExternalHarness::try_begin(&source, "read", instance, None)
        .err()
        .unwrap();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
}
