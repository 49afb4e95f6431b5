//! What the machine itself does to a thread that only looks at the clock.

use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::{allowed_cores, pin_to};
use hdrhistogram::Histogram;

use crate::nanoseconds;

/// The pauses that a thread saw which did nothing else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noise {
    /// The pause that one look in ten thousand exceeds, in milliseconds.
    pub(crate) p9999_ms: f64,
    /// The longest pause, in milliseconds.
    pub(crate) max_ms: f64,
}

/// How long the machine is listened to before a bench, at most.
pub(crate) const LONG_ENOUGH: Duration = Duration::from_secs(2);

/// Looks at the clock on the cores that the first `threads` threads of a node have, for as long as will be measured, two seconds at
/// most: a short look at a system is set beside a short one at the machine.
///
/// A tail latency below this noise can't be seen on this machine, whatever the system under test does.
///
/// # Errors
/// [`ErrorCode::LimitReached`] if the system refuses a thread; [`ErrorCode::Internal`] if one failed: what was not listened to is
/// not called quiet.
pub(crate) fn listen(threads: u32, measured: Duration) -> Result<Noise> {
    let listened = measured.min(LONG_ENOUGH);
    let cores = allowed_cores();
    let listeners = cores
        .into_iter()
        .rev()
        .take(threads as usize)
        .map(|core| {
            let mut gaps = nanoseconds()?;
            thread::Builder::new()
                .spawn(move || {
                    // Where pinning is forbidden the noise of any core will do.
                    let _ = pin_to(core);
                    listen_for(listened, &mut gaps);
                    gaps
                })
                .map_err(|error| {
                    Error::new(
                        ErrorCode::LimitReached,
                        "cannot listen to the machine's own noise",
                    )
                    .because(error)
                    .hint("raise the limit of threads (ulimit -u)")
                })
        })
        .collect::<Result<Vec<_>>>()?;
    let mut all = nanoseconds()?;
    for listener in listeners {
        let gaps = listener.join().map_err(|_| {
            let what = "a thread that listened to the machine's own noise failed";
            Error::new(ErrorCode::Internal, what)
        })?;
        // All have the same bounds and precision, so adding can't fail.
        let _ = all.add(gaps);
    }
    Ok(Noise {
        p9999_ms: all.value_at_quantile(0.9999) as f64 / 1e6,
        max_ms: all.max() as f64 / 1e6,
    })
}

/// Records how long each look at the clock came after the one before.
fn listen_for(duration: Duration, gaps: &mut Histogram<u64>) {
    let start = Instant::now();
    let mut last = start;
    while last - start < duration {
        let now = Instant::now();
        gaps.saturating_record((now - last).as_nanos() as u64);
        last = now;
    }
}
