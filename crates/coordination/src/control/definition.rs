//! The submitted definition of a job, and the start parameters of its worker processes.

use std::collections::BTreeMap;

use crate::packing::Resources;
use serde::{Deserialize, Serialize};

use crate::control::{JobRef, WorkerId};

/// The environment variable that holds the [`WorkerStart`] of a container's process, as JSON.
pub const WORKER_START_VARIABLE: &str = "ARDEA_WORKER";

/// The definition of a job as it was submitted. It never changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct JobDefinition {
    /// The identity of the job.
    pub job: JobRef,
    /// The program that the job's containers run.
    pub program: ProgramRef,
    /// The name of the packing policy.
    pub packing: String,
    /// The name of the scheduler.
    pub scheduler: String,
    /// The settings that differ from their defaults, by key, resolved at submission.
    pub settings: BTreeMap<String, String>,
    /// The version of Ardea that the program was built with.
    pub version: String,
}

/// A program in the package store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(deny_unknown_fields))]
pub struct ProgramRef {
    /// The SHA-256 hash of the package, in hexadecimal digits.
    pub package: String,
    /// The executable's path within the package.
    pub executable: String,
    /// The command-line arguments.
    pub arguments: Vec<String>,
}

/// Paths of the TLS certificate files of a process, in PEM format. The paths are the same on every
/// machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CertificateFiles {
    /// The certificate of the authority that signed the certificates of all the cluster's
    /// processes.
    pub authority: String,
    /// The machine's certificate.
    pub certificate: String,
    /// The private key of the certificate.
    pub key: String,
}

/// The start parameters of a container's process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkerStart {
    /// The identity of the worker process.
    pub worker: WorkerId,
    /// The worker's job.
    pub job: JobRef,
    /// The URL of the cluster's metadata store.
    pub state_url: String,
    /// The host name or IP address, without a port, at which the worker listens, and which it
    /// advertises to others.
    pub host: String,
    /// The resources of the container.
    pub resources: Resources,
    /// The path of the file with the cluster's secret, if the cluster has one. Only the file's user
    /// can read it.
    pub token_file: Option<String>,
    /// The TLS certificates, if connections are encrypted.
    #[serde(default)]
    pub certificates: Option<CertificateFiles>,
    /// The job's settings.
    pub settings: BTreeMap<String, String>,
}
