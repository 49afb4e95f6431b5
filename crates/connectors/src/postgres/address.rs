//! Server address and credentials.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::postgres::encryption::Encryption;

/// Timeout for establishing a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// TCP keep-alive time after which an unresponsive server counts as unavailable.
const SILENCE: Duration = Duration::from_secs(30);

/// A server address as given. `Debug` output hides it, as it may contain a password.
#[derive(Clone)]
pub(crate) struct Address {
    pub url: String,
    /// File of trusted certificate authorities. If set, the connection is encrypted.
    pub authority: Option<PathBuf>,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("authority", &self.authority)
            .finish_non_exhaustive()
    }
}

/// Parsed connection settings.
pub(crate) struct Server {
    pub config: Config,
    pub encryption: Option<Encryption>,
    /// Name of the server in messages, without password.
    pub name: String,
}

impl Address {
    pub fn new(url: String) -> Self {
        Address {
            url,
            authority: None,
        }
    }

    /// Parses the address.
    ///
    /// # Errors
    /// `InvalidConfig` if the address is invalid (the error text omits it), or an error of the
    /// certificate file.
    pub fn server(&self) -> Result<Server> {
        let mut config: Config = self.url.parse().map_err(|error| {
            let what = "the address of the PostgreSQL server is invalid";
            Error::new(ErrorCode::InvalidConfig, what)
                .because(error)
                .hint("write it as postgres://user[:password]@host[:port]/database")
        })?;
        let encryption = self
            .authority
            .as_deref()
            .map(Encryption::trusting)
            .transpose()?;
        match (&encryption, config.get_ssl_mode()) {
            (None, SslMode::Require) => {
                let what = "the address requires TLS (`sslmode=require`), but no trusted certificate authority is set";
                return Err(Error::new(ErrorCode::InvalidConfig, what)
                    .hint("set the authority's file with `authority(…)`"));
            }
            (None, _) => config.ssl_mode(SslMode::Disable),
            (Some(_), _) => config.ssl_mode(SslMode::Require),
        };
        if config.get_application_name().is_none() {
            config.application_name("ardea");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        config
            .keepalives_idle(SILENCE / 3)
            .keepalives_interval(SILENCE / 6)
            .keepalives_retries(3)
            .tcp_user_timeout(SILENCE);
        let name = name_of(&config);
        Ok(Server {
            config,
            encryption,
            name,
        })
    }
}

fn name_of(config: &Config) -> String {
    let hosts = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        #[cfg(unix)]
        Host::Unix(path) => path.display().to_string(),
    });
    let ports = config
        .get_ports()
        .iter()
        .copied()
        .chain(std::iter::repeat(5432));
    let places: Vec<_> = hosts
        .zip(ports)
        .map(|(host, port)| format!("{host}:{port}"))
        .collect();
    places.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_known_by_its_place_and_its_password_is_never_shown() {
        let address = Address::new("postgres://me:secret@db.example:6000/shop".into());
        let server = address.server().unwrap();
        assert_eq!(server.name, "db.example:6000");
        assert!(!format!("{address:?} {:?}", server.config).contains("secret"));
        let wrong = Address::new("http://me:secret@x".into());
        let error = wrong.server().err().unwrap();
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn tls_without_anything_to_trust_is_refused() {
        let address = Address::new("postgres://localhost/shop?sslmode=require".into());
        let error = address.server().err().unwrap().to_string();
        assert!(error.contains("authority"), "{error}");
    }
}
