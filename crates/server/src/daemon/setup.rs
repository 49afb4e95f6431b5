//! The configuration of a host.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::leader::{Jobs, LaunchSetup};
use ardea_coordination::control::{LeaseConfig, MasterConfig};
use ardea_coordination::elasticity::ElasticityPolicies;
use ardea_coordination::optimizer::OptimizerRules;
use ardea_coordination::packing::PackingPolicies;
use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::MetadataStore;
use ardea_network::rpc::Security;
use ardea_rest::{ClusterSettings, Pending, ProgramOutcome, ProgramRequest};
use ardea_scheduler::{Programs, Schedulers};
use tokio::runtime::Handle;

/// A runner of programs that clients send to a host.
pub trait ProgramRunner: fmt::Debug + Send + Sync {
    /// Runs the program of a valid request, and returns the outcome of its action.
    fn run(&self, request: ProgramRequest) -> Pending<'_, ProgramOutcome>;
}

/// The configuration of a host: its name, its cluster, and site-specific modules.
#[derive(Clone, Debug)]
pub struct HostSetup {
    /// The host's name, unique in the cluster and unchanged across restarts.
    pub name: String,
    /// The cluster's settings.
    pub cluster: ClusterSettings,
    /// The jobs that the host is a leader candidate for.
    pub jobs: Jobs,
    /// The cluster's metadata store.
    pub state: Arc<dyn MetadataStore>,
    /// The cluster's name and secret, and the protection of connections.
    pub security: Security,
    /// The packing policies by name.
    pub managers: PackingPolicies,
    /// The elasticity policies by name.
    pub elasticity: ElasticityPolicies,
    /// The rules of the optimizer.
    pub optimizer: OptimizerRules,
    /// The schedulers other than `local` and `hosts`, by name.
    pub schedulers: Schedulers,
    /// The access to the programs of jobs on this machine.
    pub programs: Arc<dyn Programs>,
    /// The runner of programs that clients send; `None` refuses them.
    pub runner: Option<Arc<dyn ProgramRunner>>,
    /// Attributes of this host for schedulers, such as its `rack`.
    pub attributes: BTreeMap<String, String>,
    /// The timing of leases.
    pub lease: LeaseConfig,
    /// The timing of leaders.
    pub master: MasterConfig,
    /// The runtime of the leader candidate and of the metadata store's connection. It should be a
    /// separate runtime, so that other work of the host does not delay lease renewals.
    pub masters: Handle,
}

impl HostSetup {
    /// Returns the listen address of the REST interface.
    pub(crate) fn api_address(&self) -> Result<SocketAddr> {
        let (host, port) = (&self.cluster.host, self.cluster.port);
        let resolved = std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), port));
        resolved
            .ok()
            .and_then(|mut found| found.next())
            .ok_or_else(|| {
                let what = format!("{host:?} can't be resolved to an address of this machine");
                Error::new(ErrorCode::InvalidConfig, what)
                    .hint("set cluster.host to a host name or an IP address")
            })
    }

    /// Returns the launch settings of containers.
    pub(crate) fn launch(&self) -> LaunchSetup {
        let token_file = self.cluster.token_file.as_ref();
        LaunchSetup {
            packages: self.cluster.packages.clone(),
            state_url: self.cluster.state.clone(),
            token_file: token_file.map(|path| path.display().to_string()),
            certificates: self.cluster.certificates.clone(),
            environment: BTreeMap::new(),
        }
    }
}
