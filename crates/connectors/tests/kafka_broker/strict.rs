//! Tests with a broker that does not create topics automatically and aborts transactions after ten
//! seconds.

use std::sync::Arc;
use std::time::Duration;

use ardea_connectors::collections::items;
use ardea_connectors::kafka::{Outgoing, Start, dead_letters, write};
use ardea_core::{DeadLetter, Epoch, ErrorCode, OnError, ProcessorSupplier, Sink, SnapshotRequest};
use ardea_pipeline::Pipeline;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use super::driven::Driven;
use super::environment::{Topic, eventually, strict_broker};
use super::surviving::expect_seen;

/// The broker's maximum transaction timeout.
const LONGEST_MS: &str = "10000";

/// Timeout of a broker's response.
const ANSWER: Duration = Duration::from_secs(30);

fn encode(number: &u64, out: &mut Outgoing) -> Result<(), String> {
    out.value(number.to_string());
    Ok(())
}

/// Creates an exactly-once sink with the transaction timeout `timeout_ms`, if given.
fn once(topic: &Topic, timeout_ms: Option<&str>) -> Arc<dyn ProcessorSupplier> {
    let mut sink = write(&topic.brokers, &topic.name, encode);
    if let Some(timeout_ms) = timeout_ms {
        sink = sink.property("transaction.timeout.ms", timeout_ms);
    }
    let sink: Sink<u64> = sink.build();
    sink.into_parts().1
}

#[test]
fn a_topic_that_is_not_there_fails_the_sink_and_is_named() {
    let Some(brokers) = strict_broker() else {
        return;
    };
    let p = Pipeline::new("missing");
    p.read_from(items(vec![1u64]))
        .write_to(write(brokers, "nowhere", encode));
    let error = p.run().expect_err("there is no such topic");
    assert_eq!(error.code(), ErrorCode::WriteFailed, "{error}");
    assert!(error.to_string().contains("nowhere"), "{error}");
    assert!(error.is_permanent(), "it is not tried again");
}

#[test]
fn a_topic_of_dead_letters_that_is_not_there_fails_the_job_and_is_named() {
    let Some(brokers) = strict_broker() else {
        return;
    };
    let letters = dead_letters(brokers, "nowhere")
        .property("delivery.timeout.ms", "3000")
        .open("flights")
        .unwrap();
    let letter = || DeadLetter {
        vertex: "parse".into(),
        origin: "in.csv:7".into(),
        raw: b"seven".to_vec(),
        reason: "no number".into(),
    };
    let error = letters.handle(OnError::DeadLetter, letter).unwrap_err();
    assert_eq!(error.code(), ErrorCode::WriteFailed, "{error}");
    let text = error.to_string();
    assert!(
        text.contains("nowhere") && text.contains("in.csv:7"),
        "{text}"
    );
}

#[test]
fn transactions_that_the_broker_ends_too_soon_are_refused() {
    let Some(brokers) = strict_broker() else {
        return;
    };
    let topic = Topic::at(brokers, 1);
    let mut driven = Driven::new(&once(&topic, None), "short", (0, 1));
    let error = driven
        .try_write(0..5)
        .expect_err("ten seconds are too short");
    assert_eq!(error.code(), ErrorCode::StoreUnsuitable, "{error}");
    let text = error.to_string();
    for part in ["10000 ms", "60000 ms", "transaction.timeout.ms"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(topic.texts(Start::Earliest).is_empty());
}

/// Waits until the broker has aborted a transaction that was left open.
fn outlast_a_transaction(topic: &Topic) {
    let other = Topic::at(topic.brokers.clone(), 1);
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", &other.brokers)
        .set("transactional.id", &other.name)
        .set("transaction.timeout.ms", LONGEST_MS)
        .create()
        .unwrap();
    producer.init_transactions(ANSWER).unwrap();
    producer.begin_transaction().unwrap();
    let record: BaseRecord<'_, (), str> = BaseRecord::to(&other.name).payload("left open");
    producer.send(record).map_err(|(error, _)| error).unwrap();
    producer.flush(ANSWER).unwrap();
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &other.brokers)
        .set("isolation.level", "read_committed")
        .create()
        .unwrap();
    eventually("its records and the marker are behind the end", || {
        let ends = consumer.fetch_watermarks(&other.name, 0, ANSWER);
        ends.is_ok_and(|(_, end)| end == 2)
    });
}

#[test]
fn an_epoch_may_take_longer_than_a_transaction() {
    let Some(brokers) = strict_broker() else {
        return;
    };
    let topic = Topic::at(brokers, 1);
    let mut driven = Driven::new(&once(&topic, Some(LONGEST_MS)), "long", (0, 1));
    driven.write(0..5);
    outlast_a_transaction(&topic);
    driven.write(5..10);
    driven.snapshot(SnapshotRequest::full(Epoch(1)));
    driven.commit(1).unwrap();
    expect_seen(&topic, 0..10);
}

#[test]
fn a_transaction_that_takes_longer_than_the_broker_lets_it_fails_the_sink_and_says_what_to_set() {
    let Some(brokers) = strict_broker() else {
        return;
    };
    let topic = Topic::at(brokers, 1);
    // Each message waits for the response to the previous one.
    let sink: Sink<u64> = write(&topic.brokers, &topic.name, encode)
        .property("transaction.timeout.ms", "1000")
        .property("batch.num.messages", "1")
        .property("max.in.flight.requests.per.connection", "1")
        .build();
    let mut driven = Driven::new(&sink.into_parts().1, "slow", (0, 1));
    driven.write(0..50_000);
    driven.snapshot(SnapshotRequest::full(Epoch(1)));
    let error = driven.commit(1).expect_err("it is never fast enough");
    assert_eq!(error.code(), ErrorCode::WriteFailed, "{error}");
    let text = error.to_string();
    for part in ["1000 ms", "transaction.timeout.ms", "checkpoints.every"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(topic.texts(Start::Earliest).is_empty());
}
