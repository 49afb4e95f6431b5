//! Simulation of flow control over a connection that breaks: a sender, a receiver of changing
//! speed, and delayed grants.

use std::collections::VecDeque;
use std::time::Duration;

use ardea_network::exchange::{Grant, ReceiveEvent, ReceiveWindow, SendWindow, WindowConfig};

use crate::event_queue::EventQueue;
use crate::random::Random;

const STEP: Duration = Duration::from_millis(10);
/// The largest size of a frame in bytes, which may exceed the rest of the window.
const MOST_FRAME: u64 = 50;

#[derive(Clone, Copy)]
enum Event {
    Step,
    /// A frame arrives over the connection of this number.
    Frame {
        connection: u64,
        bytes: u64,
        waited: bool,
    },
    /// A grant arrives over the connection of this number.
    Granted(u64, Grant),
    Disconnect,
    Connect,
}

/// Statistics of a run.
#[derive(Clone, Copy, Debug)]
pub struct FlowReport {
    /// The simulated duration.
    pub took: Duration,
    /// The maximum number of bytes buffered at the receiver.
    pub most_kept: u64,
    /// The number of broken connections.
    pub disconnects: u64,
}

struct Stream {
    random: Random,
    timeline: EventQueue<Event>,
    now: Duration,
    config: WindowConfig,
    sender: SendWindow,
    receiver: ReceiveWindow,
    /// The number of the connection; data in transit on an earlier one is lost.
    connection: u64,
    connected: bool,
    /// The bytes received before the current connection, from which its windows count.
    base: u64,
    /// The position up to which the sender may send on the current connection.
    allowed: u64,
    /// The earliest next arrival in each direction, since a connection delivers in order.
    in_order: [Duration; 2],
    inbox: VecDeque<u64>,
    received: u64,
    consumed: u64,
    /// The bytes that the receiver consumes per step, and the bytes that it may consume now.
    pace: u64,
    allowance: u64,
    bytes: u64,
}

/// Sends `bytes` bytes over a stream between two workers, whose connection breaks at random times.
///
/// # Errors
///
/// If the sender exceeds its allowance, the receiver must buffer more than the largest window, or
/// progress stops.
pub fn run_flow(seed: u64, bytes: u64) -> Result<FlowReport, String> {
    let mut stream = Stream::new(Random::new(seed), bytes);
    let mut report = FlowReport {
        took: Duration::ZERO,
        most_kept: 0,
        disconnects: 0,
    };
    let mut moved_at = Duration::ZERO;
    while let Some((now, event)) = stream.timeline.take() {
        stream.now = now;
        let before = stream.consumed;
        stream.happens(event)?;
        report.disconnects += u64::from(matches!(event, Event::Disconnect));
        let kept = stream.received - stream.consumed;
        report.most_kept = report.most_kept.max(kept);
        if kept > stream.config.most + MOST_FRAME {
            return Err(format!("{kept} bytes are kept, with {:?}", stream.config));
        }
        if stream.consumed > before {
            moved_at = now;
        }
        if stream.consumed == bytes {
            report.took = now;
            return Ok(report);
        }
        if now > moved_at + Duration::from_secs(30) {
            let Stream {
                sender, receiver, ..
            } = &stream;
            return Err(format!("nothing moves: {sender:?}, {receiver:?}"));
        }
    }
    Err("nothing happens any more".to_string())
}

impl Stream {
    fn new(mut random: Random, bytes: u64) -> Self {
        let config = WindowConfig {
            first: random.below(1_000),
            least: 1 + random.below(100),
            most: 100 + random.below(10_000),
            ..WindowConfig::default()
        };
        let mut timeline = EventQueue::new();
        timeline.plan(Duration::ZERO, Event::Connect);
        timeline.plan(Duration::ZERO, Event::Step);
        Stream {
            random,
            timeline,
            now: Duration::ZERO,
            config,
            sender: SendWindow::default(),
            receiver: ReceiveWindow::open(Duration::ZERO, config).0,
            connection: 0,
            connected: false,
            base: 0,
            allowed: 0,
            in_order: [Duration::ZERO; 2],
            inbox: VecDeque::new(),
            received: 0,
            consumed: 0,
            pace: 1,
            allowance: 0,
            bytes,
        }
    }

    fn happens(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Step => self.step(),
            Event::Frame {
                connection,
                bytes,
                waited,
            } if connection == self.connection => {
                let position = self.received - self.base;
                if position >= self.allowed {
                    let allowed = self.allowed;
                    return Err(format!("sent at {position}, {allowed} were allowed"));
                }
                self.received += bytes;
                self.inbox.push_back(bytes);
                self.at_receiver(ReceiveEvent::Arrived { bytes, waited });
            }
            Event::Granted(connection, grant) if connection == self.connection => {
                let granted = self.sender.granted(grant);
                granted.map_err(|bad| format!("{grant:?}: {bad}"))?;
            }
            // Frames and grants of a closed connection are lost.
            Event::Frame { .. } | Event::Granted(..) => {}
            Event::Disconnect => {
                self.connected = false;
                self.connection += 1;
                let after = self.random.time(STEP, Duration::from_secs(2));
                self.timeline.plan(self.now + after, Event::Connect);
            }
            Event::Connect => self.connect(),
        }
        Ok(())
    }

    /// Opens a new connection with new windows. Waits until the receiver has consumed all data of
    /// the previous connection, since only then the position of the stream is known.
    fn connect(&mut self) {
        if self.consumed < self.received {
            self.timeline.plan(self.now + STEP, Event::Connect);
            return;
        }
        self.connected = true;
        self.base = self.received;
        self.sender = SendWindow::default();
        let (receiver, first) = ReceiveWindow::open(self.now, self.config);
        self.receiver = receiver;
        self.allowed = 0;
        self.tell(first);
        let after = self.random.time(STEP, Duration::from_secs(20));
        self.timeline.plan(self.now + after, Event::Disconnect);
    }

    fn step(&mut self) {
        self.timeline.plan(self.now + STEP, Event::Step);
        if self.random.per_mille(20) {
            self.pace = match self.random.below(5) {
                0 => 0,
                _ => 1 + self.random.below(200),
            };
        }
        if self.connected {
            self.send();
        }
        self.allowance = (self.allowance + self.pace).min(self.pace.max(MOST_FRAME));
        while let Some(bytes) = self.inbox.pop_front_if(|bytes| *bytes <= self.allowance) {
            self.allowance -= bytes;
            self.consumed += bytes;
            self.at_receiver(ReceiveEvent::Consumed { bytes });
        }
        if self.receiver.next_tick().is_some_and(|due| due <= self.now) {
            self.at_receiver(ReceiveEvent::Tick);
        }
    }

    /// Sends some frames, as far as the window allows.
    fn send(&mut self) {
        for _ in 0..self.random.below(20) {
            let left = self.bytes - self.base - self.sender.position();
            if left == 0 {
                return;
            }
            if self.sender.is_shut() {
                self.sender.wait();
                return;
            }
            let bytes = (1 + self.random.below(MOST_FRAME)).min(left);
            let waited = self.sender.sent(bytes);
            let connection = self.connection;
            let at = self.arrival(0);
            self.timeline.plan(
                at,
                Event::Frame {
                    connection,
                    bytes,
                    waited,
                },
            );
        }
    }

    fn at_receiver(&mut self, event: ReceiveEvent) {
        if let Some(grant) = self.receiver.on(self.now, event) {
            self.tell(grant);
        }
    }

    fn tell(&mut self, grant: Grant) {
        if self.connected {
            self.allowed = self.allowed.max(grant.allowed);
            let at = self.arrival(1);
            self.timeline
                .plan(at, Event::Granted(self.connection, grant));
        }
    }

    fn arrival(&mut self, direction: usize) -> Duration {
        let after = self
            .random
            .time(Duration::from_micros(50), Duration::from_millis(80));
        self.in_order[direction] = self.in_order[direction].max(self.now + after);
        self.in_order[direction]
    }
}
