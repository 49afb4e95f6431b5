//! The resource use of a process: processor time, memory, threads, descriptors.

use std::fs;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use rustix::time::{ClockId, clock_gettime};

use crate::collect::seconds;
use crate::pressure::{pressure, throttled};
use crate::{Batch, Labels, Value, catalogue as m};

/// The resource use of this process.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ProcessReading {
    /// The processor time of all threads so far.
    pub cpu: Duration,
    /// The resident memory in bytes.
    pub resident_bytes: u64,
    /// The number of threads.
    pub threads: u64,
    /// The number of open file descriptors.
    pub open_fds: u64,
    /// The time for which the control group of the process has held it back.
    pub throttled: Duration,
    /// The time for which the process has stood still, as counted by [`PauseMeter`].
    pub paused: Duration,
    /// The share of the last ten seconds in which a thread of the machine waited for a processor.
    pub cpu_pressure: Option<f64>,
    /// The share of the last ten seconds in which a thread of the machine waited for memory.
    pub memory_pressure: Option<f64>,
}

/// The shortest standstill that counts.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);

/// The total time for which a process has stood still, measured by a thread that sleeps regularly:
/// a machine that is paused, or that has no processor for the thread, wakes it late.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PauseMeter(Duration);

impl PauseMeter {
    /// Counts a sleep that was to last at most `planned` and lasted for `elapsed`.
    pub fn slept(&mut self, planned: Duration, elapsed: Duration) {
        let late = elapsed.saturating_sub(planned);
        if late >= SHORTEST_PAUSE {
            self.0 = self.0.saturating_add(late);
        }
    }

    /// Returns the time so far.
    pub fn total(self) -> Duration {
        self.0
    }
}

impl ProcessReading {
    /// Reads the resource use of the calling process from `/proc/self`, without its standstills.
    /// Takes some 100 µs.
    ///
    /// # Errors
    /// [`ReadFailed`](ErrorCode::ReadFailed) if there is no `/proc`, or no free file descriptor.
    pub fn read() -> Result<Self> {
        let status = fs::read_to_string("/proc/self/status").map_err(unreadable)?;
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        // The directory being read is itself open.
        let open_fds = fs::read_dir("/proc/self/fd").map_err(unreadable)?.count() - 1;
        Ok(ProcessReading {
            cpu: Duration::new(
                u64::try_from(cpu.tv_sec).unwrap_or(0),
                u32::try_from(cpu.tv_nsec).unwrap_or(0),
            ),
            resident_bytes: field(&status, "VmRSS:") * 1_024,
            threads: field(&status, "Threads:"),
            open_fds: open_fds as u64,
            throttled: throttled(),
            paused: Duration::ZERO,
            cpu_pressure: pressure("cpu"),
            memory_pressure: pressure("memory"),
        })
    }

    /// Adds the values to the batch of the process.
    pub fn write(&self, batch: &mut Batch) {
        let labels = Labels::none();
        batch.push(m::CPU.name, &labels, Value::Counter(self.cpu.as_secs_f64()));
        let started = seconds(batch.started);
        for (metric, level) in [
            (m::RESIDENT, self.resident_bytes as f64),
            (m::THREADS, self.threads as f64),
            (m::OPEN_FDS, self.open_fds as f64),
            (m::STARTED, started),
        ] {
            batch.push(metric.name, &labels, Value::Gauge(level));
        }
        for (metric, time) in [(m::THROTTLED, self.throttled), (m::PAUSED, self.paused)] {
            batch.push(metric.name, &labels, Value::Counter(time.as_secs_f64()));
        }
        for (metric, share) in [
            (m::CPU_PRESSURE, self.cpu_pressure),
            (m::MEMORY_PRESSURE, self.memory_pressure),
        ] {
            if let Some(share) = share {
                batch.push(metric.name, &labels, Value::Gauge(share));
            }
        }
    }
}

/// Returns the number after `name` in the text of `/proc/self/status`; zero if there is no number.
fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn unreadable(error: std::io::Error) -> Error {
    Error::new(
        ErrorCode::ReadFailed,
        "the resource use of this process can't be read from /proc/self",
    )
    .because(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_core::Timestamp;

    #[test]
    fn a_process_knows_what_it_uses() {
        let before = ProcessReading::read().expect("there is /proc");
        assert!(before.resident_bytes > 100_000, "{before:?}");
        assert!(before.threads >= 1 && before.open_fds >= 3, "{before:?}");
        let mut work = 0u64;
        loop {
            work = (0..100_000).fold(work, |sum: u64, n| sum.wrapping_mul(31).wrapping_add(n));
            let now = ProcessReading::read().expect("there is /proc");
            if now.cpu > before.cpu {
                break;
            }
        }
    }

    #[test]
    fn a_thread_that_wakes_late_counts_a_standstill() {
        let mut pauses = PauseMeter::default();
        let ms = Duration::from_millis;
        pauses.slept(ms(100), ms(90));
        pauses.slept(ms(100), ms(299));
        assert_eq!(pauses.total(), Duration::ZERO);
        pauses.slept(ms(100), ms(1_100));
        pauses.slept(ms(100), ms(300));
        assert_eq!(pauses.total(), ms(1_200));
    }

    #[test]
    fn every_metric_of_the_catalogue_about_processes_is_told() {
        let now = Timestamp::from_secs(5);
        let mut batch = Batch::new(Labels::none(), now, now);
        ProcessReading::default().write(&mut batch);
        let told: Vec<_> = batch.samples.iter().map(|s| s.name.as_str()).collect();
        let of_processes = m::ALL
            .iter()
            .filter(|metric| metric.name.starts_with("ardea_process_"));
        assert_eq!(
            told,
            of_processes.map(|metric| metric.name).collect::<Vec<_>>()
        );
    }
}
