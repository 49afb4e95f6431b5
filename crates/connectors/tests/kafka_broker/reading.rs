//! Tests of the source's guarantees.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ardea_aggregate::count;
use ardea_connectors::kafka::{Positions, SourceCosts, Start, read};
use ardea_core::{ErrorCode, Parallelism, Timestamp};
use ardea_engine::JobStatus;
use ardea_pipeline::{Pipeline, Window};

use super::environment::{Running, Topic, eventually, own_broker, sorted_numbers};

fn numbered(count: i64, partitions: i32) -> Vec<(i32, i64, String)> {
    (0..count)
        .map(|n| ((n % i64::from(partitions)) as i32, n + 1, format!("{n}")))
        .collect()
}

#[test]
fn every_record_of_every_partition_comes_once_whatever_the_number_of_instances() {
    let Some(topic) = Topic::new(3) else { return };
    topic.fill(numbered(3000, 3));
    for instances in [1, 2, 5] {
        let p = Pipeline::new("read");
        let costs = Arc::new(SourceCosts::default());
        let source = read(&topic.brokers, &topic.name)
            .parallelism(Parallelism::Exactly(NonZeroU32::new(instances).unwrap()))
            .measure(Arc::clone(&costs))
            .until_present();
        let bookmark = source.bookmark();
        let records = p.read_from(source.build()).collect();
        p.run().unwrap();
        let mut records = records.take();
        records.sort_by_key(|record| (record.offset, record.partition));
        assert_eq!(records.len(), 3000);
        for (n, record) in (0i64..).zip(&records) {
            assert_eq!(record.value, Some(format!("{n}").into_bytes()));
            assert_eq!((i64::from(record.partition), record.offset), (n % 3, n / 3));
            assert_eq!(record.timestamp, Timestamp::from_secs(n + 1));
            assert_eq!(record.key, None);
        }
        let all: Positions = (0..3).map(|partition| (partition, 1000)).collect();
        assert_eq!(bookmark.positions(), all);
        assert_eq!(costs.records(), 3000);
        assert!(costs.decode() > Duration::ZERO && costs.fetch() > Duration::ZERO);
    }
}

#[test]
fn reading_begins_where_it_is_told_to() {
    let Some(topic) = Topic::new(2) else { return };
    topic.fill(numbered(20, 2));
    let texts = |start| {
        topic
            .texts(start)
            .into_iter()
            .map(|(.., text)| text)
            .collect::<Vec<_>>()
    };
    assert_eq!(texts(Start::Latest), [""; 0]);
    assert_eq!(
        texts(Start::At(Timestamp::from_secs(18))),
        ["18", "17", "19"]
    );
    assert_eq!(texts(Start::At(Timestamp::from_secs(99))), [""; 0]);
    let positions = [(0, 9), (1, 10)].into_iter().collect();
    assert_eq!(texts(Start::Positions(positions)), ["18"]);
    let stored = Start::Stored {
        group: "nobody".into(),
    };
    assert_eq!(texts(stored).len(), 20, "nothing is stored");
    commit(&topic, "somebody", 1, 8);
    let stored = Start::Stored {
        group: "somebody".into(),
    };
    assert_eq!(texts(stored).len(), 10 + 2);
}

/// Commits an offset of a partition for a group.
pub fn commit(topic: &Topic, group: &str, partition: i32, offset: i64) {
    use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
    use rdkafka::{ClientConfig, Offset, TopicPartitionList};
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", &topic.brokers)
        .set("group.id", group);
    let consumer: BaseConsumer = config.create().unwrap();
    let mut offsets = TopicPartitionList::new();
    offsets
        .add_partition_offset(&topic.name, partition, Offset::Offset(offset))
        .unwrap();
    eventually("the offset is committed", || {
        consumer.commit(&offsets, CommitMode::Sync).is_ok()
    });
}

#[test]
fn partitions_that_are_added_are_found_and_read_from_their_beginning() {
    let Some(topic) = Topic::new(1) else { return };
    topic.fill(numbered(5, 1));
    let p = Pipeline::new("live");
    let source = read(&topic.brokers, &topic.name)
        .start(Start::Latest)
        .text()
        .look_for_partitions_every(Duration::from_millis(50));
    let bookmark = source.bookmark();
    let texts = p.read_from(source.build()).collect();
    let running = Running::start(&p);
    eventually("it has found its place", || {
        bookmark.positions().next(0) == Some(5)
    });
    topic.fill([(0, 100, "old partition".to_string())]);
    topic.grow(3);
    topic.fill([(2, 100, "new partition".to_string())]);
    eventually("both come", || texts.len() == 2);
    running.job.drain();
    running.job.join().unwrap();
    assert_eq!(texts.take_sorted(), ["new partition", "old partition"]);
}

#[test]
fn time_is_that_of_the_slowest_partition_and_an_idle_one_does_not_hold_it() {
    let Some(topic) = Topic::new(3) else { return };
    // Partition 1 is ten seconds behind and partition 2 is empty; no record must be late.
    topic.fill((0..30).flat_map(|n| [(0, n + 20, "x".to_string()), (1, n + 10, "x".to_string())]));
    let p = Pipeline::new("windows");
    let source = read(&topic.brokers, &topic.name)
        .text()
        .idle_after(Some(Duration::from_millis(300)));
    let counts = p
        .read_from(source.build())
        .with_source_time()
        .window_all(Window::tumbling(Duration::from_secs(10)))
        .aggregate("count", count())
        .collect();
    let running = Running::start(&p);
    // When all partitions are idle, the watermark stays at that of the slowest partition with
    // records, and two windows have ended.
    eventually("windows end", || counts.len() >= 2);
    running.job.drain();
    running.job.join().unwrap();
    let total: u64 = counts.take().iter().map(|window| window.value).sum();
    assert_eq!(total, 60, "no record was late");
}

#[test]
fn what_is_no_record_is_kept_aside_with_its_place() {
    let Some(topic) = Topic::new(2) else { return };
    topic.fill([
        (1, 0, "7".to_string()),
        (1, 1, "seven".to_string()),
        (0, 2, "8".to_string()),
    ]);
    let p = Pipeline::new("numbers");
    let source = read(&topic.brokers, &topic.name)
        .json::<u64>()
        .until_present();
    let numbers = p.read_from(source.build()).collect();
    let running = Running::start(&p);
    running.job.join().unwrap();
    assert_eq!(numbers.take_sorted(), [7, 8]);
    let letter = &running.job.dead_letters().sample()[0];
    assert_eq!(letter.origin, format!("{}[1]@1", topic.name));
    assert_eq!(letter.raw, b"seven");
}

#[test]
fn a_topic_that_is_not_there_fails_the_job_and_is_named() {
    let Some(topic) = Topic::new(1) else { return };
    let p = Pipeline::new("missing");
    p.read_from(read(&topic.brokers, "nowhere").build())
        .collect();
    let error = p.run().expect_err("there is no such topic");
    assert_eq!(error.code(), ErrorCode::ReadFailed, "{error}");
    assert!(error.to_string().contains("nowhere"), "{error}");
    assert!(error.is_permanent(), "it is not tried again");
}

#[test]
fn a_job_whose_broker_never_answers_can_be_drained_and_cancelled() {
    for drain in [true, false] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = listener.local_addr().unwrap().to_string();
        let p = Pipeline::new("silence");
        p.read_from(read(silent, "topic").build()).collect();
        let running = Running::start(&p);
        listener.accept().unwrap();
        if drain {
            running.job.drain();
        } else {
            running.job.cancel();
        }
        eventually("it ends", || running.job.status().is_over());
        assert!(!matches!(running.job.status(), JobStatus::Failed(_)));
    }
}

#[test]
fn a_broker_that_dies_and_comes_back_is_waited_for_and_nothing_is_missed_or_doubled() {
    let Some(server) = own_broker() else { return };
    let topic = Topic::at(server.address().to_string(), 2);
    topic.fill(numbered(100, 2));
    let p = Pipeline::new("live");
    let texts = p
        .read_from(read(&topic.brokers, &topic.name).text().build())
        .collect();
    let running = Running::start(&p);
    eventually("the first come", || texts.len() == 100);
    server.kill();
    server.restart();
    topic.fill((100..200).map(|n| ((n % 2) as i32, n, format!("{n}"))));
    eventually("the others come", || texts.len() >= 200);
    running.job.drain();
    running.job.join().unwrap();
    let numbers = sorted_numbers(texts.take());
    assert_eq!(numbers, (0..200).collect::<Vec<_>>());
}
