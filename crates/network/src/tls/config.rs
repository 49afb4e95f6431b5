//! The paths of certificate files.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The certificate files, all in PEM format.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// Certificates of the authorities that sign peers' certificates.
    pub authority: PathBuf,
    /// Certificate of this process, followed by intermediate certificates, if any.
    pub certificate: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
    /// Name in all certificates of the cluster. Without it, each certificate bears the name or IP
    /// address of its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}
