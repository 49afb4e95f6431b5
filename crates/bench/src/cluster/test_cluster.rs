//! A cluster on this machine, in a temporary folder, for the time of a bench.

use std::fs::OpenOptions;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::num::NonZeroU32;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ardea::cluster::{Launcher, Modules};
use ardea::job::{Prepared, SubmissionSpec, client_of, connect};
use ardea::recovery::FAULT_TOLERANCE_SETTINGS;
use ardea_config::duration::format_duration;
use ardea_config::{Resolved, Resolver, Schema};
use ardea_coordination::placement::PLACEMENT_SETTINGS;
use ardea_core::{Error, ErrorCode, Guarantee, Result};
use ardea_engine::NODE_SETTINGS;
use ardea_rest::{
    Client, ClusterSettings, ContainersUpdate, HostView, JobDescription, Phase, TrafficView,
    with_clusters,
};
use ardea_worker::WORKER_SETTINGS;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::{HostNamespaces, Load};
use crate::usage::process_cpu_time;

/// The name of the program in packages.
const PROGRAM: &str = "ardea";

/// The timeout of a checkpoint; a full one takes long.
const CHECKPOINT_WITHIN: Duration = Duration::from_secs(600);

/// Returns the settings of a job of several workers with this processing guarantee. Its checkpoints
/// are in `folder`, or in the memory of the cluster's hosts.
pub(crate) fn job_settings(
    (workers, threads): (u32, u32),
    guarantee: Guarantee,
    every: Duration,
    folder: Option<&Path>,
) -> Vec<String> {
    let mut settings = vec![
        format!("job.containers={workers}"),
        format!("threads={threads}"),
    ];
    if guarantee.keeps_state() {
        settings.extend([
            format!("guarantee={}", guarantee.as_str()),
            format!("checkpoints.every={}", format_duration(every)),
            format!("checkpoints.timeout={}", format_duration(CHECKPOINT_WITHIN)),
            "checkpoints.pause=0s".into(),
        ]);
        settings.extend(folder.map(|folder| format!("checkpoints.folder={}", folder.display())));
    }
    settings
}

/// Returns the number of hosts for such a job: checkpoints in memory need a second host for the
/// copy.
pub(crate) fn hosts_for(guarantee: Guarantee, folder: Option<&Path>) -> usize {
    match guarantee.keeps_state() && folder.is_none() {
        true => 2,
        false => 1,
    }
}

/// Timeout for hosts to come up.
const UP_WITHIN: Duration = Duration::from_secs(60);

/// Timeout for a job to end.
const GONE_WITHIN: Duration = Duration::from_secs(20);

/// Poll interval of a job's phase.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The exit code of an interrupted process.
const INTERRUPTED: i32 = 130;

/// A cluster on this machine whose hosts are processes of this program. It ends with the bench,
/// also when the bench is interrupted.
pub(crate) struct TestCluster {
    inner: Arc<Inner>,
    resolved: Resolved,
}

struct Inner {
    // The folder is dropped last.
    cluster: ClusterSettings,
    client: Client,
    runtime: Runtime,
    jobs: Mutex<Vec<String>>,
    is_torn_down: AtomicBool,
    folder: TempDir,
}

/// A submitted job, and the durations of its submission.
pub(crate) struct Submission {
    pub(crate) job: String,
    /// The durations of checking, of storing the program, and of the submission itself.
    pub(crate) prepared: Duration,
    pub(crate) stored: Duration,
    pub(crate) taken: Duration,
}

impl TestCluster {
    /// Starts a cluster with `hosts` hosts; `flags` are settings of the jobs, as `key=value`.
    pub(crate) fn new(hosts: usize, flags: &[String]) -> Result<Self> {
        TestCluster::on(hosts, None, flags)
    }

    /// Like [`new`](Self::new), with the hosts in `namespaces`, if given.
    pub(crate) fn on(
        hosts: usize,
        namespaces: Option<&HostNamespaces>,
        flags: &[String],
    ) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("ardea-bench-")
            .tempdir()
            .map_err(|error| {
                Error::new(ErrorCode::WriteFailed, "cannot make a folder for a cluster")
                    .because(error)
                    .hint("check the free space and permissions of the folder for temporary files (TMPDIR)")
            })?;
        let of_processes = Schema::of(NODE_SETTINGS).and(FAULT_TOLERANCE_SETTINGS);
        let of_processes = of_processes.and(PLACEMENT_SETTINGS);
        let schema = with_clusters(of_processes.and(WORKER_SETTINGS));
        let mut own = vec![
            "cluster.name=bench".to_string(),
            "cluster.port=0".to_string(),
            format!("cluster.directory={}", folder.path().display()),
        ];
        if namespaces.is_some() {
            own.push(token_setting(folder.path())?);
        }
        let flags = own.iter().chain(flags).cloned();
        let resolved = Resolver::new(&schema).flags(flags).resolve()?;
        let cluster = ClusterSettings::from_settings(&resolved, None)?;
        let launcher = Launcher::of(cluster.clone());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|error| {
                let what = "cannot start the async runtime";
                Error::new(ErrorCode::LimitReached, what).because(error)
            })?;
        let started = match namespaces {
            Some(namespaces) => start_in(namespaces, hosts, &own, &launcher),
            None => launcher.start(hosts).map(|_| ()),
        };
        let client = started.and_then(|()| runtime.block_on(client_of(&cluster)));
        let client = match client {
            Ok((client, _)) => client,
            Err(error) => {
                // Stops the hosts that did start.
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
        Ok(TestCluster { inner, resolved })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.inner.folder.path()
    }

    /// Submits a job with this name.
    pub(crate) fn submit(&self, name: &str, load: &Load) -> Result<Submission> {
        let begun = Instant::now();
        let (job, _) = load.job()?;
        let mut wanted = SubmissionSpec::of_this_program(job, PROGRAM, load.arguments()?)?;
        wanted.name = Some(name.to_string());
        let cluster = &self.inner.cluster;
        let prepared = Prepared::of(&wanted, cluster, &self.resolved, &Modules::builtin())?;
        let prepared_at = begun.elapsed();
        let target = connect(cluster, name, &Modules::builtin())?;
        let package = target.store(&prepared.files)?;
        let stored_at = begun.elapsed();
        let request = prepared.request(target.cluster(), package);
        self.inner.jobs().push(name.to_string());
        target.submit(&request)?;
        Ok(Submission {
            job: name.to_string(),
            prepared: prepared_at,
            stored: stored_at,
            taken: begun.elapsed(),
        })
    }

    /// Returns the description of a job.
    pub(crate) fn describe(&self, job: &str) -> Result<JobDescription> {
        self.inner.runtime.block_on(self.inner.client.describe(job))
    }

    /// Waits until a job has ended; returns false on timeout.
    pub(crate) fn wait_until_over(&self, job: &str, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            match self.describe(job) {
                Err(error) if error.code() == ErrorCode::NoSuchJob => {
                    self.inner.jobs().retain(|other| other != job);
                    return true;
                }
                Ok(described) if described.summary.phase == Phase::Gone => return true,
                // Other answers and errors are retried: the host may be about to become the job's
                // leader.
                _ if Instant::now() >= deadline => return false,
                _ => thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// Returns the measured traffic of a job.
    pub(crate) fn traffic(&self, job: &str) -> Result<TrafficView> {
        self.inner.runtime.block_on(self.inner.client.traffic(job))
    }

    /// Returns the hosts with their containers.
    pub(crate) fn hosts(&self) -> Result<Vec<HostView>> {
        self.inner.runtime.block_on(self.inner.client.hosts())
    }

    pub(crate) fn wait_until_running(&self, job: &str, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        while self.describe(job)?.summary.phase != Phase::Running {
            if Instant::now() >= deadline {
                let what = format!("job {job:?} is not running after {} s", patience.as_secs());
                return Err(Error::new(ErrorCode::LimitReached, what));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Changes the number of containers of a job.
    pub(crate) fn rescale(&self, job: &str, containers: NonZeroU32) -> Result<()> {
        let update = ContainersUpdate {
            containers: containers.get(),
        };
        let client = &self.inner.client;
        self.inner.runtime.block_on(client.rescale(job, &update))
    }

    /// Waits until a job has ended by itself.
    pub(crate) fn wait_until_gone(&self, job: &str, patience: Duration) -> Result<()> {
        self.inner.wait_until_gone(job, patience)?;
        self.inner.jobs().retain(|other| other != job);
        Ok(())
    }

    /// Ends a job, and waits until it is gone.
    pub(crate) fn kill(&self, job: &str) -> Result<()> {
        self.inner.kill(job)
    }

    pub(crate) fn host_pids(&self) -> Vec<u32> {
        let hosts = Launcher::of(self.inner.cluster.clone()).running();
        hosts.iter().map(|host| host.pid).collect()
    }

    /// Returns the user and system time of all hosts so far.
    pub(crate) fn host_cpu_time(&self) -> Duration {
        let hosts = self.host_pids().into_iter();
        hosts.filter_map(process_cpu_time).sum()
    }
}

impl Drop for TestCluster {
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
                    let what = format!("job {job:?} did not end in time");
                    return Err(Error::new(ErrorCode::LimitReached, what));
                }
                _ => thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// Ends all jobs and hosts, and kills remaining processes.
    fn tear_down(&self) {
        if self.is_torn_down.swap(true, Ordering::AcqRel) {
            return;
        }
        let left: Vec<String> = self.jobs().clone();
        for job in left {
            // Processes that the cluster can't end are killed below.
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

    /// Tears the cluster down on Ctrl-C and SIGTERM.
    fn end_when_interrupted(self: &Arc<Self>) {
        let ground = Arc::downgrade(self);
        self.runtime.spawn(async move {
            if wait_for_signal().await.is_ok()
                && let Some(ground) = ground.upgrade()
            {
                // Tearing down blocks on this runtime, so it needs its own thread.
                thread::spawn(move || {
                    ground.tear_down();
                    let _ = std::fs::remove_dir_all(ground.folder.path());
                    std::process::exit(INTERRUPTED);
                });
            }
        });
    }
}

/// Writes the secret of a cluster that is reached over the network, and returns its setting.
fn token_setting(folder: &Path) -> Result<String> {
    let path = folder.join("token");
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path);
    // The folder, and so the cluster, is of this user only.
    let secret = format!("{:032x}", RandomState::new().hash_one(folder));
    let written = file.and_then(|mut file| file.write_all(secret.as_bytes()));
    written.map_err(|error| {
        let what = format!("cannot write {}", path.display());
        Error::new(ErrorCode::WriteFailed, what).because(error)
    })?;
    Ok(format!("cluster.token_file={}", path.display()))
}

/// Starts a host in each of the first `hosts` namespaces, and waits until they are up.
fn start_in(
    namespaces: &HostNamespaces,
    hosts: usize,
    settings: &[String],
    launcher: &Launcher,
) -> Result<()> {
    let failed = |error: std::io::Error| {
        let what = "cannot start the hosts of a cluster";
        Error::new(ErrorCode::StartFailed, what).because(error)
    };
    let program = std::env::current_exe().map_err(failed)?;
    for host in 1..=hosts {
        let address = format!("cluster.host={}", namespaces.address(host));
        let settings = settings.iter().chain([&address]);
        let mut child = namespaces
            .on(host)
            .arg(&program)
            .args(["cluster", "start", "--foreground", "--name"])
            .arg(format!("host-{host}"))
            .args(settings.flat_map(|setting| ["--set", setting]))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        // Reaps the host when it ends.
        thread::spawn(move || child.wait());
    }
    let deadline = Instant::now() + UP_WITHIN;
    while launcher.running().len() < hosts {
        if Instant::now() >= deadline {
            let what = format!("not all of {hosts} hosts have come up");
            return Err(Error::new(ErrorCode::StartFailed, what));
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Returns the process ids of a host's containers.
pub(crate) fn pids_of(host: &HostView) -> Vec<Pid> {
    let processes = host.containers.iter();
    let pids = processes.filter_map(|container| {
        let pid = container.process.as_deref()?.strip_prefix("pid ")?;
        Pid::from_raw(pid.parse().ok()?)
    });
    pids.collect()
}

/// Waits for SIGINT or SIGTERM.
async fn wait_for_signal() -> std::io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
