//! What a host has to know.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::leader::{Jobs, LaunchSetup};
use ardea_coordination::control::{LeaseConfig, MasterConfig};
use ardea_coordination::packing::ResourceManagers;
use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::StateManager;
use ardea_network::rpc::Security;
use ardea_rest::ClusterSettings;
use ardea_scheduler::{Programs, Schedulers};
use tokio::runtime::Handle;

/// What a host has to know: its name, its cluster, and which parts of a site's own it brings along.
#[derive(Clone, Debug)]
pub struct HostSetup {
    /// Its name, unique in the cluster. A host that is started again has the same.
    pub name: String,
    /// The cluster.
    pub cluster: ClusterSettings,
    /// Which jobs it stands for.
    pub jobs: Jobs,
    /// The cluster's state.
    pub state: Arc<dyn StateManager>,
    /// The cluster's name and secret, and what protects connections.
    pub security: Security,
    /// Packing policies, by name.
    pub managers: ResourceManagers,
    /// Schedulers beside `local` and `hosts`, by name.
    pub schedulers: Schedulers,
    /// How the programs of jobs come to this machine.
    pub programs: Arc<dyn Programs>,
    /// What schedulers may want to know of this host, such as its `rack`.
    pub attributes: BTreeMap<String, String>,
    /// Times of leases.
    pub lease: LeaseConfig,
    /// Times of masters.
    pub master: MasterConfig,
    /// The runtime on which it stands for jobs: one of its own, with the state manager's connection, keeps leases from waiting for what
    /// else a host does.
    pub masters: Handle,
}

impl HostSetup {
    /// Where the REST interface listens.
    pub(crate) fn api_address(&self) -> Result<SocketAddr> {
        let (host, port) = (&self.cluster.host, self.cluster.port);
        let resolved = std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), port));
        resolved
            .ok()
            .and_then(|mut found| found.next())
            .ok_or_else(|| {
                let what = format!("{host:?} is no address of this machine");
                Error::new(ErrorCode::InvalidConfig, what)
                    .hint("write a name or an IP address into cluster.host")
            })
    }

    /// What containers are started with.
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
