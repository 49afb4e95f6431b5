//! Tests of dead letters in a topic.

use std::time::Duration;

use ardea_connectors::kafka::dead_letters;
use ardea_core::{DeadLetter, ErrorCode, OnError};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::environment::{Topic, eventually};

fn letter(raw: Vec<u8>) -> DeadLetter {
    DeadLetter {
        vertex: "parse".into(),
        origin: "in.csv:7".into(),
        raw,
        reason: "no number".into(),
    }
}

#[test]
fn a_letter_is_acknowledged_and_its_message_says_where_it_came_from() {
    let Some(topic) = Topic::new(1) else { return };
    let letters = dead_letters(&topic.brokers, &topic.name)
        .open("flights")
        .unwrap();
    letters
        .handle(OnError::DeadLetter, || letter(b"1;\xff".to_vec()))
        .unwrap();
    // No flush: the letter is in the topic when the job continues.
    let (value, headers) = first_of(&topic);
    assert_eq!(value, b"1;\xff");
    let headers: Vec<_> = headers.iter().map(|(k, v)| (&**k, &**v)).collect();
    assert_eq!(
        headers,
        [
            ("ardea.job", "flights"),
            ("ardea.vertex", "parse"),
            ("ardea.origin", "in.csv:7"),
            ("ardea.reason", "no number"),
        ]
    );
}

/// Returns value and headers of the first message of a topic.
fn first_of(topic: &Topic) -> (Vec<u8>, Vec<(String, String)>) {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &topic.brokers)
        .set("group.id", "looks")
        .create()
        .unwrap();
    let mut all = TopicPartitionList::new();
    all.add_partition_offset(&topic.name, 0, Offset::Beginning)
        .unwrap();
    consumer.assign(&all).unwrap();
    let mut message = None;
    eventually("the letter is there", || {
        message = consumer
            .poll(Duration::from_millis(100))
            .and_then(Result::ok);
        message.is_some()
    });
    let message = message.unwrap();
    let headers = message.headers().unwrap().iter().map(|header| {
        let value = String::from_utf8_lossy(header.value.unwrap());
        (header.key.to_string(), value.into_owned())
    });
    (message.payload().unwrap().to_vec(), headers.collect())
}

#[test]
fn a_letter_that_is_too_large_is_cut_and_says_how_long_it_was() {
    let own_limit = Topic::new(1);
    for topic in [own_limit, Topic::taking(5_000)] {
        let Some(topic) = topic else { return };
        let letters = dead_letters(&topic.brokers, &topic.name)
            .open("flights")
            .unwrap();
        letters
            .handle(OnError::DeadLetter, || letter(vec![b'x'; 3 << 20]))
            .unwrap();
        let (value, headers) = first_of(&topic);
        assert!(!value.is_empty() && value.iter().all(|byte| *byte == b'x'));
        let length = ("ardea.truncated".to_string(), (3 << 20).to_string());
        assert_eq!(headers.last(), Some(&length));
    }
}

#[test]
fn a_letter_that_brokers_do_not_acknowledge_in_time_fails_the_job() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap().to_string();
    let letters = dead_letters(silent, "bad")
        .property("delivery.timeout.ms", "300")
        .open("flights")
        .unwrap();
    let error = letters
        .handle(OnError::DeadLetter, || letter(b"x".to_vec()))
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::WriteFailed);
}
