//! Tests of offsets without records: transaction markers, aborted records, and records removed by
//! compaction.

use std::time::Duration;

use ardea_connectors::kafka::{Start, read};
use ardea_core::{Epoch, OnLostPosition, SnapshotRequest};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use super::driven::Driven;
use super::environment::{Topic, eventually, own_broker};
use super::lost_positions::go_on;

/// Timeout of a broker's response.
const ANSWER: Duration = Duration::from_secs(30);

/// Outcome of a transaction.
#[derive(Clone, Copy, Debug)]
enum End {
    Commit,
    Abort,
}

/// Writes numbers in a transaction.
fn transaction(topic: &Topic, numbers: std::ops::Range<u32>, end: End) {
    let producer = begin_transaction(topic, numbers);
    match end {
        End::Commit => producer.commit_transaction(ANSWER).unwrap(),
        End::Abort => producer.abort_transaction(ANSWER).unwrap(),
    }
}

/// Writes numbers in a transaction that stays open.
fn begin_transaction(topic: &Topic, numbers: std::ops::Range<u32>) -> BaseProducer {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", &topic.brokers)
        .set("transactional.id", &topic.name)
        .create()
        .unwrap();
    producer.init_transactions(ANSWER).unwrap();
    producer.begin_transaction().unwrap();
    for number in numbers {
        let value = number.to_string();
        let record: BaseRecord<'_, (), str> = BaseRecord::to(&topic.name).payload(&value);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(ANSWER).unwrap();
    producer
}

#[test]
fn a_position_within_an_open_transaction_is_no_lost_one() {
    let Some(topic) = Topic::new(1) else { return };
    let open = begin_transaction(&topic, 0..5);
    // Offset as committed by a reader with `read_uncommitted`.
    super::reading::commit(&topic, "ahead", 0, 3);
    let source = read(&topic.brokers, &topic.name)
        .text()
        .start(Start::Stored {
            group: "ahead".to_string(),
        })
        .build();
    let mut driven = Driven::new(&source.into_parts().1, "ahead", (0, 1));
    let mut all = Vec::new();
    eventually("the partition is found", || {
        driven.read(10, &mut all);
        driven.snapshot(SnapshotRequest::full(Epoch(1))).byte_len() > 0
    });
    open.commit_transaction(ANSWER).unwrap();
    eventually("the rest comes", || {
        driven.read(10, &mut all);
        all.len() == 2
    });
    assert_eq!(all, ["3", "4"]);
}

/// Reads a bounded source to its end, with a restore after each record.
fn read_in_steps(topic: &Topic) -> Vec<String> {
    let source = read(&topic.brokers, &topic.name).text().until_present();
    let supplier = source.build().into_parts().1;
    let (mut all, mut state) = (Vec::new(), None);
    for epoch in 1u64.. {
        let mut driven = Driven::new(&supplier, "steps", (0, 1));
        if let Some(state) = &state {
            driven = driven.restored(epoch - 1, state).unwrap();
        }
        let (before, mut is_done) = (all.len(), false);
        eventually("a record comes, or the end", || {
            is_done = driven.read(1, &mut all);
            is_done || all.len() > before
        });
        state = Some(driven.snapshot(SnapshotRequest::full(Epoch(epoch))));
        if is_done {
            break;
        }
    }
    all
}

#[test]
fn a_bounded_source_ends_where_the_last_offsets_are_no_records() {
    // Transactions of a topic, and the numbers expected.
    let cases = [
        (vec![(3, End::Commit)], vec![0, 1, 2]),
        (vec![(2, End::Commit), (2, End::Abort)], vec![0, 1]),
        (vec![(2, End::Abort), (1, End::Commit)], vec![2]),
        (vec![(2, End::Abort)], vec![]),
    ];
    for (transactions, expected) in cases {
        let Some(topic) = Topic::new(1) else { return };
        let mut next = 0;
        for (count, end) in &transactions {
            transaction(&topic, next..next + count, *end);
            next += count;
        }
        let expected: Vec<_> = expected.iter().map(u32::to_string).collect();
        // A broker responds before it has written the marker.
        eventually("the marker is there", || {
            let texts = topic.texts(Start::Earliest).into_iter();
            texts.map(|(.., text)| text).eq(expected.iter().cloned())
        });
        assert_eq!(read_in_steps(&topic), expected, "{transactions:?}");
    }
}

/// Writes numbers under one key, each in its own batch and segment.
fn supersede(topic: &Topic, numbers: std::ops::Range<i64>) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", &topic.brokers)
        .create()
        .unwrap();
    for number in numbers {
        let value = number.to_string();
        let record = BaseRecord::to(&topic.name)
            .key("one")
            .payload(&value)
            .timestamp((number + 1) * 60_000);
        producer.send(record).map_err(|(error, _)| error).unwrap();
        producer.flush(ANSWER).unwrap();
    }
}

#[test]
fn a_position_whose_record_was_compacted_away_is_not_lost() {
    let Some(server) = own_broker() else { return };
    let settings = [
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0.001"),
        // A segment ends when a record is this much later.
        ("segment.ms", "30000"),
    ];
    let topic = Topic::with(server.address().to_string(), 1, &settings);
    supersede(&topic, 0..10);
    let bounded = read(&topic.brokers, &topic.name).text().until_present();
    let bounded = bounded.build().into_parts().1;
    let mut driven = Driven::new(&bounded, "kept", (0, 1));
    let mut all = Vec::new();
    eventually("five come", || {
        driven.read(5 - all.len(), &mut all);
        all.len() == 5
    });
    let state = driven.snapshot(SnapshotRequest::full(Epoch(1)));
    drop(driven);
    supersede(&topic, 10..20);
    eventually("they are compacted", || {
        let texts = topic.texts(Start::Earliest);
        texts.first().is_some_and(|(_, offset, _)| *offset >= 10)
    });
    // Under another leader epoch the last record read is compared.
    server.kill();
    server.restart();
    let rest = go_on(&topic, OnLostPosition::Fail, &state).unwrap();
    let left = topic.texts(Start::Earliest);
    assert_eq!(rest[0], left[0].2, "nothing is skipped that is there");
    let mut driven = Driven::new(&bounded, "kept", (0, 1))
        .restored(1, &state)
        .unwrap();
    let mut none = Vec::new();
    eventually("it ends", || driven.read(100, &mut none));
    assert_eq!(none, [""; 0], "all up to its end were superseded");
}
