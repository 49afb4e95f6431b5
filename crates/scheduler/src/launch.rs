//! The launch plan of containers: a job, its program and its cluster.

use std::collections::BTreeMap;

use ardea_coordination::control::{
    CertificateFiles, ContainerRequest, JobDefinition, JobRef, WorkerId, WorkerStart,
};
use serde::{Deserialize, Serialize};

/// The parameters for starting a job's containers. They are the same for all containers on all
/// machines.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LaunchPlan {
    /// The job as submitted.
    pub definition: JobDefinition,
    /// The URL of the package store that has the job's package.
    pub packages: String,
    /// The URL of the cluster's metadata store.
    pub state_url: String,
    /// The path of the file with the cluster's secret, if there is one. The file is on every
    /// machine that starts containers.
    pub token_file: Option<String>,
    /// The certificate files, if connections are encrypted. Their paths are the same on every
    /// machine that starts containers.
    pub certificates: Option<CertificateFiles>,
    /// The environment variables set for every container, in addition to `ARDEA_WORKER`.
    pub environment: BTreeMap<String, String>,
}

impl LaunchPlan {
    /// Returns the job.
    pub fn job(&self) -> &JobRef {
        &self.definition.job
    }

    /// Returns the start parameters of a container's worker. `host` is the address of its machine
    /// for other machines.
    pub fn worker_start(
        &self,
        request: &ContainerRequest,
        incarnation: u64,
        host: &str,
    ) -> WorkerStart {
        WorkerStart {
            worker: WorkerId {
                container: request.id,
                incarnation,
            },
            job: self.job().clone(),
            state_url: self.state_url.clone(),
            host: host.to_string(),
            resources: request.required,
            token_file: self.token_file.clone(),
            certificates: self.certificates.clone(),
            settings: self.definition.settings.clone(),
        }
    }
}
