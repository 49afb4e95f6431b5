//! Counters of a process that runs user code for an instance.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The counters of the process of an instance. The thread that supervises the process writes them;
/// any thread may read them.
#[derive(Debug, Default)]
pub struct ChildProcessMetrics {
    /// The process id; zero while no process runs.
    id: AtomicU32,
    starts: AtomicU64,
    /// Microseconds of the processor time of earlier processes.
    earlier_cpu_micros: AtomicU64,
    /// Microseconds of the processor time of the present process.
    cpu_micros: AtomicU64,
    resident_bytes: AtomicU64,
    omitted_lines: AtomicU64,
}

/// The values of [`ChildProcessMetrics`] at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChildProcessSnapshot {
    /// The process id; zero while no process runs.
    pub id: u32,
    /// Starts after the first one.
    pub restarts: u64,
    /// Processor time of all processes of the instance so far.
    pub cpu: Duration,
    /// Resident memory of the present process.
    pub resident_bytes: u64,
    /// Lines of output that were not logged, because there were too many.
    pub omitted_lines: u64,
}

impl ChildProcessMetrics {
    /// Records the start of a process.
    pub fn record_start(&self, id: u32) {
        self.id.store(id, Relaxed);
        self.starts.fetch_add(1, Relaxed);
    }

    /// Records the end of the process.
    pub fn record_end(&self) {
        self.id.store(0, Relaxed);
        let cpu = self.cpu_micros.swap(0, Relaxed);
        self.earlier_cpu_micros.fetch_add(cpu, Relaxed);
        self.resident_bytes.store(0, Relaxed);
    }

    /// Records the processor time and the memory of the present process.
    pub fn record_usage(&self, cpu: Duration, resident_bytes: u64) {
        let micros = u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX);
        self.cpu_micros.store(micros, Relaxed);
        self.resident_bytes.store(resident_bytes, Relaxed);
    }

    /// Counts lines of output that are not logged.
    pub fn count_omitted_lines(&self, lines: u64) {
        self.omitted_lines.fetch_add(lines, Relaxed);
    }

    /// Returns the current values.
    pub fn snapshot(&self) -> ChildProcessSnapshot {
        let earlier = self.earlier_cpu_micros.load(Relaxed);
        let micros = earlier.saturating_add(self.cpu_micros.load(Relaxed));
        ChildProcessSnapshot {
            id: self.id.load(Relaxed),
            restarts: self.starts.load(Relaxed).saturating_sub(1),
            cpu: Duration::from_micros(micros),
            resident_bytes: self.resident_bytes.load(Relaxed),
            omitted_lines: self.omitted_lines.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_adds_up_over_restarts() {
        let metrics = ChildProcessMetrics::default();
        for id in [7, 9] {
            metrics.record_start(id);
            metrics.record_usage(Duration::from_millis(3), 4_096);
            metrics.record_end();
        }
        metrics.record_start(11);
        metrics.record_usage(Duration::from_millis(1), 8_192);
        let now = metrics.snapshot();
        assert_eq!((now.id, now.restarts), (11, 2));
        assert_eq!(now.cpu, Duration::from_millis(7));
        assert_eq!(now.resident_bytes, 8_192);
    }
}
