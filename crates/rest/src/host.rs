//! The cluster and its hosts, as they are told.

use ardea_coordination::packing::Resources;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::foreign;

/// A cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ClusterInfo {
    /// Its name.
    pub name: String,
    /// The version of the host that answers.
    pub version: String,
    /// Where its state is kept, as a URL.
    pub state: String,
    /// Where its packages are kept, as a URL.
    pub packages: String,
    /// The scheduler of jobs that choose none.
    pub scheduler: String,
    /// The packing policy of jobs that choose none.
    pub packing: String,
    /// How many hosts it has.
    pub hosts: u32,
    /// How many jobs it has.
    pub jobs: u32,
}

/// A host: the process that stands for a machine in a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HostView {
    /// Its name, unique in the cluster.
    pub name: String,
    /// Where other hosts reach it.
    pub address: String,
    /// Where its interface is: `http://10.0.0.7:7400`.
    pub api: String,
    /// Its process.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// What it offers to containers.
    #[schemars(with = "foreign::Resources")]
    pub total: Resources,
    /// What no container has taken of it.
    #[schemars(with = "foreign::Resources")]
    pub free: Resources,
    /// The containers that it runs.
    pub containers: Vec<HostedContainer>,
    /// The jobs whose master it is.
    pub leads: Vec<String>,
    /// Whether it is drained: no container is placed there, and those that it [holds](Self::holds) go elsewhere.
    #[serde(default)]
    pub drained: bool,
    /// How many containers it holds for the scheduler `hosts`. Others that are there are on the machine, and leave it by other means.
    #[serde(default)]
    pub holds: u32,
}

/// A container on a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HostedContainer {
    /// Its job.
    pub job: String,
    /// Its number.
    pub container: u32,
    /// What it is on the host, in the words of the scheduler: `pid 4711`.
    pub process: Option<String>,
}
