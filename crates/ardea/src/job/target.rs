//! The cluster that settings name, as a submission target.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::StateUrl;
use ardea_rest::{
    Client, ClusterSettings, JobDescription, JobEnding, JobSummary, SubmitRequest, UpgradeRequest,
};
use ardea_scheduler::artifacts::{Contents, PackageStore};
use tokio::runtime::{Builder, Runtime};

use super::locate::client_of;
use super::temp_dir;
use crate::cluster::{Launcher, Modules, store_options};

/// A cluster that jobs are submitted to, reached through its REST interface. Its package store is
/// separate, and must be reachable from this machine as well. All calls block.
///
/// If no general host is up, and the metadata store is a folder of this machine, the job's own
/// hosts
/// are started with the first request. Storing may take longer than such hosts wait for their
/// job, so the program is stored before.
pub struct Target {
    settings: ClusterSettings,
    job: String,
    store: Arc<dyn PackageStore>,
    needs_own_hosts: bool,
    client: OnceCell<Client>,
    cluster: String,
    runtime: Runtime,
}

/// Connects to the cluster that the settings `cluster` name, for the job `job`. The package store
/// is of a kind in `modules`.
///
/// If no general host is up, and the metadata store is a folder of this machine, the job gets hosts
/// of its own when it is submitted.
///
/// # Errors
/// As [`client_of`](super::client_of): the cluster can't be reached, or is another one.
pub fn connect(cluster: &ClusterSettings, job: &str, modules: &Modules) -> Result<Target> {
    let runtime = runtime()?;
    let found = runtime.block_on(client_of(cluster));
    let is_up = match &found {
        Err(error) => error.code() != ErrorCode::Network,
        Ok(_) => true,
    };
    let options = store_options(cluster, cluster.token()?);
    let store = modules.stores.open(&cluster.packages, &options)?;
    let needs_own_hosts = is_of_this_machine(cluster)? && needs_own_hosts(cluster, is_up);
    let (client, name) = match needs_own_hosts {
        true => (OnceCell::new(), cluster.name.clone()),
        false => {
            let (client, about) = found?;
            (OnceCell::from(client), about.name)
        }
    };
    Ok(Target {
        settings: cluster.clone(),
        job: job.to_string(),
        store,
        needs_own_hosts,
        client,
        cluster: name,
        runtime,
    })
}

/// Returns true if the cluster is confined to this machine.
fn is_of_this_machine(cluster: &ClusterSettings) -> Result<bool> {
    let in_folder = matches!(cluster.state.parse()?, StateUrl::File(_));
    Ok(cluster.api.is_none() && in_folder)
}

/// Returns true if no host would lead another job: none is up, or each is for one job only.
fn needs_own_hosts(cluster: &ClusterSettings, is_up: bool) -> bool {
    let running = Launcher::of(cluster.clone()).running();
    match running.is_empty() {
        true => !is_up,
        false => running.iter().all(|host| host.job.is_some()),
    }
}

impl Target {
    /// Returns a client, and starts the job's own hosts if it needs them.
    fn client(&self) -> Result<&Client> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        Launcher::of(self.settings.clone()).start_for(&self.job)?;
        let (client, _) = self.runtime.block_on(client_of(&self.settings))?;
        Ok(self.client.get_or_init(|| client))
    }

    /// Returns the cluster's name.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Puts a package of `files` (path and name in the package) into the cluster's store. Returns
    /// the package's SHA-256 in hexadecimal digits. Equal files give an equal package, which is
    /// stored once.
    ///
    /// # Errors
    /// If a file can't be read or the store refuses the package. No partial package is left then.
    pub fn store(&self, files: &[(PathBuf, String)]) -> Result<String> {
        let limits = store_options(&self.settings, None).limits;
        let mut contents = Contents::new();
        for (path, name) in files {
            contents = match path.is_dir() {
                true => contents.folder(name, path)?,
                false => contents.file(name, path)?,
            };
        }
        let folder = temp_dir::folder()?;
        let packed = contents.pack_within(folder.path(), &limits)?;
        self.runtime.block_on(self.store.put(&packed))?;
        Ok(packed.digest().to_string())
    }

    /// Submits the job to the cluster atomically: on failure the cluster has no part of it.
    ///
    /// # Errors
    /// [`ErrorCode::NameTaken`] if another job has the name.
    pub fn submit(&self, request: &SubmitRequest) -> Result<()> {
        let client = self.client()?;
        self.runtime.block_on(client.submit(request)).map(drop)
    }

    /// Returns a notice for the user about the job's own hosts, after the job has been submitted.
    pub(super) fn notice(&self) -> Option<String> {
        if !self.needs_own_hosts {
            return None;
        }
        let (job, cluster) = (&self.job, &self.cluster);
        let hosts = Launcher::of(self.settings.clone()).running();
        let names = hosts.iter().filter(|host| host.job.as_ref() == Some(job));
        let names: Vec<&str> = names.map(|host| host.name.as_str()).collect();
        Some(format!(
            "no host of cluster {cluster} was up for it, so it has its own, which end with it: {} (`ardea cluster start` starts one for all jobs)",
            names.join(", ")
        ))
    }

    /// Returns the job's summary.
    ///
    /// # Errors
    /// [`ErrorCode::NoSuchJob`] if the job has ended or was never there.
    pub(super) fn job_summary(&self, job: &str) -> Result<JobSummary> {
        self.describe(job).map(|described| described.summary)
    }

    /// Upgrades a job to another program.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the program can't restore the job's state.
    pub(super) fn upgrade(&self, request: &UpgradeRequest) -> Result<()> {
        let client = self.client()?;
        let job = &request.definition.job.name;
        self.runtime.block_on(client.upgrade(job, request))
    }

    /// Returns the full description of a job.
    ///
    /// # Errors
    /// As [`job_summary`](Self::job_summary).
    pub(super) fn describe(&self, job: &str) -> Result<JobDescription> {
        let client = self.client()?;
        self.runtime.block_on(client.describe(job))
    }

    /// Returns the end of a submission (in hexadecimal digits) of a job, if the cluster has a
    /// record of it.
    ///
    /// # Errors
    /// If the cluster can't be reached.
    pub(super) fn ended(&self, job: &str, submission: &str) -> Result<Option<JobEnding>> {
        let client = self.client()?;
        let past = self.runtime.block_on(client.past(job))?;
        let past = past.into_iter().map(|past| past.summary);
        let mut of_this = past.filter(|past| past.submission == submission);
        Ok(of_this.next().map(|past| past.ending))
    }
}

/// Creates a runtime that waits for responses on this thread.
///
/// # Errors
/// [`ErrorCode::LimitReached`] if the system refuses it.
pub fn runtime() -> Result<Runtime> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| {
        Error::new(ErrorCode::LimitReached, "cannot start an async runtime")
            .because(error)
            .hint("raise the limit of open files (ulimit -n)")
    })
}
