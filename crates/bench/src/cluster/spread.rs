//! A run over several containers: a job on a cluster of this machine, whose workers report to the
//! bench.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Clock, Result};
use ardea_rest::TrafficView;
use hdrhistogram::Histogram;

use super::fixed_workers::FixedWorkers;
use super::{Load, Order, Sample, TestCluster, WorkerConnections};
use crate::long_running::commits::{Commits, Epochs};
use crate::long_running::span::Plan;
use crate::usage::{Spent, monotonic_nanos};
use crate::{LATE_RESULTS_TIMEOUT, nanoseconds};

/// Delay for the start signal to reach all containers.
const LEAD: Duration = Duration::from_millis(200);

/// Timeout for the containers to start.
const COME_WITHIN: Duration = Duration::from_secs(60);

/// Poll interval of the wait for all tuples to arrive.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Poll interval of committed epochs; shorter than an epoch.
const EPOCHS_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Poll interval of the wait for latencies; it ends when no more were recorded.
const SETTLE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The counts of all containers, and the CPU time of the hosts, at a moment.
pub(crate) struct ClusterSample {
    pub(crate) at: Instant,
    pub(crate) samples: Vec<Sample>,
    pub(crate) hosts_cpu: Duration,
}

impl ClusterSample {
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.samples.iter().map(|sample| sample.count(name)).sum()
    }

    pub(crate) fn cpu(&self) -> Duration {
        let nanos = self.samples.iter().map(|sample| sample.cpu_nanos);
        Duration::from_nanos(nanos.sum())
    }
}

/// The difference between two moments.
pub(crate) struct Measured {
    before: ClusterSample,
    after: ClusterSample,
}

impl Measured {
    pub(crate) fn count(&self, name: &str) -> u64 {
        let before = self.before.count(name);
        self.after.count(name).saturating_sub(before)
    }

    /// Returns the wall and CPU time of the containers.
    pub(crate) fn spent(&self) -> Spent {
        Spent {
            wall: self.after.at - self.before.at,
            cpu: self.after.cpu().saturating_sub(self.before.cpu()),
        }
    }

    pub(crate) fn hosts_cpu(&self) -> Duration {
        let before = self.before.hosts_cpu;
        self.after.hosts_cpu.saturating_sub(before)
    }
}

/// A running job in several containers, whose spouts wait for the start signal. Its containers
/// count the tuples `emitted` and `counted`.
pub(crate) struct DistributedRun {
    workers: FixedWorkers,
    job: String,
    // Dropped last, since it removes the cluster's folder.
    test_cluster: TestCluster,
}

impl DistributedRun {
    /// Starts a cluster of `hosts` hosts, and submits a job with that name and these settings in
    /// `containers` containers. `load` receives the path of the bench's socket and returns the
    /// job's load.
    pub(crate) fn start(
        name: &str,
        (hosts, containers): (usize, u32),
        settings: &[String],
        load: impl FnOnce(PathBuf) -> Load,
    ) -> Result<Self> {
        let cluster = TestCluster::new(hosts, settings)?;
        DistributedRun::start_on(cluster, name, containers, load)
    }

    /// Like [`start`](Self::start), on the cluster `ground`.
    pub(crate) fn start_on(
        ground: TestCluster,
        name: &str,
        containers: u32,
        load: impl FnOnce(PathBuf) -> Load,
    ) -> Result<Self> {
        let gathering = WorkerConnections::in_folder(ground.folder())?;
        let load = load(gathering.path().to_path_buf());
        let submission = ground.submit(name, &load)?;
        ground.wait_until_running(&submission.job, COME_WITHIN)?;
        gathering.wait_for(containers as usize, COME_WITHIN)?;
        Ok(DistributedRun {
            workers: FixedWorkers::from_connected(gathering, containers)?,
            job: submission.job,
            test_cluster: ground,
        })
    }

    /// Sends the start signal, and waits until the warm-up is over. Records due in the `duration`
    /// after it are measured.
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

    /// Returns the measured traffic of the job.
    pub(crate) fn traffic(&self) -> Result<TrafficView> {
        self.test_cluster.traffic(&self.job)
    }

    /// Returns the times at which an event with this text happened, in milliseconds since 1970.
    pub(crate) fn events(&self, text: &str) -> Result<Vec<u64>> {
        let notes = self.test_cluster.describe(&self.job)?.notes.into_iter();
        let notes = notes.filter(|note| note.text.contains(text));
        Ok(notes.map(|note| note.at_ms).collect())
    }

    /// Returns the counts until now.
    pub(crate) fn take_sample(&self) -> Result<ClusterSample> {
        Ok(ClusterSample {
            at: Instant::now(),
            samples: self.workers.samples(false)?,
            hosts_cpu: self.test_cluster.host_cpu_time(),
        })
    }

    /// Measures for `duration`, from now on.
    pub(crate) fn measure(&self, duration: Duration) -> Result<Measured> {
        let before = self.take_sample()?;
        thread::sleep(duration);
        let after = self.take_sample()?;
        Ok(Measured { before, after })
    }

    /// Sends the start signal by the time of day, and waits until the warm-up is over.
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

    /// Measures until the end of the plan, and collects the epochs committed meanwhile.
    pub(crate) fn measure_with_epochs(&self, plan: &Plan) -> Result<(Measured, Commits)> {
        let clock = Clock::system();
        let mut commits = Commits::since(Epochs::default());
        // Excludes epochs committed before.
        let described = self.test_cluster.describe(&self.job)?;
        commits.update_from_view(described.epochs.as_ref());
        let mut commits = Commits::since(commits.newest());
        let before = self.take_sample()?;
        while clock.wall() < plan.until {
            thread::sleep(EPOCHS_POLL_INTERVAL.min(plan.until.since(clock.wall())));
            let described = self.test_cluster.describe(&self.job)?;
            commits.update_from_view(described.epochs.as_ref());
        }
        let after = self.take_sample()?;
        Ok((Measured { before, after }, commits))
    }

    /// Waits until `latencies` latencies have been recorded, or no more come. Returns the samples
    /// of all workers.
    pub(crate) fn settle(&self, latencies: u64) -> Result<Vec<Sample>> {
        let (deadline, mut before) = (Instant::now() + LATE_RESULTS_TIMEOUT, None);
        loop {
            let samples = self.workers.samples(false)?;
            let measured: u64 = samples.iter().map(|it| it.count("measured")).sum();
            let is_all = measured >= latencies || before.replace(measured) == Some(measured);
            if is_all || Instant::now() >= deadline {
                // Sampled while the job runs: workers that have ended do not answer.
                return self.workers.samples(true);
            }
            thread::sleep(SETTLE_POLL_INTERVAL);
        }
    }

    /// Ends the job.
    pub(crate) fn end_job(self) -> Result<()> {
        self.test_cluster.kill(&self.job)
    }

    pub(crate) fn host_pids(&self) -> Vec<u32> {
        self.test_cluster.host_pids()
    }

    /// Ends the job at once, and returns the samples before its end.
    pub(crate) fn end_now(self) -> Result<Vec<Sample>> {
        let last = self.workers.samples(true)?;
        self.test_cluster.kill(&self.job)?;
        Ok(last)
    }

    /// Stops the spouts, waits until all emitted tuples have arrived, and ends the job.
    pub(crate) fn end(self) -> Result<Vec<Sample>> {
        let last = self.last_samples()?;
        self.test_cluster.kill(&self.job)?;
        Ok(last)
    }

    fn last_samples(&self) -> Result<Vec<Sample>> {
        self.workers.order(Order::Over);
        let deadline = Instant::now() + 2 * LATE_RESULTS_TIMEOUT;
        let mut emitted_before = None;
        loop {
            let samples = self.workers.samples(true)?;
            let count = |name| samples.iter().map(|it| it.count(name)).sum::<u64>();
            let emitted = count("emitted");
            let is_silent = emitted_before.replace(emitted) == Some(emitted);
            if (is_silent && count("counted") == emitted) || Instant::now() >= deadline {
                return Ok(samples);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Returns the latencies of all containers in one histogram.
pub(crate) fn merged(samples: &[Sample]) -> Result<Histogram<u64>> {
    let mut all = nanoseconds()?;
    for (nanos, count) in samples.iter().flat_map(|sample| &sample.latencies) {
        all.saturating_record_n(*nanos, *count);
    }
    Ok(all)
}
