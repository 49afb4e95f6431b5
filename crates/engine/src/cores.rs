//! The cores that this process may use, staying on one, and leaving them to others.

use std::io;
use std::num::NonZeroU64;

use rustix::process::nice;
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

/// By how much threads are nicer that stand back.
const NICER: i32 = 5;

/// Has the calling thread stand back behind others of this process, where they want the same core: for what is done beside records, and
/// may take a moment longer. It gets a part of a core all the same.
pub fn stand_back() {
    // On Linux each thread has its own. A system that refuses leaves things as they are; only latency suffers.
    let _ = nice(NICER);
}

/// Asks the kernel to wake the calling thread when its time has come, not up to 50 µs later as it may by default.
pub(crate) fn wake_on_time() {
    // A kernel that refuses leaves the default; only latency suffers.
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
            stand_back();
            getpriority_process(None).unwrap()
        });
        assert_eq!(nicer.join().unwrap(), (before + NICER).min(19));
        assert_eq!(getpriority_process(None).unwrap(), before);
    }
}
