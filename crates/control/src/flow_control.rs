//! Flow control between two workers: the receiver says how far the sender may go.
//!
//! After it has consumed item n the receiver allows items up to n + window. It says so every 100 ms, or as soon as half of the window
//! is used; the window follows the rate at which items are consumed, so that about three such intervals' worth may be under way ("Hazelcast Jet",
//! VLDB 2021, §3.3, backpressure). A sender without room stops its tasklet, and nothing else.
//!
//! What an item is, bytes or records, is the caller's choice; both sides count alike.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How windows are sized.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowConfig {
    /// How often the receiver says how far the sender may go, if items are consumed.
    pub grant_every: Duration,
    /// How many intervals' worth of items may be under way.
    pub intervals: u32,
    /// The smallest window, and the first.
    pub min: u64,
    /// The largest window: this bounds what the receiver has to keep.
    pub max: u64,
}

impl Default for WindowConfig {
    /// For items that are bytes.
    fn default() -> Self {
        WindowConfig {
            grant_every: Duration::from_millis(100),
            intervals: 3,
            min: 64 << 10,
            max: 64 << 20,
        }
    }
}

/// How far a sender may go. Later ones allow more; one that is lost or late does no harm but that of waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// The items with numbers below this may be sent, counted from the beginning of the edge.
    pub allowed: u64,
}

/// What happens to a receiver's window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowEvent {
    /// So many items were consumed: they take no room here any more.
    Consumed(u64),
    /// The sender has connected, or connected again: it has to be told.
    Connected,
    /// Time has passed; comes at least every quarter of the interval.
    Tick,
}

/// The sender has gone further than it was allowed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the sender has sent {sent} items and was allowed {allowed}")]
pub struct Overrun {
    /// So far it went.
    pub sent: u64,
    /// So far it was allowed to go.
    pub allowed: u64,
}

/// The receiver's side of an edge from another worker.
///
/// ```
/// use std::time::Duration;
/// use ardea_control::{Grant, ReceiveWindow, SendWindow, WindowConfig, WindowEvent};
///
/// let config = WindowConfig { min: 10, max: 1000, ..WindowConfig::default() };
/// let mut receiver = ReceiveWindow::new(config);
/// let mut sender = SendWindow::new();
/// let now = Duration::ZERO;
/// sender.granted(receiver.on(now, WindowEvent::Connected).unwrap());
/// assert_eq!(sender.room(), 10);
/// sender.sent(8);
/// receiver.received(8)?;
/// let grant = receiver.on(now + Duration::from_millis(1), WindowEvent::Consumed(8)).unwrap();
/// sender.granted(grant);
/// assert!(sender.room() > 10, "consumed fast: the window grows");
/// # Ok::<(), ardea_control::Overrun>(())
/// ```
#[derive(Debug)]
pub struct ReceiveWindow {
    config: WindowConfig,
    window: u64,
    received: u64,
    consumed: u64,
    allowed: u64,
    /// What had been consumed at the last grant, and when that was.
    at_grant: (u64, Duration),
}

impl ReceiveWindow {
    /// A window before the first item.
    pub fn new(config: WindowConfig) -> Self {
        let min = config.min.max(2);
        let config = WindowConfig {
            min,
            max: config.max.max(min),
            ..config
        };
        ReceiveWindow {
            config,
            window: config.min,
            received: 0,
            consumed: 0,
            allowed: config.min,
            at_grant: (0, Duration::ZERO),
        }
    }

    /// So many items have come.
    ///
    /// # Errors
    ///
    /// When the sender was not allowed to send them: it is broken or means harm, and the connection should be closed.
    pub fn received(&mut self, items: u64) -> Result<(), Overrun> {
        let sent = self.received.saturating_add(items);
        if sent > self.allowed {
            let allowed = self.allowed;
            return Err(Overrun { sent, allowed });
        }
        self.received = sent;
        Ok(())
    }

    /// How many items have come: where a sender goes on that has connected again.
    pub fn received_so_far(&self) -> u64 {
        self.received
    }

    /// The size of the window.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Deals with an event: what the sender has to be told, if anything.
    #[inline]
    pub fn on(&mut self, now: Duration, event: WindowEvent) -> Option<Grant> {
        match event {
            WindowEvent::Consumed(items) => {
                debug_assert!(self.consumed + items <= self.received);
                self.consumed += items;
                let half_used = self.consumed - self.at_grant.0 >= self.window / 2;
                if half_used || self.is_due(now) {
                    return Some(self.grant(now));
                }
                None
            }
            WindowEvent::Connected => Some(Grant {
                allowed: self.allowed,
            }),
            WindowEvent::Tick => self.is_due(now).then(|| self.grant(now)),
        }
    }

    fn is_due(&self, now: Duration) -> bool {
        let (consumed, at) = self.at_grant;
        self.consumed > consumed && now >= at + self.config.grant_every
    }

    fn grant(&mut self, now: Duration) -> Grant {
        let (consumed, at) = self.at_grant;
        let every = self.config.grant_every.as_nanos().max(1);
        // Not less than a hundredth of the interval: a burst within microseconds is not a rate.
        let took = now.saturating_sub(at).as_nanos().max(every / 100).max(1);
        let per_interval = u128::from(self.consumed - consumed) * every / took;
        let wanted = per_interval.saturating_mul(u128::from(self.config.intervals));
        let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
        let wanted = wanted.clamp(self.config.min, self.config.max);
        // Half of the way, rounded up: one short or long interval does not make the window jump to and fro.
        self.window = self.window.midpoint(wanted) + ((self.window ^ wanted) & 1);
        self.at_grant = (self.consumed, now);
        // What was allowed stays allowed when the window shrinks.
        self.allowed = self.allowed.max(self.consumed + self.window);
        Grant {
            allowed: self.allowed,
        }
    }
}

/// The sender's side of an edge to another worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendWindow {
    sent: u64,
    allowed: u64,
}

impl SendWindow {
    /// Nothing is allowed before the first grant.
    pub const fn new() -> Self {
        SendWindow {
            sent: 0,
            allowed: 0,
        }
    }

    /// How many items may be sent now.
    #[inline]
    pub const fn room(&self) -> u64 {
        self.allowed.saturating_sub(self.sent)
    }

    /// So many items were sent; not more than there was room for.
    #[inline]
    pub fn sent(&mut self, items: u64) {
        debug_assert!(items <= self.room());
        self.sent += items;
    }

    /// How many items were sent so far.
    pub const fn sent_so_far(&self) -> u64 {
        self.sent
    }

    /// The receiver has said how far this side may go.
    #[inline]
    pub fn granted(&mut self, grant: Grant) {
        self.allowed = self.allowed.max(grant.allowed);
    }

    /// Connected again, to a receiver that has received so many items: the sender goes on from there.
    pub fn resume(&mut self, received: u64) {
        self.sent = received;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: WindowConfig = WindowConfig {
        grant_every: Duration::from_millis(100),
        intervals: 3,
        min: 10,
        max: 1_000,
    };

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Sends as much as is allowed and consumes `rate` items a millisecond, for so long.
    fn run(receiver: &mut ReceiveWindow, sender: &mut SendWindow, from: u64, to: u64, rate: u64) {
        for now in from..to {
            let items = sender.room();
            sender.sent(items);
            receiver.received(items).unwrap();
            let queued = receiver.received - receiver.consumed;
            let consumed = WindowEvent::Consumed(queued.min(rate));
            for event in [consumed, WindowEvent::Tick] {
                if let Some(grant) = receiver.on(millis(now), event) {
                    sender.granted(grant);
                }
            }
        }
    }

    #[test]
    fn the_window_follows_the_rate_to_three_intervals_worth() {
        let mut receiver = ReceiveWindow::new(SMALL);
        let mut sender = SendWindow::new();
        sender.granted(receiver.on(millis(0), WindowEvent::Connected).unwrap());
        run(&mut receiver, &mut sender, 0, 5_000, 2);
        assert!(
            (500..=700).contains(&receiver.window()),
            "{}",
            receiver.window()
        );
        run(&mut receiver, &mut sender, 5_000, 10_000, 100);
        assert_eq!(receiver.window(), 1_000);
        run(&mut receiver, &mut sender, 10_000, 70_000, 1);
        assert!(
            (250..=350).contains(&receiver.window()),
            "{}",
            receiver.window()
        );
    }

    #[test]
    fn a_sender_that_goes_too_far_is_found_out() {
        let mut receiver = ReceiveWindow::new(SMALL);
        assert!(receiver.received(10).is_ok());
        let overrun = Overrun {
            sent: 11,
            allowed: 10,
        };
        assert_eq!(receiver.received(1), Err(overrun));
        assert!(receiver.received(u64::MAX).is_err());
    }

    #[test]
    fn an_idle_edge_is_silent() {
        let mut receiver = ReceiveWindow::new(SMALL);
        for now in 0..10_000 {
            assert_eq!(receiver.on(millis(now), WindowEvent::Tick), None);
        }
    }

    proptest! {
        #[test]
        fn the_window_is_never_exceeded_and_never_closes_for_good(
            steps in prop::collection::vec((0..50u64, 0..200u64, 0..200u64), 1..300),
            min in 1..50u64,
            max in 0..500u64,
        ) {
            let config = WindowConfig { min, max, ..SMALL };
            let mut receiver = ReceiveWindow::new(config);
            let mut sender = SendWindow::new();
            sender.granted(receiver.on(millis(0), WindowEvent::Connected).unwrap());
            let mut now = millis(0);
            for (wait, send, consume) in steps {
                now += millis(wait);
                let items = send.min(sender.room());
                sender.sent(items);
                prop_assert!(receiver.received(items).is_ok());
                // What has to be kept is bounded by the largest window.
                let kept = receiver.received - receiver.consumed;
                prop_assert!(kept <= max.max(min).max(2));
                for event in [WindowEvent::Consumed(consume.min(kept)), WindowEvent::Tick] {
                    if let Some(grant) = receiver.on(now, event) {
                        sender.granted(grant);
                    }
                }
                // When all is consumed, the sender may send.
                if receiver.consumed == receiver.received {
                    prop_assert!(sender.room() > 0);
                }
            }
        }
    }
}
