//! Batches that can't be read.

use std::os::unix::fs::FileExt;

use ardea_connect_kafka::read;
use ardea_core::ErrorCode;
use ardea_pipeline::Pipeline;

use super::ground::{Running, Topic, own_broker};

/// Changes a byte in a batch of a log: so its checksum is wrong.
fn damage(log: &std::path::Path, batch: usize) {
    let bytes = std::fs::read(log).unwrap();
    let mut start = 0;
    for _ in 0..batch {
        let length: [u8; 4] = bytes[start + 8..start + 12].try_into().unwrap();
        start += 12 + u32::from_be_bytes(length) as usize;
    }
    // Behind the head of the batch, which has 61 bytes.
    let at = start + 63;
    let file = std::fs::OpenOptions::new().write(true).open(log).unwrap();
    file.write_all_at(&[bytes[at] ^ 0x55], at as u64).unwrap();
}

#[test]
fn a_batch_that_is_damaged_fails_the_job_or_is_left_out_as_one_dead_letter() {
    let Some(server) = own_broker() else { return };
    let topic = Topic::at(server.address().to_string(), 1);
    for n in 0..5 {
        // A batch each.
        topic.fill((0..10).map(|m| (0, m + 1, format!("{}", n * 10 + m))));
    }
    let folder = server
        .folder()
        .join("data")
        .join(format!("{}-0", topic.name));
    damage(&folder.join("00000000000000000000.log"), 2);

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
    let mut numbers: Vec<u64> = texts
        .take()
        .iter()
        .map(|text| text.parse().unwrap())
        .collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq((0..20).chain(30..50)));
    let letters = running.job.dead_letters().sample();
    let origins: Vec<_> = letters
        .iter()
        .map(|letter| letter.origin.as_str())
        .collect();
    assert_eq!(origins, [format!("{place}@20 to 29")]);
}
