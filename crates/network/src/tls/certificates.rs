//! What was loaded, always of the present files.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ardea_core::{Error, Result};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};

use crate::tls::TlsConfig;
use crate::tls::check::{Sides, server_name};
use crate::tls::files::Stamp;

/// How often files are looked at, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Certificates and how to use them. A clone is the same one.
///
/// The files are looked at when a connection is made, at most once a second, and loaded again if they are others: certificates are
/// renewed by writing over them. Connections that there are go on with what they began with.
#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    config: TlsConfig,
    current: Mutex<Current>,
}

struct Current {
    sides: Sides,
    stamps: [Stamp; 3],
    looked: Instant,
    problem: Option<Error>,
}

impl Tls {
    /// Loads certificates.
    ///
    /// # Errors
    /// [`ErrorCode::ReadFailed`](ardea_core::ErrorCode::ReadFailed) for a file that can't be read;
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) for one that holds something else, a key of another
    /// certificate, and a certificate that no peer would accept: expired, of another authority, with another name.
    pub fn load(config: TlsConfig) -> Result<Tls> {
        // Before they are read: what changes meanwhile is seen the next time.
        let stamps = Stamp::of(&config);
        let current = Mutex::new(Current {
            sides: Sides::load(&config)?,
            stamps,
            looked: Instant::now(),
            problem: None,
        });
        Ok(Tls(Arc::new(Inner { config, current })))
    }

    /// The settings of who connects: it shows its certificate, and wants to see one.
    pub fn client(&self) -> Arc<ClientConfig> {
        self.present().sides.client.clone()
    }

    /// The settings of who is connected to by others of the cluster: it shows its certificate, and wants to see one.
    pub fn server(&self) -> Arc<ServerConfig> {
        self.present().sides.server.clone()
    }

    /// The settings of who is connected to by anybody, and asks in another way who that is.
    pub fn open_server(&self) -> Arc<ServerConfig> {
        self.present().sides.open_server.clone()
    }

    /// The name that the certificate of a peer has to bear who is connected to at this host: the cluster's, or the host's own.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if it is no name and no address.
    pub fn peer_name(&self, host: &str) -> Result<ServerName<'static>> {
        server_name(self.0.config.name.as_deref().unwrap_or(host))
    }

    /// Looks at once whether the files are others, and loads them.
    ///
    /// # Errors
    /// As [`load`](Self::load); the certificates from before stay in use.
    pub fn reload(&self) -> Result<()> {
        let mut current = self.current();
        self.look(&mut current);
        current.problem.clone().map_or(Ok(()), Err)
    }

    /// Why the present files are not those in use.
    pub fn problem(&self) -> Option<Error> {
        self.present().problem.clone()
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        let current = &self.0.current;
        current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn present(&self) -> MutexGuard<'_, Current> {
        let mut current = self.current();
        if current.looked.elapsed() >= LOOK_EVERY {
            self.look(&mut current);
        }
        current
    }

    fn look(&self, current: &mut Current) {
        current.looked = Instant::now();
        let stamps = Stamp::of(&self.0.config);
        if stamps == current.stamps && current.problem.is_none() {
            return;
        }
        match Sides::load(&self.0.config) {
            Ok(sides) => {
                current.sides = sides;
                current.stamps = stamps;
                current.problem = None;
            }
            // Half of the files may have been written by now: the next look loads them again.
            Err(problem) => current.problem = Some(problem),
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tls({:?})", self.0.config)
    }
}
