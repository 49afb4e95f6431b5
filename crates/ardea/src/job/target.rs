//! The cluster that settings name, as a submission target.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::sync::Arc;

use ardea_core::{ErrorCode, Result};
use ardea_rest::{
    ClusterSettings, JobDescription, JobEnding, JobSummary, SubmitRequest, UpgradeRequest,
};
use ardea_scheduler::artifacts::Contents;

use ardea_metastore::StateUrl;

use super::locate::client_of;
use super::rest::{RestTarget, Store, runtime};
use super::submit::Target;
use super::temp_dir;
use crate::cluster::{Launcher, Modules, store_options};

/// Connects to the cluster that the settings `cluster` name, for the job `job`. The package store
/// is of a kind in `modules`.
///
/// If no general host is up, and the metadata store is a folder of this machine, the job gets hosts
/// of its own when it is submitted.
///
/// # Errors
/// As [`client_of`](super::client_of): the cluster can't be reached, or is another one.
pub fn connect(cluster: &ClusterSettings, job: &str, modules: &Modules) -> Result<Box<dyn Target>> {
    let found = runtime()?.block_on(client_of(cluster));
    let is_up = match &found {
        Err(error) => error.code() != ErrorCode::Network,
        Ok(_) => true,
    };
    let store = store_of(cluster, modules)?;
    if is_of_this_machine(cluster)? && needs_own_hosts(cluster, is_up) {
        return Ok(Box::new(OwnHosts {
            settings: cluster.clone(),
            job: job.to_string(),
            store,
            hosts: OnceCell::new(),
        }));
    }
    let (client, about) = found?;
    Ok(Box::new(RestTarget::new(client, about.name, store)?))
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

/// A cluster of this machine whose hosts for the job are started on submission. The hosts start
/// only after the program is stored, because storing may take longer than hosts wait for their job.
struct OwnHosts {
    settings: ClusterSettings,
    job: String,
    store: Store,
    hosts: OnceCell<RestTarget>,
}

impl OwnHosts {
    fn hosts(&self) -> Result<&RestTarget> {
        if let Some(hosts) = self.hosts.get() {
            return Ok(hosts);
        }
        Launcher::of(self.settings.clone()).start_for(&self.job)?;
        let (client, about) = runtime()?.block_on(client_of(&self.settings))?;
        let started = RestTarget::new(client, about.name, Arc::clone(&self.store))?;
        Ok(self.hosts.get_or_init(|| started))
    }
}

impl Target for OwnHosts {
    fn cluster(&self) -> &str {
        &self.settings.name
    }

    fn store(&self, files: &[(PathBuf, String)]) -> Result<String> {
        (self.store)(files)
    }

    fn submit(&self, request: SubmitRequest) -> Result<()> {
        self.hosts()?.submit(request)
    }

    fn notice(&self) -> Option<String> {
        let (job, cluster) = (&self.job, &self.settings.name);
        let hosts = Launcher::of(self.settings.clone()).running();
        let names = hosts.iter().filter(|host| host.job.as_ref() == Some(job));
        let names: Vec<&str> = names.map(|host| host.name.as_str()).collect();
        Some(format!(
            "no host of cluster {cluster} was up for it, so it has its own, which end with it: {} (`ardea cluster start` starts one for all jobs)",
            names.join(", ")
        ))
    }

    fn job_summary(&self, job: &str) -> Result<JobSummary> {
        self.hosts()?.job_summary(job)
    }

    fn upgrade(&self, request: UpgradeRequest) -> Result<()> {
        self.hosts()?.upgrade(request)
    }

    fn describe(&self, job: &str) -> Result<JobDescription> {
        self.hosts()?.describe(job)
    }

    fn ended(&self, job: &str, submission: &str) -> Result<Option<JobEnding>> {
        self.hosts()?.ended(job, submission)
    }
}

/// Opens the package store of a cluster.
fn store_of(cluster: &ClusterSettings, modules: &Modules) -> Result<Store> {
    let options = store_options(cluster, cluster.token()?);
    let store = modules.stores.open(&cluster.packages, &options)?;
    Ok(Arc::new(move |files: &[(PathBuf, String)]| {
        let mut contents = Contents::new();
        for (path, name) in files {
            contents = match path.is_dir() {
                true => contents.folder(name, path)?,
                false => contents.file(name, path)?,
            };
        }
        let folder = temp_dir::folder()?;
        let packed = contents.pack_within(folder.path(), &options.limits)?;
        runtime()?.block_on(store.put(&packed))?;
        Ok(packed.digest().to_string())
    }))
}
