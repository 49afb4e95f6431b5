//! Flow-control windows: how many bytes a sender may send before the receiver has processed earlier
//! ones.
//!
//! Positions count frame bytes on the wire from the start of the stream, so a receiver's buffer is
//! bounded in memory for records of any size. A receiver that has processed position n allows
//! sending up to n + window. It sends a grant every 100 ms, or sooner once half of the window has
//! been used since the last grant. The window follows the measured rate: about three
//! acknowledgement intervals' worth of data ("Hazelcast Jet", section 3.3). So a sender 50 ms away
//! never waits for a receiver that keeps up, and a slow receiver buffers no more than 300 ms of its
//! own rate.
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

/// Configuration of flow-control windows.
#[derive(Clone, Copy, Debug)]
pub struct WindowConfig {
    /// Interval between the grants of a receiver.
    pub acknowledge_every: Duration,
    /// Size of a window, in acknowledgement intervals.
    pub intervals: u32,
    /// Window of a new stream, in bytes.
    pub first: u64,
    /// Smallest window, in bytes.
    pub least: u64,
    /// Largest window, in bytes.
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

/// A message from a receiver to its sender: the acknowledged and the allowed position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// All bytes before this position have been processed.
    pub consumed: u64,
    /// The sender may send up to this position.
    pub allowed: u64,
}

/// An input event of a [`ReceiveWindow`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiveEvent {
    /// A frame arrived.
    Arrived {
        /// Size of the frame on the wire.
        bytes: u64,
        /// True if the sender had to wait for its window before this frame.
        waited: bool,
    },
    /// A frame has been processed.
    Consumed {
        /// Size of the frame on the wire.
        bytes: u64,
    },
    /// Time passed.
    Tick,
}

/// The receiver's side of one stream.
#[derive(Clone, Debug)]
pub struct ReceiveWindow {
    config: WindowConfig,
    arrived: u64,
    /// Bytes waiting in front of the receiver, as last reported by
    /// [`set_queued`](Self::set_queued).
    queued: u64,
    consumed: u64,
    last_grant: Grant,
    window: u64,
    /// Start of the current measuring interval, and the consumed position at that time.
    since: Duration,
    consumed_before: u64,
    sender_waited: bool,
}

impl ReceiveWindow {
    /// Opens a new stream; returns the first grant, which must be sent at once.
    ///
    /// A window has at least one byte, or the stream would stop for good. If `config` sets the
    /// smallest window above the largest, the smallest is used.
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
            last_grant: told,
            window,
            since: now,
            consumed_before: 0,
            sender_waited: false,
        };
        (state, told)
    }

    /// Handles an event; returns the grant to send now, if any. Constant time.
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
            return self.next_grant();
        }
        let used = self.consumed - self.last_grant.consumed;
        (used >= self.window / 2)
            .then(|| self.next_grant())
            .flatten()
    }

    /// Returns the time at which a [`Tick`](ReceiveEvent::Tick) is due; `None` while nothing is
    /// unacknowledged.
    pub fn next_tick(&self) -> Option<Duration> {
        (!self.is_at_rest()).then(|| self.interval_end())
    }

    /// Returns the current window, in bytes.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Sets the number of received bytes for which no [`Arrived`](ReceiveEvent::Arrived) event has
    /// been handled yet. If it is large, the receiver is slow, and its window is not enlarged.
    pub fn set_queued(&mut self, bytes: u64) {
        self.queued = bytes;
    }

    /// Returns the number of bytes that arrived and have not been processed.
    pub fn backlog(&self) -> u64 {
        self.arrived.saturating_sub(self.consumed)
    }

    /// Returns true if all bytes that arrived are processed and acknowledged.
    fn is_at_rest(&self) -> bool {
        self.backlog() == 0 && self.last_grant.consumed == self.consumed
    }

    /// Returns true if the stream was idle for too much of the current interval to measure the
    /// receiver's rate.
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

    /// Adapts the window to the rate in the interval that ends now.
    fn measure(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.since).as_nanos().max(1);
        let consumed = u128::from(self.consumed - self.consumed_before);
        let per_interval = consumed * self.config.acknowledge_every.as_nanos() / elapsed;
        let target = (per_interval * u128::from(self.config.intervals))
            .min(u128::from(self.config.most)) as u64;
        // Moves half of the way to the target, so that one uneven interval has little effect.
        let mut window = (self.window + target) / 2;
        // The sender was blocked while the receiver had little to process. So the window limits the
        // stream, for example because the round trip is longer than the intervals' worth.
        if self.sender_waited && self.backlog() + self.queued <= self.window / 8 {
            window = window.max(self.window.saturating_mul(2));
        }
        self.window = window.clamp(self.config.least, self.config.most);
        self.start_interval(now);
    }

    fn next_grant(&mut self) -> Option<Grant> {
        let grant = Grant {
            consumed: self.consumed,
            // An allowance cannot be revoked.
            allowed: self.last_grant.allowed.max(self.consumed + self.window),
        };
        (grant != self.last_grant).then(|| {
            self.last_grant = grant;
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

/// An invalid grant: it acknowledges bytes that were never sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadGrant;

impl fmt::Display for BadGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it acknowledged bytes that were never sent")
    }
}

impl std::error::Error for BadGrant {}

impl SendWindow {
    /// Returns the number of bytes that may be sent. The last frame may exceed it: a window smaller
    /// than a frame must not stop a stream.
    pub fn available(&self) -> u64 {
        self.allowed.saturating_sub(self.sent)
    }

    /// Returns true if nothing may be sent now.
    pub fn is_shut(&self) -> bool {
        self.available() == 0
    }

    /// Records that there was data to send while the window was shut.
    pub fn wait(&mut self) {
        self.has_waited = true;
    }

    /// Records a sent frame of this size; returns true if it had to wait for the window.
    pub fn sent(&mut self, bytes: u64) -> bool {
        self.sent += bytes;
        std::mem::take(&mut self.has_waited)
    }

    /// Applies a grant; returns true if it opens a shut window.
    ///
    /// # Errors
    /// [`BadGrant`] if the grant acknowledges bytes that were never sent; nothing has changed then.
    pub fn granted(&mut self, grant: Grant) -> Result<bool, BadGrant> {
        if grant.consumed > self.sent {
            return Err(BadGrant);
        }
        let was_shut = self.is_shut();
        self.consumed = self.consumed.max(grant.consumed);
        self.allowed = self.allowed.max(grant.allowed);
        Ok(was_shut && !self.is_shut())
    }

    /// Returns the number of bytes sent since the start of the stream.
    pub fn position(&self) -> u64 {
        self.sent
    }

    /// Returns the number of bytes sent and not acknowledged by the receiver.
    pub fn in_flight(&self) -> u64 {
        self.sent - self.consumed
    }
}

#[cfg(test)]
#[path = "flow_tests.rs"]
mod tests;
