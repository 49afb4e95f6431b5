//! Resource usage of this process and of others on this machine.

use std::fs;
use std::time::{Duration, Instant};

pub(crate) use ardea_core::thread_cpu_time;
use rustix::time::{ClockId, clock_gettime};

/// The unit in which the kernel reports the time of other processes (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

/// Returns the user and system time of this process so far.
pub(crate) fn cpu_time() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

/// Returns the machine's monotonic time in nanoseconds, the same in all its processes.
#[inline]
pub(crate) fn monotonic_nanos() -> u64 {
    clock(ClockId::Monotonic).as_nanos() as u64
}

/// Returns the user and system time of another process so far, in kernel ticks of ten milliseconds;
/// `None` if the process has ended.
pub(crate) fn process_cpu_time(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain any characters.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(TICK * u32::try_from(user + system).unwrap_or(u32::MAX))
}

/// The resources held by a process at a moment.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct ResourceUsage {
    /// Resident memory, in mebibytes.
    pub(crate) rss_mb: f64,
    /// Open files, including sockets.
    pub(crate) files: u64,
    pub(crate) threads: u64,
}

/// Returns the resources held by a process of this user; `None` if the process has ended.
pub(crate) fn resources_of(pid: u32) -> Option<ResourceUsage> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let number = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Some(ResourceUsage {
        rss_mb: number("VmRSS:")? as f64 / 1024.0,
        files: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64,
        threads: number("Threads:")?,
    })
}

fn clock(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the peak resident memory of this process since its start or since [`reset_peak`], in
/// mebibytes. `None` if the kernel doesn't report it.
pub(crate) fn peak_resident_mb() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes / 1024.0)
}

/// Resets the peak of memory, so that a run does not include the memory of an earlier one.
pub(crate) fn reset_peak() {
    // See proc(5). Without permission, the peak remains that of the whole process.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Runs `work`, and returns its result with the peak resident memory of this process meanwhile, in
/// mebibytes.
pub(crate) fn with_peak<R>(work: impl FnOnce() -> R) -> (R, Option<f64>) {
    reset_peak();
    let result = work();
    (result, peak_resident_mb())
}

/// The elapsed time between two moments, and the CPU time used in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) wall: Duration,
    /// User and system time of all threads.
    pub(crate) cpu: Duration,
}

impl Spent {
    /// Returns `count` per CPU second; `None` if no CPU time was measured.
    pub(crate) fn per_cpu_second(self, count: u64) -> Option<f64> {
        (!self.cpu.is_zero()).then(|| count as f64 / self.cpu.as_secs_f64())
    }
}

/// A stopwatch for wall and CPU time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch {
    from: Instant,
    cpu: Duration,
}

impl Stopwatch {
    /// Starts measuring now.
    pub(crate) fn begin() -> Self {
        Stopwatch {
            from: Instant::now(),
            cpu: cpu_time(),
        }
    }

    /// Returns the time used since the start.
    pub(crate) fn spent(self) -> Spent {
        Spent {
            wall: self.from.elapsed(),
            cpu: cpu_time().saturating_sub(self.cpu),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_memory_files_and_threads_and_one_that_is_gone_has_nothing() {
        let held = resources_of(std::process::id()).unwrap();
        assert!(
            held.rss_mb > 0.1 && held.files > 0 && held.threads > 0,
            "{held:?}"
        );
        assert_eq!(resources_of(u32::MAX), None);
    }
}
