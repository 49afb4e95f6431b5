//! Tests of edges over a shared link.

use ardea_core::{Chunk, Epoch, Marker, MicroBatch, Rows, Timestamp, Waker, Watermark};
use ardea_network::exchange::*;

use crate::pair::{Worker, pair, take_numbers, transports, until};

fn pairs() -> impl Iterator<Item = (Worker, Worker)> {
    transports()
        .into_iter()
        .map(|(first, second, address)| pair(first, second, address, LinkConfig::default()))
}

fn numbers(from: u64, count: u64) -> Chunk {
    Chunk::new(
        (from..from + count)
            .map(|n| (n, Timestamp::from_micros(n as i64)))
            .collect::<Rows<u64>>(),
    )
}

#[test]
fn markers_stay_behind_the_records_before_them() {
    for (mut first, mut second) in pairs() {
        let stream = StreamId::new(3, 4);
        let mut receiver = second.receiver::<u64>(stream);
        let mut sender = first.sender::<u64>(stream);
        let at = Watermark(Timestamp::from_secs(-5));
        let steps = [
            Marker::Watermark(at),
            Marker::Idle,
            Marker::Barrier(Epoch(7)),
            Marker::BatchEnd(MicroBatch(8)),
            Marker::Done,
        ];
        let mut sent = 0;
        let mut chunk = numbers(0, 10);
        let mut got = Vec::new();
        let mut into = Chunk::default();
        until(|| {
            if sent < 10 {
                let done = match sent % 2 {
                    0 => sender.send(InstanceNumber(sent), &mut chunk).unwrap(),
                    _ => sender.mark(steps[sent as usize / 2]).unwrap(),
                };
                if done {
                    sent += 1;
                    chunk = numbers(0, 10);
                }
            }
            sender.flush().unwrap();
            first.poll().unwrap();
            second.poll().unwrap();
            while let Some(received) = receiver.receive(second.clock.now(), &mut into).unwrap() {
                if matches!(received, Received::Records { .. }) {
                    assert_eq!(
                        into.rows::<u64>().unwrap(),
                        numbers(0, 10).rows::<u64>().unwrap()
                    );
                    into.clear();
                }
                got.push(received);
            }
            receiver.is_done()
        });
        let records = |target, epoch| Received::Records {
            target: InstanceNumber(target),
            epoch: Epoch(epoch),
        };
        let expected = [
            records(0, 0),
            Received::Marker(steps[0]),
            records(2, 0),
            Received::Marker(steps[1]),
            records(4, 0),
            Received::Marker(steps[2]),
            records(6, 8),
            Received::Marker(steps[3]),
            records(8, 8),
            Received::Marker(steps[4]),
        ];
        assert_eq!(got, expected);
    }
}

#[test]
fn a_stopped_receiver_stops_its_sender_and_no_other_stream() {
    for (mut first, mut second) in pairs() {
        let (slow, fast) = (StreamId::new(1, 1), StreamId::new(1, 2));
        let mut receivers = [slow, fast].map(|stream| second.receiver::<u64>(stream));
        let mut senders = [slow, fast].map(|stream| first.sender::<u64>(stream));
        let mut next = [0u64; 2];
        let mut got: [Vec<u64>; 2] = Default::default();
        let total = 2_000_000;
        let mut step = |read_slow: bool, next: &mut [u64; 2], got: &mut [Vec<u64>; 2]| {
            for (at, sender) in senders.iter_mut().enumerate() {
                let mut chunk = numbers(next[at], 1000.min(total - next[at]));
                sender.send(InstanceNumber(0), &mut chunk).unwrap();
                next[at] += 1000.min(total - next[at]) - chunk.len() as u64;
                sender.flush().unwrap();
            }
            first.poll().unwrap();
            second.poll().unwrap();
            let now = second.clock.now();
            for (at, receiver) in receivers.iter_mut().enumerate() {
                if at == 1 || read_slow {
                    take_numbers(receiver, now, &mut got[at]).unwrap();
                }
            }
        };
        until(|| {
            step(false, &mut next, &mut got);
            got[1].len() as u64 == total
        });
        let held = next[0] * 10;
        assert!(
            held < 2 * WindowConfig::default().first,
            "{held} bytes are held"
        );
        until(|| {
            step(true, &mut next, &mut got);
            got[0].len() as u64 == total
        });
        assert!(got.iter().all(|got| got.iter().copied().eq(0..total)));
    }
}

#[test]
fn a_grant_waits_for_a_sender_that_is_opened_later() {
    for (mut first, mut second) in pairs() {
        let stream = StreamId::new(1, 1);
        let mut receiver = second.receiver::<u64>(stream);
        until(|| {
            second.poll().unwrap();
            first.poll().unwrap();
            first.link.counts().frames_in == 2
        });
        let mut sender = first.sender::<u64>(stream);
        let mut got = Vec::new();
        let mut chunk = numbers(0, 5);
        until(|| {
            sender.send(InstanceNumber(0), &mut chunk).unwrap();
            sender.flush().unwrap();
            first.poll().unwrap();
            second.poll().unwrap();
            take_numbers(&mut receiver, second.clock.now(), &mut got).unwrap() > 0
        });
        assert_eq!(got, [0, 1, 2, 3, 4]);
    }
}

#[test]
fn frames_for_a_stream_that_has_been_closed_are_counted_and_harm_nobody() {
    for (mut first, mut second) in pairs() {
        let (closed, open) = (StreamId::new(1, 1), StreamId::new(2, 1));
        let receiver = second.receiver::<u64>(closed);
        let mut other = second.receiver::<u64>(open);
        let mut sender = first.sender::<u64>(closed);
        let mut other_sender = first.sender::<u64>(open);
        until(|| {
            first.poll().unwrap();
            second.poll().unwrap();
            sender.flush().unwrap();
            !sender.is_shut()
        });
        drop(receiver);
        let (mut chunk, mut other_chunk) = (numbers(0, 500), numbers(0, 10));
        let mut got = Vec::new();
        until(|| {
            second.poll().unwrap();
            sender.send(InstanceNumber(0), &mut chunk).unwrap();
            sender.flush().unwrap();
            other_sender
                .send(InstanceNumber(0), &mut other_chunk)
                .unwrap();
            other_sender.flush().unwrap();
            first.poll().unwrap();
            second.poll().unwrap();
            take_numbers(&mut other, second.clock.now(), &mut got).unwrap();
            got.len() == 10 && second.link.counts().stray_records == 500
        });
    }
}

#[test]
fn one_end_of_a_stream_is_opened_once_and_again_when_it_was_closed() {
    for (mut first, mut second) in pairs() {
        let stream = StreamId::new(9, 9);
        let port = first.link.open(End::Sender, stream, Waker::none()).unwrap();
        let error = first
            .link
            .open(End::Sender, stream, Waker::none())
            .unwrap_err();
        assert!(error.to_string().contains("edge 9 of job 9"), "{error}");
        drop(port);
        until(|| {
            first.poll().unwrap();
            second.poll().unwrap();
            first.link.open(End::Sender, stream, Waker::none()).is_ok()
        });
    }
}

#[test]
fn a_record_larger_than_any_frame_is_an_error_and_the_stream_goes_on() {
    for (mut first, mut second) in pairs() {
        let stream = StreamId::new(1, 1);
        let mut receiver = second.receiver::<String>(stream);
        let mut sender = first.sender::<String>(stream);
        until(|| {
            first.poll().unwrap();
            second.poll().unwrap();
            sender.flush().unwrap();
            !sender.is_shut()
        });
        let of = |text: String| Chunk::new(Rows::from_iter([(text, Timestamp::MIN)]));
        let error = sender
            .send(InstanceNumber(0), &mut of("x".repeat(17 << 20)))
            .unwrap_err();
        assert!(error.to_string().contains("a record takes"), "{error}");
        let large = "y".repeat(3 << 20);
        let mut chunk = of(large.clone());
        let mut into = Chunk::default();
        until(|| {
            sender.send(InstanceNumber(0), &mut chunk).unwrap();
            sender.flush().unwrap();
            first.poll().unwrap();
            second.poll().unwrap();
            receiver
                .receive(second.clock.now(), &mut into)
                .unwrap()
                .is_some()
        });
        assert_eq!(into.rows::<String>().unwrap().values(), [large]);
    }
}
