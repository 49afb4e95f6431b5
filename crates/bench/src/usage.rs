//! What this process has used of the machine.

use std::fs;
use std::time::{Duration, Instant};

pub(crate) use ardea_core::thread_cpu_time;
use rustix::time::{ClockId, clock_gettime};

/// In what the kernel tells the time of other processes (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

/// User and system time of this process so far.
pub(crate) fn cpu_time() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

/// The machine's monotonic time in nanoseconds, the same in all its processes.
#[inline]
pub(crate) fn monotonic_nanos() -> u64 {
    clock(ClockId::Monotonic).as_nanos() as u64
}

/// User and system time of another process so far, in the kernel's ticks of ten milliseconds; `None` if it is gone.
pub(crate) fn process_cpu_time(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(TICK * u32::try_from(user + system).unwrap_or(u32::MAX))
}

/// What a process has of the machine at a moment.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Held {
    /// Memory resident now, in mebibytes.
    pub(crate) rss_mb: f64,
    /// Open files, sockets and the like among them.
    pub(crate) files: u64,
    pub(crate) threads: u64,
}

/// What a process of this user has now; `None` if it is gone.
pub(crate) fn held_by(pid: u32) -> Option<Held> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let number = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Some(Held {
        rss_mb: number("VmRSS:")? as f64 / 1024.0,
        files: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64,
        threads: number("Threads:")?,
    })
}

fn clock(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The most memory that this process has had resident since it started, or since a bench last began, in mebibytes; `None` where
/// the kernel doesn't tell.
pub(crate) fn peak_resident_mb() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes / 1024.0)
}

/// Counts the peak of memory from now on, so that a run doesn't get the one before it put down to its account.
pub(crate) fn forget_peak() {
    // See proc(5). Where it is forbidden the peak is that of the whole process.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// The time that passed between two moments, and what the process worked in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) wall: Duration,
    /// User and system time of all threads.
    pub(crate) cpu: Duration,
}

impl Spent {
    /// `count` by cpu second; `None` if no cpu time was seen.
    pub(crate) fn per_cpu_second(self, count: u64) -> Option<f64> {
        (!self.cpu.is_zero()).then(|| count as f64 / self.cpu.as_secs_f64())
    }
}

/// Since when something is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meanwhile {
    from: Instant,
    cpu: Duration,
}

impl Meanwhile {
    /// Since now.
    pub(crate) fn begin() -> Self {
        Meanwhile {
            from: Instant::now(),
            cpu: cpu_time(),
        }
    }

    /// Until now.
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
        let held = held_by(std::process::id()).unwrap();
        assert!(
            held.rss_mb > 0.1 && held.files > 0 && held.threads > 0,
            "{held:?}"
        );
        assert_eq!(held_by(u32::MAX), None);
    }
}
