//! The configuration of a process that is a leader candidate.

use std::collections::BTreeMap;
use std::sync::Arc;

use ardea_checkpoint::local::LeaderCheckpointBackend;
use ardea_coordination::control::{CertificateFiles, LeaseConfig, MasterConfig};
use ardea_coordination::elasticity::ElasticityPolicies;
use ardea_coordination::optimizer::OptimizerRules;
use ardea_coordination::packing::PackingPolicies;
use ardea_metastore::MetadataStore;
use ardea_network::rpc::Security;
use ardea_scheduler::{LaunchPlan, Schedulers};

use crate::leader::Submitted;

/// The configuration of a leader candidate, the same for all jobs of a cluster.
#[derive(Clone, Debug)]
pub struct MasterSetup {
    /// The name of the process in leases, by which readers find the process. No other process may
    /// ever have used it.
    pub holder: String,
    /// The address to listen at for workers: `host:port`, with port 0 for any free one.
    pub listen: String,
    /// The host name or address to which workers connect, if it differs from that in `listen`.
    pub advertised_host: Option<String>,
    /// The cluster's metadata store.
    pub state: Arc<dyn MetadataStore>,
    /// The cluster's name, and the credentials by which workers are authenticated.
    pub security: Security,
    /// The packing policies by name.
    pub managers: PackingPolicies,
    /// The elasticity policies by name.
    pub elasticity: ElasticityPolicies,
    /// The rules of the optimizer.
    pub optimizer: OptimizerRules,
    /// The schedulers by name.
    pub schedulers: Schedulers,
    /// The launch settings of containers.
    pub launch: LaunchSetup,
    /// The timing of leases.
    pub lease: LeaseConfig,
    /// The timing of leaders. Its fields for the scheduler's traits and the job's guarantee are set
    /// from the scheduler and the [`LeaderCheckpointBackend`].
    pub master: MasterConfig,
    /// The checkpoint backend; without a backend no job can have a processing guarantee.
    pub checkpoints: Option<Arc<dyn LeaderCheckpointBackend>>,
}

/// The launch settings of containers that do not depend on the job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LaunchSetup {
    /// The URL of the package store.
    pub packages: String,
    /// The URL of the metadata store.
    pub state_url: String,
    /// The path of the file with the cluster's secret, if there is one. It is the same on every
    /// machine that starts containers.
    pub token_file: Option<String>,
    /// The certificate files, if connections are encrypted: the same paths on every machine that
    /// starts containers.
    pub certificates: Option<CertificateFiles>,
    /// The environment variables of every container.
    pub environment: BTreeMap<String, String>,
}

/// Returns the host name in the holder name of a lease, which may end with `@` and the incarnation
/// of the process.
pub(crate) fn host_of(holder: &str) -> &str {
    holder.rsplit_once('@').map_or(holder, |(host, _)| host)
}

impl LaunchSetup {
    /// Returns the launch plan for the containers of a job.
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
