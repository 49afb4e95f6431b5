//! The host process.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, Metadata, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::leader::{MasterProcess, MasterSetup, new_submission};
use ardea_checkpoint::cluster::JobCheckpointStores;
use ardea_core::{Error, ErrorCode, Result};
use ardea_grid::cluster::{GridMembership, GridMembershipConfig, LocalGridStore};
use ardea_rest::{AuditLog, Server, ServerConfig};
use ardea_scheduler::{
    HOSTS, HostIdentity, Hosts, Local, RetentionLimits, Runner, RunnerConfig, RunnerServer,
    Schedulers,
};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep};

use crate::daemon::HostSetup;
use crate::daemon::access_tokens::NamedTokenStore;
use crate::daemon::cluster_service::ClusterService;
use crate::daemon::host_registry::{API, JOB, PID, VERSION, holder};
use crate::daemon::identity::{check_name, claim, is_claimed};
use crate::daemon::memory_checkpoint_gc::collect_garbage;
use crate::daemon::missing_hosts::{LOCK, clean_missing_hosts};
use crate::daemon::old_packages::forget_packages;
use crate::daemon::orphan_containers::end_orphans;
use crate::daemon::retained_logs::{host_folder, local_folder};

/// Maximum wait for the lock of a killed host process; the operating system releases it with a
/// delay.
const DIES_WITHIN: Duration = Duration::from_secs(2);
/// Poll interval for the lock.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The process of a host: a leader candidate for the cluster's jobs, a runner of containers, and a
/// server of the REST interface.
///
/// Dropping it has the same effect as the death of the process: containers continue to run, and
/// leases expire. [`close`](Self::close) releases the leases at once.
pub struct Host {
    name: String,
    api: String,
    taken_port: Option<u16>,
    master: Arc<MasterProcess>,
    runner: RunnerServer,
    _name: File,
    served: Arc<ClusterService>,
    serving: Running,
    _clearing: [Running; 5],
    shelter: GridMembership,
}

impl Host {
    /// Starts all parts and registers the host.
    ///
    /// # Errors
    ///
    /// If the port is in use, a folder is unusable, or the name is invalid or taken by another host
    /// of the cluster. If the metadata store is unavailable or belongs to another cluster. After an
    /// error no part is left running.
    pub async fn start(setup: HostSetup) -> Result<Self> {
        check_name(&setup.name)?;
        // Check the owner of the metadata store first; claim an unowned store only at the end.
        is_claimed(&*setup.state, &setup.cluster.name).await?;
        let folder = &setup.cluster.directory;
        let own = host_folder(folder, &setup.name);
        let name = hold_name(&setup.name, &own).await?;
        let programs = &setup.programs;
        // All hosts of this machine share the folder of `local`: a leader finds the containers.
        let local = runner(&setup, local_folder(folder));
        let local = Runner::open(local, Arc::clone(programs)).await?;
        let own = runner(&setup, own);
        let own = Runner::open(own, Arc::clone(programs)).await?;

        let hosts = Hosts::new(Arc::clone(&setup.state), setup.security.clone());
        let schedulers: Schedulers = setup
            .schedulers
            .clone()
            .with_local(Local::new(local.clone()))
            .with(HOSTS, hosts);
        let listen = format!("{}:0", bracketed(&setup.cluster.host));
        let shelf = LocalGridStore::new();
        let archives = JobCheckpointStores::with_grid(Arc::new(shelf.clone()));
        let master = master_setup(&setup, &listen, &schedulers, &archives);
        let (token, tls) = (setup.cluster.token()?, setup.cluster.tls()?);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let tokens = NamedTokenStore::new(Arc::clone(&setup.state));
        tokens.refresh().await?;
        let config = ServerConfig::at(setup.api_address()?)
            .or_any_port(!setup.cluster.is_port_chosen)
            .token(token.clone())
            .tls(tls.clone())
            .tokens(tokens.registry())
            .audit(Some(Arc::new(audit_log(&setup))))
            .limits(setup.cluster.interface);
        let machine = local.config().capacity;
        let served = ClusterService::new(
            &setup,
            (schedulers, archives, shelf.clone()),
            machine,
            (token, tls),
            tokens.clone(),
        );
        let server = Server::bind(Arc::clone(&served) as _, config).await?;
        let (wanted, port) = (setup.cluster.port, server.address()?.port());
        let api = format!("{scheme}://{}:{port}", bracketed(&setup.cluster.host));
        let identity = HostIdentity {
            id: setup.name.clone(),
            listen_at: listen,
            attributes: attributes(&setup, &api),
        };
        claim(&*setup.state, &setup.cluster.name).await?;
        let runners = [own.clone(), local.clone()];
        let registered = RunnerServer::start(
            identity,
            own,
            Arc::clone(&setup.state),
            setup.security.clone(),
        )
        .await?;
        let shelter = GridMembership::start(sheltering(&setup, &shelf)).await?;
        // Only a registered host is a candidate for jobs.
        let starting = MasterProcess::start(master, setup.jobs.clone());
        let started = setup.masters.spawn(starting).await;
        let master = Arc::new(started.map_err(cut_off)??);
        served.attend(Arc::clone(&master));
        let serving = Running(tokio::spawn(server.serve()));
        let clearing = collect_garbage(Arc::clone(&setup.state), shelf);
        let cluster = setup.cluster.name.clone();
        let ending = end_orphans(Arc::clone(&setup.state), cluster, runners);
        let packages = forget_packages(Arc::clone(&setup.state), setup.cluster.clone());
        let (cluster, own) = (setup.cluster.clone(), setup.name.clone());
        let forgetting = clean_missing_hosts(Arc::clone(&setup.state), cluster, own);
        Ok(Host {
            name: setup.name,
            api,
            taken_port: (wanted != 0 && wanted != port).then_some(wanted),
            master,
            runner: registered,
            _name: name,
            served,
            serving,
            _clearing: [
                tokio::spawn(clearing),
                tokio::spawn(ending),
                tokio::spawn(forgetting),
                tokio::spawn(packages),
                tokio::spawn(tokens.follow()),
            ]
            .map(Running),
            shelter,
        })
    }

    /// Returns the host's name in the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the URL of the host's REST interface: `http://HOST:PORT`, or `https://HOST:PORT` in
    /// a cluster with certificates.
    pub fn api(&self) -> &str {
        &self.api
    }

    /// Returns the configured port of the REST interface if it was in use when the host started;
    /// `None` otherwise.
    pub fn taken_port(&self) -> Option<u16> {
        self.taken_port
    }

    /// Returns the leader candidate.
    pub fn master(&self) -> &MasterProcess {
        &self.master
    }

    /// Returns the errors that currently prevent leadership of jobs, by job name: the metadata
    /// store is unavailable or refuses writes, or a stored value is unreadable.
    pub fn troubles(&self) -> BTreeMap<String, Error> {
        self.master.leadership_errors()
    }

    /// Returns the error that currently prevents the registration of the host; see
    /// [`RunnerServer::trouble`].
    pub fn trouble(&self) -> Option<Error> {
        self.runner.trouble()
    }

    /// Releases the host's leases, so that other hosts can lead at once, and ends the host.
    /// Containers continue to run.
    pub async fn close(self) {
        let Host {
            master,
            serving,
            served,
            shelter,
            ..
        } = self;
        drop(serving);
        served.leave();
        // If a request in progress still holds a reference, the leases expire instead.
        if let Some(master) = Arc::into_inner(master) {
            master.close().await;
        }
        shelter.close().await;
    }
}

/// A task that is aborted when this is dropped.
struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host({} at {})", self.name, self.api)
    }
}

fn cut_off(error: JoinError) -> Error {
    Error::new(
        ErrorCode::Internal,
        "starting the leader candidate was interrupted",
    )
    .because(error)
}

/// Locks the host's folder. No other host of this machine can have the same name while this process
/// exists.
async fn hold_name(name: &str, folder: &Path) -> Result<File> {
    let failed = |error| {
        let what = format!("cannot use {}", folder.display());
        let error = Error::new(ErrorCode::WriteFailed, what).because(error);
        error.hint("check cluster.directory and its permissions")
    };
    let deadline = Instant::now() + DIES_WITHIN;
    loop {
        std::fs::create_dir_all(folder).map_err(failed)?;
        let path = folder.join(LOCK);
        let file = File::options().create(true).append(true).open(&path);
        let file = match file {
            // Another host is removing the folder.
            Err(error) if error.kind() == ErrorKind::NotFound && Instant::now() < deadline => {
                sleep(POLL_INTERVAL).await;
                continue;
            }
            file => file.map_err(failed)?,
        };
        // On a file system without locks, only the host's registration protects the name.
        while let Err(TryLockError::WouldBlock) = file.try_lock() {
            if Instant::now() >= deadline {
                let what = format!("another host of the name {name:?} runs on this machine");
                return Err(Error::new(ErrorCode::NameTaken, what)
                    .hint("give each host of the cluster a name of its own"));
            }
            sleep(POLL_INTERVAL).await;
        }
        // Another host may have removed the folder of a missing host. The deadline ends the loop on
        // file systems without stable inodes.
        let inode = |metadata: std::io::Result<Metadata>| metadata.ok().map(|it| it.ino());
        let is_same = inode(file.metadata()) == inode(std::fs::metadata(&path));
        if is_same || Instant::now() >= deadline {
            return Ok(file);
        }
        sleep(POLL_INTERVAL).await;
    }
}

fn runner(setup: &HostSetup, folder: std::path::PathBuf) -> RunnerConfig {
    RunnerConfig {
        host: setup.cluster.host.clone(),
        output: setup.cluster.output,
        kept: RetentionLimits {
            time: setup.cluster.output_retention,
            bytes: setup.cluster.output_retained_bytes,
        },
        ..RunnerConfig::new(folder)
    }
}

/// Returns the log of actions on a host, beside the logs of the hosts.
fn audit_log(setup: &HostSetup) -> AuditLog {
    let folder = setup.cluster.directory.join("logs");
    let name = format!("{}-audit.jsonl", setup.name);
    AuditLog::new(folder, name, setup.cluster.output)
}

/// Returns the setup of the host's grid member.
fn sheltering(setup: &HostSetup, shelf: &LocalGridStore) -> GridMembershipConfig {
    GridMembershipConfig {
        state: Arc::clone(&setup.state),
        security: setup.security.clone(),
        host: setup.cluster.host.clone(),
        limit_bytes: setup.cluster.checkpoint_bytes,
        map_bytes: setup.cluster.map_bytes,
        backups: setup.cluster.checkpoint_backups,
        shelf: shelf.clone(),
    }
}

fn attributes(setup: &HostSetup, api: &str) -> BTreeMap<String, String> {
    let mut attributes = setup.attributes.clone();
    let version = env!("CARGO_PKG_VERSION").to_string();
    let own = [
        (API, api.to_string()),
        (PID, std::process::id().to_string()),
        (VERSION, version),
    ];
    attributes.extend(own.map(|(name, value)| (name.to_string(), value)));
    if let crate::leader::Jobs::Named(job) = &setup.jobs {
        attributes.insert(JOB.to_string(), job.clone());
    }
    attributes
}

fn bracketed(host: &str) -> String {
    match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]"),
        false => host.to_string(),
    }
}

/// Returns the configuration of the leader candidate of a host.
fn master_setup(
    setup: &HostSetup,
    listen: &str,
    schedulers: &Schedulers,
    archives: &Arc<JobCheckpointStores>,
) -> MasterSetup {
    MasterSetup {
        holder: holder(&setup.name, new_submission()),
        listen: listen.to_string(),
        advertised_host: Some(setup.cluster.host.clone()),
        state: Arc::clone(&setup.state),
        security: setup.security.clone(),
        managers: setup.managers.clone(),
        elasticity: setup.elasticity.clone(),
        optimizer: setup.optimizer.clone(),
        schedulers: schedulers.clone(),
        launch: setup.launch(),
        lease: setup.lease,
        master: setup.master,
        checkpoints: Some(Arc::clone(archives) as _),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_name_of_a_host_that_is_just_ending_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let before = hold_name("one", folder.path()).await.unwrap();
        let (after, ()) = tokio::join!(hold_name("one", folder.path()), async { drop(before) });
        after.unwrap();
    }
}
