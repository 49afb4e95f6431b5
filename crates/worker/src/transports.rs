//! A registry of the transports between containers. The setting `worker.transport` selects one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use ardea_network::exchange::{
    FramedConfig, HostConfig, HostPath, HostTransport, RingSetup, RingSize, TcpConfig,
    TcpTransport, Transport,
};
use ardea_network::tls::Tls;

/// The parameters of a transport.
#[derive(Clone, Debug)]
pub struct TransportSetup {
    /// True if peers are authenticated. If false, the transport must listen only at local
    /// addresses.
    pub is_protected: bool,
    /// The certificates of the cluster, if its connections are encrypted.
    pub tls: Option<Tls>,
    /// The size of rings in shared memory; `None` if it follows the observed messages.
    pub ring_size: Option<RingSize>,
}

impl TransportSetup {
    fn tcp(&self) -> TcpConfig {
        TcpConfig {
            is_protected: self.is_protected,
            tls: self.tls.clone(),
            ..TcpConfig::default()
        }
    }

    fn rings(&self, is_required: bool) -> HostPath {
        HostPath::SharedMemory(RingSetup {
            size: self.ring_size,
            is_required,
        })
    }
}

/// A factory of transports.
type Maker = dyn Fn(&TransportSetup) -> Result<Box<dyn Transport>> + Send + Sync;

/// The transports by name, including site-specific ones. All containers of a job use the same
/// transport.
#[derive(Clone)]
pub struct Transports(BTreeMap<String, Arc<Maker>>);

impl Transports {
    /// Returns the built-in transports:
    ///
    /// * `auto`: shared memory between containers of one host, and TCP between hosts;
    /// * `shm`: shared memory, for containers of one host only;
    /// * `uds`: Unix sockets, for containers of one host only;
    /// * `tcp`: TCP, also within a host.
    pub fn builtin() -> Self {
        Transports(BTreeMap::new())
            .with("auto", |setup| host(setup.rings(false), Some(setup.tcp())))
            .with("shm", |setup| host(setup.rings(true), None))
            .with("uds", |_| host(HostPath::UnixSocket, None))
            .with("tcp", |setup| Ok(Box::new(TcpTransport::new(setup.tcp())?)))
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

fn host(path: HostPath, tcp: Option<TcpConfig>) -> Result<Box<dyn Transport>> {
    Ok(Box::new(HostTransport::new(HostConfig {
        path,
        tcp,
        framed: FramedConfig::default(),
    })?))
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
            ring_size: None,
        };
        let builtin = Transports::builtin();
        for name in ["auto", "shm", "tcp", "uds"] {
            assert_eq!(builtin.make(name, &setup).unwrap().name(), name);
        }
        let error = builtin.make("udp", &setup).err().unwrap();
        assert_eq!(
            error.hint_text(),
            Some("choose one of: auto, shm, tcp, uds")
        );
    }
}
