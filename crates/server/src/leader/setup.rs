//! What a process that may be master has to know.

use std::collections::BTreeMap;
use std::sync::Arc;

use ardea_checkpoint::local::Snapshots;
use ardea_coordination::control::{CertificateFiles, LeaseConfig, MasterConfig};
use ardea_coordination::packing::ResourceManagers;
use ardea_metastore::StateManager;
use ardea_network::rpc::Security;
use ardea_scheduler::{LaunchPlan, Schedulers};

use crate::leader::Submitted;

/// What a process that may be master of jobs has to know. The same for all jobs of a cluster.
#[derive(Clone, Debug)]
pub struct MasterSetup {
    /// The process, by a name that no other has or had: leases name it, and whoever reads one finds the process by it.
    pub holder: String,
    /// Where to listen for workers: `host:port`, port 0 for any that is free.
    pub listen: String,
    /// The host by which workers reach this process, if that is another than the one it listens at.
    pub advertised_host: Option<String>,
    /// The cluster's state.
    pub state: Arc<dyn StateManager>,
    /// The cluster's name, and what proves that a worker belongs to it.
    pub security: Security,
    /// Packing policies, by name.
    pub managers: ResourceManagers,
    /// Schedulers, by name.
    pub schedulers: Schedulers,
    /// What containers are started with.
    pub launch: LaunchSetup,
    /// Times of leases.
    pub lease: LeaseConfig,
    /// Times of masters; what the scheduler is like is taken from the scheduler, and what a job promises from [`Snapshots`].
    pub master: MasterConfig,
    /// What there is to know of snapshots; without it no job has a guarantee.
    pub snapshots: Option<Arc<dyn Snapshots>>,
}

/// What containers are started with, whatever their job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LaunchSetup {
    /// The URL of the package store.
    pub packages: String,
    /// The URL of the state manager.
    pub state_url: String,
    /// A file with the cluster's secret, if it has one, on every machine that starts containers.
    pub token_file: Option<String>,
    /// Where its certificates are, if its connections are encrypted: by the same paths on every machine that starts containers.
    pub certificates: Option<CertificateFiles>,
    /// Variables that are set for every container.
    pub environment: BTreeMap<String, String>,
}

impl LaunchSetup {
    /// For the containers of this job.
    pub fn plan_for(&self, submitted: &Submitted) -> LaunchPlan {
        LaunchPlan {
            definition: submitted.definition.clone(),
            packages: self.packages.clone(),
            state_url: self.state_url.clone(),
            token_file: self.token_file.clone(),
            certificates: self.certificates.clone(),
            environment: self.environment.clone(),
        }
    }
}
