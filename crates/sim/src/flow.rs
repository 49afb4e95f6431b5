//! Simulation of flow control over a connection that breaks: a sender, a receiver of changing
//! speed, and delayed grants.

use std::collections::VecDeque;
use std::time::Duration;

use ardea_network::exchange::{Grant, ReceiveEvent, ReceiveWindow, SendWindow, WindowConfig};

use crate::random::Random;
use crate::world::{Simulation, World, in_world, run};

const STEP: Duration = Duration::from_millis(10);
/// The largest size of a frame in bytes, which may exceed the rest of the window.
const MOST_FRAME: u64 = 50;

/// Statistics of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowReport {
    /// The simulated duration.
    pub took: Duration,
    /// The maximum number of bytes buffered at the receiver.
    pub most_kept: u64,
    /// The number of broken connections.
    pub disconnects: u64,
}

struct Stream {
    world: World<Stream>,
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
    /// The bytes consumed until the last progress, and its time.
    moved: (u64, Duration),
    report: FlowReport,
}

in_world!(Stream);

impl Simulation for Stream {
    const CHECK_INTERVAL: Duration = Duration::MAX;

    fn check(&mut self) {
        let kept = self.received - self.consumed;
        self.report.most_kept = self.report.most_kept.max(kept);
        if kept > self.config.most + MOST_FRAME {
            let config = self.config;
            self.breaks(format!("{kept} bytes are kept, with {config:?}"));
        }
        if self.consumed > self.moved.0 {
            self.moved = (self.consumed, self.now);
        }
        if self.now > self.moved.1 + Duration::from_secs(30) {
            let (sender, receiver) = (&self.sender, &self.receiver);
            let broken = format!("nothing moves: {sender:?}, {receiver:?}");
            self.breaks(broken);
        }
    }

    fn has_ended(&mut self) -> bool {
        self.consumed == self.bytes
    }

    fn missing(&mut self) -> Option<String> {
        Some("not everything is consumed".to_string())
    }
}

/// Sends `bytes` bytes over a stream between two workers, whose connection breaks at random times.
///
/// # Errors
///
/// If the sender exceeds its allowance, the receiver must buffer more than the largest window, or
/// progress stops.
pub fn run_flow(seed: u64, bytes: u64) -> Result<FlowReport, String> {
    let mut stream = Stream::new(Random::new(seed), bytes);
    run(&mut stream, seed, Duration::MAX).map_err(|failure| failure.what)?;
    stream.report.took = stream.now;
    Ok(stream.report)
}

impl Stream {
    fn new(mut random: Random, bytes: u64) -> Self {
        let config = WindowConfig {
            first: random.below(1_000),
            least: 1 + random.below(100),
            most: 100 + random.below(10_000),
            ..WindowConfig::default()
        };
        let mut world = World::new(random);
        world.plan(Duration::ZERO, Stream::connect);
        world.plan(Duration::ZERO, Stream::step);
        Stream {
            world,
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
            moved: (0, Duration::ZERO),
            report: FlowReport::default(),
        }
    }

    /// Handles a frame over the connection of this number. Frames of a closed connection are lost.
    fn arrived(&mut self, connection: u64, bytes: u64, waited: bool) {
        if connection == self.connection {
            let (position, allowed) = (self.received - self.base, self.allowed);
            if position >= allowed {
                return self.breaks(format!("sent at {position}, {allowed} were allowed"));
            }
            self.received += bytes;
            self.inbox.push_back(bytes);
            self.at_receiver(ReceiveEvent::Arrived { bytes, waited });
        }
    }

    fn granted(&mut self, connection: u64, grant: Grant) {
        if connection == self.connection {
            let granted = self.sender.granted(grant);
            self.checked(granted.map_err(|bad| format!("{grant:?}: {bad}")));
        }
    }

    fn disconnect(&mut self) {
        self.report.disconnects += 1;
        self.connected = false;
        self.connection += 1;
        self.after(10, 2_000, Stream::connect);
    }

    /// Opens a new connection with new windows. Waits until the receiver has consumed all data of
    /// the previous connection, since only then the position of the stream is known.
    fn connect(&mut self) {
        if self.consumed < self.received {
            return self.plan_in(STEP, Stream::connect);
        }
        self.connected = true;
        self.base = self.received;
        self.sender = SendWindow::default();
        let (receiver, first) = ReceiveWindow::open(self.now, self.config);
        self.receiver = receiver;
        self.allowed = 0;
        self.tell(first);
        self.after(10, 20_000, Stream::disconnect);
    }

    fn step(&mut self) {
        self.plan_in(STEP, Stream::step);
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
            self.plan(at, move |stream| stream.arrived(connection, bytes, waited));
        }
    }

    fn at_receiver(&mut self, event: ReceiveEvent) {
        let now = self.now;
        if let Some(grant) = self.receiver.on(now, event) {
            self.tell(grant);
        }
    }

    fn tell(&mut self, grant: Grant) {
        if self.connected {
            self.allowed = self.allowed.max(grant.allowed);
            let (at, connection) = (self.arrival(1), self.connection);
            self.plan(at, move |stream| stream.granted(connection, grant));
        }
    }

    fn arrival(&mut self, direction: usize) -> Duration {
        let after = self
            .random
            .time(Duration::from_micros(50), Duration::from_millis(80));
        let at = self.in_order[direction].max(self.now + after);
        self.in_order[direction] = at;
        at
    }
}
