//! JSON types of the cluster and its hosts.

use ardea_coordination::packing::Resources;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// General information about a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ClusterInfo {
    /// Name of the cluster.
    pub name: String,
    /// Version of Ardea on the host that responds.
    pub version: String,
    /// URL of the metadata store.
    pub state: String,
    /// URL of the package store.
    pub packages: String,
    /// Default scheduler of jobs.
    pub scheduler: String,
    /// Default packing policy of jobs.
    pub packing: String,
    /// Number of hosts.
    pub hosts: u32,
    /// Number of jobs.
    pub jobs: u32,
}

/// A host: the process that represents a machine in a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HostView {
    /// Name of the host, unique in the cluster.
    pub name: String,
    /// Address of the host for other hosts.
    pub address: String,
    /// URL of the host's REST interface: `http://10.0.0.7:7400`.
    pub api: String,
    /// Id of the host's process.
    pub pid: u32,
    /// Version of Ardea on the host.
    pub version: String,
    /// Resources of the host for all containers.
    pub total: Resources,
    /// Resources not used by containers.
    pub free: Resources,
    /// Containers on the host.
    pub containers: Vec<HostedContainer>,
    /// Names of the jobs that the host leads.
    pub leads: Vec<String>,
    /// True if the host is drained: no container is placed on it, and the containers counted in
    /// [`holds`](Self::holds) move to other hosts.
    #[serde(default)]
    pub drained: bool,
    /// Number of the host's containers of the scheduler `hosts`. Draining moves no other
    /// containers.
    #[serde(default)]
    pub holds: u32,
}

/// A container on a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HostedContainer {
    /// Name of the job.
    pub job: String,
    /// Number of the container.
    pub container: u32,
    /// Process of the container, as reported by the scheduler: `pid 4711`.
    pub process: Option<String>,
}
