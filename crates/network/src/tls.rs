//! Mutual TLS from PEM files: loaded, checked, and loaded again when they change.
//!
//! A cluster has a certificate authority of its own. Every process has a certificate that it has signed, and talks only to who has
//! one as well, in whichever direction the connection was made.
//!
//! In reading order:
//!
//! * [`TlsConfig`]: which files, and which name the certificates bear;
//! * [`Tls`]: what was loaded from them: the settings of both sides of a connection, always of the present files;
//! * with the feature `tokio`: `Tls::connect` and `Tls::accept` on streams of tokio;
//! * [`authorities`]: whom to trust where the other side is no process of a cluster;
//! * [`explain`]: what went wrong on a connection, in words for people;
//! * with the feature `testing`: certificates for tests.
//!
//! # Invariants
//!
//! * TLS 1.3 only, by the provider `ring`, which is named in every setting: nothing depends on a default of the process.
//! * Certificates that this process could not use (another authority, expired, without its key) are refused when they are loaded,
//!   not by the first peer. Where files change into such ones the former stay in use, and [`Tls::problem`] tells why.
//! * A key is never logged or shown.
//!
//! # Example
//!
//! ```no_run
//! use ardea_network::tls::{Tls, TlsConfig};
//!
//! let tls = Tls::load(TlsConfig {
//!     authority: "/etc/ardea/ca.pem".into(),
//!     certificate: "/etc/ardea/host.pem".into(),
//!     key: "/etc/ardea/host.key".into(),
//!     name: Some("prod.ardea".into()),
//! })?;
//! let server = rustls::ServerConnection::new(tls.server());
//! # Ok::<(), ardea_core::Error>(())
//! ```

mod config;

mod certificates;

mod check;
mod explain;
mod files;

mod streams;

#[cfg(feature = "testing")]
pub mod testing;

pub use certificates::Tls;
pub use config::TlsConfig;
pub use explain::explain;
pub use files::authorities;
pub use rustls;
pub use streams::TlsStream;
