//! CPU affinity and priority of threads.

use std::io;
use std::num::NonZeroU64;

use rustix::process::nice;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};

/// Returns the cores that this process may run on, in order; never empty.
///
/// Respects restrictions by the operator (taskset, cpusets of containers).
pub fn allowed_cores() -> Vec<usize> {
    let allowed: Vec<usize> = match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU)
            .filter(|&core| set.is_set(core))
            .collect(),
        Err(_) => Vec::new(),
    };
    if allowed.is_empty() { vec![0] } else { allowed }
}

/// Pins the calling thread to one core.
///
/// # Errors
/// The system's error, if the core doesn't exist or is not [allowed](allowed_cores); the affinity
/// is then unchanged.
pub fn pin_to(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// The increment of the niceness of background threads.
const NICER: i32 = 5;

/// Lowers the priority of the calling thread, for background work that may be delayed by the data
/// path. The thread still gets a share of a core.
pub fn lower_priority() {
    // On Linux niceness is per thread. If the system refuses, only latency suffers.
    let _ = nice(NICER);
}

/// Sets the timer slack of the calling thread to 1 µs, so that it wakes on time; the default is 50
/// µs.
pub fn wake_on_time() {
    // If the kernel refuses, only latency suffers.
    let _ = set_current_timer_slack(NonZeroU64::new(1_000));
}

#[cfg(all(test, not(loom)))]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    #[test]
    fn who_stands_back_does_so_alone() {
        let before = getpriority_process(None).unwrap();
        let nicer = std::thread::spawn(|| {
            lower_priority();
            getpriority_process(None).unwrap()
        });
        assert_eq!(nicer.join().unwrap(), (before + NICER).min(19));
        assert_eq!(getpriority_process(None).unwrap(), before);
    }
}
