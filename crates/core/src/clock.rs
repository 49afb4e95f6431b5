//! Wall-clock and monotonic time, of the system or of a test.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Timestamp;

/// A source of time: the system clock, or one that a test advances.
#[derive(Clone)]
pub struct Clock(Kind);

#[derive(Clone)]
enum Kind {
    System {
        origin: Instant,
        origin_wall_micros: i64,
    },
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// Returns the system clock; its monotonic time starts at zero now.
    pub fn system() -> Self {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Clock(Kind::System {
            origin: Instant::now(),
            origin_wall_micros: i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX),
        })
    }

    /// Returns the time since the clock's origin; never decreases.
    #[inline]
    pub fn now(&self) -> Duration {
        match &self.0 {
            Kind::System { origin, .. } => origin.elapsed(),
            Kind::Manual(nanos) => Duration::from_nanos(nanos.load(Ordering::Acquire)),
        }
    }

    /// Returns the wall-clock time. It is read once at the origin and advances with the monotonic
    /// time, so it never decreases.
    #[inline]
    pub fn wall(&self) -> Timestamp {
        let origin = match &self.0 {
            Kind::System {
                origin_wall_micros, ..
            } => *origin_wall_micros,
            Kind::Manual(_) => 0,
        };
        Timestamp::from_micros(origin) + self.now()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({:?})", self.now())
    }
}

/// The control that advances a test's clock.
///
/// ```
/// use std::time::Duration;
/// use ardea_core::ManualClock;
///
/// let hand = ManualClock::new();
/// let clock = hand.clock();
/// hand.advance(Duration::from_secs(5));
/// assert_eq!(clock.now(), Duration::from_secs(5));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Creates a control at zero: the monotonic origin, and 1970 as wall-clock time.
    pub fn new() -> Self {
        ManualClock::default()
    }

    /// Returns a clock that this control advances.
    pub fn clock(&self) -> Clock {
        Clock(Kind::Manual(Arc::clone(&self.0)))
    }

    /// Advances the clock.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(
            u64::try_from(by.as_nanos()).unwrap_or(u64::MAX),
            Ordering::AcqRel,
        );
    }
}
