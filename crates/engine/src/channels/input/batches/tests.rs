//! Tests of the order of micro-batches.

use ardea_core::{Epoch, Priority};
use proptest::prelude::*;

use super::*;
use crate::channels::input::tests::{chunk, inputs, watermark};
use crate::channels::queue::QueueSender;

fn set(queues: usize) -> (Vec<QueueSender>, InputSet) {
    let (mut senders, set) = inputs(&[(Priority::NORMAL, queues)]);
    (senders.remove(0), set.in_batches())
}

fn end(batch: u64) -> Message {
    Message::Marker(Marker::BatchEnd(MicroBatch(batch)))
}

fn barrier(epoch: u64) -> Message {
    Message::Marker(Marker::Barrier(Epoch(epoch)))
}

fn done() -> Message {
    Message::Marker(Marker::Done)
}

/// Returns the next events, as text.
fn events(set: &mut InputSet) -> Vec<String> {
    std::iter::from_fn(|| set.pull())
        .map(|event| match event {
            Event::Chunk(_, mut chunk) => {
                format!("{:?}", chunk.rows::<u32>().unwrap().values()[0])
            }
            Event::Watermark(watermark) => format!("watermark {}", watermark.0.as_millis() / 1_000),
            Event::BatchEnd(batch, _) => format!("end {}", batch.0),
            Event::Barrier(epoch, _) => format!("barrier {}", epoch.0),
            Event::EdgeDone { .. } => "done".into(),
            Event::Idle => "idle".into(),
            Event::Latency(_) => "latency".into(),
        })
        .collect()
}

#[test]
fn records_of_a_micro_batch_come_by_producer_and_the_watermark_at_its_end() {
    let (mut senders, mut set) = set(2);
    senders[1].send(chunk(20));
    senders[1].send(watermark(7));
    senders[1].send(end(0));
    senders[1].send(chunk(21));
    assert_eq!(events(&mut set), [""; 0]);
    senders[0].send(chunk(10));
    senders[0].send(watermark(5));
    senders[0].send(chunk(11));
    assert_eq!(events(&mut set), ["10", "11"]);
    senders[0].send(end(0));
    assert_eq!(events(&mut set), ["20", "watermark 5", "end 0"]);
    senders[0].send(done());
    assert_eq!(events(&mut set), ["21"]);
    senders[1].send(done());
    assert_eq!(events(&mut set), ["watermark 7", "done"]);
}

#[test]
fn events_after_a_barrier_do_not_depend_on_the_micro_batches_before_it() {
    let after = |mut senders: Vec<QueueSender>, set: &mut InputSet| {
        senders[0].send(chunk(10));
        senders[0].send(end(3));
        senders[0].send(chunk(11));
        senders[0].send(end(6));
        senders[1].send(chunk(20));
        senders[1].send(end(6));
        events(set)
    };
    let (mut senders, set_of_all) = set(2);
    let mut set_of_all = set_of_all.counting_from_barriers();
    senders[0].send(end(2));
    senders[0].send(barrier(1));
    for batch in [2, 3, 5] {
        senders[1].send(end(batch));
    }
    senders[1].send(barrier(1));
    let before = events(&mut set_of_all);
    assert_eq!(before, ["end 2", "end 3", "end 5", "barrier 1"]);
    let continued = after(senders, &mut set_of_all);
    let (senders, restored) = set(2);
    let mut restored = restored.counting_from_barriers();
    assert_eq!(continued, after(senders, &mut restored));
    assert_eq!(continued, ["10", "20", "end 3", "11", "end 6"]);
}

#[test]
fn a_queue_that_waits_for_its_turn_blocks_no_producer_before_the_end_of_its_micro_batch() {
    let (mut senders, mut set) = set(2);
    for number in 0..100 {
        assert!(senders[1].has_room(), "after {number} chunks");
        senders[1].send(chunk(number));
        assert_eq!(events(&mut set), [""; 0]);
    }
    senders[1].send(end(0));
    while senders[1].has_room() {
        senders[1].send(chunk(100));
        assert_eq!(
            events(&mut set),
            [""; 0],
            "the next micro-batch is not read"
        );
    }
    senders[0].send(end(0));
    let seen = events(&mut set);
    let expected = (0..100).map(|number| number.to_string());
    assert_eq!(seen[..100], expected.collect::<Vec<_>>());
    assert_eq!(seen[100..], ["end 0"]);
}

#[test]
fn the_least_end_is_released_first_and_a_later_one_includes_it() {
    let (mut senders, mut set) = set(2);
    senders[0].send(chunk(1));
    senders[0].send(end(4));
    senders[1].send(chunk(2));
    senders[1].send(end(1));
    assert_eq!(events(&mut set), ["1", "2", "end 1"]);
    senders[0].send(chunk(3));
    senders[1].send(chunk(4));
    senders[1].send(end(4));
    assert_eq!(events(&mut set), ["4", "end 4", "3"]);
}

#[test]
fn a_queue_at_a_barrier_lets_micro_batches_of_others_end() {
    let (mut senders, mut set) = set(2);
    for message in [end(0), barrier(1), chunk(1), end(1), end(2)] {
        senders[0].send(message);
    }
    for message in [end(0), chunk(2), end(1), barrier(1), end(2)] {
        senders[1].send(message);
    }
    let expected = ["end 0", "2", "end 1", "barrier 1", "1", "end 2"];
    assert_eq!(events(&mut set), expected);
}

/// The messages of a producer: the gaps between the ends of its micro-batches, and the numbers of
/// records, watermarks and barriers in each.
fn stream() -> impl Strategy<Value = Vec<(u64, u32, bool, bool)>> {
    let batch = (0u64..3, 0u32..6, any::<bool>(), prop::bool::weighted(0.2));
    prop::collection::vec(batch, 0..8)
}

/// Returns the messages of a stream in order.
fn messages(producer: u32, stream: &[(u64, u32, bool, bool)]) -> Vec<Message> {
    let (mut batch, mut epoch, mut value) = (0, 0, producer * 1_000);
    let mut all = Vec::new();
    for &(gap, records, has_watermark, has_barrier) in stream {
        for _ in 0..records {
            all.push(chunk(value));
            value += 1;
        }
        if has_watermark {
            all.push(watermark(i64::from(value % 1_000)));
        }
        all.push(end(batch + gap));
        batch += gap + 1;
        if has_barrier {
            epoch += 1;
            all.push(barrier(epoch));
        }
    }
    all.push(done());
    all
}

/// Delivers the messages in an order that `choices` determine, and returns the events.
fn deliver(streams: &[Vec<(u64, u32, bool, bool)>], choices: &[usize]) -> Vec<String> {
    let (mut senders, mut set) = set(streams.len());
    let mut left: Vec<VecDeque<Message>> = (0..)
        .zip(streams)
        .map(|(producer, stream)| messages(producer, stream).into())
        .collect();
    let (mut seen, mut choices) = (Vec::new(), choices.iter().cycle());
    let mut choose = move || *choices.next().unwrap();
    while left.iter().any(|left| !left.is_empty()) {
        let first = choose();
        let mut producers = (0..left.len()).map(|at| (first + at) % left.len());
        let ready = producers.find(|at| !left[*at].is_empty() && senders[*at].has_room());
        if let Some(at) = ready {
            senders[at].send(left[at].pop_front().unwrap());
        }
        if ready.is_none() || choose().is_multiple_of(3) {
            let before = senders.iter_mut().any(QueueSender::has_room);
            seen.extend(events(&mut set));
            let after = senders.iter_mut().any(QueueSender::has_room);
            assert!(before || after, "all producers are blocked");
        }
    }
    seen.extend(events(&mut set));
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_events_follow_from_the_messages_of_each_producer_and_not_from_their_arrival(
        streams in prop::collection::vec(stream(), 1..4),
        orders in prop::collection::vec(prop::collection::vec(0usize..60, 20..100), 2),
    ) {
        let first = deliver(&streams, &orders[0]);
        prop_assert_eq!(first.last().map(String::as_str), Some("done"));
        prop_assert_eq!(&first, &deliver(&streams, &orders[1]));
    }
}
