//! Tests of lost positions: the job fails, or continues if configured.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::time::Duration;

use ardea_connectors::kafka::{Positions, Start, read};
use ardea_core::{Epoch, Error, ErrorCode, OnLostPosition, SnapshotRequest, StateChunk};
use ardea_metastore::conformance::Server;
use ardea_pipeline::Pipeline;

use super::driven::Driven;
use super::environment::{Running, Topic, eventually, log_of, own_broker};

fn texts(word: &str, range: std::ops::Range<i64>) -> Vec<(i32, i64, String)> {
    range.map(|n| (0, n + 1, format!("{word} {n}"))).collect()
}

fn lines(word: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{word} {n}")).collect()
}

/// Reads `records` records of a topic, and returns the snapshot.
fn state_after(topic: &Topic, records: usize) -> StateChunk {
    let supplier = unbounded(topic, OnLostPosition::Fail);
    let mut driven = Driven::new(&supplier, "kept", (0, 1));
    let mut all = Vec::new();
    eventually("records come", || {
        let left = records - all.len();
        driven.read(left, &mut all);
        all.len() >= records
    });
    driven.snapshot(SnapshotRequest::full(Epoch(1)))
}

fn unbounded(
    topic: &Topic,
    on_lost: OnLostPosition,
) -> std::sync::Arc<dyn ardea_core::ProcessorSupplier> {
    let source = read(&topic.brokers, &topic.name)
        .text()
        .on_lost_position(on_lost)
        .look_for_partitions_every(Duration::from_millis(200));
    source.build().into_parts().1
}

/// Restores from a snapshot and reads until a record arrives or an error occurs.
pub fn go_on(
    topic: &Topic,
    on_lost: OnLostPosition,
    state: &StateChunk,
) -> Result<Vec<String>, Error> {
    let supplier = unbounded(topic, on_lost);
    let mut driven = Driven::new(&supplier, "kept", (0, 1)).restored(1, state)?;
    let (mut all, mut failed) = (Vec::new(), None);
    eventually("something comes, or it fails", || {
        match driven.try_read(100, &mut all) {
            Ok(_) => !all.is_empty(),
            Err(error) => {
                failed = Some(error);
                true
            }
        }
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(all),
    }
}

/// Returns the error text of a restore with a lost position.
fn refused(topic: &Topic, state: &StateChunk) -> String {
    let error = go_on(topic, OnLostPosition::Fail, state).expect_err("the position was lost");
    assert_eq!(error.code(), ErrorCode::ReadFailed, "{error}");
    assert!(error.is_permanent(), "{error}");
    let text = error.to_string();
    let place = format!("{}[0]", topic.name);
    assert!(
        text.contains(&place) && text.contains("on_lost_position"),
        "{text}"
    );
    text
}

#[test]
fn a_topic_made_anew_while_a_job_was_away_is_noticed_however_many_records_it_has() {
    for count in [40, 100, 250] {
        let Some(topic) = Topic::new(1) else { return };
        topic.fill(texts("old", 0..100));
        let state = state_after(&topic, 100);
        topic.delete();
        topic.make(1);
        topic.fill(texts("new", 0..count));
        let text = refused(&topic, &state);
        // The topic id is taken from librdkafka's log lines; this checks that they are still
        // parsed.
        assert!(
            text.contains("created again") && text.contains("offset 100"),
            "{text}"
        );
        assert!(text.contains(&format!("0 to {}", count - 1)), "{text}");
        let all = go_on(&topic, OnLostPosition::Continue, &state).unwrap();
        assert_eq!(all[0], "new 0");
    }
}

#[test]
fn a_topic_made_anew_while_a_job_reads_it_fails_the_job() {
    let Some(topic) = Topic::new(1) else { return };
    topic.fill(texts("old", 0..100));
    let p = Pipeline::new("anew");
    let source = read(&topic.brokers, &topic.name).text();
    let out = p.read_from(source.build()).collect();
    let running = Running::start(&p);
    eventually("the old ones come", || out.len() == 100);
    topic.delete();
    topic.make(1);
    topic.fill(texts("new", 0..150));
    eventually("it notices", || running.job.status().is_over());
    let error = running.job.join().expect_err("the topic is another one");
    let text = error.to_string();
    assert!(text.contains("created") && error.is_permanent(), "{text}");
    // Records after offset 100 of the new topic may have been fetched before its id was received.
    let read = out.take();
    assert_eq!(&read[..100], lines("old", 100));
    assert_eq!(&read[100..], &lines("new", 150)[100..read.len()]);
}

#[test]
fn a_job_that_is_told_to_reads_a_topic_made_anew_from_its_beginning() {
    let Some(topic) = Topic::new(1) else { return };
    topic.fill(texts("old", 0..100));
    let p = Pipeline::new("anew");
    let source = read(&topic.brokers, &topic.name)
        .text()
        .on_lost_position(OnLostPosition::Continue);
    let out = p.read_from(source.build()).collect();
    let running = Running::start(&p);
    eventually("the old ones come", || out.len() == 100);
    topic.delete();
    topic.make(1);
    topic.fill(texts("new", 0..150));
    // Records after offset 100 may arrive before the source receives the new topic id, and once
    // more afterwards.
    let (new, mut read) = (lines("new", 150), Vec::new());
    eventually("all of the new ones come, in order", || {
        read.extend(out.take());
        read.ends_with(&new)
    });
    running.job.drain();
    running.job.join().unwrap();
    assert_eq!(&read[..100], lines("old", 100));
    assert!(out.is_empty(), "nothing comes after them");
}

#[test]
fn a_topic_made_anew_that_is_shorter_than_the_position_is_read_once_and_the_job_goes_on() {
    let Some(topic) = Topic::new(1) else { return };
    topic.fill(texts("old", 0..100));
    let p = Pipeline::new("shorter");
    let source = read(&topic.brokers, &topic.name)
        .text()
        .on_lost_position(OnLostPosition::Continue);
    let out = p.read_from(source.build()).collect();
    let running = Running::start(&p);
    eventually("the old ones come", || out.len() == 100);
    topic.delete();
    topic.make(1);
    topic.fill(texts("new", 0..50));
    // The client reports both the offset and the id, which must count as one loss.
    eventually("the new ones come", || out.len() >= 150);
    topic.fill(texts("last", 0..1));
    eventually("the last one comes", || out.len() >= 151);
    running.job.drain();
    running.job.join().unwrap();
    let expected = [lines("old", 100), lines("new", 50), lines("last", 1)];
    assert_eq!(out.take(), expected.concat());
}

#[test]
fn positions_that_a_log_does_not_have_are_refused_also_by_a_bounded_source() {
    let Some(topic) = Topic::new(1) else { return };
    topic.fill(texts("new", 0..150));
    let start_at = |partition, offset| {
        let p = Pipeline::new("given");
        let at: Positions = [(partition, offset)].into_iter().collect();
        let source = read(&topic.brokers, &topic.name)
            .text()
            .start(Start::Positions(at))
            .until_present();
        let out = p.read_from(source.build()).collect();
        p.run().map(|_| out.len())
    };
    let error = start_at(0, 5_000).expect_err("the log ends before");
    let text = error.to_string();
    assert!(
        text.contains("offset 5000") && text.contains("0 to 149"),
        "{text}"
    );
    assert!(error.is_permanent(), "{text}");
    assert_eq!(start_at(0, 150).unwrap(), 0, "right behind the end");
    let text = start_at(3, 0).expect_err("no such partition").to_string();
    assert!(
        text.contains("[3]") && text.contains("1 partitions"),
        "{text}"
    );
    topic.delete_records_before(60);
    let text = start_at(0, 20).expect_err("they are gone").to_string();
    assert!(
        text.contains("40 offsets") && text.contains("60 to 149"),
        "{text}"
    );
    assert_eq!(start_at(0, 60).unwrap(), 90);
}

#[test]
fn a_group_whose_offsets_lie_behind_the_end_is_refused() {
    let Some(topic) = Topic::new(1) else { return };
    topic.fill(texts("x", 0..5));
    super::reading::commit(&topic, "beyond", 0, 50);
    let p = Pipeline::new("stored");
    let group = "beyond".to_string();
    let source = read(&topic.brokers, &topic.name)
        .start(Start::Stored { group })
        .until_present();
    p.read_from(source.build()).collect();
    let text = p.run().expect_err("the log ends before").to_string();
    assert!(text.contains("offset 50"), "{text}");
}

#[test]
fn records_that_retention_removed_before_they_were_read_are_noticed() {
    let Some(topic) = Topic::new(1) else { return };
    topic.fill(texts("x", 0..50));
    let state = state_after(&topic, 10);
    topic.delete_records_before(10);
    let all = go_on(&topic, OnLostPosition::Fail, &state).unwrap();
    assert_eq!(all[0], "x 10", "what was removed had been read");
    topic.delete_records_before(30);
    let text = refused(&topic, &state);
    assert!(
        text.contains("20 offsets") && text.contains("30 to 49"),
        "{text}"
    );
    let all = go_on(&topic, OnLostPosition::Continue, &state).unwrap();
    assert_eq!(all[0], "x 30");
}

#[test]
fn records_that_retention_removes_while_a_job_is_behind_are_not_skipped_in_silence() {
    const RECORDS: i64 = 20;
    const LEFT: i64 = 15;
    for on_lost in [OnLostPosition::Fail, OnLostPosition::Continue] {
        let Some(topic) = Topic::new(1) else { return };
        let padded = |n: i64| format!("{n:050000}");
        for n in 0..RECORDS {
            // One batch each.
            topic.fill([(0, n + 1, padded(n))]);
        }
        // Limits prefetching.
        let source = read(&topic.brokers, &topic.name)
            .text()
            .on_lost_position(on_lost)
            .property("fetch.message.max.bytes", "1000")
            .property("queued.max.messages.kbytes", "50");
        let supplier = source.build().into_parts().1;
        let mut driven = Driven::new(&supplier, "behind", (0, 1));
        let mut all = Vec::new();
        eventually("the first comes", || {
            driven.read(1, &mut all);
            !all.is_empty()
        });
        topic.delete_records_before(LEFT);
        let mut failed = None;
        eventually("it fails, or reads to the end", || {
            failed = driven.try_read(1, &mut all).err();
            failed.is_some() || all.last() == Some(&padded(RECORDS - 1))
        });
        // Some records were fetched before they were removed.
        let before = all.iter().take_while(|text| **text < padded(LEFT)).count();
        assert!(
            all[..before]
                .iter()
                .cloned()
                .eq((0..).map(padded).take(before))
        );
        match failed {
            Some(error) => {
                assert_eq!(on_lost, OnLostPosition::Fail, "{error}");
                assert_eq!(all.len(), before);
                let text = error.to_string();
                let gone = format!("{} offsets", LEFT - before as i64);
                assert!(text.contains(&gone) && error.is_permanent(), "{text}");
            }
            None => {
                assert_eq!(on_lost, OnLostPosition::Continue);
                assert!(
                    all[before..]
                        .iter()
                        .cloned()
                        .eq((LEFT..RECORDS).map(padded))
                );
            }
        }
    }
}

#[test]
fn a_topic_with_fewer_partitions_is_noticed() {
    let Some(topic) = Topic::new(3) else { return };
    topic.fill((0..30).map(|n| ((n % 3) as i32, n + 1, format!("{n}"))));
    let state = state_after(&topic, 30);
    topic.delete();
    topic.make(1);
    let error = go_on(&topic, OnLostPosition::Fail, &state).expect_err("two are missing");
    assert!(error.to_string().contains("1 partitions"), "{error}");
}

/// Kills a broker, truncates the log of partition 0 of a topic to half its size, and restarts the
/// broker.
fn truncate_log(server: &Server, topic: &Topic) {
    server.kill();
    let log = log_of(server, topic);
    let length = std::fs::metadata(&log).unwrap().len();
    let file = OpenOptions::new().write(true).open(&log).unwrap();
    file.set_len(length / 2).unwrap();
    server.restart();
}

#[test]
fn a_log_that_was_truncated_and_has_grown_again_is_noticed() {
    let Some(server) = own_broker() else { return };
    let topic = Topic::at(server.address().to_string(), 1);
    for n in 0..10 {
        // One batch each.
        topic.fill(texts("old", n..n + 1));
    }
    let state = state_after(&topic, 10);
    truncate_log(&server, &topic);
    let text = refused(&topic, &state);
    assert!(text.contains("ends before"), "{text}");
    topic.fill(texts("new", 0..20));
    let text = refused(&topic, &state);
    assert!(text.contains("another record is at offset 9"), "{text}");
}

#[test]
fn a_bounded_source_whose_log_loses_its_end_meanwhile_does_not_succeed() {
    let Some(server) = own_broker() else { return };
    let topic = Topic::at(server.address().to_string(), 1);
    for n in 0..10 {
        topic.fill(texts("old", n..n + 1));
    }
    let source = read(&topic.brokers, &topic.name).text().until_present();
    let supplier = source.build().into_parts().1;
    let mut driven = Driven::new(&supplier, "kept", (0, 1));
    let mut all = Vec::new();
    eventually("the first comes", || {
        driven.read(1, &mut all);
        !all.is_empty()
    });
    let state = driven.snapshot(SnapshotRequest::full(Epoch(1)));
    drop(driven);
    truncate_log(&server, &topic);
    let mut driven = Driven::new(&supplier, "kept", (0, 1))
        .restored(1, &state)
        .unwrap();
    let mut failed = None;
    eventually("it fails", || match driven.try_read(100, &mut all) {
        Ok(is_done) => {
            assert!(!is_done, "it has read {} of 10", all.len());
            false
        }
        Err(error) => {
            failed = Some(error);
            true
        }
    });
    let text = failed.unwrap().to_string();
    assert!(text.contains("up to offset 10"), "{text}");
}

#[test]
fn positions_of_several_topics_are_given_by_topic() {
    let Some(topic) = Topic::new(1) else { return };
    let Some(other) = Topic::new(1) else { return };
    topic.fill(texts("a", 0..5));
    other.fill(texts("b", 0..5));
    let at = |offset| -> Positions { [(0, offset)].into_iter().collect() };
    let all: BTreeMap<_, _> = [(topic.name.clone(), at(3)), (other.name.clone(), at(4))].into();
    let both = || {
        let names = [&topic.name, &other.name].map(String::as_str);
        read(&topic.brokers, names)
    };
    let p = Pipeline::new("two");
    let source = both()
        .text()
        .start(Start::TopicPositions(all.clone()))
        .until_present();
    let out = p.read_from(source.build()).collect();
    p.run().unwrap();
    assert_eq!(out.take_sorted(), ["a 3", "a 4", "b 4"]);
    let p = Pipeline::new("two");
    let source = both().start(Start::Positions(at(3)));
    p.read_from(source.build()).collect();
    let error = p.run().expect_err("of which topic?");
    assert_eq!(error.code(), ErrorCode::InvalidConfig, "{error}");
}
