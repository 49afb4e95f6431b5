//! A run over several containers: a job of a cluster on this machine, whose processes are asked what they did.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::Result;
use hdrhistogram::Histogram;

use super::steady::Steady;
use super::{Gathering, Ground, Load, Order, Sample};
use crate::usage::{Spent, monotonic_nanos};
use crate::{PATIENCE, nanoseconds};

/// Time for the word to begin to have reached all containers.
const LEAD: Duration = Duration::from_millis(200);

/// How long containers may take to come up.
const COME_WITHIN: Duration = Duration::from_secs(60);

/// How often it is looked whether all tuples have arrived.
const LOOK: Duration = Duration::from_millis(20);

/// What all containers and hosts had done at a moment.
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) samples: Vec<Sample>,
    pub(crate) hosts_cpu: Duration,
}

impl Seen {
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.samples.iter().map(|sample| sample.count(name)).sum()
    }

    pub(crate) fn cpu(&self) -> Duration {
        let nanos = self.samples.iter().map(|sample| sample.cpu_nanos);
        Duration::from_nanos(nanos.sum())
    }
}

/// What happened between two moments.
pub(crate) struct Measured {
    before: Seen,
    after: Seen,
}

impl Measured {
    pub(crate) fn count(&self, name: &str) -> u64 {
        let before = self.before.count(name);
        self.after.count(name).saturating_sub(before)
    }

    /// What the containers spent.
    pub(crate) fn spent(&self) -> Spent {
        Spent {
            wall: self.after.at - self.before.at,
            cpu: self.after.cpu().saturating_sub(self.before.cpu()),
        }
    }

    /// What the hosts spent on the cpu.
    pub(crate) fn hosts_cpu(&self) -> Duration {
        let before = self.before.hosts_cpu;
        self.after.hosts_cpu.saturating_sub(before)
    }
}

/// A job in several containers that is up; its spouts wait for the word. Its containers count what is `emitted` and `counted`.
pub(crate) struct Spread {
    workers: Steady,
    job: String,
    // The cluster's folder goes last.
    ground: Ground,
}

impl Spread {
    /// Starts a cluster, and brings a job of that name and these settings to it; it does what `load` says, which is told where the bench
    /// listens.
    pub(crate) fn start(
        name: &str,
        containers: u32,
        settings: &[String],
        load: impl FnOnce(PathBuf) -> Load,
    ) -> Result<Self> {
        let ground = Ground::new(1, settings)?;
        let gathering = Gathering::in_folder(ground.folder())?;
        let load = load(gathering.path().to_path_buf());
        let submission = ground.submit(name, &load)?;
        ground.wait_until_running(&submission.job, COME_WITHIN)?;
        gathering.wait_for(containers as usize, COME_WITHIN)?;
        Ok(Spread {
            workers: Steady::from_now_on(gathering, containers)?,
            job: submission.job,
            ground,
        })
    }

    /// Gives the word, and warms up; what is due in the time behind that counts.
    pub(crate) fn warm_up(
        &self,
        warmup: Duration,
        duration: Duration,
        progress: &mut dyn FnMut(&str),
    ) {
        let start = monotonic_nanos() + LEAD.as_nanos() as u64;
        let from = start + warmup.as_nanos() as u64;
        let until = from + duration.as_nanos() as u64;
        self.workers.order(Order::Begin { start, from, until });
        progress("warming up");
        thread::sleep(Duration::from_nanos(from.saturating_sub(monotonic_nanos())));
        progress("measuring");
    }

    /// What has been done until now.
    ///
    /// # Errors
    /// Those of [`Steady::samples`].
    pub(crate) fn seen(&self) -> Result<Seen> {
        Ok(Seen {
            at: Instant::now(),
            samples: self.workers.samples(false)?,
            hosts_cpu: self.ground.host_cpu_time(),
        })
    }

    /// What happens in a time that begins now.
    ///
    /// # Errors
    /// Those of [`Steady::samples`].
    pub(crate) fn measure(&self, duration: Duration) -> Result<Measured> {
        let before = self.seen()?;
        thread::sleep(duration);
        let after = self.seen()?;
        Ok(Measured { before, after })
    }

    /// The processes that are the cluster's hosts.
    pub(crate) fn host_pids(&self) -> Vec<u32> {
        self.ground.host_pids()
    }

    /// Has the spouts fall silent, waits until what they have emitted has arrived, and takes all down.
    ///
    /// # Errors
    /// Those of [`Steady::samples`].
    pub(crate) fn end(self) -> Result<Vec<Sample>> {
        let last = self.last_samples()?;
        self.ground.kill(&self.job)?;
        Ok(last)
    }

    fn last_samples(&self) -> Result<Vec<Sample>> {
        self.workers.order(Order::Over);
        let deadline = Instant::now() + 2 * PATIENCE;
        let mut emitted_before = None;
        loop {
            let samples = self.workers.samples(true)?;
            let count = |name| samples.iter().map(|it| it.count(name)).sum::<u64>();
            let emitted = count("emitted");
            let is_silent = emitted_before.replace(emitted) == Some(emitted);
            if (is_silent && count("counted") == emitted) || Instant::now() >= deadline {
                return Ok(samples);
            }
            thread::sleep(LOOK);
        }
    }
}

/// The latencies of all containers.
pub(crate) fn merged(samples: &[Sample]) -> Result<Histogram<u64>> {
    let mut all = nanoseconds()?;
    for (nanos, count) in samples.iter().flat_map(|sample| &sample.latencies) {
        all.saturating_record_n(*nanos, *count);
    }
    Ok(all)
}
