//! What was submitted, and what a container's process is told when it is started.

use std::collections::BTreeMap;

use crate::packing::Resources;
use serde::{Deserialize, Serialize};

use crate::control::{JobRef, WorkerId};

/// The environment variable in which a container's process finds its [`WorkerStart`], as JSON.
pub const WORKER_START_VARIABLE: &str = "ARDEA_WORKER";

/// What was submitted. It never changes while the job lives; what does is in its [`JobRecord`](crate::control::JobRecord).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobDefinition {
    /// The job.
    pub job: JobRef,
    /// What its containers run.
    pub program: ProgramRef,
    /// The packing policy, by name.
    pub packing: String,
    /// The scheduler, by name.
    pub scheduler: String,
    /// The settings that differ from their defaults, by key, resolved when it was submitted.
    pub settings: BTreeMap<String, String>,
    /// The version of Ardea that the program was built with.
    pub version: String,
}

/// A program in the package store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProgramRef {
    /// The SHA-256 of the package, in hexadecimal digits.
    pub package: String,
    /// The program's path within it.
    pub executable: String,
    /// The arguments after it.
    pub arguments: Vec<String>,
}

/// Where the certificates of a cluster's process are, all of them as PEM: by the same paths on every machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CertificateFiles {
    /// The authority that has signed those of all the cluster's processes.
    pub authority: String,
    /// The machine's certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// What a container's process is told when it is started.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkerStart {
    /// Which worker it is.
    pub worker: WorkerId,
    /// Of which job.
    pub job: JobRef,
    /// Where the cluster's state is kept, as a URL.
    pub state_url: String,
    /// The address to listen at, and by which others reach this host: a name or an IP address, without a port.
    pub host: String,
    /// What it may use.
    pub resources: Resources,
    /// Where the cluster's secret is, if it has one: a file that only its user may read.
    pub token_file: Option<String>,
    /// Where its certificates are, if its connections are encrypted.
    #[serde(default)]
    pub certificates: Option<CertificateFiles>,
    /// The job's settings.
    pub settings: BTreeMap<String, String>,
}
