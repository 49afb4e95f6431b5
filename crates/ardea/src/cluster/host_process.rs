//! The host process, from its start to its end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ardea_config::{Resolver, Schema};
use ardea_coordination::control::MasterConfig;
use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::layout::JobLayout;
use ardea_metastore::{MetadataStore, StateOptions};
use ardea_network::rpc::{BLOCKING_THREAD_KEEP_ALIVE, Security};
use ardea_rest::{ApiError, CLUSTER_SETTINGS, ClusterSettings};
use ardea_scheduler::CachedPrograms;
use ardea_scheduler::artifacts::Cache;
use ardea_server::daemon::{Host, HostSetup};
use ardea_server::leader::{Jobs, LeadershipState};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use super::packages::{cache_config, store_options};
use super::program_runner::ProgramCommands;
use super::run_files::RunFile;
use super::{HostStart, Launcher, Modules, RunningHost};
use crate::job::open_state;

/// The time that a host for one job waits for the job's submission after the process that started
/// the host has ended.
const JOB_TIMEOUT: Duration = Duration::from_secs(10);

/// The time that a host stays up after its job has ended, so that clients can read the job's end.
const LINGER_TIME: Duration = Duration::from_secs(3);

/// The interval of checks: for obstacles to leading, and, in a cluster for one job, for a standby
/// host.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Runs a host that was started in the background.
///
/// # Errors
/// As [`host_process`].
pub fn be_host(start: HostStart, modules: Modules) -> Result<()> {
    host_process(start, modules, |host| {
        eprintln!("host {} is up: {}", host.name, host.api);
    })
}

/// Runs a host until SIGTERM or SIGINT arrives, or until the job that it is for is gone. Calls
/// `ready` when its interface accepts requests.
///
/// # Errors
/// Startup errors; nothing runs then.
pub fn host_process(
    start: HostStart,
    modules: Modules,
    ready: impl FnOnce(&RunningHost) + Send,
) -> Result<()> {
    let tells_failure = start.tells_failure;
    let mut is_up = false;
    let ended = run_until_signal(start, modules, |host| {
        is_up = true;
        ready(host);
    });
    if let (Err(error), false, true) = (&ended, is_up, tells_failure) {
        report_failure(error);
    }
    ended
}

/// Reports to the starter why the host does not come up.
fn report_failure(error: &Error) {
    let told = serde_json::to_vec(&ApiError::from(error)).unwrap_or_default();
    // If the disk is full, the starter detects that itself.
    let _ = rustix::io::write(std::io::stdin(), &told);
}

fn run_until_signal(
    start: HostStart,
    modules: Modules,
    ready: impl FnOnce(&RunningHost) + Send,
) -> Result<()> {
    let schema = Schema::of(CLUSTER_SETTINGS);
    let resolved = Resolver::new(&schema)
        .flags(start.settings.iter().map(String::as_str))
        .resolve()?;
    let cluster = ClusterSettings::from_settings(&resolved, None)?;
    // Leases are renewed on threads of their own, so that requests can't delay the renewal.
    let masters = threads("ardea-master")?;
    let runtime = threads("ardea-host")?;
    ardea_output::start_rotation()?;
    let ended = runtime.block_on(run(
        start,
        cluster,
        modules,
        masters.handle().clone(),
        ready,
    ));
    // Tasks that still wait for a disk are abandoned.
    for runtime in [runtime, masters] {
        runtime.shutdown_timeout(Duration::from_millis(200));
    }
    ended
}

fn threads(name: &str) -> Result<Runtime> {
    let built = Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name(name)
        .thread_keep_alive(BLOCKING_THREAD_KEEP_ALIVE)
        .enable_all()
        .build();
    built.map_err(|error| {
        let what = "cannot start the threads of a host";
        Error::new(ErrorCode::LimitReached, what).because(error)
    })
}

async fn run(
    start: HostStart,
    cluster: ClusterSettings,
    modules: Modules,
    masters: Handle,
    ready: impl FnOnce(&RunningHost),
) -> Result<()> {
    let url = cluster.state.clone();
    let opening = masters.spawn(async move { open_state(&url, StateOptions::default()).await });
    let state = opening.await.map_err(|error| {
        let what = "connecting to the metadata store was interrupted";
        Error::new(ErrorCode::Internal, what).because(error)
    })??;
    let token = cluster.token()?;
    let directory = cluster.directory.clone();
    let cache = Cache::open(directory.join("cache"), cache_config(&cluster))?;
    let options = store_options(&cluster, token.clone());
    let schedulers = modules.schedulers_of(&cluster, &options);
    let host = Host::start(HostSetup {
        name: start.name.clone(),
        jobs: match &start.job {
            Some(job) => Jobs::Named(job.clone()),
            None => Jobs::All,
        },
        state: Arc::clone(&state),
        security: Security::new(cluster.name.as_str())
            .token(token)
            .tls(cluster.tls()?),
        managers: modules.managers,
        elasticity: modules.elasticity,
        optimizer: modules.optimizer,
        schedulers,
        programs: Arc::new(CachedPrograms::new(cache, modules.stores, options)),
        runner: modules
            .has_commands
            .then(|| ProgramCommands::of(&start.settings, &directory)),
        attributes: start.attributes.clone(),
        lease: Default::default(),
        master: MasterConfig {
            instances: cluster.instances,
            ..MasterConfig::default()
        },
        masters,
        cluster: cluster.clone(),
    })
    .await?;
    let file = RunFile {
        taken_port: host.taken_port(),
        ..RunFile::of_this_process(&cluster.name, &start.name, start.job.as_deref(), host.api())?
    };
    file.write(&directory)?;
    ready(&file.clone().into());
    let ended = tokio::select! {
        told = termination_signal() => told,
        gone = job_is_gone(&start, &state) => gone,
        never = maintain_standby(&start, &cluster, &host) => never,
        never = log_troubles(&host) => never,
        never = maintain_run_file(&file, &directory) => never,
    };
    file.remove(&directory);
    host.close().await;
    ended
}

/// Waits for SIGTERM or SIGINT.
async fn termination_signal() -> Result<()> {
    let listen = |kind| {
        signal(kind).map_err(|error| {
            Error::new(ErrorCode::LimitReached, "cannot listen for signals").because(error)
        })
    };
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

/// Waits until the host's job has ended and is gone, or was not submitted in time.
async fn job_is_gone(start: &HostStart, state: &Arc<dyn MetadataStore>) -> Result<()> {
    let Some(job) = &start.job else {
        return std::future::pending().await;
    };
    let layout = JobLayout::of(job)?;
    let submitter = rustix::process::getppid();
    let mut was_there = false;
    loop {
        let Ok(mut watcher) = state.watch_node(layout.definition()).await else {
            tokio::time::sleep(CHECK_INTERVAL).await;
            continue;
        };
        loop {
            let next = match was_there {
                true => watcher.next().await,
                false => match tokio::time::timeout(JOB_TIMEOUT, watcher.next()).await {
                    Ok(next) => next,
                    // A live submitter may take any time to pack and store the job.
                    Err(_) if rustix::process::getppid() == submitter => continue,
                    Err(_) => return Ok(()),
                },
            };
            match next {
                Ok(Some(_)) => was_there = true,
                Ok(None) if was_there => {
                    // A new submission of a job of this name would use this host.
                    match tokio::time::timeout(LINGER_TIME, watcher.next()).await {
                        Err(_) | Ok(Ok(None)) => return Ok(()),
                        Ok(Ok(Some(_))) => {}
                        Ok(Err(_)) => break,
                    }
                }
                Ok(None) => {}
                Err(_) => break,
            }
        }
    }
}

/// Logs obstacles that prevent this host from leading jobs or from being found by other hosts: once
/// an obstacle has lasted for two checks, and again when it is over.
async fn log_troubles(host: &Host) -> Result<()> {
    let mut told = BTreeMap::new();
    let mut before = BTreeMap::new();
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        // Keyed by subject and verb of the message.
        let jobs = host.troubles().into_iter();
        let jobs = jobs.map(|(job, trouble)| ((format!("job {job}"), "be led"), trouble));
        let own = ("this host".to_string(), "be found by others");
        let own = host.trouble().map(|trouble| (own, trouble));
        let now: BTreeMap<_, String> = jobs
            .chain(own)
            .map(|(what, trouble)| (what, trouble.to_string()))
            .collect();
        for (what, trouble) in &now {
            if before.get(what) == Some(trouble) && told.get(what) != Some(trouble) {
                let (subject, verb) = what;
                eprintln!("{subject} can't {verb}: {trouble}");
                told.insert(what.clone(), trouble.clone());
            }
        }
        told.retain(|what, _| {
            let lasts = now.contains_key(what);
            if !lasts {
                let (subject, verb) = what;
                eprintln!("{subject} can {verb} again");
            }
            lasts
        });
        before = now;
    }
}

/// Restores the host's run file whenever it is removed.
async fn maintain_run_file(file: &RunFile, cluster: &Path) -> Result<()> {
    loop {
        tokio::time::sleep(CHECK_INTERVAL / 2).await;
        file.rewrite_if_missing(cluster);
    }
}

/// Starts another host for the job whenever there is none, as long as this host leads the job.
async fn maintain_standby(start: &HostStart, cluster: &ClusterSettings, host: &Host) -> Result<()> {
    let Some(job) = &start.job else {
        return std::future::pending().await;
    };
    let launcher = Launcher::of(cluster.clone());
    let mut was_alone = false;
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let leads = host
            .master()
            .handle(job)
            .is_some_and(|desk| matches!(desk.state(), LeadershipState::Leading { .. }));
        let is_alone = leads && launcher.lacks_hosts(job);
        // Two checks in a row: a host whose run file was removed writes it again meanwhile.
        if is_alone && was_alone {
            // A failed start is tried again at the next check.
            let _ = launcher.start_standby(job);
        }
        was_alone = is_alone;
    }
}
