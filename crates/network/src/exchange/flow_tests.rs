//! Tests of windows over a simulated link with 25 ms delay in each direction.

use std::collections::VecDeque;

use super::*;
use proptest::prelude::*;

const FRAME: u64 = 1_000;
const STEP: Duration = Duration::from_millis(1);

/// A sender that offers `offered` bytes a step, and a receiver that takes `pace` bytes a step.
struct Simulation {
    now: Duration,
    delay: Duration,
    sender: SendWindow,
    receiver: ReceiveWindow,
    to_receiver: VecDeque<(Duration, bool)>,
    to_sender: VecDeque<(Duration, Grant)>,
    inbox: u64,
    consumed: u64,
    grants: usize,
    allowance: u64,
    wanted: u64,
}

impl Simulation {
    fn new(config: WindowConfig, one_way: Duration) -> Self {
        let (receiver, first) = ReceiveWindow::open(Duration::ZERO, config);
        Simulation {
            now: Duration::ZERO,
            delay: one_way,
            sender: SendWindow::default(),
            receiver,
            to_receiver: VecDeque::new(),
            to_sender: VecDeque::from([(one_way, first)]),
            inbox: 0,
            consumed: 0,
            grants: 1,
            allowance: 0,
            wanted: 0,
        }
    }

    fn hear(&mut self, grant: Option<Grant>) {
        if let Some(grant) = grant {
            self.grants += 1;
            self.to_sender.push_back((self.now + self.delay, grant));
        }
    }

    fn step(&mut self, offered: u64, pace: u64) {
        self.now += STEP;
        while self
            .to_sender
            .front()
            .is_some_and(|(at, _)| *at <= self.now)
        {
            let (_, grant) = self.to_sender.pop_front().unwrap();
            self.sender.granted(grant).unwrap();
        }
        self.wanted = (self.wanted + offered).min(100 * offered);
        while self.wanted >= FRAME {
            if self.sender.is_shut() {
                self.sender.wait();
                break;
            }
            self.wanted -= FRAME;
            let waited = self.sender.sent(FRAME);
            self.to_receiver.push_back((self.now + self.delay, waited));
        }
        while self
            .to_receiver
            .front()
            .is_some_and(|(at, _)| *at <= self.now)
        {
            let (_, waited) = self.to_receiver.pop_front().unwrap();
            self.inbox += FRAME;
            let grant = self.receiver.on(
                self.now,
                ReceiveEvent::Arrived {
                    bytes: FRAME,
                    waited,
                },
            );
            self.hear(grant);
        }
        self.allowance = (self.allowance + pace).min(pace.max(FRAME));
        while self.inbox >= FRAME && self.allowance >= FRAME {
            self.allowance -= FRAME;
            self.inbox -= FRAME;
            self.consumed += FRAME;
            let grant = self
                .receiver
                .on(self.now, ReceiveEvent::Consumed { bytes: FRAME });
            self.hear(grant);
        }
        if self.receiver.next_tick().is_some_and(|due| due <= self.now) {
            let grant = self.receiver.on(self.now, ReceiveEvent::Tick);
            self.hear(grant);
        }
    }

    /// Steps for `millis`. Returns the mean number of bytes in flight, and the rate of the receiver
    /// in bytes per millisecond.
    fn run(&mut self, millis: u64, offered: u64, pace: u64) -> (f64, f64) {
        let (mut sum, before) = (0, self.consumed);
        for _ in 0..millis {
            self.step(offered, pace);
            sum += self.sender.in_flight();
        }
        (
            sum as f64 / millis as f64,
            (self.consumed - before) as f64 / millis as f64,
        )
    }
}

const WAY: Duration = Duration::from_millis(25);
const PLENTY: u64 = 10_000_000;

#[test]
fn three_intervals_of_a_slow_receivers_pace_are_in_flight_at_50_ms() {
    for pace in [2_000, 10_000, 40_000] {
        let mut simulation = Simulation::new(WindowConfig::default(), WAY);
        simulation.run(3_000, PLENTY, pace);
        let (in_flight, reached) = simulation.run(2_000, PLENTY, pace);
        let intervals = in_flight / (reached * 100.0);
        assert!((2.0..=3.5).contains(&intervals), "{pace}: {intervals}");
        assert!(reached >= 0.98 * pace as f64, "{pace}: {reached}");
    }
}

#[test]
fn the_window_grows_and_shrinks_with_the_receivers_pace() {
    let mut simulation = Simulation::new(WindowConfig::default(), WAY);
    simulation.run(3_000, PLENTY, 40_000);
    let fast = simulation.receiver.window();
    simulation.run(3_000, PLENTY, 4_000);
    let slow = simulation.receiver.window();
    simulation.run(3_000, PLENTY, 40_000);
    let again = simulation.receiver.window();
    assert!(fast > 5 * slow, "{fast} {slow}");
    assert!(again > 5 * slow, "{again} {slow}");
}

#[test]
fn a_receiver_that_keeps_up_is_not_held_up_by_its_window() {
    for way_ms in [0, 25, 400] {
        let config = WindowConfig {
            most: 1 << 30,
            ..WindowConfig::default()
        };
        let mut simulation = Simulation::new(config, Duration::from_millis(way_ms));
        simulation.run(15_000, 50_000, PLENTY);
        let (_, reached) = simulation.run(2_000, 50_000, PLENTY);
        assert!(reached >= 0.95 * 50_000.0, "{way_ms}: {reached}");
    }
}

#[test]
fn a_stopped_receiver_stops_its_sender_and_starts_it_again() {
    let mut simulation = Simulation::new(WindowConfig::default(), WAY);
    simulation.run(1_000, PLENTY, 10_000);
    simulation.run(1_000, PLENTY, 0);
    let sent = simulation.sender.position();
    simulation.run(5_000, PLENTY, 0);
    assert_eq!(simulation.sender.position(), sent);
    assert!(simulation.sender.in_flight() <= WindowConfig::default().most + FRAME);
    let (_, reached) = simulation.run(3_000, PLENTY, 10_000);
    assert!(reached > 9_000.0, "{reached}");
}

#[test]
fn an_idle_stream_sends_no_grants_and_keeps_its_window() {
    let mut simulation = Simulation::new(WindowConfig::default(), WAY);
    simulation.run(2_000, 20_000, PLENTY);
    simulation.run(500, 0, PLENTY);
    let (window, grants) = (simulation.receiver.window(), simulation.grants);
    simulation.run(10_000, 0, PLENTY);
    assert_eq!(simulation.receiver.window(), window);
    assert_eq!(simulation.grants, grants);
    assert_eq!(simulation.receiver.next_tick(), None);
}

#[test]
fn grants_are_rare() {
    let mut simulation = Simulation::new(WindowConfig::default(), WAY);
    simulation.run(2_000, PLENTY, 20_000);
    let before = simulation.grants;
    simulation.run(10_000, PLENTY, 20_000);
    assert!(
        simulation.grants - before <= 110,
        "{}",
        simulation.grants - before
    );
}

#[test]
fn a_window_that_is_configured_to_nothing_is_one_byte_and_never_shuts_for_good() {
    for least in [0, 7] {
        let config = WindowConfig {
            first: 0,
            least,
            most: 0,
            ..WindowConfig::default()
        };
        let mut simulation = Simulation::new(config, Duration::ZERO);
        simulation.run(2_000, FRAME, PLENTY);
        assert_eq!(simulation.receiver.window(), least.max(1));
        assert!(simulation.consumed >= 1_000 * FRAME, "{least}");
    }
}

#[test]
fn a_grant_that_comes_late_takes_nothing_back() {
    let grant = |consumed, allowed| Grant { consumed, allowed };
    let mut sender = SendWindow::default();
    sender.granted(grant(0, 100)).unwrap();
    sender.sent(60);
    sender.granted(grant(50, 150)).unwrap();
    assert_eq!(sender.granted(grant(20, 120)), Ok(false));
    assert_eq!((sender.available(), sender.in_flight()), (90, 10));
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_is_refused() {
    let mut sender = SendWindow::default();
    let lie = Grant {
        consumed: 5,
        allowed: 100,
    };
    assert_eq!(sender.granted(lie), Err(BadGrant));
    assert!(sender.is_shut());
}

proptest! {
    #[test]
    fn what_a_receiver_holds_is_bounded_and_no_stream_gets_stuck(
        phases in prop::collection::vec((1u64..400, 0u64..60_000, 0u64..60_000), 1..20),
        way_ms in 0u64..120,
    ) {
        let config = WindowConfig { most: 1 << 20, ..WindowConfig::default() };
        let mut simulation = Simulation::new(config, Duration::from_millis(way_ms));
        for (millis, offered, pace) in phases {
            for _ in 0..millis {
                simulation.step(offered, pace);
                prop_assert!(simulation.inbox <= config.most + FRAME);
                prop_assert!(simulation.sender.in_flight() <= config.most + FRAME);
            }
        }
        simulation.wanted = 0;
        simulation.run(3_000, 0, PLENTY);
        prop_assert_eq!(simulation.consumed, simulation.sender.position());
        prop_assert!(!simulation.sender.is_shut());
    }

    #[test]
    fn whatever_the_config_no_window_is_exceeded_or_closes_for_good(
        steps in prop::collection::vec((0u64..50, 0u64..200, 0u64..200), 1..300),
        first in 0u64..1_000,
        least in 0u64..50,
        most in 0u64..500,
    ) {
        let config = WindowConfig { first, least, most, ..WindowConfig::default() };
        let (mut receiver, grant) = ReceiveWindow::open(Duration::ZERO, config);
        let mut sender = SendWindow::default();
        sender.granted(grant).unwrap();
        let mut now = Duration::ZERO;
        for (wait, send, consume) in steps {
            now += Duration::from_millis(wait);
            let bytes = send.min(sender.available());
            let waited = sender.sent(bytes);
            if send > bytes {
                sender.wait();
            }
            let arrived = receiver.on(now, ReceiveEvent::Arrived { bytes, waited });
            prop_assert!(receiver.backlog() <= most.max(least).max(1));
            let bytes = consume.min(receiver.backlog());
            let consumed = receiver.on(now, ReceiveEvent::Consumed { bytes });
            let tick = receiver.on(now, ReceiveEvent::Tick);
            for grant in [arrived, consumed, tick].into_iter().flatten() {
                sender.granted(grant).unwrap();
            }
            prop_assert!(receiver.backlog() > 0 || !sender.is_shut());
        }
    }
}
