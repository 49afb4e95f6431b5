//! A run over several containers: a job of a cluster on this machine, whose processes are asked what they did.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Clock, Result};
use hdrhistogram::Histogram;

use super::steady::Steady;
use super::{Gathering, Ground, Load, Order, Sample};
use crate::lasting::commits::{Commits, Epochs};
use crate::lasting::span::Plan;
use crate::usage::{Spent, monotonic_nanos};
use crate::{PATIENCE, nanoseconds};

/// Time for the word to begin to have reached all containers.
const LEAD: Duration = Duration::from_millis(200);

/// How long containers may take to come up.
const COME_WITHIN: Duration = Duration::from_secs(60);

/// How often it is looked whether all tuples have arrived.
const LOOK: Duration = Duration::from_millis(20);

/// How often it is looked what has been committed: more often than epochs end.
const EPOCHS_LOOK: Duration = Duration::from_millis(100);

/// How long nothing may come before nothing is expected any more.
const SETTLE_LOOK: Duration = Duration::from_secs(1);

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
    /// Starts a cluster of so many hosts, and brings a job of that name and these settings to it, in so many containers; it does what
    /// `load` says, which is told where the bench listens.
    pub(crate) fn start(
        name: &str,
        (hosts, containers): (usize, u32),
        settings: &[String],
        load: impl FnOnce(PathBuf) -> Load,
    ) -> Result<Self> {
        let ground = Ground::new(hosts, settings)?;
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

    /// Gives the word by the time of day, and warms up.
    pub(crate) fn begin(
        &self,
        warmup: Duration,
        duration: Duration,
        progress: &mut dyn FnMut(&str),
    ) -> Plan {
        let clock = Clock::system();
        let plan = Plan::after(clock.wall(), LEAD, warmup, duration);
        self.workers.order(plan.order());
        progress("warming up");
        thread::sleep(plan.from.since(clock.wall()));
        progress("measuring");
        plan
    }

    /// What happens from now until the measured time is over, and what epochs are committed meanwhile.
    ///
    /// # Errors
    /// Those of [`Steady::samples`]; what the cluster says.
    pub(crate) fn measure_with_epochs(&self, plan: &Plan) -> Result<(Measured, Commits)> {
        let clock = Clock::system();
        let mut commits = Commits::since(Epochs::default());
        // What is there already was committed before.
        let described = self.ground.describe(&self.job)?;
        commits.look_at(described.epochs.as_ref());
        let mut commits = Commits::since(commits.newest());
        let before = self.seen()?;
        while clock.wall() < plan.until {
            thread::sleep(EPOCHS_LOOK.min(plan.until.since(clock.wall())));
            let described = self.ground.describe(&self.job)?;
            commits.look_at(described.epochs.as_ref());
        }
        let after = self.seen()?;
        Ok((Measured { before, after }, commits))
    }

    /// Waits until so many latencies have been seen, or no more come, and tells what all have seen.
    ///
    /// # Errors
    /// Those of [`Steady::samples`].
    pub(crate) fn settle(&self, latencies: u64) -> Result<Vec<Sample>> {
        let (deadline, mut before) = (Instant::now() + PATIENCE, None);
        loop {
            let samples = self.workers.samples(false)?;
            let measured: u64 = samples.iter().map(|it| it.count("measured")).sum();
            let is_all = measured >= latencies || before.replace(measured) == Some(measured);
            if is_all || Instant::now() >= deadline {
                // The job goes on: one that has come to its end tells nothing.
                return self.workers.samples(true);
            }
            thread::sleep(SETTLE_LOOK);
        }
    }

    /// Ends the job, and takes all down.
    ///
    /// # Errors
    /// What the cluster says.
    pub(crate) fn take_down(self) -> Result<()> {
        self.ground.kill(&self.job)
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
