//! This program as the worker of a container.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use ardea_checkpoint::cluster::FolderKeeper;
use ardea_coordination::control::{Lookup, WorkerStart};
use ardea_core::Result;
use ardea_engine::Job;
use ardea_grid::cluster::{RemoteShelter, Shelter};
use ardea_metastore::{StateManager, StateOptions};
use ardea_network::rpc::Security;
use ardea_rest::{load_tls, read_token};
use ardea_server::leader::LeaseFinder;
use ardea_worker::{FinderFactory, MasterFinder, Surroundings};

use super::dead_letters;
use super::locate::open_state;
use crate::cluster::Modules;

/// What this process was started with, if it was started as the worker of a container.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the variable that says so says something else.
pub fn as_worker() -> Result<Option<WorkerStart>> {
    ardea_worker::start_from_environment()
}

/// Is the worker of a container, until its master tells it to leave.
///
/// # Errors
/// What keeps it from starting, its master's refusal, or the failure of the job.
pub fn work(start: WorkerStart, job: &dyn Job, modules: &Modules) -> Result<()> {
    let tls = start.certificates.as_ref().map(load_tls).transpose()?;
    let token = start.token_file.as_deref().map(Path::new);
    let security = Security::new(start.job.cluster.as_str())
        .token(token.map(read_token).transpose()?)
        .tls(tls.clone());
    let shelter = shelter(&start, security);
    ardea_grid::cluster::reach_maps_by(Arc::clone(&shelter));
    let surroundings = Surroundings {
        finder: by_lease(),
        sinks: modules.sinks.clone(),
        transports: modules.transports.clone(),
        tls,
        command: None,
        cuts: FolderKeeper::of(&start, Some(shelter))?,
        dead_letters: Arc::new(dead_letters::of_container(&start)?),
    };
    ardea_worker::run(&start, job, surroundings)
}

/// The way to what the cluster's hosts keep in memory.
fn shelter(start: &WorkerStart, security: Security) -> Arc<dyn Shelter> {
    let url = start.state_url.clone();
    let open = move || {
        let url = url.clone();
        let opening = async move { open_state(&url, StateOptions::default()).await };
        Box::pin(opening) as Pin<Box<dyn Future<Output = Result<Arc<dyn StateManager>>> + Send>>
    };
    let who = format!("worker {}", start.worker);
    Arc::new(RemoteShelter::new(
        Box::new(open),
        security,
        start.host.as_str(),
        who,
    ))
}

/// Finds the master by its lease in the cluster's state.
fn by_lease() -> Box<FinderFactory> {
    Box::new(|start| {
        let (url, job) = (start.state_url.clone(), start.job.clone());
        Box::pin(async move {
            let state = open_state(&url, StateOptions::default()).await?;
            let finder = LeaseFinder::new(state, job)?;
            Ok(Arc::new(ByLease(finder)) as Arc<dyn MasterFinder>)
        })
    })
}

struct ByLease(LeaseFinder);

impl MasterFinder for ByLease {
    fn look_up(&self) -> Pin<Box<dyn Future<Output = Lookup> + Send + '_>> {
        Box::pin(self.0.look_up())
    }
}
