//! The loaded certificates, reloaded when the files change.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ardea_core::{Error, Result};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};

use crate::tls::TlsConfig;
use crate::tls::files::FileStamp;
use crate::tls::validate::{TlsSettings, server_name};

/// Minimum interval between checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Certificates and the TLS settings made from them. Clones share the same state.
///
/// The files are checked when a connection is made, at most once a second, and reloaded if they
/// changed: certificates are renewed by overwriting them. Existing connections keep the
/// certificates they began with.
#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    config: TlsConfig,
    current: Mutex<Current>,
}

struct Current {
    sides: TlsSettings,
    stamps: [FileStamp; 3],
    looked: Instant,
    problem: Option<Error>,
}

impl Tls {
    /// Loads certificates.
    ///
    /// # Errors
    /// [`ErrorCode::ReadFailed`](ardea_core::ErrorCode::ReadFailed) for a file that can't be read;
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for a file with other
    /// contents, a key of another certificate, and a certificate that no peer would accept:
    /// expired, of another authority, with another name.
    pub fn load(config: TlsConfig) -> Result<Tls> {
        // Taken before the files are read: a change meanwhile is noticed by the next check.
        let stamps = FileStamp::of(&config);
        let current = Mutex::new(Current {
            sides: TlsSettings::load(&config)?,
            stamps,
            looked: Instant::now(),
            problem: None,
        });
        Ok(Tls(Arc::new(Inner { config, current })))
    }

    /// Returns the settings of a client: it presents its certificate and verifies the server's.
    pub fn client(&self) -> Arc<ClientConfig> {
        self.current_checked().sides.client.clone()
    }

    /// Returns the settings of a server for members of the cluster: it presents its certificate and
    /// verifies the client's.
    pub fn server(&self) -> Arc<ServerConfig> {
        self.current_checked().sides.server.clone()
    }

    /// Returns the settings of a server for any client, which must be authenticated in another way.
    pub fn server_without_client_auth(&self) -> Arc<ServerConfig> {
        self.current_checked().sides.open_server.clone()
    }

    /// Returns the name that the certificate of the peer at `host` must bear: the cluster's, or the
    /// host's.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if it is neither a name
    /// nor an address.
    pub fn peer_name(&self, host: &str) -> Result<ServerName<'static>> {
        server_name(self.0.config.name.as_deref().unwrap_or(host))
    }

    /// Checks at once if the files changed, and reloads them.
    ///
    /// # Errors
    /// As [`load`](Self::load); the former certificates stay in use.
    pub fn reload(&self) -> Result<()> {
        let mut current = self.current();
        self.reload_if_changed(&mut current);
        current.problem.clone().map_or(Ok(()), Err)
    }

    /// Returns the reason why the current files are not in use, if they could not be loaded.
    pub fn problem(&self) -> Option<Error> {
        self.current_checked().problem.clone()
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        let current = &self.0.current;
        current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current_checked(&self) -> MutexGuard<'_, Current> {
        let mut current = self.current();
        if current.looked.elapsed() >= CHECK_INTERVAL {
            self.reload_if_changed(&mut current);
        }
        current
    }

    fn reload_if_changed(&self, current: &mut Current) {
        current.looked = Instant::now();
        let stamps = FileStamp::of(&self.0.config);
        if stamps == current.stamps && current.problem.is_none() {
            return;
        }
        match TlsSettings::load(&self.0.config) {
            Ok(sides) => {
                current.sides = sides;
                current.stamps = stamps;
                current.problem = None;
            }
            // Perhaps only some of the files have been written so far: the next check loads them
            // again.
            Err(problem) => current.problem = Some(problem),
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tls({:?})", self.0.config)
    }
}
