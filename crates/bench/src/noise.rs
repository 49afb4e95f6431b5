//! What the machine itself does to a thread that only looks at the clock.

use std::thread;
use std::time::{Duration, Instant};

use ardea_engine::{allowed_cores, pin_to};
use hdrhistogram::Histogram;

use crate::nanoseconds;

/// The pauses that a thread saw which did nothing else.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noise {
    /// The pause that one look in ten thousand exceeds, in milliseconds.
    pub p9999_ms: f64,
    /// The longest pause, in milliseconds.
    pub max_ms: f64,
}

/// How long the machine is listened to before a bench.
const LISTEN: Duration = Duration::from_secs(2);

/// Looks at the clock for two seconds, on the cores that the first `threads` threads of a node have.
///
/// A tail latency below this noise can't be seen on this machine, whatever the system under test does.
pub fn listen(threads: u32) -> Noise {
    let cores = allowed_cores();
    let listeners: Vec<_> = cores
        .into_iter()
        .rev()
        .take(threads as usize)
        .map(|core| {
            thread::spawn(move || {
                // Where pinning is forbidden the noise of any core will do.
                let _ = pin_to(core);
                gaps(LISTEN)
            })
        })
        .collect();
    let Ok(mut all) = nanoseconds() else {
        return Noise::default();
    };
    for gaps in listeners
        .into_iter()
        .filter_map(|listener| listener.join().ok().flatten())
    {
        // All have the same bounds and precision, so adding can't fail.
        let _ = all.add(gaps);
    }
    Noise {
        p9999_ms: all.value_at_quantile(0.9999) as f64 / 1e6,
        max_ms: all.max() as f64 / 1e6,
    }
}

/// How long each look at the clock came after the one before.
fn gaps(duration: Duration) -> Option<Histogram<u64>> {
    let mut gaps = nanoseconds().ok()?;
    let start = Instant::now();
    let mut last = start;
    while last - start < duration {
        let now = Instant::now();
        gaps.saturating_record((now - last).as_nanos() as u64);
        last = now;
    }
    Some(gaps)
}
