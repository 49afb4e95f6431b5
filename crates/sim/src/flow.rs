//! Flow control over a connection that breaks: a sender, a receiver whose speed changes, and grants that are late.

use std::time::Duration;

use ardea_control::{Grant, ReceiveWindow, SendWindow, WindowConfig, WindowEvent};

use crate::random::Random;
use crate::timeline::Timeline;

const TICK: Duration = Duration::from_millis(10);

#[derive(Clone, Copy)]
enum Event {
    Tick,
    /// Items arrive over the connection of that number.
    Items(u64, u64),
    /// A grant arrives over the connection of that number.
    Granted(u64, Grant),
    Cut,
    Connect,
}

/// What came of a run.
#[derive(Clone, Copy, Debug)]
pub struct FlowReport {
    /// How long it took, in simulated time.
    pub took: Duration,
    /// The most items that lay at the receiver.
    pub most_kept: u64,
    /// How often the connection broke.
    pub cuts: u64,
}

struct Edge {
    random: Random,
    timeline: Timeline<Event>,
    now: Duration,
    sender: SendWindow,
    receiver: ReceiveWindow,
    /// Counts connections; what is under way on an earlier one is lost.
    connection: u64,
    connected: bool,
    /// A connection delivers in order: nothing arrives before this.
    in_order: [Duration; 2],
    received: u64,
    consumed: u64,
    rate: u64,
    items: u64,
}

/// Sends so many items over an edge between two workers, whose connection breaks now and then.
///
/// # Errors
///
/// When the sender goes further than it was allowed to, the receiver has to keep more than the largest window, or nothing moves
/// any more.
pub fn run_flow(seed: u64, items: u64) -> Result<FlowReport, String> {
    let mut random = Random::new(seed);
    let config = WindowConfig {
        min: 1 + random.below(100),
        max: 100 + random.below(10_000),
        ..WindowConfig::default()
    };
    let mut edge = Edge {
        random,
        timeline: Timeline::new(),
        now: Duration::ZERO,
        sender: SendWindow::new(),
        receiver: ReceiveWindow::new(config),
        connection: 0,
        connected: false,
        in_order: [Duration::ZERO; 2],
        received: 0,
        consumed: 0,
        rate: 1,
        items,
    };
    edge.timeline.plan(Duration::ZERO, Event::Connect);
    edge.timeline.plan(Duration::ZERO, Event::Tick);
    let mut report = FlowReport {
        took: Duration::ZERO,
        most_kept: 0,
        cuts: 0,
    };
    let mut moved_at = Duration::ZERO;
    while let Some((now, event)) = edge.timeline.take() {
        edge.now = now;
        let before = edge.consumed;
        edge.happens(event)?;
        report.cuts += u64::from(matches!(event, Event::Cut));
        let kept = edge.received - edge.consumed;
        report.most_kept = report.most_kept.max(kept);
        if kept > config.max.max(config.min).max(2) {
            return Err(format!("{kept} items are kept, with {config:?}"));
        }
        if edge.consumed > before {
            moved_at = now;
        }
        if edge.consumed == items {
            report.took = now;
            return Ok(report);
        }
        if now > moved_at + Duration::from_secs(30) {
            return Err(format!(
                "nothing moves: {:?}, {:?}",
                edge.sender, edge.receiver
            ));
        }
    }
    Err("nothing happens any more".to_string())
}

impl Edge {
    fn happens(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Tick => self.tick(),
            Event::Items(connection, count) if connection == self.connection => {
                self.receiver
                    .received(count)
                    .map_err(|over| over.to_string())?;
                self.received += count;
            }
            Event::Granted(connection, grant) if connection == self.connection => {
                self.sender.granted(grant);
            }
            // Of a connection that is no more.
            Event::Items(..) | Event::Granted(..) => {}
            Event::Cut => {
                self.connected = false;
                self.connection += 1;
                let after = self.random.time(TICK, Duration::from_secs(2));
                self.timeline.plan(self.now + after, Event::Connect);
            }
            Event::Connect => {
                self.connected = true;
                // The first thing that a receiver says: how far it has come, and how far the sender may go.
                self.sender.resume(self.receiver.received_so_far());
                let grant = self.receiver.on(self.now, WindowEvent::Connected);
                self.tell(grant);
                let after = self.random.time(TICK, Duration::from_secs(20));
                self.timeline.plan(self.now + after, Event::Cut);
            }
        }
        Ok(())
    }

    fn tick(&mut self) {
        self.timeline.plan(self.now + TICK, Event::Tick);
        if self.random.per_mille(20) {
            self.rate = match self.random.below(5) {
                0 => 0,
                _ => 1 + self.random.below(200),
            };
        }
        if self.connected {
            let room = self
                .sender
                .room()
                .min(self.items - self.sender.sent_so_far());
            let count = self.random.below(room + 1);
            if count > 0 {
                self.sender.sent(count);
                let at = self.arrival(0);
                self.timeline.plan(at, Event::Items(self.connection, count));
            }
        }
        let count = self.rate.min(self.received - self.consumed);
        self.consumed += count;
        for event in [WindowEvent::Consumed(count), WindowEvent::Tick] {
            let grant = self.receiver.on(self.now, event);
            self.tell(grant);
        }
    }

    fn tell(&mut self, grant: Option<Grant>) {
        if let Some(grant) = grant.filter(|_| self.connected) {
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
