//! A cluster of this machine, in a folder for temporary files, for as long as a bench runs.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ardea::cluster::{Launcher, Modules};
use ardea::job::{Prepared, Target, Wanted, client_of, connect};
use ardea::recovery::SURVIVAL_SETTINGS;
use ardea_config::duration::format_duration;
use ardea_config::{Resolved, Resolver, Schema};
use ardea_core::{Error, ErrorCode, Guarantee, Result};
use ardea_engine::NODE_SETTINGS;
use ardea_rest::{
    Client, ClusterSettings, ContainersUpdate, HostView, JobDescription, Phase, with_clusters,
};
use ardea_worker::WORKER_SETTINGS;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::Load;
use crate::usage::process_cpu_time;

/// What the program is called in packages.
const PROGRAM: &str = "ardea";

/// A snapshot is given up after so long: one of everything takes its time.
const SNAPSHOT_WITHIN: Duration = Duration::from_secs(600);

/// The settings of a job that promises something; its snapshots are in this folder, or in the memory of the cluster's hosts.
pub(crate) fn promises(
    guarantee: Guarantee,
    every: Duration,
    folder: Option<&Path>,
) -> Vec<String> {
    if !guarantee.keeps_state() {
        return Vec::new();
    }
    let folder = folder.map(|folder| format!("snapshots.folder={}", folder.display()));
    let mut settings = vec![
        format!("guarantee={}", guarantee.as_str()),
        format!("snapshots.every={}", format_duration(every)),
        format!("snapshots.timeout={}", format_duration(SNAPSHOT_WITHIN)),
        "snapshots.pause=0s".into(),
    ];
    settings.extend(folder);
    settings
}

/// How many hosts the cluster of such a job has: what is in the memory of one has a copy on another.
pub(crate) fn hosts_for(guarantee: Guarantee, folder: Option<&Path>) -> usize {
    match guarantee.keeps_state() && folder.is_none() {
        true => 2,
        false => 1,
    }
}

/// How long a job may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(20);

/// How often it is looked whether it is.
const LOOK: Duration = Duration::from_millis(5);

/// What a process that was interrupted ends with.
const INTERRUPTED: i32 = 130;

/// A cluster of this machine, whose hosts are processes of this program. It ends with the bench, also when that is interrupted.
pub(crate) struct Ground {
    inner: Arc<Inner>,
    resolved: Resolved,
}

struct Inner {
    // The folder goes last.
    cluster: ClusterSettings,
    client: Client,
    runtime: Runtime,
    jobs: Mutex<Vec<String>>,
    is_torn_down: AtomicBool,
    folder: TempDir,
}

/// A job that was submitted, and the moments on the way.
pub(crate) struct Submission {
    /// Its name.
    pub(crate) job: String,
    /// How long it took until it was known to fit, was stored, and was taken by the cluster.
    pub(crate) prepared: Duration,
    pub(crate) stored: Duration,
    pub(crate) taken: Duration,
}

impl Ground {
    /// A cluster with so many hosts; `flags` are settings of the jobs, as `key=value`.
    ///
    /// # Errors
    /// What keeps hosts from starting.
    pub(crate) fn new(hosts: usize, flags: &[String]) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("ardea-bench-")
            .tempdir()
            .map_err(|error| {
                Error::new(ErrorCode::WriteFailed, "cannot make a folder for a cluster")
                    .because(error)
                    .hint("check the free space and permissions of the folder for temporary files (TMPDIR)")
            })?;
        let of_processes = Schema::of(NODE_SETTINGS).and(SURVIVAL_SETTINGS);
        let schema = with_clusters(of_processes.and(WORKER_SETTINGS));
        let own = [
            "cluster.name=bench".to_string(),
            "cluster.port=0".to_string(),
            format!("cluster.directory={}", folder.path().display()),
        ];
        let flags = own.into_iter().chain(flags.iter().cloned());
        let resolved = Resolver::new(&schema).flags(flags).resolve()?;
        let cluster = ClusterSettings::from_settings(&resolved, None)?;
        let launcher = Launcher::of(cluster.clone());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|error| {
                let what = "the system gives nothing to wait with";
                Error::new(ErrorCode::LimitReached, what).because(error)
            })?;
        let client = launcher
            .start(hosts)
            .and_then(|_| runtime.block_on(client_of(&cluster)));
        let client = match client {
            Ok((client, _)) => client,
            Err(error) => {
                // Those that did come are stopped.
                let _ = launcher.stop();
                return Err(error);
            }
        };
        let inner = Arc::new(Inner {
            cluster,
            client,
            runtime,
            jobs: Mutex::default(),
            is_torn_down: AtomicBool::new(false),
            folder,
        });
        inner.end_when_interrupted();
        Ok(Ground { inner, resolved })
    }

    /// Its folder.
    pub(crate) fn folder(&self) -> &Path {
        self.inner.folder.path()
    }

    /// Brings a job of this name to the cluster.
    ///
    /// # Errors
    /// What the cluster says.
    pub(crate) fn submit(&self, name: &str, load: &Load) -> Result<Submission> {
        let begun = Instant::now();
        let (job, _) = load.job()?;
        let wanted = Wanted {
            job: &*job,
            name: Some(name.to_string()),
            executable: PathBuf::from("/proc/self/exe"),
            executable_name: PROGRAM.into(),
            files: Vec::new(),
            arguments: load.arguments()?,
        };
        let cluster = &self.inner.cluster;
        let prepared = Prepared::of(&wanted, cluster, &self.resolved, &Modules::builtin())?;
        let prepared_at = begun.elapsed();
        let target: Box<dyn Target> = connect(cluster, name, &Modules::builtin())?;
        let package = target.store(&prepared.files)?;
        let stored_at = begun.elapsed();
        let request = prepared.request(target.cluster(), package);
        self.inner.jobs().push(name.to_string());
        target.submit(request)?;
        Ok(Submission {
            job: name.to_string(),
            prepared: prepared_at,
            stored: stored_at,
            taken: begun.elapsed(),
        })
    }

    /// What is known of a job.
    ///
    /// # Errors
    /// What the cluster says.
    pub(crate) fn describe(&self, job: &str) -> Result<JobDescription> {
        self.inner.runtime.block_on(self.inner.client.describe(job))
    }

    /// Waits until a job has come to its end; false if it doesn't in time.
    pub(crate) fn wait_until_over(&self, job: &str, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            match self.describe(job) {
                Err(error) if error.code() == ErrorCode::NoSuchJob => {
                    self.inner.jobs().retain(|other| other != job);
                    return true;
                }
                Ok(described) if described.summary.phase == Phase::Gone => return true,
                // Whoever was asked may be about to lead the job.
                _ if Instant::now() >= deadline => return false,
                _ => thread::sleep(LOOK),
            }
        }
    }

    /// The hosts, and what they run.
    ///
    /// # Errors
    /// What the cluster says.
    pub(crate) fn hosts(&self) -> Result<Vec<HostView>> {
        self.inner.runtime.block_on(self.inner.client.hosts())
    }

    /// Waits until a job runs.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if it doesn't in time.
    pub(crate) fn wait_until_running(&self, job: &str, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        while self.describe(job)?.summary.phase != Phase::Running {
            if Instant::now() >= deadline {
                let what = format!("job {job:?} does not run after {} s", patience.as_secs());
                return Err(Error::new(ErrorCode::LimitReached, what));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Spreads a job over so many containers.
    ///
    /// # Errors
    /// What the cluster says.
    pub(crate) fn rescale(&self, job: &str, containers: NonZeroU32) -> Result<()> {
        let update = ContainersUpdate {
            containers: containers.get(),
        };
        let client = &self.inner.client;
        self.inner.runtime.block_on(client.rescale(job, &update))
    }

    /// Waits until a job has come to its end by itself.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if it doesn't in time.
    pub(crate) fn wait_until_gone(&self, job: &str, patience: Duration) -> Result<()> {
        self.inner.wait_until_gone(job, patience)?;
        self.inner.jobs().retain(|other| other != job);
        Ok(())
    }

    /// Ends a job, and waits until it is gone.
    ///
    /// # Errors
    /// What the cluster says.
    pub(crate) fn kill(&self, job: &str) -> Result<()> {
        self.inner.kill(job)
    }

    /// The processes that are its hosts.
    pub(crate) fn host_pids(&self) -> Vec<u32> {
        let hosts = Launcher::of(self.inner.cluster.clone()).running();
        hosts.iter().map(|host| host.pid).collect()
    }

    /// User and system time of all hosts so far.
    pub(crate) fn host_cpu_time(&self) -> Duration {
        let hosts = self.host_pids().into_iter();
        hosts.filter_map(process_cpu_time).sum()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.inner.tear_down();
    }
}

impl Inner {
    fn jobs(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kill(&self, job: &str) -> Result<()> {
        self.jobs().retain(|other| other != job);
        self.runtime.block_on(self.client.kill(job))?;
        self.wait_until_gone(job, GONE_WITHIN)
    }

    fn wait_until_gone(&self, job: &str, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            match self.runtime.block_on(self.client.describe(job)) {
                Err(error) if error.code() == ErrorCode::NoSuchJob => return Ok(()),
                Ok(described) if described.summary.phase == Phase::Gone => return Ok(()),
                _ if Instant::now() >= deadline => {
                    let what = format!("job {job:?} is not gone");
                    return Err(Error::new(ErrorCode::LimitReached, what));
                }
                _ => thread::sleep(LOOK),
            }
        }
    }

    /// Ends all jobs and hosts, and what they left.
    fn tear_down(&self) {
        if self.is_torn_down.swap(true, Ordering::AcqRel) {
            return;
        }
        let left: Vec<String> = self.jobs().clone();
        for job in left {
            // What the cluster can't end is ended by hand, below.
            let _ = self.kill(&job);
        }
        let hosts: Vec<HostView> = self
            .runtime
            .block_on(self.client.hosts())
            .unwrap_or_default();
        let _ = Launcher::of(self.cluster.clone()).stop();
        for pid in hosts.iter().flat_map(pids_of) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Ctrl-C and SIGTERM leave no processes behind.
    fn end_when_interrupted(self: &Arc<Self>) {
        let ground = Arc::downgrade(self);
        self.runtime.spawn(async move {
            if told_to_end().await.is_ok()
                && let Some(ground) = ground.upgrade()
            {
                // What tears down waits for this runtime, so it does so from a thread of its own.
                thread::spawn(move || {
                    ground.tear_down();
                    let _ = std::fs::remove_dir_all(ground.folder.path());
                    std::process::exit(INTERRUPTED);
                });
            }
        });
    }
}

/// The processes of a host's containers.
pub(crate) fn pids_of(host: &HostView) -> Vec<Pid> {
    let processes = host.containers.iter();
    let pids = processes.filter_map(|container| {
        let pid = container.process.as_deref()?.strip_prefix("pid ")?;
        Pid::from_raw(pid.parse().ok()?)
    });
    pids.collect()
}

/// Until somebody wants this process to end.
async fn told_to_end() -> std::io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
