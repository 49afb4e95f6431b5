//! Tests of word counts with a real Kafka, if one is available.
#![cfg(feature = "kafka")]

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;

use ardea::core::{ErrorCode, Timestamp};
use ardea::kafka::write;
use ardea::prelude::*;
use ardea_examples::topic_words::build;
use ardea_metastore::conformance::{Server, Skipped};

/// Writes one line per second of event time, from the start of a minute.
fn fill(brokers: &str, lines: &[&str]) {
    let at = |second: i64| Timestamp::from_secs(1_700_000_040 + second);
    let lines: Vec<(String, Timestamp)> = lines
        .iter()
        .map(|line| line.to_string())
        .zip((0..).map(at))
        .collect();
    let p = Pipeline::new("fill");
    let sink = write(brokers, "lines", |line: &String, out| {
        out.value(line);
        Ok(())
    });
    p.read_from(collections::items_with_times(lines))
        .write_to(sink);
    p.run().expect("written");
}

#[test]
fn the_program_prints_how_often_each_word_came_in_each_window() {
    let server = match Server::start("kafka.sh") {
        Ok(server) => server,
        Err(Skipped(why)) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED the words of a topic: {why}");
            return;
        }
    };
    let brokers = server.address().to_string();
    let mut lines = vec!["To be, or not to be"; 10];
    lines.extend(["that is the question"; 2]);
    fill(&brokers, &lines);

    let output = Command::new(env!("CARGO_BIN_EXE_topic-words"))
        .args([&brokers, "lines", "--until-present"])
        .output()
        .expect("it runs");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for line in told.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (window, count, word) = (words[0], words[words.len() - 2], words[words.len() - 1]);
        counts.insert((window, word), count.parse().expect("a number"));
    }
    let windows: Vec<&str> = told
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let (first, last) = (windows[0], windows[windows.len() - 1]);
    assert_ne!(first, last, "{told}");
    let of = |window, word| counts.get(&(window, word)).copied();
    for (word, count) in [("to", 20), ("be", 20), ("or", 10), ("not", 10)] {
        assert_eq!(of(first, word), Some(count), "{told}");
        assert_eq!(of(last, word), None, "{told}");
    }
    for word in ["that", "is", "the", "question"] {
        assert_eq!(of(last, word), Some(2), "{told}");
    }
    assert_eq!(counts.len(), 8, "{told}");
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    for wrong in [
        &[][..],
        &["localhost:9092"],
        &["localhost:9092", "lines", "--from-end"],
    ] {
        let wrong: Vec<String> = wrong.iter().map(|word| word.to_string()).collect();
        let refused = build(&wrong).expect_err("refused");
        assert_eq!(refused.code(), ErrorCode::InvalidConfig);
    }
}
