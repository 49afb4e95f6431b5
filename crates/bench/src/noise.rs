//! The machine's noise: pauses of a thread that only reads the clock.

use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::{allowed_cores, pin_to};
use hdrhistogram::Histogram;

use crate::nanoseconds;

/// The pauses seen by a thread that only reads the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noise {
    /// The pause that one reading in ten thousand exceeds, in milliseconds.
    pub(crate) p9999_ms: f64,
    /// The longest pause, in milliseconds.
    pub(crate) max_ms: f64,
}

/// The longest time for which noise is measured before a bench.
pub(crate) const LONG_ENOUGH: Duration = Duration::from_secs(2);

/// Measures noise on the cores of the first `threads` threads of a node. It takes as long as the
/// measured time, two seconds at most.
///
/// Tail latencies below this noise can't be measured on this machine.
///
/// # Errors
/// [`ErrorCode::LimitReached`] if a thread cannot be started; [`ErrorCode::Internal`] if one
/// failed.
pub(crate) fn measure_noise(threads: u32, measured: Duration) -> Result<Noise> {
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
                    // Without permission to pin threads, the noise of any core is used.
                    let _ = pin_to(core);
                    record_gaps(listened, &mut gaps);
                    gaps
                })
                .map_err(|error| {
                    Error::new(
                        ErrorCode::LimitReached,
                        "cannot measure the machine's background noise",
                    )
                    .because(error)
                    .hint("raise the limit of threads (ulimit -u)")
                })
        })
        .collect::<Result<Vec<_>>>()?;
    let mut all = nanoseconds()?;
    for listener in listeners {
        let gaps = listener.join().map_err(|_| {
            let what = "a thread that measured the machine's background noise failed";
            Error::new(ErrorCode::Internal, what)
        })?;
        // All histograms have the same bounds and precision, so adding can't fail.
        let _ = all.add(gaps);
    }
    Ok(Noise {
        p9999_ms: all.value_at_quantile(0.9999) as f64 / 1e6,
        max_ms: all.max() as f64 / 1e6,
    })
}

/// Records the time between consecutive readings of the clock.
fn record_gaps(duration: Duration, gaps: &mut Histogram<u64>) {
    let start = Instant::now();
    let mut last = start;
    while last - start < duration {
        let now = Instant::now();
        gaps.saturating_record((now - last).as_nanos() as u64);
        last = now;
    }
}
