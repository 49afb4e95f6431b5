//! The CPU time of this process's threads, by purpose.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};

/// The purpose of a thread, derived from its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// A thread of librdkafka, or the source's helper.
    Kafka,
    /// The sink's thread, which sends requests and receives replies.
    Redis,
    /// The thread that measures.
    Meter,
    /// A thread of the job.
    Job,
}

impl Purpose {
    fn of(name: &str, is_main: bool) -> Purpose {
        match name {
            _ if is_main => Purpose::Meter,
            _ if name.starts_with("rdk:") || name == "kafka-scout" => Purpose::Kafka,
            "redis-writer" => Purpose::Redis,
            _ => Purpose::Job,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Account {
    purpose: Purpose,
    /// The CPU time at the first reading.
    first: u64,
    last: u64,
}

/// The CPU time of each thread between two readings, in nanoseconds. Work of a thread between its
/// last reading and its end is missing.
#[derive(Debug, Default)]
pub(super) struct CpuTimes {
    accounts: BTreeMap<u32, Account>,
}

impl CpuTimes {
    /// Takes the first reading; CPU time spent before does not count.
    pub fn open() -> Result<CpuTimes> {
        let mut ledger = CpuTimes::default();
        ledger.read_clocks()?;
        for account in ledger.accounts.values_mut() {
            account.first = account.last;
        }
        Ok(ledger)
    }

    /// Takes a reading.
    pub fn read_clocks(&mut self) -> Result<()> {
        let me = rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .cast_unsigned();
        let failed = |error: std::io::Error| {
            Error::new(
                ErrorCode::ReadFailed,
                "this kernel does not report the CPU time of threads",
            )
            .because(error)
        };
        for entry in fs::read_dir("/proc/self/task").map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Some(thread) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let read = |file: &str| fs::read_to_string(entry.path().join(file));
            // A thread may end while it is read.
            let (Ok(name), Ok(spent)) = (read("comm"), read("schedstat")) else {
                continue;
            };
            let Some(last) = spent.split(' ').next().and_then(|nanos| nanos.parse().ok()) else {
                continue;
            };
            let purpose = Purpose::of(name.trim_end(), thread == me);
            let account = self.accounts.entry(thread).or_insert(Account {
                purpose,
                first: 0,
                last,
            });
            // A thread gets its name soon after its start.
            (account.purpose, account.last) = (purpose, last);
        }
        Ok(())
    }

    fn sum(&self, purpose: Purpose) -> Duration {
        let of_it = self
            .accounts
            .values()
            .filter(|account| account.purpose == purpose);
        Duration::from_nanos(
            of_it
                .map(|account| account.last.saturating_sub(account.first))
                .sum(),
        )
    }

    pub fn kafka(&self) -> Duration {
        self.sum(Purpose::Kafka)
    }

    pub fn redis(&self) -> Duration {
        self.sum(Purpose::Redis)
    }

    pub fn meter(&self) -> Duration {
        self.sum(Purpose::Meter)
    }

    pub fn job(&self) -> Duration {
        self.sum(Purpose::Job)
    }
}

/// The parts of a process's CPU time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shares {
    /// The total.
    pub cpu: Duration,
    pub fetch: Duration,
    pub deserialise: Duration,
    pub user: Duration,
    pub sink: Duration,
    pub meter: Duration,
    /// The CPU time of the job's own threads, of which `inside` is known not to be the engine's.
    pub job_threads: Duration,
    pub inside: Duration,
}

impl Shares {
    /// Returns each part with the names of its seconds, its share and its cost per record. The
    /// parts add up to the total.
    pub fn parts(&self) -> [([&'static str; 3], Duration); 7] {
        let engine = self.job_threads.saturating_sub(self.inside);
        let known = self.fetch + self.deserialise + self.user + engine + self.sink + self.meter;
        let unaccounted = self.cpu.saturating_sub(known);
        [
            (["fetch_s", "fetch_share", "fetch_ns"], self.fetch),
            (
                ["deserialise_s", "deserialise_share", "deserialise_ns"],
                self.deserialise,
            ),
            (["user_s", "user_share", "user_ns"], self.user),
            (["engine_s", "engine_share", "engine_ns"], engine),
            (["sink_s", "sink_share", "sink_ns"], self.sink),
            (["meter_s", "meter_share", "meter_ns"], self.meter),
            (
                ["unaccounted_s", "unaccounted_share", "unaccounted_ns"],
                unaccounted,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_add_up_to_the_whole() {
        let millis = Duration::from_millis;
        let shares = Shares {
            cpu: millis(100),
            fetch: millis(30),
            deserialise: millis(10),
            user: millis(5),
            sink: millis(8),
            meter: millis(2),
            job_threads: millis(50),
            inside: millis(28),
        };
        let parts = shares.parts();
        assert_eq!(
            parts.iter().map(|(_, time)| *time).sum::<Duration>(),
            shares.cpu
        );
        assert_eq!(
            parts[3],
            (["engine_s", "engine_share", "engine_ns"], millis(22))
        );
        assert_eq!(parts[6].1, millis(23));
    }

    #[test]
    fn a_thread_is_found_by_its_name() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("redis-writer".to_string())
            .spawn(move || {
                let mut sum = 0u64;
                for n in 0..1_000_000u64 {
                    sum = std::hint::black_box(sum + n);
                }
                tell.send(sum).unwrap();
                let _ = ended.recv();
            })
            .unwrap();
        let _ = told.recv();
        let mut ledger = CpuTimes::default();
        ledger.read_clocks().unwrap();
        assert!(ledger.redis() > Duration::ZERO);
        drop(end);
        thread.join().unwrap();
    }
}
