//! Tests of several topics in one source, by name and by pattern.

use std::num::NonZeroU32;
use std::time::Duration;

use ardea_connectors::kafka::{Start, Topics, read};
use ardea_core::{ErrorCode, Parallelism};
use ardea_pipeline::Pipeline;

use super::environment::{Running, Topic, eventually};

#[test]
fn every_record_of_every_topic_comes_once_whatever_the_number_of_instances() {
    let Some(one) = Topic::new(3) else { return };
    let Some(other) = Topic::new(2) else { return };
    one.fill((0..300).map(|n| ((n % 3) as i32, n + 1, format!("one {n}"))));
    other.fill((0..300).map(|n| ((n % 2) as i32, n + 1, format!("other {n}"))));
    for instances in [1, 2, 7] {
        let p = Pipeline::new("several");
        let source = read(&one.brokers, vec![one.name.clone(), other.name.clone()])
            .parallelism(Parallelism::Exactly(NonZeroU32::new(instances).unwrap()))
            .until_present();
        let bookmark = source.bookmark();
        let records = p.read_from(source.build()).collect();
        p.run().unwrap();
        let mut records = records.take();
        records.sort_by(|a, b| {
            (&a.topic, a.offset, a.partition).cmp(&(&b.topic, b.offset, b.partition))
        });
        assert_eq!(records.len(), 600);
        let of_one = records.iter().filter(|record| record.topic == one.name);
        for (n, record) in (0..).zip(of_one) {
            assert_eq!(record.value, Some(format!("one {n}").into_bytes()));
        }
        let positions = bookmark.by_topic();
        assert_eq!(positions[&one.name].next(2), Some(100));
        assert_eq!(positions[&other.name].next(1), Some(150));
    }
}

#[test]
fn a_pattern_finds_topics_that_are_made_later_and_reads_them_from_their_beginning() {
    let Some(first) = Topic::new(1) else { return };
    first.fill([(0, 1, "before".to_string())]);
    let pattern = format!("{}(-.*)?", first.name);
    let p = Pipeline::new("pattern");
    let source = read(&first.brokers, Topics::matching(pattern))
        .text()
        .start(Start::Latest)
        .look_for_partitions_every(Duration::from_millis(100));
    let bookmark = source.bookmark();
    let texts = p.read_from(source.build()).collect();
    let running = Running::start(&p);
    eventually("it has found its place", || {
        bookmark.positions().next(0) == Some(1)
    });
    let later = Topic {
        brokers: first.brokers.clone(),
        name: format!("{}-later", first.name),
    };
    later.make(2);
    later.fill([(1, 2, "later".to_string())]);
    first.fill([(0, 3, "first".to_string())]);
    eventually("both come", || texts.len() == 2);
    running.job.drain();
    running.job.join().unwrap();
    assert_eq!(texts.take_sorted(), ["first", "later"]);
}

#[test]
fn a_pattern_without_a_topic_fails_a_bounded_source_and_a_name_without_one_any() {
    let Some(topic) = Topic::new(1) else { return };
    let p = Pipeline::new("nothing");
    let source = read(&topic.brokers, Topics::matching("nothing-at-all")).until_present();
    p.read_from(source.build()).collect();
    let error = p.run().expect_err("nothing matches");
    assert!(error.to_string().contains("nothing-at-all"), "{error}");
    assert!(error.is_permanent(), "{error}");
    let p = Pipeline::new("half");
    p.read_from(read(&topic.brokers, [topic.name.as_str(), "nowhere"]).build())
        .collect();
    let error = p.run().expect_err("one is missing");
    assert_eq!(error.code(), ErrorCode::ReadFailed, "{error}");
    assert!(error.to_string().contains("nowhere"), "{error}");
}
