//! Server addresses: a single server, a cluster, or a primary named by sentinels.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use redis::{
    Client, ClientTlsConfig, Connection, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    RedisError, TlsCertificates,
};

use crate::redis::nodes::NodeName;
use crate::redis::sentinels::Sentinels;

/// Timeout for establishing a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Timeout of a response, after which the connection is dropped.
const ANSWER: Duration = Duration::from_secs(30);
/// Default port of a sentinel.
const SENTINEL_PORT: u16 = 26_379;

/// An address as given, with the TLS files. `Debug` output hides it, as it may contain passwords.
#[derive(Clone, Default)]
pub(crate) struct Address {
    pub url: String,
    /// File of trusted certificate authorities.
    pub authority: Option<PathBuf>,
    /// Files of the client certificate and key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// User and password of the sentinels.
    pub sentinel_login: Option<(Option<String>, String)>,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("authority", &self.authority)
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// Parts of an address common to all kinds of servers.
struct Parts<'a> {
    is_encrypted: bool,
    is_sentinel: bool,
    /// User and password, including the trailing `@`; empty if there are none.
    login: &'a str,
    hosts: Vec<&'a str>,
    path: &'a str,
}

impl<'a> Parts<'a> {
    /// Splits an address. `None` if it has another form, such as a Unix socket.
    fn of(url: &'a str) -> Option<Parts<'a>> {
        let (scheme, rest) = url.split_once("://")?;
        let (is_encrypted, is_sentinel) = match scheme {
            "redis" => (false, false),
            "rediss" => (true, false),
            "redis+sentinel" => (false, true),
            "rediss+sentinel" => (true, true),
            _ => return None,
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (login, hosts) = match authority.rfind('@') {
            Some(at) => authority.split_at(at + 1),
            None => ("", authority),
        };
        Some(Parts {
            is_encrypted,
            is_sentinel,
            login,
            hosts: hosts.split(',').collect(),
            path,
        })
    }

    /// Returns the scheme of the address of a single server, with or without TLS.
    fn scheme(&self) -> &'static str {
        if self.is_encrypted { "rediss" } else { "redis" }
    }

    /// Returns the address of a single server.
    fn server(&self, host: &str, path: &str) -> String {
        format!("{}://{}{host}{path}", self.scheme(), self.login)
    }
}

/// Servers to which connections are opened.
pub(crate) enum ServerAddresses {
    /// Servers tried in turn.
    Servers(Vec<Client>),
    /// Sentinels that name the primary server.
    Sentinels(Box<Sentinels>),
}

/// The addresses of a server, and its name for messages.
pub(crate) struct Server {
    pub place: ServerAddresses,
    pub name: String,
}

impl Address {
    /// Parses the address and reads the files.
    ///
    /// # Errors
    /// `InvalidConfig` if the address is invalid (the error text omits it); `ReadFailed` if a file
    /// cannot be read.
    pub fn server(&self) -> Result<Server> {
        let certificates = self.certificates()?;
        let parts = Parts::of(&self.url);
        if let Some(parts) = parts.as_ref().filter(|parts| parts.is_sentinel) {
            return self.sentinel(parts, certificates);
        }
        let urls = match &parts {
            Some(parts) => parts
                .hosts
                .iter()
                .map(|host| parts.server(host, parts.path))
                .collect(),
            None => vec![self.url.clone()],
        };
        let mut clients = Vec::with_capacity(urls.len());
        for url in urls {
            clients.push(client(&url[..], certificates.as_ref()).map_err(invalid)?);
        }
        let names = clients
            .iter()
            .map(|client| client.get_connection_info().addr().to_string());
        Ok(Server {
            name: names.collect::<Vec<_>>().join(","),
            place: ServerAddresses::Servers(clients),
        })
    }

    fn sentinel(&self, parts: &Parts<'_>, certificates: Option<TlsCertificates>) -> Result<Server> {
        let path = parts.path.trim_start_matches('/');
        let (primary, database) = path.split_once('/').unwrap_or((path, ""));
        if primary.is_empty() || parts.hosts.iter().any(|host| host.is_empty()) {
            return Err(Error::new(ErrorCode::InvalidConfig, SENSELESS).hint(FORM));
        }
        let mut sentinels = Vec::with_capacity(parts.hosts.len());
        for host in &parts.hosts {
            let sentinel = self.sentinel_info(parts, host).map_err(invalid)?;
            sentinels.push(client(sentinel, certificates.as_ref()).map_err(invalid)?);
        }
        // Login and database number are parsed as part of a server's address.
        let like = parts.server("localhost", &format!("/{database}"));
        let like = client(&like[..], certificates.as_ref()).map_err(invalid)?;
        let like = like.get_connection_info().clone();
        Ok(Server {
            name: format!("{primary} of the sentinels {}", parts.hosts.join(",")),
            place: ServerAddresses::Sentinels(Box::new(Sentinels::new(sentinels, primary, like))),
        })
    }

    /// Returns the connection settings of a sentinel.
    fn sentinel_info(
        &self,
        parts: &Parts<'_>,
        host: &str,
    ) -> std::result::Result<ConnectionInfo, RedisError> {
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| {
            !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
        });
        let port = match has_port {
            true => String::new(),
            false => format!(":{SENTINEL_PORT}"),
        };
        let scheme = parts.scheme();
        let info = format!("{scheme}://{host}{port}").into_connection_info()?;
        let mut settings = info.redis_settings().clone();
        if let Some((user, password)) = &self.sentinel_login {
            settings = settings.set_password(password);
            if let Some(user) = user {
                settings = settings.set_username(user);
            }
        }
        Ok(info.set_redis_settings(settings))
    }

    fn certificates(&self) -> Result<Option<TlsCertificates>> {
        let is_encrypted = Parts::of(&self.url).is_some_and(|parts| parts.is_encrypted);
        if is_encrypted && rustls::crypto::CryptoProvider::get_default().is_none() {
            // Another thread may have installed a provider first; any provider is fine.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        if self.authority.is_none() && self.certificate.is_none() {
            return Ok(None);
        }
        if !is_encrypted {
            let what =
                "certificates are given for a Redis server whose address does not enable TLS";
            return Err(Error::new(ErrorCode::InvalidConfig, what)
                .hint("write it as rediss://… or rediss+sentinel://…"));
        }
        let client_tls = match &self.certificate {
            None => None,
            Some((certificate, key)) => Some(ClientTlsConfig {
                client_cert: contents(certificate)?,
                client_key: contents(key)?,
            }),
        };
        Ok(Some(TlsCertificates {
            client_tls,
            root_cert: self.authority.as_deref().map(contents).transpose()?,
        }))
    }
}

fn contents(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).map_err(|error| {
        let what = format!("cannot read {}", file.display());
        Error::new(ErrorCode::ReadFailed, what)
            .because(error)
            .hint("check the path and its permissions")
    })
}

const SENSELESS: &str = "the address of the Redis server is invalid";
const FORM: &str = "write it as redis://[user:password@]host[:port][/database], with several hosts for a cluster, as \
     redis+sentinel://[user:password@]host[:port],host[:port]/MASTER[/database], or with rediss for TLS";

/// Returns the error of an invalid address, without the address, as it may contain a password.
fn invalid(error: RedisError) -> Error {
    Error::new(ErrorCode::InvalidConfig, SENSELESS)
        .because(error)
        .hint(FORM)
}

fn client(
    address: impl IntoConnectionInfo,
    certificates: Option<&TlsCertificates>,
) -> std::result::Result<Client, RedisError> {
    match certificates {
        None => Client::open(address),
        Some(certificates) => Client::build_with_tls(address, certificates.clone()),
    }
}

/// Returns a client for another host and port with the same settings.
pub(crate) fn client_of_node(
    like: &ConnectionInfo,
    (host, port): &NodeName,
) -> std::result::Result<Client, RedisError> {
    let (host, port) = (host.clone(), *port);
    let addr = match like.addr().clone() {
        ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure,
            tls_params,
        },
        _ => ConnectionAddr::Tcp(host, port),
    };
    Client::open(like.clone().set_addr(addr))
}

impl ServerAddresses {
    /// Opens a connection to the first available server, or to the primary named by the sentinels.
    /// Returns the connection and its settings.
    pub fn connect(&mut self) -> std::result::Result<(Connection, ConnectionInfo), RedisError> {
        match self {
            ServerAddresses::Sentinels(sentinels) => sentinels.connect(),
            ServerAddresses::Servers(clients) => {
                let mut opened = Err(RedisError::from((
                    redis::ErrorKind::InvalidClientConfig,
                    "no server is named",
                )));
                for client in clients {
                    opened = open(client);
                    if opened.is_ok() {
                        break;
                    }
                }
                opened
            }
        }
    }
}

/// Opens a connection with timeouts and checks that the server responds.
pub(crate) fn open(
    client: &Client,
) -> std::result::Result<(Connection, ConnectionInfo), RedisError> {
    let mut connection = client.get_connection_with_timeout(CONNECT)?;
    connection.set_read_timeout(Some(ANSWER))?;
    connection.set_write_timeout(Some(ANSWER))?;
    // A server that is still loading its files refuses `PING`, like any other command.
    redis::cmd("PING").query::<()>(&mut connection)?;
    Ok((connection, client.get_connection_info().clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> Address {
        Address {
            url: url.into(),
            ..Address::default()
        }
    }

    #[test]
    fn addresses_of_all_kinds_are_known_by_their_place_and_show_no_password() {
        for (url, name) in [
            ("redis://localhost", "localhost:6379"),
            ("redis://me:secret@db:7000/3", "db:7000"),
            ("redis://me:secret@a:1,b:2,c", "a:1,b:2,c:6379"),
            ("rediss://:secret@db", "db:6379"),
            (
                "redis+sentinel://me:secret@a,b:2/main/3",
                "main of the sentinels a,b:2",
            ),
            ("rediss+sentinel://a:1/main", "main of the sentinels a:1"),
        ] {
            let address = address(url);
            let server = address
                .server()
                .unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(server.name, name, "{url}");
            assert!(!format!("{address:?}").contains("secret"));
        }
    }

    #[test]
    fn an_address_that_makes_no_sense_is_refused_without_its_password() {
        for url in [
            "http://me:secret@x",
            "redis+sentinel://me:secret@x",
            "redis+sentinel://me:secret@/main",
            "redis+sentinel://me:secret@x/main/first",
            "redis://me:secret@a:port",
            "",
        ] {
            let error = address(url).server().err().expect(url);
            assert_eq!(error.code(), ErrorCode::InvalidConfig);
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        let file = Some("/nowhere.pem".into());
        let plain = Address {
            authority: file.clone(),
            ..address("redis://x")
        };
        assert_eq!(
            plain.server().err().unwrap().code(),
            ErrorCode::InvalidConfig
        );
        let encrypted = Address {
            authority: file,
            ..address("rediss://x")
        };
        assert_eq!(
            encrypted.server().err().unwrap().code(),
            ErrorCode::ReadFailed
        );
    }
}
