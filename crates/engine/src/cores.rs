//! The cores that this process may use, and staying on one.

use std::io;
use std::num::NonZeroU64;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};

/// The cores that this process is allowed to run on, in order; never empty.
///
/// What the operator has set (taskset, a container's cpu set) is honoured.
pub fn allowed_cores() -> Vec<usize> {
    let allowed: Vec<usize> = match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU)
            .filter(|&core| set.is_set(core))
            .collect(),
        Err(_) => Vec::new(),
    };
    if allowed.is_empty() { vec![0] } else { allowed }
}

/// Keeps the calling thread on one core.
///
/// # Errors
/// The system's, if the core doesn't exist or is not [allowed](allowed_cores); the thread then stays where it was.
pub fn pin_to(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// Asks the kernel to wake the calling thread when its time has come, not up to 50 µs later as it may by default.
pub(crate) fn wake_on_time() {
    // A kernel that refuses leaves the default; only latency suffers.
    let _ = set_current_timer_slack(NonZeroU64::new(1_000));
}
