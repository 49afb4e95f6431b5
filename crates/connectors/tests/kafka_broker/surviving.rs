//! Tests of source and sink with restores: each record counts once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ardea_connectors::kafka::{KafkaSource, Outgoing, Start, read, write};
use ardea_core::{
    Bounded, Chunk, Epoch, ErrorCode, Inbox, Ordinal, ProcessorSupplier, Rows, Sink,
    SnapshotRequest, Timestamp,
};

use super::driven::{Driven, together};
use super::environment::{Topic, await_committed, eventually, own_broker, sorted_numbers};

/// Timeout of conditions in tests.
const PATIENCE: Duration = Duration::from_secs(90);

type Text = KafkaSource<String, ardea_connectors::kafka::Decoder<String>, Bounded>;

fn source(topic: &Topic) -> Arc<dyn ProcessorSupplier> {
    let source: Text = read(&topic.brokers, &topic.name).text().until_present();
    source.build().into_parts().1
}

fn numbered(range: std::ops::Range<i64>) -> impl Iterator<Item = (i32, i64, String)> {
    range.map(|n| ((n % 3) as i32, n + 1, format!("{n:04}")))
}

#[test]
fn a_topic_is_read_on_where_it_was_also_by_another_number_of_instances() {
    let Some(topic) = Topic::new(3) else { return };
    topic.fill(numbered(0..300));
    let supplier = source(&topic);
    let (mut all, mut snapshots) = (Vec::new(), Vec::new());
    for (part, count) in [2u32, 2, 3, 1].into_iter().enumerate() {
        let before = together(&std::mem::take(&mut snapshots));
        for index in 0..count {
            let mut driven = Driven::new(&supplier, "read-on", (index, count));
            if part > 0 {
                driven = driven.restored(part as u64, &before).unwrap();
            }
            let had = all.len();
            let deadline = Instant::now() + PATIENCE;
            // Each attempt reads some records, the last one the rest.
            while !driven.read(7, &mut all) && (part == 3 || all.len() < had + 20) {
                assert!(Instant::now() < deadline, "{} have come", all.len());
            }
            snapshots.push(driven.snapshot(SnapshotRequest::full(Epoch(part as u64 + 1))));
            if part == 0 {
                // Records written after the start of a bounded job are not read.
                topic.fill(numbered(900..903));
            } else if part < 3 {
                // Records read after the snapshot do not count.
                driven.read(7, &mut Vec::new());
            }
        }
    }
    // The second instance of the first round started after records from 900 on were written.
    all.retain(|text| text.as_str() < "0900");
    all.sort();
    assert!(all.into_iter().eq((0..300).map(|n| format!("{n:04}"))));
}

#[test]
fn partitions_that_come_while_it_is_away_are_read_from_their_beginning() {
    let Some(topic) = Topic::new(1) else { return };
    topic.fill([(0, 1, "old".to_string())]);
    let source = read(&topic.brokers, &topic.name)
        .start(Start::Latest)
        .text()
        .look_for_partitions_every(Duration::from_millis(300));
    let bookmark = source.bookmark();
    let supplier = source.build().into_parts().1;
    let mut all = Vec::new();
    let mut driven = Driven::new(&supplier, "grows", (0, 1));
    eventually("it has found its place", || {
        driven.read(10, &mut all);
        bookmark.positions().next(0) == Some(1)
    });
    let snapshot = driven.snapshot(SnapshotRequest::full(Epoch(1)));
    drop(driven);
    topic.grow(2);
    topic.fill([(0, 2, "newer".to_string()), (1, 2, "new".to_string())]);
    let mut driven = Driven::new(&supplier, "grows", (0, 1))
        .restored(1, &snapshot)
        .unwrap();
    eventually("both come", || {
        driven.read(10, &mut all);
        all.len() >= 2
    });
    all.sort();
    assert_eq!(all, ["new", "newer"]);
}

#[test]
fn kafka_is_told_how_far_committed_epochs_came() {
    let Some(topic) = Topic::new(1) else { return };
    topic.fill((0..9).map(|n| (0, n, n.to_string())));
    let supplier = source(&topic);
    let mut driven = Driven::new(&supplier, "told", (0, 1));
    let mut all = Vec::new();
    eventually("some come", || {
        driven.read(4, &mut all);
        all.len() >= 4
    });
    let read = all.len() as i64;
    driven.snapshot(SnapshotRequest::full(Epoch(1)));
    driven.read(1, &mut all);
    driven.commit(1).unwrap();
    await_committed(&topic, "ardea-told", read, || {
        driven.read(0, &mut all);
    });
}

fn sink(topic: &Topic) -> Arc<dyn ProcessorSupplier> {
    let encode = |n: &u64, out: &mut Outgoing| {
        out.value(n.to_string());
        Ok(())
    };
    let sink: Sink<u64> = write(&topic.brokers, &topic.name, encode).build();
    sink.into_parts().1
}

/// Returns the visible numbers in ascending order.
fn seen(topic: &Topic) -> Vec<u64> {
    let texts = topic.texts(Start::Earliest).into_iter();
    sorted_numbers(texts.map(|(.., text)| text))
}

/// Asserts that the committed records are visible, each once. A broker confirms a commit before all
/// partitions have its marker.
pub fn expect_seen(topic: &Topic, expected: impl Iterator<Item = u64>) {
    let expected: Vec<u64> = expected.collect();
    eventually("what was committed is seen", || seen(topic) == expected);
}

#[test]
fn records_are_seen_when_their_epoch_is_committed() {
    let Some(topic) = Topic::new(2) else { return };
    let mut driven = Driven::new(&sink(&topic), "seen", (0, 1));
    driven.write(0..5);
    let snapshot = driven.snapshot(SnapshotRequest::full(Epoch(1)));
    assert_eq!(snapshot.len(), 2, "who writes, and a block");
    driven.write(5..7);
    assert_eq!(seen(&topic), [0; 0]);
    driven.commit(1).unwrap();
    expect_seen(&topic, 0..5);
    // The messages of an aborted epoch are sent with the next epoch.
    driven.snapshot(SnapshotRequest::changes(Epoch(2), Epoch(1)));
    driven.write(7..9);
    let snapshot = driven.snapshot(SnapshotRequest::changes(Epoch(3), Epoch(1)));
    let removed = snapshot.entries().filter(|entry| entry.value.is_none());
    assert_eq!(removed.count(), 1, "what has been sent is gone");
    driven.commit(3).unwrap();
    expect_seen(&topic, 0..9);
    assert!(!driven.processor.state().awaits_commit());
}

#[test]
fn a_sink_that_dies_at_any_point_of_a_commit_loses_and_doubles_nothing() {
    let Some(topic) = Topic::new(2) else { return };
    let supplier = sink(&topic);
    let mut driven = Driven::new(&supplier, "dies", (0, 1));
    let mut next = 0;
    for epoch in 1..=8u64 {
        driven.write(next..next + 50);
        next += 50;
        let snapshot = driven.snapshot(SnapshotRequest::full(Epoch(epoch)));
        // The commit is interrupted at its start, in the middle or after its end.
        for _ in 0..(epoch - 1) * 2 {
            let progress = driven
                .processor
                .state()
                .on_checkpoint_committed(Epoch(epoch))
                .unwrap();
            if progress.done {
                break;
            }
        }
        driven.write([99_999]);
        drop(driven);
        let again = Driven::new(&supplier, "dies", (0, 1));
        driven = again.restored(epoch, &snapshot).unwrap();
        expect_seen(&topic, 0..next);
    }
}

#[test]
fn one_that_was_taken_for_dead_writes_no_more() {
    let Some(topic) = Topic::new(1) else { return };
    let supplier = sink(&topic);
    let mut first = Driven::new(&supplier, "fenced", (0, 1));
    first.write(0..3);
    let snapshot = first.snapshot(SnapshotRequest::full(Epoch(1)));
    first.commit(1).unwrap();
    first.write(3..6);
    first.snapshot(SnapshotRequest::full(Epoch(2)));
    let mut second = Driven::new(&supplier, "fenced", (0, 1))
        .restored(1, &snapshot)
        .unwrap();
    let error = first.commit(2).expect_err("it is fenced off");
    assert_eq!(error.code(), ErrorCode::Superseded, "{error}");
    second.write(3..6);
    second.snapshot(SnapshotRequest::full(Epoch(2)));
    second.commit(2).unwrap();
    expect_seen(&topic, 0..6);
}

#[test]
fn one_that_is_fenced_off_while_it_writes_says_so() {
    let Some(topic) = Topic::new(1) else { return };
    let supplier = sink(&topic);
    for _ in 0..6 {
        let committed = AtomicU64::new(0);
        let error = std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                let mut first = Driven::new(&supplier, "at_once", (0, 1));
                for epoch in 1.. {
                    if let Err(error) = first.try_write(0..5_000) {
                        return error;
                    }
                    first.snapshot(SnapshotRequest::full(Epoch(epoch)));
                    if let Err(error) = first.commit(epoch) {
                        return error;
                    }
                    committed.store(epoch, Ordering::Relaxed);
                }
                unreachable!("it is fenced off");
            });
            let deadline = Instant::now() + PATIENCE;
            while committed.load(Ordering::Relaxed) < 3 {
                assert!(Instant::now() < deadline, "it commits nothing");
                std::thread::yield_now();
            }
            let mut second = Driven::new(&supplier, "at_once", (0, 1));
            second.write(0..3);
            second.snapshot(SnapshotRequest::full(Epoch(1)));
            second.commit(1).unwrap();
            first.join().unwrap()
        });
        assert_eq!(error.code(), ErrorCode::Superseded, "{error}");
    }
}

#[test]
fn another_number_of_instances_sends_what_was_left() {
    let Some(topic) = Topic::new(2) else { return };
    let supplier = sink(&topic);
    let (mut next, mut snapshots) = (0u64, Vec::new());
    for (epoch, count) in (1u64..).zip([3u32, 1, 2, 2]) {
        let before = together(&std::mem::take(&mut snapshots));
        let mut all: Vec<_> = (0..count)
            .map(|index| {
                let driven = Driven::new(&supplier, "rescaled", (index, count));
                match epoch {
                    1 => driven,
                    _ => driven.restored(epoch - 1, &before).unwrap(),
                }
            })
            .collect();
        expect_seen(&topic, 0..next);
        for (index, driven) in all.iter_mut().enumerate() {
            driven.write(next..next + 10);
            next += 10;
            snapshots.push(driven.snapshot(SnapshotRequest::full(Epoch(epoch))));
            // Only some instances receive the commit.
            if index == 0 {
                driven.commit(epoch).unwrap();
            }
        }
    }
    let last = together(&snapshots);
    for index in 0..2 {
        let driven = Driven::new(&supplier, "rescaled", (index, 2));
        driven.restored(4, &last).unwrap();
    }
    expect_seen(&topic, 0..next);
}

#[test]
fn a_run_that_begins_anew_does_not_take_an_earlier_ones_mark_for_its_own() {
    let Some(topic) = Topic::new(1) else { return };
    let supplier = sink(&topic);
    let mut first = Driven::new(&supplier, "anew", (0, 1));
    first.write([0]);
    first.snapshot(SnapshotRequest::full(Epoch(7)));
    first.commit(7).unwrap();
    drop(first);
    let mut second = Driven::new(&supplier, "anew", (0, 1));
    second.write([1]);
    let snapshot = second.snapshot(SnapshotRequest::full(Epoch(1)));
    drop(second);
    let third = Driven::new(&supplier, "anew", (0, 1));
    third.restored(1, &snapshot).unwrap();
    expect_seen(&topic, 0..2);
}

#[test]
fn a_broker_that_dies_during_commits_is_waited_for_and_each_record_is_there_once() {
    let Some(server) = own_broker() else { return };
    let topic = Topic::at(server.address().to_string(), 1);
    let supplier = sink(&topic);
    let mut driven = Driven::new(&supplier, "waits", (0, 1));
    driven.write(0..1000);
    driven.snapshot(SnapshotRequest::full(Epoch(1)));
    driven.commit(1).unwrap();
    driven.write(1000..2000);
    driven.snapshot(SnapshotRequest::full(Epoch(2)));
    let _ = driven
        .processor
        .state()
        .on_checkpoint_committed(Epoch(2))
        .unwrap();
    server.kill();
    let _ = driven
        .processor
        .state()
        .on_checkpoint_committed(Epoch(2))
        .unwrap();
    server.restart();
    driven.commit(2).unwrap();
    expect_seen(&topic, 0..2000);
}

#[test]
fn a_message_that_the_topic_does_not_take_is_refused_before_it_is_in_a_checkpoint() {
    let Some(topic) = Topic::taking(5_000) else {
        return;
    };
    let encode = |n: &u64, out: &mut Outgoing| {
        let width = if *n == 7 { 6_000 } else { 100 };
        out.value(format!("{n:0width$}"));
        Ok(())
    };
    let sink: Sink<u64> = write(&topic.brokers, &topic.name, encode).build();
    let supplier = sink.into_parts().1;
    let mut driven = Driven::new(&supplier, "sized", (0, 1));
    driven.write(0..1_000);
    let letters = driven.context.dead_letters.sample();
    assert_eq!(letters.len(), 1);
    let reason = &letters[0].reason;
    assert!(reason.contains("max.message.bytes"), "{reason}");
    driven.snapshot(SnapshotRequest::full(Epoch(1)));
    // The other records exceed the topic's maximum batch size by far.
    driven.commit(1).unwrap();
    let expected = (0..1_000).filter(|n| *n != 7);
    expect_seen(&topic, expected);
}

#[test]
fn records_wait_for_the_room_that_a_commit_makes() {
    let Some(topic) = Topic::new(1) else { return };
    let encode = |n: &u64, out: &mut Outgoing| {
        out.value(n.to_string());
        Ok(())
    };
    let sink: Sink<u64> = write(&topic.brokers, &topic.name, encode)
        .hold_at_most(4_000)
        .build();
    let supplier = sink.into_parts().1;
    let mut driven = Driven::new(&supplier, "room", (0, 1));
    // About 30 bytes each.
    driven.write(0..100);
    driven.snapshot(SnapshotRequest::full(Epoch(1)));
    driven.write(100..200);
    let rows: Rows<u64> = (200..210).map(|n| (n, Timestamp::MIN)).collect();
    let mut inbox = Inbox::default();
    inbox.fill(Chunk::new(rows));
    let offer = |driven: &mut Driven, inbox: &mut Inbox| {
        let outbox = &mut driven.outbox;
        driven.processor.process(Ordinal::FIRST, inbox, outbox)
    };
    offer(&mut driven, &mut inbox).unwrap();
    assert_eq!(inbox.len(), 10, "two epochs are too much");
    driven.commit(1).unwrap();
    offer(&mut driven, &mut inbox).unwrap();
    assert!(inbox.is_empty());
    driven.snapshot(SnapshotRequest::full(Epoch(2)));
    driven.commit(2).unwrap();
    expect_seen(&topic, 0..210);
    // The current epoch alone exceeds the limit, so waiting would be useless.
    driven.write(0..150);
    let rows: Rows<u64> = (0..1).map(|n| (n, Timestamp::MIN)).collect();
    inbox.fill(Chunk::new(rows));
    let error = offer(&mut driven, &mut inbox).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LimitReached);
}

#[test]
fn a_job_without_a_guarantee_commits_the_offsets_of_a_group_that_is_named() {
    let Some(topic) = Topic::new(1) else { return };
    topic.fill((0..9).map(|n| (0, n, n.to_string())));
    let p = ardea_pipeline::Pipeline::new("watched");
    let source = read(&topic.brokers, &topic.name)
        .group("watched-group")
        .until_present();
    p.read_from(source.build()).collect();
    p.run().unwrap();
    await_committed(&topic, "watched-group", 9, || ());
}
