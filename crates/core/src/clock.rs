//! The time of day and the time since start, real or a test's.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Timestamp;

/// A source of time: the machine's, or one that a test moves by hand.
///
/// Cheap to clone; all clones show the same time.
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
    /// The machine's clock; its monotonic time starts at zero now.
    pub fn system() -> Self {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Clock(Kind::System {
            origin: Instant::now(),
            origin_wall_micros: i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX),
        })
    }

    /// Time since the clock's origin; never runs backwards.
    #[inline]
    pub fn now(&self) -> Duration {
        match &self.0 {
            Kind::System { origin, .. } => origin.elapsed(),
            Kind::Manual(nanos) => Duration::from_nanos(nanos.load(Ordering::Acquire)),
        }
    }

    /// The time of day. Follows the monotonic time from the origin on, so that it never runs backwards either.
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

/// The hand that moves a test's clock.
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
    /// At zero: the monotonic origin, and 1970 as the time of day.
    pub fn new() -> Self {
        ManualClock::default()
    }

    /// The clock that this hand moves.
    pub fn clock(&self) -> Clock {
        Clock(Kind::Manual(Arc::clone(&self.0)))
    }

    /// Moves the clock on.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(
            u64::try_from(by.as_nanos()).unwrap_or(u64::MAX),
            Ordering::AcqRel,
        );
    }
}
