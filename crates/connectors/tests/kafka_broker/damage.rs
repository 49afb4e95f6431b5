//! Tests with unreadable batches.

use std::os::unix::fs::FileExt;

use ardea_connectors::kafka::read;
use ardea_core::ErrorCode;
use ardea_pipeline::Pipeline;

use super::environment::{Running, Topic, log_of, own_broker, sorted_numbers};

/// Applies `change` to a batch in a log file.
fn change(log: &std::path::Path, batch: usize, change: fn(&mut [u8])) {
    let mut bytes = std::fs::read(log).unwrap();
    let length = |bytes: &[u8], start: usize| {
        let length: [u8; 4] = bytes[start + 8..start + 12].try_into().unwrap();
        12 + u32::from_be_bytes(length) as usize
    };
    let start = (0..batch).fold(0, |start, _| start + length(&bytes, start));
    let end = start + length(&bytes, start);
    change(&mut bytes[start..end]);
    let file = std::fs::OpenOptions::new().write(true).open(log).unwrap();
    file.write_all_at(&bytes[start..end], start as u64).unwrap();
}

/// Changes a byte after the 61-byte header of a batch, so that its checksum is wrong.
fn break_checksum(batch: &mut [u8]) {
    batch[63] ^= 0x55;
}

/// Sets an unknown compression type, with a valid checksum.
fn invent_compression(batch: &mut [u8]) {
    batch[22] |= 6;
    let mut crc = !0u32;
    for byte in &batch[21..] {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let is_odd = crc & 1 == 1;
            crc >>= 1;
            if is_odd {
                crc ^= 0x82F6_3B78;
            }
        }
    }
    batch[17..21].copy_from_slice(&(!crc).to_be_bytes());
}

#[test]
fn a_batch_that_is_damaged_fails_the_job_or_is_left_out_as_one_dead_letter() {
    let Some(server) = own_broker() else { return };
    for damage in [break_checksum, invent_compression] {
        let topic = Topic::at(server.address().to_string(), 1);
        for n in 0..5 {
            // One batch for each ten records.
            topic.fill((0..10).map(|m| (0, m + 1, format!("{}", n * 10 + m))));
        }
        change(&log_of(&server, &topic), 2, damage);
        expect_damaged(&topic);
    }
}

/// Asserts that the records 20 to 29 of a topic cannot be read.
fn expect_damaged(topic: &Topic) {
    let p = Pipeline::new("damaged");
    let source = read(&topic.brokers, &topic.name).text().until_present();
    p.read_from(source.build()).collect();
    let error = p.run().expect_err("it can't be read");
    assert_eq!(error.code(), ErrorCode::ReadFailed, "{error}");
    let text = error.to_string();
    let place = format!("{}[0]", topic.name);
    assert!(
        text.contains(&place) && text.contains("offset 20"),
        "{text}"
    );
    assert!(error.is_permanent(), "{text}");

    let p = Pipeline::new("damaged");
    let source = read(&topic.brokers, &topic.name)
        .text()
        .skip_damaged_batches()
        .until_present();
    let texts = p.read_from(source.build()).collect();
    let running = Running::start(&p);
    running.job.join().unwrap();
    let numbers = sorted_numbers(texts.take());
    assert!(numbers.into_iter().eq((0..20).chain(30..50)));
    let letters = running.job.dead_letters().sample();
    let origins: Vec<_> = letters
        .iter()
        .map(|letter| letter.origin.as_str())
        .collect();
    assert_eq!(origins, [format!("{place}@20 to 29")]);
}
