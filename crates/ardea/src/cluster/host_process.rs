//! What a host's process does, from its start to its end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ardea_config::{Resolver, Schema};
use ardea_coordination::control::MasterConfig;
use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::layout::JobLayout;
use ardea_metastore::{StateManager, StateOptions};
use ardea_network::rpc::{Security, THREADS_STAY};
use ardea_output::Role;
use ardea_rest::{CLUSTER_SETTINGS, ClusterSettings, Fault};
use ardea_scheduler::CachedPrograms;
use ardea_scheduler::artifacts::Cache;
use ardea_server::daemon::{Host, HostSetup};
use ardea_server::leader::{Jobs, Standing};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use super::packages::{cache_config, store_options};
use super::run_files::RunFile;
use super::{HostStart, Launcher, Modules, Started};
use crate::job::open_state;

/// How long a host that is for one job waits for that to be submitted once whoever started the host is gone.
const JOB_WITHIN: Duration = Duration::from_secs(10);

/// How long a host stays behind its job, so that whoever watches it learns of its end.
const LINGERS: Duration = Duration::from_secs(3);

/// How often a host sees whether something keeps it from leading, and one that is for one job whether there is another to stand by.
const LOOKS_EVERY: Duration = Duration::from_secs(2);

/// Is a host that was started in the background.
pub(crate) fn be_host(start: HostStart, modules: Modules) -> Result<()> {
    host_process(start, modules, |host| {
        eprintln!("host {} is up: {}", host.name, host.api);
    })
}

/// Runs a host until it is told to end (SIGTERM, SIGINT), or the job that it is for is gone. `ready` is called with it when
/// its interface can be asked.
///
/// # Errors
/// What keeps it from starting; nothing runs then.
pub fn host_process(
    start: HostStart,
    modules: Modules,
    ready: impl FnOnce(&Started) + Send,
) -> Result<()> {
    let tells_failure = start.tells_failure;
    let mut is_up = false;
    let ended = until_told_to_end(start, modules, |host| {
        is_up = true;
        ready(host);
    });
    if let (Err(error), false, true) = (&ended, is_up, tells_failure) {
        tell_failure(error);
    }
    ended
}

/// Tells whoever waits for the host why it does not come up.
fn tell_failure(error: &Error) {
    let told = serde_json::to_vec(&Fault::from(error)).unwrap_or_default();
    // Where there is no room for it, that itself is why, and seen by whoever waits.
    let _ = rustix::io::write(std::io::stdin(), &told);
}

fn until_told_to_end(
    start: HostStart,
    modules: Modules,
    ready: impl FnOnce(&Started) + Send,
) -> Result<()> {
    let schema = Schema::of(CLUSTER_SETTINGS);
    let resolved = Resolver::new(&schema)
        .flags(start.settings.iter().map(String::as_str))
        .resolve()?;
    let cluster = ClusterSettings::from_settings(&resolved, None)?;
    // What people ask and containers need must not keep leases from being renewed: those have threads of their own.
    let masters = threads("ardea-master")?;
    let runtime = threads("ardea-host")?;
    ardea_output::attend(Role::Rotates)?;
    let ended = runtime.block_on(run(
        start,
        cluster,
        modules,
        masters.handle().clone(),
        ready,
    ));
    // What still waits for a disk is not waited for.
    for runtime in [runtime, masters] {
        runtime.shutdown_timeout(Duration::from_millis(200));
    }
    ended
}

fn threads(name: &str) -> Result<Runtime> {
    let built = Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name(name)
        .thread_keep_alive(THREADS_STAY)
        .enable_all()
        .build();
    built.map_err(|error| {
        let what = "the system gives no threads to a host";
        Error::new(ErrorCode::LimitReached, what).because(error)
    })
}

async fn run(
    start: HostStart,
    cluster: ClusterSettings,
    modules: Modules,
    masters: Handle,
    ready: impl FnOnce(&Started),
) -> Result<()> {
    let url = cluster.state.clone();
    let opening = masters.spawn(async move { open_state(&url, StateOptions::default()).await });
    let state = opening.await.map_err(|error| {
        let what = "reaching the cluster's state was cut off";
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
        schedulers,
        programs: Arc::new(CachedPrograms::new(cache, modules.stores, options)),
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
        told = told_to_end() => told,
        gone = job_is_gone(&start, &state) => gone,
        never = keep_two(&start, &cluster, &host) => never,
        never = tell_troubles(&host) => never,
        never = keep_file(&file, &directory) => never,
    };
    file.remove(&directory);
    host.close().await;
    ended
}

/// Until somebody says so.
async fn told_to_end() -> Result<()> {
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

/// Until the job that the host is for has been there and is gone, or was not submitted in time.
async fn job_is_gone(start: &HostStart, state: &Arc<dyn StateManager>) -> Result<()> {
    let Some(job) = &start.job else {
        return std::future::pending().await;
    };
    let layout = JobLayout::of(job)?;
    let submitter = rustix::process::getppid();
    let mut was_there = false;
    loop {
        let Ok(mut watcher) = state.watch_node(layout.definition()).await else {
            tokio::time::sleep(LOOKS_EVERY).await;
            continue;
        };
        loop {
            let next = match was_there {
                true => watcher.next().await,
                false => match tokio::time::timeout(JOB_WITHIN, watcher.next()).await {
                    Ok(next) => next,
                    // A submitter may take as long as it likes to pack and store the job.
                    Err(_) if rustix::process::getppid() == submitter => continue,
                    Err(_) => return Ok(()),
                },
            };
            match next {
                Ok(Some(_)) => was_there = true,
                Ok(None) if was_there => {
                    // Who submits a job of this name now finds this host, and counts on it.
                    match tokio::time::timeout(LINGERS, watcher.next()).await {
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

/// Writes into the host's log what keeps it from leading jobs, or others from finding it, once it has lasted for two looks, and when it is
/// over.
async fn tell_troubles(host: &Host) -> Result<()> {
    let mut told = BTreeMap::new();
    let mut before = BTreeMap::new();
    loop {
        tokio::time::sleep(LOOKS_EVERY).await;
        // By what can't be done, in the words before and after a verb.
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

/// Sees to it that the host is known on this machine, whoever removes files.
async fn keep_file(file: &RunFile, cluster: &Path) -> Result<()> {
    loop {
        tokio::time::sleep(LOOKS_EVERY / 2).await;
        file.keep(cluster);
    }
}

/// Sees to it that there is another host for the job, as long as this one leads it.
async fn keep_two(start: &HostStart, cluster: &ClusterSettings, host: &Host) -> Result<()> {
    let Some(job) = &start.job else {
        return std::future::pending().await;
    };
    let launcher = Launcher::of(cluster.clone());
    let mut was_alone = false;
    loop {
        tokio::time::sleep(LOOKS_EVERY).await;
        let leads = host
            .master()
            .desk(job)
            .is_some_and(|desk| matches!(desk.standing(), Standing::Leads { .. }));
        let is_alone = leads && launcher.lacks_hosts(job);
        // Twice in a row: one whose file was removed writes it again meanwhile.
        if is_alone && was_alone {
            // If none can be started now, one may be later.
            let _ = launcher.stand_by(job);
        }
        was_alone = is_alone;
    }
}
