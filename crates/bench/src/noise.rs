//! What the machine itself does to a thread that only looks at the clock.

use std::thread;
use std::time::{Duration, Instant};

use crate::nanoseconds;

/// The pauses that a thread saw which did nothing else.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noise {
    /// The pause that one look in ten thousand exceeds, in milliseconds.
    pub p9999_ms: f64,
    /// The longest pause, in milliseconds.
    pub max_ms: f64,
}

/// Looks at the clock for `duration` on a thread pinned to `core`.
///
/// A tail latency below this noise can't be seen on this machine, whatever the system under test does.
pub fn listen(core: Option<usize>, duration: Duration) -> Noise {
    let listener = thread::spawn(move || {
        if let Some(core) = core {
            let mut set = rustix::thread::CpuSet::new();
            set.set(core);
            // Where pinning is forbidden the noise of any core will do.
            let _ = rustix::thread::sched_setaffinity(None, &set);
        }
        gaps(duration)
    });
    listener.join().unwrap_or_default()
}

fn gaps(duration: Duration) -> Noise {
    let Some(mut histogram) = nanoseconds() else {
        return Noise::default();
    };
    let start = Instant::now();
    let mut last = start;
    while last - start < duration {
        let now = Instant::now();
        histogram.saturating_record((now - last).as_nanos() as u64);
        last = now;
    }
    Noise {
        p9999_ms: histogram.value_at_quantile(0.9999) as f64 / 1e6,
        max_ms: histogram.max() as f64 / 1e6,
    }
}
