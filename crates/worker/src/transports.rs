//! A registry of the transports between containers. The setting `worker.transport` selects one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use ardea_network::exchange::{TcpConfig, TcpTransport, Transport};
use ardea_network::tls::Tls;

/// The parameters of a transport.
#[derive(Clone, Debug)]
pub struct TransportSetup {
    /// True if peers are authenticated. If false, the transport must listen only at local
    /// addresses.
    pub is_protected: bool,
    /// The certificates of the cluster, if its connections are encrypted.
    pub tls: Option<Tls>,
}

/// A factory of transports.
type Maker = dyn Fn(&TransportSetup) -> Result<Box<dyn Transport>> + Send + Sync;

/// The transports by name, including site-specific ones. All containers of a job use the same
/// transport.
#[derive(Clone)]
pub struct Transports(BTreeMap<String, Arc<Maker>>);

impl Transports {
    /// Returns the built-in transports: `tcp`.
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

    /// Adds the transport that `make` creates, or replaces the transport of this name. The
    /// transport's `listen` gets the address of the worker's host with a port as text, and may
    /// interpret it freely.
    pub fn with(
        mut self,
        name: impl Into<String>,
        make: impl Fn(&TransportSetup) -> Result<Box<dyn Transport>> + Send + Sync + 'static,
    ) -> Self {
        self.0.insert(name.into(), Arc::new(make));
        self
    }

    /// Creates the transport of this name.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`], with the known names, if the name is unknown; the errors of
    /// the transport's factory.
    pub fn make(&self, name: &str, setup: &TransportSetup) -> Result<Box<dyn Transport>> {
        self.maker(name)?(setup)
    }

    /// Checks that there is a transport of this name.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`], with the known names, if the name is unknown.
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
        assert_eq!(error.hint_text(), Some("choose one of: tcp"));
    }
}
