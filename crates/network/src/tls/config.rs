//! Which files.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where certificates are, all of them as PEM.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// The certificates of the authorities that peers' certificates have to be signed by.
    pub authority: PathBuf,
    /// This process's certificate, and behind it those that lead to an authority, if there are any between.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// The name that all certificates of the cluster bear. Without one each bears the name or IP address under which its host is
    /// connected to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}
