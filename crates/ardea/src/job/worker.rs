//! This program as the worker of a container.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use ardea_checkpoint::cluster::WorkerCheckpointStore;
use ardea_config::{Resolver, Schema};
use ardea_connectors::dead_letters::{DEAD_LETTER_SETTINGS, DeadLetterConfig};
use ardea_coordination::control::{Lookup, WorkerStart};
use ardea_core::{DeadLetters, OnError, Result};
use ardea_engine::Job;
use ardea_grid::cluster::{GridStoreClient, RemoteGridStore};
use ardea_metastore::{MetadataStore, StateOptions};
use ardea_network::rpc::Security;
use ardea_rest::{load_tls, read_token};
use ardea_scheduler::LogFile;
use ardea_server::leader::LeaseFinder;
use ardea_worker::{FinderFactory, MasterFinder, WorkerDependencies};

use super::dead_letter_sample::DeadLetterSample;
use super::locate::open_state;
use crate::cluster::Modules;
use crate::console::dead_letters;

/// Maximum size of a container's file of dead letters for the REST interface.
const SAMPLE_FILE_BYTES: u64 = 16 << 20;

/// Returns this process's start parameters if it was started as the worker of a container.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the environment variable
/// with the parameters can't be parsed.
pub fn as_worker() -> Result<Option<WorkerStart>> {
    ardea_worker::start_from_environment()
}

/// Runs the worker of a container until its leader dismisses it.
///
/// # Errors
/// Startup errors, the leader's refusal, or the failure of the job.
pub fn work(start: WorkerStart, job: &dyn Job, modules: &Modules) -> Result<()> {
    let tls = start.certificates.as_ref().map(load_tls).transpose()?;
    let token = start.token_file.as_deref().map(Path::new);
    let security = Security::new(start.job.cluster.as_str())
        .token(token.map(read_token).transpose()?)
        .tls(tls.clone());
    let shelter = grid_store_client(&start, security);
    ardea_grid::cluster::set_map_client(Arc::clone(&shelter));
    let surroundings = WorkerDependencies {
        finder: by_lease(),
        sinks: modules.sinks.clone(),
        transports: modules.transports.clone(),
        tls,
        command: None,
        snapshots: WorkerCheckpointStore::of(&start, Some(shelter))?,
        dead_letters: Arc::new(open_dead_letters(&start)?),
    };
    ardea_worker::run(&start, job, surroundings)
}

/// Opens the dead letters of a container, or of an instance's own process in it.
fn open_dead_letters(start: &WorkerStart) -> Result<DeadLetters> {
    let schema = Schema::of(DEAD_LETTER_SETTINGS);
    let settings = start.settings.iter();
    let known = settings.filter(|(key, _)| schema.find(key).is_some());
    let flags = known.map(|(key, value)| format!("{key}={value}"));
    let resolved = Resolver::new(&schema).flags(flags).resolve()?;
    let config = DeadLetterConfig::from_settings(&resolved)?;
    let container = start.worker.container.0;
    let letters = dead_letters::open(config.as_ref(), &start.job.name, Some(container))?;
    // The working folder, in which the scheduler finds the file.
    let folder = std::env::current_dir().unwrap_or_default();
    let path = folder.join(LogFile::DeadLetters.name());
    let sample = DeadLetterSample::new(path, SAMPLE_FILE_BYTES);
    Ok(DeadLetters::with_receiver(move |letter| {
        sample.append(&letter);
        letters.handle(OnError::DeadLetter, || letter)
    }))
}

/// Creates the client of the grid store in the memory of the cluster's hosts.
fn grid_store_client(start: &WorkerStart, security: Security) -> Arc<dyn GridStoreClient> {
    let url = start.state_url.clone();
    let open = move || {
        let url = url.clone();
        let opening = async move { open_state(&url, StateOptions::default()).await };
        Box::pin(opening) as Pin<Box<dyn Future<Output = Result<Arc<dyn MetadataStore>>> + Send>>
    };
    let who = format!("worker {}", start.worker);
    Arc::new(RemoteGridStore::new(
        Box::new(open),
        security,
        start.host.as_str(),
        who,
    ))
}

/// Returns a factory of finders that locate the leader by its lease in the metadata store.
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
