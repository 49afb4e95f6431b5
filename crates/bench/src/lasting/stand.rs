//! A job on a cluster of this machine of which something is killed while it is looked at.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Clock, Error, ErrorCode, Result};
use ardea_rest::EpochsView;
use rustix::process::{Pid, Signal, kill_process};

use super::commits::{Commits, Epochs, wait_for_whole};
use super::span::Plan;
use crate::cluster::{Gathering, Ground, Load, Order, Sample, pids_of};
use crate::report::rounded;
use crate::usage::Spent;

/// How long a job may take to run.
const WITHIN: Duration = Duration::from_secs(60);

/// How long its state may take to be filled.
const FILLED_WITHIN: Duration = Duration::from_secs(1_800);

/// How long a job may take, behind the measured time, to catch up and to come to its end.
const OVER_WITHIN: Duration = Duration::from_secs(300);

/// How long a job may take to be whole again.
const RECOVERED_WITHIN: Duration = Duration::from_secs(120);

/// Time for the word to begin to have reached all containers.
const LEAD: Duration = Duration::from_millis(300);

/// How often the containers and the cluster are asked.
const LOOK: Duration = Duration::from_millis(20);

/// The same while nothing is waited for.
const SLOW_LOOK: Duration = Duration::from_millis(100);

/// A job that is up, and what was seen of it.
pub(crate) struct Stand {
    ground: Ground,
    gathering: Gathering,
    job: String,
    clock: Clock,
    commits: Commits,
    /// By container, in which life of it.
    seen: BTreeMap<(u32, u64), Sample>,
}

/// Who is to be killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Victim {
    /// The process of a container that no results come to.
    Worker,
    /// The process of the host that leads the job.
    JobMaster,
    /// That with all its containers.
    Host,
}

/// What came of a kill.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Killed {
    /// When the signal was sent, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    at: Instant,
    life: Option<u64>,
    committed: Option<u64>,
}

/// The folder in which such a job publishes, by where the bench listens.
pub(crate) fn published_in(socket: &Path) -> PathBuf {
    socket.with_file_name("out")
}

impl Stand {
    /// Starts a cluster of so many hosts and a job of that name on it, in so many containers.
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
        ground.wait_until_running(&submission.job, WITHIN)?;
        gathering.wait_for(containers as usize, WITHIN)?;
        Ok(Stand {
            ground,
            gathering,
            job: submission.job,
            clock: Clock::system(),
            commits: Commits::since(Epochs::default()),
            seen: BTreeMap::new(),
        })
    }

    /// Where it publishes.
    pub(crate) fn published(&self) -> PathBuf {
        published_in(self.gathering.path())
    }

    /// Waits until so many records have filled the state.
    pub(crate) fn wait_until_filled(&self, records: u64) -> Result<()> {
        let deadline = Instant::now() + FILLED_WITHIN;
        loop {
            let samples = self.gathering.samples(false);
            let filled: u64 = samples.iter().map(|it| it.count("filled")).sum();
            if filled >= records {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let what = format!("only {filled} of {records} keys have been filled in");
                return Err(Error::new(ErrorCode::LimitReached, what).hint("give fewer (--keys)"));
            }
            thread::sleep(SLOW_LOOK);
        }
    }

    /// Waits until a snapshot holds all that is there now.
    pub(crate) fn wait_for_snapshot(&mut self) -> Result<()> {
        let mut commits = Commits::since(Epochs::default());
        let whole = wait_for_whole(|| {
            commits.look_at(self.epochs()?.as_ref());
            Ok(commits.newest())
        })?;
        self.commits = Commits::since(whole);
        Ok(())
    }

    fn epochs(&self) -> Result<Option<EpochsView>> {
        Ok(self.ground.describe(&self.job)?.epochs)
    }

    /// Gives the word, and warms up.
    pub(crate) fn begin(&self, warmup: Duration, duration: Duration) -> Plan {
        let plan = Plan::after(self.clock.wall(), LEAD, warmup, duration);
        self.gathering.order(plan.order());
        thread::sleep(plan.from.since(self.clock.wall()));
        plan
    }

    /// Looks on until that moment.
    pub(crate) fn look_on(&mut self, until: ardea_core::Timestamp) {
        while self.clock.wall() < until {
            self.look();
            thread::sleep(SLOW_LOOK.min(until.since(self.clock.wall())));
        }
    }

    /// What containers and the cluster tell now; of who doesn't, what it told last stays.
    fn look(&mut self) {
        let samples = self.gathering.samples(false);
        self.keep(samples);
        // While somebody else is about to lead the job nobody tells.
        if let Ok(epochs) = self.epochs() {
            self.commits.look_at(epochs.as_ref());
        }
    }

    fn keep(&mut self, samples: Vec<Sample>) {
        for sample in samples {
            let life = (sample.container, sample.incarnation);
            self.seen.insert(life, sample);
        }
    }

    /// Kills somebody, and has all forget how late results were before.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if there is nobody to kill; what the cluster says.
    pub(crate) fn kill(&mut self, victim: Victim) -> Result<Killed> {
        self.look();
        let pids = self.pids_of(victim)?;
        let epochs = self.epochs()?;
        self.gathering.order(Order::Forget);
        let killed = Killed {
            at_ms: self.clock.wall().as_millis().max(0) as u64,
            at: Instant::now(),
            life: epochs.as_ref().map(|epochs| epochs.life),
            committed: epochs.and_then(|epochs| epochs.committed),
        };
        for pid in pids {
            kill_process(pid, Signal::KILL).map_err(|error| nobody().because(error))?;
        }
        Ok(killed)
    }

    fn pids_of(&self, victim: Victim) -> Result<Vec<Pid>> {
        let raw = |pid: u32| i32::try_from(pid).ok().and_then(Pid::from_raw);
        if victim == Victim::Worker {
            // The process that results come to tells how long they were missed.
            let samples = self.gathering.samples(false);
            let others = samples.iter().filter(|it| it.count("results") == 0);
            let last = others.max_by_key(|it| it.container);
            return last
                .and_then(|sample| raw(sample.pid))
                .map(|pid| vec![pid])
                .ok_or_else(nobody);
        }
        let hosts = self.ground.hosts()?;
        let leads = hosts.iter().find(|host| host.leads.contains(&self.job));
        let host = leads.ok_or_else(nobody)?;
        let mut pids: Vec<Pid> = raw(host.pid).into_iter().collect();
        if victim == Victim::Host {
            pids.extend(pids_of(host));
        }
        Ok(pids)
    }

    /// How long it took until the job was whole again: until its next life had begun, or, where none was needed, until more was committed
    /// by whoever leads it now. Nothing without a guarantee, or if that takes longer than anybody would wait.
    pub(crate) fn recovered(&mut self, killed: &Killed, victim: Victim) -> Option<Duration> {
        killed.life?;
        while killed.at.elapsed() < RECOVERED_WITHIN {
            self.look();
            if let Ok(Some(epochs)) = self.epochs() {
                let is_next = Some(epochs.life) > killed.life && epochs.has_begun;
                let has_more = epochs.committed > killed.committed;
                if is_next || (victim == Victim::JobMaster && has_more) {
                    return Some(killed.at.elapsed());
                }
            }
            thread::sleep(LOOK);
        }
        None
    }

    /// When its master noted this after something was killed, in milliseconds.
    pub(crate) fn noted_ms(&self, text: &str, killed: &Killed) -> Option<u64> {
        let described = self.ground.describe(&self.job).ok()?;
        crate::submit::noted_ms(&described, text, killed.at_ms)
    }

    /// Waits until no more results have come for so long; then has the job come to its end, and waits for that: its sources emit all
    /// that was due before. Gives what was seen last of each process, and whether the job came to its end.
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
            thread::sleep(SLOW_LOOK);
        }
        let samples = self.gathering.samples(true);
        self.keep(samples);
        self.gathering.order(Order::Over);
        let is_over = self.ground.wait_until_over(&self.job, OVER_WITHIN);
        (self.seen.values().cloned().collect(), is_over)
    }

    /// Cpu time of the hosts so far.
    pub(crate) fn host_cpu_time(&self) -> Duration {
        self.ground.host_cpu_time()
    }

    /// The epochs that were seen to be committed since the first whole one.
    pub(crate) fn commits(&self) -> &Commits {
        &self.commits
    }
}

/// Cpu time of all workers, from their beginning: that of one that was killed as far as it was seen.
pub(crate) fn spent(last: &[Sample], wall: Duration) -> Spent {
    let nanos: u64 = last.iter().map(|sample| sample.cpu_nanos).sum();
    Spent {
        wall,
        cpu: Duration::from_nanos(nanos),
    }
}

/// The most memory that the containers had, each in one of its lives.
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

fn nobody() -> Error {
    Error::new(ErrorCode::LimitReached, "there is nobody to kill")
        .hint("run it again: what was to be killed has just been started, or is gone")
}
