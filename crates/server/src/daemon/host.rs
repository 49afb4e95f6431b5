//! The process that stands for a machine.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, Metadata, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::leader::{MasterProcess, MasterSetup, new_submission};
use ardea_checkpoint::cluster::Archives;
use ardea_core::{Error, ErrorCode, Result};
use ardea_grid::cluster::{GridShelf, HostShelter, HostShelterSetup};
use ardea_rest::{Server, ServerConfig};
use ardea_scheduler::{
    HOSTS, HostIdentity, Hosts, KeptBounds, Local, Runner, RunnerConfig, RunnerServer, Schedulers,
};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep};

use crate::daemon::HostSetup;
use crate::daemon::directory::{API, JOB, PID, VERSION, holder};
use crate::daemon::gone::end_what_is_gone;
use crate::daemon::identity::{check_name, claim, is_claimed};
use crate::daemon::kept::{host_folder, local_folder};
use crate::daemon::old_packages::forget_packages;
use crate::daemon::served::Served;
use crate::daemon::sheltered::clear_away;
use crate::daemon::vanished::{LOCK, forget_vanished};

/// For how long a process that was killed may have what was its own: the system takes it apart in its own time.
const DIES_WITHIN: Duration = Duration::from_secs(2);
/// How often it is looked whether that is over.
const LOOK: Duration = Duration::from_millis(20);

/// The process that stands for a machine in a cluster: a candidate for the mastership of its jobs, a runner of containers, and the
/// REST interface.
///
/// Dropping it is as if the process had died: containers go on, leases run out. [`close`](Self::close) gives leases up at once.
pub struct Host {
    name: String,
    api: String,
    taken_port: Option<u16>,
    master: Arc<MasterProcess>,
    runner: RunnerServer,
    _name: File,
    served: Arc<Served>,
    serving: Running,
    _clearing: [Running; 4],
    shelter: HostShelter,
}

impl Host {
    /// Starts all of it, and registers the host.
    ///
    /// # Errors
    ///
    /// A port that is taken, a folder that can't be used, a name that another host of the cluster has or that no host can have, a state
    /// manager that doesn't answer or has the state of another cluster. Nothing runs then.
    pub async fn start(setup: HostSetup) -> Result<Self> {
        check_name(&setup.name)?;
        // What is another's is not touched; what is nobody's becomes this cluster's when nothing else is in the way.
        is_claimed(&*setup.state, &setup.cluster.name).await?;
        let folder = &setup.cluster.directory;
        let own = host_folder(folder, &setup.name);
        let name = hold_name(&setup.name, &own).await?;
        let programs = &setup.programs;
        // Containers of `local` are found by whichever process of this machine leads their job: one folder for all of them.
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
        let shelf = GridShelf::new();
        let archives = Archives::sheltered(Arc::new(shelf.clone()));
        let master = MasterSetup {
            holder: holder(&setup.name, new_submission()),
            listen: listen.clone(),
            advertised_host: Some(setup.cluster.host.clone()),
            state: Arc::clone(&setup.state),
            security: setup.security.clone(),
            managers: setup.managers.clone(),
            schedulers: schedulers.clone(),
            launch: setup.launch(),
            lease: setup.lease,
            master: setup.master,
            snapshots: Some(Arc::clone(&archives) as _),
        };
        let (token, tls) = (setup.cluster.token()?, setup.cluster.tls()?);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let config = ServerConfig::at(setup.api_address()?)
            .or_any_port(!setup.cluster.is_port_chosen)
            .token(token.clone())
            .tls(tls.clone())
            .limits(setup.cluster.interface);
        let machine = local.config().capacity;
        let served = Served::new(
            &setup,
            (schedulers, archives, shelf.clone()),
            machine,
            token,
            tls,
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
        let shelter = HostShelter::start(sheltering(&setup, &shelf)).await?;
        // Only a host that others can find stands for jobs.
        let starting = MasterProcess::start(master, setup.jobs.clone());
        let started = setup.masters.spawn(starting).await;
        let master = Arc::new(started.map_err(cut_off)??);
        served.attend(Arc::clone(&master));
        let serving = Running(tokio::spawn(server.serve()));
        let clearing = clear_away(Arc::clone(&setup.state), shelf);
        let cluster = setup.cluster.name.clone();
        let ending = end_what_is_gone(Arc::clone(&setup.state), cluster, runners);
        let packages = forget_packages(Arc::clone(&setup.state), setup.cluster.clone());
        let (cluster, own) = (setup.cluster.clone(), setup.name.clone());
        let forgetting = forget_vanished(Arc::clone(&setup.state), cluster, own);
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
            ]
            .map(Running),
            shelter,
        })
    }

    /// Its name in the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its REST interface is: `http://HOST:PORT`, or `https://HOST:PORT` in a cluster with certificates.
    pub fn api(&self) -> &str {
        &self.api
    }

    /// The port that its interface was to have, if something else had it when the host started.
    pub fn taken_port(&self) -> Option<u16> {
        self.taken_port
    }

    /// The jobs that it stands for.
    pub fn master(&self) -> &MasterProcess {
        &self.master
    }

    /// What keeps it from leading jobs at the moment, by their names: the state manager does not answer or take what is written, or what
    /// is stored can't be read.
    pub fn troubles(&self) -> BTreeMap<String, Error> {
        self.master.troubles()
    }

    /// What keeps others from finding it at the moment, as [`RunnerServer::trouble`] says.
    pub fn trouble(&self) -> Option<Error> {
        self.runner.trouble()
    }

    /// Gives up what it leads in good order, so that others lead at once, and ends. Containers go on.
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
        // A request that is just being answered still holds it: then leases run out.
        if let Some(master) = Arc::into_inner(master) {
            master.close().await;
        }
        shelter.close().await;
    }
}

/// A task that ends with this.
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
    Error::new(ErrorCode::Internal, "standing for jobs was cut off").because(error)
}

/// Keeps others of this machine from having the same name, as long as this is not dropped: one that hangs is still there.
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
            // The folder is being removed.
            Err(error) if error.kind() == ErrorKind::NotFound && Instant::now() < deadline => {
                sleep(LOOK).await;
                continue;
            }
            file => file.map_err(failed)?,
        };
        // On a file system without locks the name is held in the cluster's state alone.
        while let Err(TryLockError::WouldBlock) = file.try_lock() {
            if Instant::now() >= deadline {
                let what = format!("another host of the name {name:?} runs on this machine");
                return Err(Error::new(ErrorCode::NameTaken, what)
                    .hint("give each host of the cluster a name of its own"));
            }
            sleep(LOOK).await;
        }
        // Another host may have removed the folder, as that of a host that was not there. Some file
        // systems have no lasting inodes, so that the wait ends.
        let inode = |metadata: std::io::Result<Metadata>| metadata.ok().map(|it| it.ino());
        let is_same = inode(file.metadata()) == inode(std::fs::metadata(&path));
        if is_same || Instant::now() >= deadline {
            return Ok(file);
        }
        sleep(LOOK).await;
    }
}

fn runner(setup: &HostSetup, folder: std::path::PathBuf) -> RunnerConfig {
    RunnerConfig {
        host: setup.cluster.host.clone(),
        output: setup.cluster.output,
        kept: KeptBounds {
            time: setup.cluster.output_kept_for,
            bytes: setup.cluster.output_kept_bytes,
        },
        ..RunnerConfig::new(folder)
    }
}

/// The host's part in what keeps snapshots in memory.
fn sheltering(setup: &HostSetup, shelf: &GridShelf) -> HostShelterSetup {
    HostShelterSetup {
        state: Arc::clone(&setup.state),
        security: setup.security.clone(),
        host: setup.cluster.host.clone(),
        limit_bytes: setup.cluster.snapshot_bytes,
        map_bytes: setup.cluster.map_bytes,
        backups: setup.cluster.snapshot_backups,
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
