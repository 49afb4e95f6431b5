//! Mutual TLS from PEM files, which are validated, and reloaded when they change.
//!
//! A cluster has a private certificate authority. Every process has a certificate signed by it, and
//! accepts only peers that have one as well, whichever side connected.
//!
//! In reading order:
//!
//! - [`TlsConfig`]: the files, and the name in the certificates;
//! - [`Tls`]: the settings of both sides of a connection, always from the current files;
//! - with the feature `tokio`: `Tls::connect` and `Tls::accept` on streams of tokio;
//! - [`authorities`]: trusted authorities for connections to servers outside the cluster;
//! - [`explain`]: TLS errors as text for users;
//! - with the feature `testing`: certificates for tests.
//!
//! # Invariants
//!
//! - TLS 1.3 only, with the provider `ring`, which is named in every setting: nothing depends on a
//!   default of the process.
//! - Certificates that this process could not use (another authority, expired, without its key) are
//!   refused when they are loaded, not by the first peer. If the files change into unusable ones,
//!   the former certificates stay in use, and [`Tls::problem`] returns the error.
//! - A key is never logged or shown.
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

mod files;
mod tls_error;
mod validate;

mod streams;

#[cfg(feature = "testing")]
pub mod testing;

pub use certificates::Tls;
pub use config::TlsConfig;
pub use files::authorities;
pub use rustls;
pub use streams::TlsStream;
pub use tls_error::explain;
