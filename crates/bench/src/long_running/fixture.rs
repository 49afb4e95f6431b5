//! A job on a cluster of this machine, of which a part is killed during the measurement.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Clock, Error, ErrorCode, Result};
use ardea_rest::EpochsView;
use rustix::process::{Pid, Signal, kill_process};

use super::commits::{Commits, Epochs, wait_for_full_checkpoint};
use super::span::Plan;
use crate::cluster::{Load, Order, Sample, TestCluster, WorkerConnections, pids_of};
use crate::report::rounded;
use crate::usage::Spent;

/// Timeout for the job to run.
const WITHIN: Duration = Duration::from_secs(60);

/// Timeout for filling the state.
const FILLED_WITHIN: Duration = Duration::from_secs(1_800);

/// Timeout for the job, after the measured time, to catch up and to end.
const OVER_WITHIN: Duration = Duration::from_secs(300);

/// Timeout for the job to recover.
const RECOVERED_WITHIN: Duration = Duration::from_secs(120);

/// Delay for the start signal to reach all containers.
const LEAD: Duration = Duration::from_millis(300);

/// Poll interval of the containers and the cluster.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The same outside of timed waits.
const SLOW_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A running job, and its observations.
pub(crate) struct Fixture {
    test_cluster: TestCluster,
    gathering: WorkerConnections,
    job: String,
    clock: Clock,
    commits: Commits,
    /// The last sample of each container and incarnation.
    seen: BTreeMap<(u32, u64), Sample>,
}

/// The part of the cluster to kill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Victim {
    /// The process of a container without a sink.
    Worker,
    /// The process of the host that leads the job.
    JobMaster,
    /// The process of that host, with all its containers.
    Host,
}

/// A kill, and the state of the job at that moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kill {
    /// The time of the signal, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    at: Instant,
    attempt: Option<u64>,
    committed: Option<u64>,
}

/// Returns the folder in which such a job publishes, from the path of the bench's socket.
pub(crate) fn published_in(socket: &Path) -> PathBuf {
    socket.with_file_name("out")
}

impl Fixture {
    /// Starts a cluster of `hosts` hosts, and a job with that name on it in `containers`
    /// containers.
    pub(crate) fn start(
        name: &str,
        (hosts, containers): (usize, u32),
        settings: &[String],
        load: impl FnOnce(PathBuf) -> Load,
    ) -> Result<Self> {
        let ground = TestCluster::new(hosts, settings)?;
        let gathering = WorkerConnections::in_folder(ground.folder())?;
        let load = load(gathering.path().to_path_buf());
        let submission = ground.submit(name, &load)?;
        ground.wait_until_running(&submission.job, WITHIN)?;
        gathering.wait_for(containers as usize, WITHIN)?;
        Ok(Fixture {
            test_cluster: ground,
            gathering,
            job: submission.job,
            clock: Clock::system(),
            commits: Commits::since(Epochs::default()),
            seen: BTreeMap::new(),
        })
    }

    /// Returns the folder in which the job publishes.
    pub(crate) fn published(&self) -> PathBuf {
        published_in(self.gathering.path())
    }

    /// Waits until `records` records have filled the state.
    pub(crate) fn wait_until_filled(&self, records: u64) -> Result<()> {
        let deadline = Instant::now() + FILLED_WITHIN;
        loop {
            let samples = self.gathering.samples(false);
            let filled: u64 = samples.iter().map(|it| it.count("filled")).sum();
            if filled >= records {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let what = format!("only {filled} of {records} keys were filled in time");
                return Err(Error::new(ErrorCode::LimitReached, what).hint("give fewer (--keys)"));
            }
            thread::sleep(SLOW_POLL_INTERVAL);
        }
    }

    /// Waits until a checkpoint stores all of the present state.
    pub(crate) fn wait_for_checkpoint(&mut self) -> Result<()> {
        let mut commits = Commits::since(Epochs::default());
        let whole = wait_for_full_checkpoint(|| {
            commits.update_from_view(self.epochs()?.as_ref());
            Ok(commits.newest())
        })?;
        self.commits = Commits::since(whole);
        Ok(())
    }

    fn epochs(&self) -> Result<Option<EpochsView>> {
        Ok(self.test_cluster.describe(&self.job)?.epochs)
    }

    /// Sends the start signal, and waits until the warm-up is over.
    pub(crate) fn begin(&self, warmup: Duration, duration: Duration) -> Plan {
        let plan = Plan::after(self.clock.wall(), LEAD, warmup, duration);
        self.gathering.order(plan.order());
        thread::sleep(plan.from.since(self.clock.wall()));
        plan
    }

    /// Polls until that moment.
    pub(crate) fn poll_until(&mut self, until: ardea_core::Timestamp) {
        while self.clock.wall() < until {
            self.poll();
            thread::sleep(SLOW_POLL_INTERVAL.min(until.since(self.clock.wall())));
        }
    }

    /// Polls the containers and the cluster. The last sample of a container that doesn't answer is
    /// retained.
    fn poll(&mut self) {
        let samples = self.gathering.samples(false);
        self.store_samples(samples);
        // Fails while the leadership of the job changes.
        if let Ok(epochs) = self.epochs() {
            self.commits.update_from_view(epochs.as_ref());
        }
    }

    fn store_samples(&mut self, samples: Vec<Sample>) {
        for sample in samples {
            let life = (sample.container, sample.incarnation);
            self.seen.insert(life, sample);
        }
    }

    /// Kills the processes of the victim. Before, all workers reset the latencies since the last
    /// reset.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if there is no such process; errors of the cluster.
    pub(crate) fn kill(&mut self, victim: Victim) -> Result<Kill> {
        self.poll();
        let pids = self.pids_of(victim)?;
        let epochs = self.epochs()?;
        self.gathering.order(Order::ResetMoments);
        let killed = Kill {
            at_ms: self.clock.wall().as_millis().max(0) as u64,
            at: Instant::now(),
            attempt: epochs.as_ref().map(|epochs| epochs.life),
            committed: epochs.and_then(|epochs| epochs.committed),
        };
        for pid in pids {
            kill_process(pid, Signal::KILL).map_err(|error| no_process_to_kill().because(error))?;
        }
        Ok(killed)
    }

    fn pids_of(&self, victim: Victim) -> Result<Vec<Pid>> {
        let raw = |pid: u32| i32::try_from(pid).ok().and_then(Pid::from_raw);
        if victim == Victim::Worker {
            // Spares the process of the sink, which measures the time without results.
            let samples = self.gathering.samples(false);
            let others = samples.iter().filter(|it| it.count("results") == 0);
            let last = others.max_by_key(|it| it.container);
            return last
                .and_then(|sample| raw(sample.pid))
                .map(|pid| vec![pid])
                .ok_or_else(no_process_to_kill);
        }
        let hosts = self.test_cluster.hosts()?;
        let leads = hosts.iter().find(|host| host.leads.contains(&self.job));
        let host = leads.ok_or_else(no_process_to_kill)?;
        let mut pids: Vec<Pid> = raw(host.pid).into_iter().collect();
        if victim == Victim::Host {
            pids.extend(pids_of(host));
        }
        Ok(pids)
    }

    /// Returns the time from the kill until the job has recovered. It has recovered when its next
    /// attempt runs. A killed leader may need no new attempt: then it has recovered when the new
    /// leader has committed an epoch. `None` without a guarantee, or on timeout.
    pub(crate) fn wait_until_recovered(
        &mut self,
        killed: &Kill,
        victim: Victim,
    ) -> Option<Duration> {
        killed.attempt?;
        while killed.at.elapsed() < RECOVERED_WITHIN {
            self.poll();
            if let Ok(Some(epochs)) = self.epochs() {
                let is_next = Some(epochs.life) > killed.attempt && epochs.has_begun;
                let has_more = epochs.committed > killed.committed;
                if is_next || (victim == Victim::JobMaster && has_more) {
                    return Some(killed.at.elapsed());
                }
            }
            thread::sleep(POLL_INTERVAL);
        }
        None
    }

    /// Changes the number of containers. Returns the time until the changed job runs.
    pub(crate) fn rescale(&self, containers: u32) -> Result<Duration> {
        let containers = NonZeroU32::new(containers).unwrap_or(NonZeroU32::MIN);
        let begun = Instant::now();
        self.test_cluster.rescale(&self.job, containers)?;
        self.test_cluster.wait_until_running(&self.job, WITHIN)?;
        Ok(begun.elapsed())
    }

    /// Returns the milliseconds from the kill until the leader's last note that contains `text`.
    pub(crate) fn noted_ms(&self, text: &str, killed: &Kill) -> Option<u64> {
        let described = self.test_cluster.describe(&self.job).ok()?;
        crate::submit::noted_ms(&described, text, killed.at_ms)
    }

    /// Waits until no new results have come for `still`; then ends the job, whose sources first
    /// emit all that was due. Returns the last sample of each process, and true if the job ended in
    /// time.
    pub(crate) fn end(&mut self, still: Duration) -> (Vec<Sample>, bool) {
        let deadline = Instant::now() + OVER_WITHIN;
        let (mut before, mut since) = (0, Instant::now());
        while Instant::now() < deadline {
            let samples = self.gathering.samples(false);
            let results: u64 = samples.iter().map(|it| it.count("results")).sum();
            if results != before {
                (before, since) = (results, Instant::now());
            }
            if since.elapsed() >= still {
                break;
            }
            thread::sleep(SLOW_POLL_INTERVAL);
        }
        let samples = self.gathering.samples(true);
        self.store_samples(samples);
        self.gathering.order(Order::Over);
        let is_over = self.test_cluster.wait_until_over(&self.job, OVER_WITHIN);
        (self.seen.values().cloned().collect(), is_over)
    }

    pub(crate) fn host_cpu_time(&self) -> Duration {
        self.test_cluster.host_cpu_time()
    }

    /// Returns the epochs committed since the first full checkpoint.
    pub(crate) fn commits(&self) -> &Commits {
        &self.commits
    }
}

/// Returns the CPU time of all workers since their start. That of a killed worker is counted until
/// its last sample.
pub(crate) fn spent(last: &[Sample], wall: Duration) -> Spent {
    let nanos: u64 = last.iter().map(|sample| sample.cpu_nanos).sum();
    Spent {
        wall,
        cpu: Duration::from_nanos(nanos),
    }
}

/// Returns the sum of the peak memory of the containers, each over all its incarnations.
pub(crate) fn rss_mb(last: &[Sample]) -> Option<f64> {
    let mut containers: Vec<u32> = last.iter().map(|sample| sample.container).collect();
    containers.dedup();
    let most = |container: u32| -> Option<f64> {
        let lives = last.iter().filter(|sample| sample.container == container);
        lives.filter_map(|sample| sample.rss_mb).reduce(f64::max)
    };
    let peaks: Option<Vec<f64>> = containers.into_iter().map(most).collect();
    peaks.map(|peaks| rounded(peaks.iter().sum(), 10.0))
}

fn no_process_to_kill() -> Error {
    Error::new(ErrorCode::LimitReached, "there is no process to kill")
        .hint("run the bench again: the process to kill has just started or ended")
}
