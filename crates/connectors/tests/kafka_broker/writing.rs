//! Tests of the sink's guarantees.

use ardea_connectors::collections::items;
use ardea_connectors::kafka::{Start, read, write};
use ardea_core::ErrorCode;
use ardea_pipeline::Pipeline;

use super::environment::{Running, Topic, eventually, own_broker};

#[test]
fn keys_and_values_arrive_and_one_key_keeps_its_order() {
    let Some(topic) = Topic::new(3) else { return };
    let p = Pipeline::new("write");
    let sink = write(&topic.brokers, &topic.name, |n: &u64, out| {
        out.key((n % 7).to_be_bytes());
        if *n > 0 {
            out.value(n.to_string());
        }
        Ok(())
    });
    p.read_from(items((0..5000u64).collect::<Vec<_>>()))
        .write_to(sink);
    p.run().unwrap();

    let p = Pipeline::new("read");
    let records = p
        .read_from(read(&topic.brokers, &topic.name).until_present().build())
        .collect();
    p.run().unwrap();
    let records = records.take();
    assert_eq!(records.len(), 5000);
    for key in 0..7u64 {
        let of_key: Vec<_> = records
            .iter()
            .filter(|record| record.key.as_deref() == Some(&key.to_be_bytes()))
            .collect();
        assert!(
            of_key
                .iter()
                .all(|record| record.partition == of_key[0].partition)
        );
        let values = of_key.iter().map(|record| record.value.clone());
        let sent = (key..5000).step_by(7);
        let sent = sent.map(|n| (n > 0).then(|| n.to_string().into_bytes()));
        assert!(values.eq(sent), "key {key}");
    }
}

#[test]
fn a_record_that_can_not_be_encoded_or_is_too_large_is_kept_aside_with_its_number() {
    let Some(topic) = Topic::new(1) else { return };
    let p = Pipeline::new("write");
    let sink = write(&topic.brokers, &topic.name, |n: &u64, out| match n {
        2 => Err("two is not liked".to_string()),
        4 => {
            out.value(vec![b'x'; 2 << 20]);
            Ok(())
        }
        n => {
            out.value(n.to_string());
            Ok(())
        }
    });
    p.read_from(items((0..6u64).collect::<Vec<_>>()))
        .write_to(sink);
    let running = Running::start(&p);
    running.job.join().unwrap();
    let letters = running.job.dead_letters().sample();
    let origins: Vec<_> = letters
        .iter()
        .map(|letter| letter.origin.as_str())
        .collect();
    assert_eq!(origins, ["record 2", "record 4"]);
    let texts = topic.texts(Start::Earliest);
    assert!(
        texts
            .into_iter()
            .map(|(.., text)| text)
            .eq(["0", "1", "3", "5"])
    );
}

#[test]
fn a_delivery_that_fails_for_good_fails_the_job_and_names_the_record() {
    let Some(topic) = Topic::new(1) else { return };
    let p = Pipeline::new("write");
    let sink = write(&topic.brokers, &topic.name, |n: &u64, out| {
        out.value(n.to_string())
            .partition(if *n < 3 { 0 } else { 9 });
        Ok(())
    });
    p.read_from(items((0..6u64).collect::<Vec<_>>()))
        .write_to(sink);
    let error = p.run().expect_err("there is no partition 9");
    assert_eq!(error.code(), ErrorCode::WriteFailed, "{error}");
    assert!(error.to_string().contains("record 3"), "{error}");
}

#[test]
fn a_broker_that_dies_while_a_job_writes_is_waited_for_and_each_record_is_there_once_in_order() {
    const RECORDS: u64 = 20_000;
    let Some(server) = own_broker() else { return };
    let topic = Topic::at(server.address().to_string(), 1);
    let p = Pipeline::new("write");
    // A small queue, so that the job must wait too.
    let sink = write(&topic.brokers, &topic.name, |n: &u64, out| {
        out.value(n.to_string());
        Ok(())
    })
    .property("queue.buffering.max.messages", "500");
    p.read_from(items((0..RECORDS).collect::<Vec<_>>()))
        .write_to(sink);
    let running = Running::start(&p);
    eventually("the first are on their way", || {
        running
            .job
            .metrics()
            .iter()
            .any(|instance| instance.metrics.records_in > 0)
    });
    server.kill();
    server.restart();
    running.job.join().unwrap();
    let texts = topic.texts(Start::Earliest);
    assert!(
        texts
            .into_iter()
            .map(|(.., text)| text)
            .eq((0..RECORDS).map(|n| n.to_string()))
    );
}

#[test]
fn a_time_at_or_before_the_beginning_of_1970_does_not_become_the_present() {
    let Some(topic) = Topic::new(1) else { return };
    topic.fill([
        (0, 0, "epoch".to_string()),
        (0, -5, "before".to_string()),
        (0, 7, "after".to_string()),
    ]);
    let p = Pipeline::new("read");
    let records = p
        .read_from(read(&topic.brokers, &topic.name).until_present().build())
        .collect();
    p.run().unwrap();
    let times: Vec<_> = records
        .take()
        .iter()
        .map(|record| record.timestamp.as_millis())
        .collect();
    assert_eq!(times, [1, 1, 7000]);
}
