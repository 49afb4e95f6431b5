//! Receive windows: how much a sender may send before the receiver has dealt with what it has.
//!
//! Positions count bytes of frames on the wire, from the start of the stream, so that what a receiver may have to hold is
//! bounded in memory whatever its records are. After position n the receiver allows up to n + window. It says so every 100 ms,
//! or sooner when half of the window has been used since it last did. The window follows the measured rate: about three
//! acknowledgement intervals' worth ("Hazelcast Jet", section 3.3), so that a sender 50 ms away never waits for the word of a
//! receiver that keeps up, and a receiver that is slow holds 300 ms of its own pace and no more.
//!
//! Both sides are pure: they hold no clock and no socket.
//!
//! ```
//! use std::time::Duration;
//! use ardea_network::exchange::{ReceiveEvent, ReceiveWindow, SendWindow, WindowConfig};
//!
//! let (mut receiver, first) = ReceiveWindow::open(Duration::ZERO, WindowConfig::default());
//! let mut sender = SendWindow::default();
//! assert!(sender.is_shut(), "nothing is sent before it is allowed");
//! sender.granted(first).unwrap();
//! sender.sent(sender.available());
//!
//! let bytes = sender.position();
//! receiver.on(Duration::ZERO, ReceiveEvent::Arrived { bytes, waited: false });
//! let grant = receiver.on(Duration::from_millis(1), ReceiveEvent::Consumed { bytes });
//! sender.granted(grant.expect("half the window has been used")).unwrap();
//! assert!(!sender.is_shut());
//! ```

use std::fmt;
use std::time::Duration;

/// How windows behave.
#[derive(Clone, Copy, Debug)]
pub struct WindowConfig {
    /// How often a receiver says what it has dealt with.
    pub acknowledge_every: Duration,
    /// How many such intervals' worth a window is.
    pub intervals: u32,
    /// The window of a new stream, in bytes.
    pub first: u64,
    /// The smallest window, in bytes.
    pub least: u64,
    /// The greatest window, in bytes.
    pub most: u64,
}

impl Default for WindowConfig {
    fn default() -> Self {
        WindowConfig {
            acknowledge_every: Duration::from_millis(100),
            intervals: 3,
            first: 512 << 10,
            least: 128 << 10,
            most: 16 << 20,
        }
    }
}

/// What a receiver tells its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// All before this position has been dealt with.
    pub consumed: u64,
    /// The sender may send up to this position.
    pub allowed: u64,
}

/// What happens at a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiveEvent {
    /// A frame came in.
    Arrived {
        /// Its bytes on the wire.
        bytes: u64,
        /// Whether its sender had to wait for its window.
        waited: bool,
    },
    /// A frame has been dealt with.
    Consumed {
        /// Its bytes on the wire.
        bytes: u64,
    },
    /// Time went by.
    Tick,
}

/// The receiver's side of one stream.
#[derive(Clone, Debug)]
pub struct ReceiveWindow {
    config: WindowConfig,
    arrived: u64,
    /// Has come and was not taken in yet, as far as that is told.
    queued: u64,
    consumed: u64,
    told: Grant,
    window: u64,
    /// The interval that is being measured: its start, and what had been consumed then.
    since: Duration,
    consumed_before: u64,
    sender_waited: bool,
}

impl ReceiveWindow {
    /// A new stream, and what its sender is to be told at once.
    ///
    /// A window is never smaller than a byte, or the stream would stop for good; where the bounds contradict each other, the least
    /// window holds.
    pub fn open(now: Duration, config: WindowConfig) -> (Self, Grant) {
        let least = config.least.max(1);
        let config = WindowConfig {
            least,
            most: config.most.max(least),
            ..config
        };
        let window = config.first.clamp(config.least, config.most);
        let told = Grant {
            consumed: 0,
            allowed: window,
        };
        let state = ReceiveWindow {
            config,
            arrived: 0,
            queued: 0,
            consumed: 0,
            told,
            window,
            since: now,
            consumed_before: 0,
            sender_waited: false,
        };
        (state, told)
    }

    /// Deals with an event; what the sender is to be told now, if anything. Constant time.
    pub fn on(&mut self, now: Duration, event: ReceiveEvent) -> Option<Grant> {
        match event {
            ReceiveEvent::Arrived { bytes, waited } => {
                if self.is_at_rest() && self.is_stale(now) {
                    self.start_interval(now);
                }
                self.arrived += bytes;
                self.sender_waited |= waited;
            }
            ReceiveEvent::Consumed { bytes } => self.consumed += bytes,
            ReceiveEvent::Tick => {}
        }
        let has_moved = self.consumed > self.consumed_before || self.backlog() > 0;
        if now >= self.interval_end() && has_moved {
            self.measure(now);
            return self.tell();
        }
        let used = self.consumed - self.told.consumed;
        (used >= self.window / 2).then(|| self.tell()).flatten()
    }

    /// When a [`Tick`](ReceiveEvent::Tick) is due; `None` while there is nothing to say.
    pub fn next_tick(&self) -> Option<Duration> {
        (!self.is_at_rest()).then(|| self.interval_end())
    }

    /// The present window, in bytes.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// So many bytes wait in front of the receiver, for which there was no [`Arrived`](ReceiveEvent::Arrived) yet. As long as there are many,
    /// it is the receiver that holds the stream up, and not its window.
    pub fn set_queued(&mut self, bytes: u64) {
        self.queued = bytes;
    }

    /// What has arrived and has not been dealt with, in bytes.
    pub fn backlog(&self) -> u64 {
        self.arrived.saturating_sub(self.consumed)
    }

    /// Whether all that arrived was dealt with, and the sender knows it.
    fn is_at_rest(&self) -> bool {
        self.backlog() == 0 && self.told.consumed == self.consumed
    }

    /// Whether the interval at hand has too much time without a stream in it to say anything about the receiver's pace.
    fn is_stale(&self, now: Duration) -> bool {
        let end = self.interval_end();
        let was_idle = self.consumed == self.consumed_before;
        now >= end && (was_idle || now >= end.saturating_add(self.config.acknowledge_every))
    }

    fn interval_end(&self) -> Duration {
        self.since.saturating_add(self.config.acknowledge_every)
    }

    fn start_interval(&mut self, now: Duration) {
        self.since = now;
        self.consumed_before = self.consumed;
        self.sender_waited = false;
    }

    /// Adapts the window to the interval that ends now.
    fn measure(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.since).as_nanos().max(1);
        let consumed = u128::from(self.consumed - self.consumed_before);
        let per_interval = consumed * self.config.acknowledge_every.as_nanos() / elapsed;
        let target = (per_interval * u128::from(self.config.intervals))
            .min(u128::from(self.config.most)) as u64;
        // Half of the way, so that one uneven interval is no jolt.
        let mut window = (self.window + target) / 2;
        // The sender wanted to send more and there was nothing to do here: the window itself is what holds the stream up, as
        // when the way is longer than the intervals' worth.
        if self.sender_waited && self.backlog() + self.queued <= self.window / 8 {
            window = window.max(self.window.saturating_mul(2));
        }
        self.window = window.clamp(self.config.least, self.config.most);
        self.start_interval(now);
    }

    fn tell(&mut self) -> Option<Grant> {
        let grant = Grant {
            consumed: self.consumed,
            // What has been allowed can't be taken back.
            allowed: self.told.allowed.max(self.consumed + self.window),
        };
        (grant != self.told).then(|| {
            self.told = grant;
            grant
        })
    }
}

/// The sender's side of one stream. Nothing may be sent before the first grant.
#[derive(Clone, Debug, Default)]
pub struct SendWindow {
    sent: u64,
    consumed: u64,
    allowed: u64,
    has_waited: bool,
}

/// A grant that makes no sense: the receiver claims to have dealt with what was never sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadGrant;

impl fmt::Display for BadGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it acknowledged what was never sent")
    }
}

impl std::error::Error for BadGrant {}

impl SendWindow {
    /// How many bytes may be sent. The last frame may exceed it: a window smaller than a frame must not stop a stream.
    pub fn available(&self) -> u64 {
        self.allowed.saturating_sub(self.sent)
    }

    /// Whether nothing may be sent now.
    pub fn is_shut(&self) -> bool {
        self.available() == 0
    }

    /// Remembers that there was something to send while the window was shut.
    pub fn wait(&mut self) {
        self.has_waited = true;
    }

    /// A frame of so many bytes has been sent; whether it had to wait for the window.
    pub fn sent(&mut self, bytes: u64) -> bool {
        self.sent += bytes;
        std::mem::take(&mut self.has_waited)
    }

    /// The receiver allows more; true if that opens a shut window.
    ///
    /// # Errors
    /// [`BadGrant`], and nothing has changed.
    pub fn granted(&mut self, grant: Grant) -> Result<bool, BadGrant> {
        if grant.consumed > self.sent {
            return Err(BadGrant);
        }
        let was_shut = self.is_shut();
        self.consumed = self.consumed.max(grant.consumed);
        self.allowed = self.allowed.max(grant.allowed);
        Ok(was_shut && !self.is_shut())
    }

    /// How many bytes have been sent since the start of the stream.
    pub fn position(&self) -> u64 {
        self.sent
    }

    /// Bytes that have been sent and that the receiver has not said it dealt with.
    pub fn in_flight(&self) -> u64 {
        self.sent - self.consumed
    }
}

#[cfg(test)]
#[path = "flow_tests.rs"]
mod tests;
