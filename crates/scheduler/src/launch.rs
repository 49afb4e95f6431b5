//! What containers are started for: a job, its program, and where its cluster is.

use std::collections::BTreeMap;

use ardea_coordination::control::{
    CertificateFiles, ContainerRequest, JobDefinition, JobRef, WorkerId, WorkerStart,
};
use serde::{Deserialize, Serialize};

/// A job whose containers are to be started: the same for all of them, wherever they run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LaunchPlan {
    /// What was submitted.
    pub definition: JobDefinition,
    /// Where its package is: the URL of the package store.
    pub packages: String,
    /// Where the cluster's state is kept: the URL of the state manager.
    pub state_url: String,
    /// Where the cluster's secret is, if it has one: a file that is there on every machine that starts containers.
    pub token_file: Option<String>,
    /// Where its certificates are, if its connections are encrypted: by the same paths on every machine that starts containers.
    pub certificates: Option<CertificateFiles>,
    /// Variables that are set for every container beside `ARDEA_WORKER`.
    pub environment: BTreeMap<String, String>,
}

impl LaunchPlan {
    /// The job.
    pub fn job(&self) -> &JobRef {
        &self.definition.job
    }

    /// What the worker of a container is told when it is started, on a machine that others reach by `host`.
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
