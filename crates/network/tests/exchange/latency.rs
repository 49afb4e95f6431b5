//! Tests of workers with a round trip of 50 ms, by a manual clock.

use std::time::Duration;

use ardea_core::{Chunk, ManualClock, Rows, Timestamp};
use ardea_network::exchange::*;

use crate::pair::{Worker, pair_by};

/// The one-way delay.
const WAY: Duration = Duration::from_millis(25);

/// The time step.
const STEP: Duration = Duration::from_millis(1);

/// More numbers, or bytes, than any test offers or processes in a step.
const PLENTY: u32 = 1_000_000;

/// Numbers in a chunk.
const CHUNK: u64 = 500;

/// Two workers, and streams from the first to the second.
struct Far {
    hand: ManualClock,
    first: Worker,
    second: Worker,
    streams: Vec<Stream>,
}

/// One stream of ascending numbers.
struct Stream {
    sender: EdgeSender,
    receiver: EdgeReceiver,
    /// Numbers offered per step, and bytes that the receiver processes per step.
    offered: u32,
    pace: u32,
    /// Numbers sent, offered so far, and received.
    sent: u64,
    wanted: u64,
    received: u64,
    /// Bytes that may be processed, and bytes processed.
    allowance: i64,
    dealt_with: u64,
}

impl Stream {
    fn offer(&mut self) {
        self.wanted = (self.wanted + u64::from(self.offered)).min(self.sent + u64::from(PLENTY));
        while self.sent < self.wanted {
            let count = CHUNK.min(self.wanted - self.sent);
            let numbers = (self.sent..self.sent + count).map(|n| (n, Timestamp::MIN));
            let mut chunk = Chunk::new(numbers.collect::<Rows<u64>>());
            let is_taken = self.sender.send(InstanceNumber(0), &mut chunk).unwrap();
            self.sent += count - chunk.len() as u64;
            if !is_taken {
                break;
            }
        }
        self.sender.flush().unwrap();
    }

    fn take(&mut self, now: Duration) {
        let pace = i64::from(self.pace);
        self.allowance = (self.allowance + pace).min(pace);
        let mut chunk = Chunk::default();
        while self.allowance > 0 && self.receiver.receive(now, &mut chunk).unwrap().is_some() {
            let bytes = self.receiver.last_frame_bytes();
            self.allowance -= bytes as i64;
            self.dealt_with += bytes;
            let numbers = chunk.rows::<u64>().unwrap();
            let expected = self.received..self.received + numbers.len() as u64;
            assert!(numbers.values().iter().copied().eq(expected));
            self.received += numbers.len() as u64;
            chunk.clear();
        }
    }
}

impl Far {
    /// Creates streams from pairs of numbers offered and bytes processed per step.
    fn new(streams: &[(u32, u32)]) -> Self {
        let hand = ManualClock::new();
        let clock = hand.clock();
        let network = MemoryNetwork::with_delay(clock.clone(), WAY);
        let transport = || Box::new(network.transport());
        let ways = (transport() as _, transport() as _, "second");
        let pass = || hand.advance(STEP);
        let (mut first, mut second) = pair_by(&clock, pass, ways, LinkConfig::default());
        let streams = (1..).zip(streams).map(|(number, (offered, pace))| Stream {
            receiver: second.receiver::<u64>(StreamId::new(1, number)),
            sender: first.sender::<u64>(StreamId::new(1, number)),
            offered: *offered,
            pace: *pace,
            sent: 0,
            wanted: 0,
            received: 0,
            allowance: 0,
            dealt_with: 0,
        });
        Far {
            streams: streams.collect(),
            hand,
            first,
            second,
        }
    }

    fn step(&mut self) {
        self.hand.advance(STEP);
        self.streams.iter_mut().for_each(Stream::offer);
        self.first.poll().unwrap();
        self.second.poll().unwrap();
        let now = self.second.clock.now();
        self.streams.iter_mut().for_each(|stream| stream.take(now));
    }

    /// Runs `steps` steps. Returns, for the first stream, the mean number of bytes in flight and
    /// the bytes processed per step.
    fn run(&mut self, steps: u32) -> (f64, f64) {
        let before = self.streams[0].dealt_with;
        let mut in_flight = 0;
        for _ in 0..steps {
            self.step();
            in_flight += self.streams[0].sender.bytes_in_flight();
        }
        let dealt_with = self.streams[0].dealt_with - before;
        let steps = f64::from(steps);
        (in_flight as f64 / steps, dealt_with as f64 / steps)
    }
}

#[test]
fn three_intervals_of_a_slow_receivers_pace_are_in_flight_and_other_streams_go_on() {
    for pace in [2_000, 10_000] {
        let mut far = Far::new(&[(PLENTY, pace), (100, PLENTY)]);
        far.run(1_500);
        let before = far.streams[1].received;
        let (in_flight, reached) = far.run(1_000);
        let intervals = in_flight / (reached * 100.0);
        assert!((2.0..=3.5).contains(&intervals), "{pace}: {intervals}");
        assert!(reached >= 0.98 * f64::from(pace), "{pace}: {reached}");
        // All offered bytes, and no more than those in flight before or now.
        let other = far.streams[1].received - before;
        assert!(other.abs_diff(100 * 1_000) <= 100 * 25, "{pace}: {other}");
    }
}

#[test]
fn what_is_in_flight_grows_and_shrinks_with_the_receivers_pace() {
    let mut far = Far::new(&[(PLENTY, 10_000)]);
    far.run(1_500);
    let (quick, _) = far.run(300);
    far.streams[0].pace = 1_000;
    far.run(6_000);
    let (slow, _) = far.run(300);
    far.streams[0].pace = 10_000;
    far.run(1_500);
    let (again, _) = far.run(300);
    assert!(quick > 5.0 * slow, "{quick} {slow}");
    assert!(again > 5.0 * slow, "{again} {slow}");
}
