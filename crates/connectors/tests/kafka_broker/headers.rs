//! Tests of headers and of out-of-range timestamps.

use ardea_connectors::collections::items;
use ardea_connectors::kafka::{Record, read, write};
use ardea_core::{Epoch, Sink, SnapshotRequest, Timestamp};
use ardea_pipeline::Pipeline;
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use super::driven::Driven;
use super::environment::{Running, Topic, eventually};

fn records(topic: &Topic) -> Vec<Record> {
    let p = Pipeline::new("read");
    let source = read(&topic.brokers, &topic.name).until_present();
    let records = p.read_from(source.build()).collect();
    p.run().unwrap();
    let mut records = records.take();
    records.sort_by_key(|record| record.offset);
    records
}

fn with_headers(n: &u64, out: &mut ardea_connectors::kafka::Outgoing) -> Result<(), String> {
    out.value(n.to_string());
    if *n > 0 {
        out.header("trace", n.to_be_bytes())
            .header_without_value("nothing")
            .header("trace", "again");
    }
    Ok(())
}

fn expected(n: u64) -> Vec<(String, Option<Vec<u8>>)> {
    match n {
        0 => Vec::new(),
        n => vec![
            ("trace".into(), Some(n.to_be_bytes().to_vec())),
            ("nothing".into(), None),
            ("trace".into(), Some(b"again".to_vec())),
        ],
    }
}

#[test]
fn headers_arrive_as_they_were_written() {
    let Some(topic) = Topic::new(1) else { return };
    let p = Pipeline::new("write");
    p.read_from(items((0..100u64).collect::<Vec<_>>()))
        .write_to(write(&topic.brokers, &topic.name, with_headers));
    p.run().unwrap();
    for (n, record) in (0u64..).zip(records(&topic)) {
        assert_eq!(record.headers, expected(n), "{n}");
    }
    let p = Pipeline::new("last");
    let source = read(&topic.brokers, &topic.name)
        .decode(|message| Ok(message.header("trace")?.map(<[u8]>::to_vec)))
        .until_present();
    let last = p.read_from(source.build()).collect();
    p.run().unwrap();
    let last = last.take();
    assert_eq!(last.iter().filter(|last| last.is_none()).count(), 1);
    assert!(last.iter().flatten().all(|last| last == b"again"));
}

#[test]
fn headers_outlive_a_sink_that_writes_each_record_once() {
    let Some(topic) = Topic::new(1) else { return };
    let sink: Sink<u64> = write(&topic.brokers, &topic.name, with_headers).build();
    let supplier = sink.into_parts().1;
    let mut driven = Driven::new(&supplier, "headers", (0, 1));
    driven.write(0..10);
    let snapshot = driven.snapshot(SnapshotRequest::full(Epoch(1)));
    drop(driven);
    Driven::new(&supplier, "headers", (0, 1))
        .restored(1, &snapshot)
        .unwrap();
    eventually("they are there", || records(&topic).len() == 10);
    for (n, record) in (0u64..).zip(records(&topic)) {
        assert_eq!(record.headers, expected(n), "{n}");
    }
}

/// Writes messages with timestamps that Ardea's sink would not write.
fn write_raw(topic: &Topic, times: &[Option<i64>]) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", &topic.brokers)
        .create()
        .unwrap();
    for (n, time) in times.iter().enumerate() {
        let value = n.to_string();
        let mut record: BaseRecord<'_, [u8], [u8]> =
            BaseRecord::to(&topic.name).payload(value.as_bytes());
        record.timestamp = *time;
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(std::time::Duration::from_secs(30)).unwrap();
}

#[test]
fn a_timestamp_that_no_record_can_have_costs_one_record_and_not_the_job() {
    let Some(topic) = Topic::with_settings(
        1,
        &[("message.timestamp.after.max.ms", "9223372036854775807")],
    ) else {
        return;
    };
    let beyond = i64::MAX / 1_000 + 1;
    write_raw(&topic, &[Some(7_000), Some(beyond), Some(9_000)]);
    let p = Pipeline::new("times");
    let source = read(&topic.brokers, &topic.name).until_present();
    let records = p.read_from(source.build()).collect();
    let running = Running::start(&p);
    running.job.join().unwrap();
    let times: Vec<_> = records
        .take()
        .iter()
        .map(|record| record.timestamp)
        .collect();
    assert_eq!(times, [Timestamp::from_secs(7), Timestamp::from_secs(9)]);
    let letters = running.job.dead_letters().sample();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].origin, format!("{}[0]@1", topic.name));
    assert!(
        letters[0].reason.contains("out of range"),
        "{}",
        letters[0].reason
    );
}

#[test]
fn a_message_without_a_timestamp_is_a_bad_record_where_timestamps_are_required() {
    let Some(topic) = Topic::new(1) else { return };
    // Kafka's value for a missing timestamp.
    write_raw(&topic, &[Some(7_000), Some(-1), Some(9_000)]);
    let all = records(&topic);
    assert_eq!(all.len(), 3);
    assert_eq!(all[1].timestamp, Timestamp::MIN);
    let p = Pipeline::new("required");
    let source = read(&topic.brokers, &topic.name)
        .text()
        .require_timestamps()
        .until_present();
    let texts = p.read_from(source.build()).collect();
    let running = Running::start(&p);
    running.job.join().unwrap();
    assert_eq!(texts.take_sorted(), ["0", "2"]);
    let letters = running.job.dead_letters().sample();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].origin, format!("{}[0]@1", topic.name));
    let reason = &letters[0].reason;
    assert!(reason.contains("no timestamp"), "{reason}");
}

#[test]
fn a_header_whose_name_is_not_utf_8_costs_one_record_and_not_the_job() {
    use std::ffi::OsStr;
    use std::io::Write;
    use std::os::unix::ffi::OsStrExt;
    use std::process::{Command, Stdio};
    let Some(topic) = Topic::new(1) else { return };
    for header in [&b"good=1"[..], b"b\xffd=2", b"good=3"] {
        let mut kcat = Command::new("kcat")
            .args(["-P", "-b", &topic.brokers, "-t", &topic.name, "-H"])
            .arg(OsStr::from_bytes(header))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(kcat.stdin.as_mut().unwrap(), "value").unwrap();
        assert!(kcat.wait().unwrap().success());
    }
    let p = Pipeline::new("names");
    let source = read(&topic.brokers, &topic.name).until_present();
    let records = p.read_from(source.build()).collect();
    let running = Running::start(&p);
    running.job.join().unwrap();
    assert_eq!(records.len(), 2);
    let letters = running.job.dead_letters().sample();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].origin, format!("{}[0]@1", topic.name));
    assert!(letters[0].reason.contains("UTF-8"), "{}", letters[0].reason);
    // A decoder that ignores headers reads all messages.
    assert_eq!(
        topic.texts(ardea_connectors::kafka::Start::Earliest).len(),
        3
    );
}
