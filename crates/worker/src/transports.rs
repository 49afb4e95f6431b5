//! Transports by name: `worker.transport` chooses how containers reach each other.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use ardea_network::exchange::{TcpConfig, TcpTransport, Transport};
use ardea_network::tls::Tls;

/// What a transport may want to know when it is made.
#[derive(Clone, Debug)]
pub struct TransportSetup {
    /// Whether whoever connects has to prove that it is of the cluster: otherwise only this machine may be listened to.
    pub is_protected: bool,
    /// The certificates of the cluster, if its connections are encrypted.
    pub tls: Option<Tls>,
}

/// Makes a transport for a worker.
type Maker = dyn Fn(&TransportSetup) -> Result<Box<dyn Transport>> + Send + Sync;

/// Transports by name, a site's own among them. All containers of a job use the same.
#[derive(Clone)]
pub struct Transports(BTreeMap<String, Arc<Maker>>);

impl Transports {
    /// Those that come with Ardea: `tcp`.
    pub fn builtin() -> Self {
        Transports(BTreeMap::new()).with("tcp", |setup| {
            let config = TcpConfig {
                is_protected: setup.is_protected,
                tls: setup.tls.clone(),
                ..TcpConfig::default()
            };
            Ok(Box::new(TcpTransport::new(config)?))
        })
    }

    /// Adds a transport, or replaces the one of this name. It is given the address of the worker's host as text, with a port, and may
    /// make of it what it likes.
    pub fn with(
        mut self,
        name: impl Into<String>,
        make: impl Fn(&TransportSetup) -> Result<Box<dyn Transport>> + Send + Sync + 'static,
    ) -> Self {
        self.0.insert(name.into(), Arc::new(make));
        self
    }

    /// A transport of this name.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if there is none, with the names that there are; what making it comes to.
    pub fn make(&self, name: &str, setup: &TransportSetup) -> Result<Box<dyn Transport>> {
        self.maker(name)?(setup)
    }

    /// Whether there is a transport of this name; none is made.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if there is none, with the names that there are.
    pub fn check(&self, name: &str) -> Result<()> {
        self.maker(name).map(drop)
    }

    fn maker(&self, name: &str) -> Result<&Arc<Maker>> {
        self.0.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
            Error::new(
                ErrorCode::InvalidConfig,
                format!("there is no transport {name:?}"),
            )
            .hint(format!("choose one of: {}", names.join(", ")))
        })
    }
}

impl fmt::Debug for Transports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_that_is_not_known_is_refused_with_those_that_are() {
        let setup = TransportSetup {
            is_protected: false,
            tls: None,
        };
        assert!(Transports::builtin().make("tcp", &setup).is_ok());
        let error = Transports::builtin().make("udp", &setup).err().unwrap();
        assert_eq!(error.what_next(), Some("choose one of: tcp"));
    }
}
