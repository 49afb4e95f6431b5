//! Builds TLS settings from files, and refuses certificates that peers would not accept.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, RootCertStore, ServerConfig};

use crate::tls::files::PemFiles;
use crate::tls::{TlsConfig, explain};

/// The TLS settings for each role in a connection.
#[derive(Clone, Debug)]
pub(crate) struct TlsSettings {
    /// Settings of a client.
    pub(crate) client: Arc<ClientConfig>,
    /// Settings of a server that verifies the client's certificate.
    pub(crate) server: Arc<ServerConfig>,
    /// Settings of a server for any client.
    pub(crate) open_server: Arc<ServerConfig>,
}

impl TlsSettings {
    /// Loads the current files.
    pub(crate) fn load(config: &TlsConfig) -> Result<TlsSettings> {
        let files = PemFiles::read(config)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = Arc::new(roots(config, &files)?);
        let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|error| unusable(config, error.to_string()))?;
        let servers = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|error| unusable(config, error.to_string()))?;
        check_own(config, &files, &*clients, &*servers)?;
        sides(&files, &provider, &roots, clients).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                let what = format!(
                    "the key in {} is not that of the certificate in {}",
                    config.key.display(),
                    config.certificate.display()
                );
                Error::new(ErrorCode::InvalidConfig, what)
                    .hint("give the key that the certificate was made for")
            }
            error => unusable(config, explain(&error)),
        })
    }
}

fn roots(config: &TlsConfig, files: &PemFiles) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for authority in &files.authorities {
        roots.add(authority.clone()).map_err(|error| {
            let what = format!(
                "{} holds no certificate of an authority",
                config.authority.display()
            );
            Error::new(ErrorCode::InvalidConfig, what)
                .because(explain(&error))
                .hint("give the certificate by which those of the cluster are signed")
        })?;
    }
    Ok(roots)
}

fn sides(
    files: &PemFiles,
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    clients: Arc<dyn ClientCertVerifier>,
) -> std::result::Result<TlsSettings, rustls::Error> {
    let (chain, key) = (&files.chain, &files.key);
    let client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots.clone())
        .with_client_auth_cert(chain.clone(), key.clone_key())?;
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain.clone(), key.clone_key())?;
    let open_server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain.clone(), key.clone_key())?;
    Ok(TlsSettings {
        client: Arc::new(client),
        server: Arc::new(server),
        open_server: Arc::new(open_server),
    })
}

/// Checks this process's certificate as peers will.
fn check_own(
    config: &TlsConfig,
    files: &PemFiles,
    clients: &dyn ClientCertVerifier,
    servers: &dyn ServerCertVerifier,
) -> Result<()> {
    let Some((own, between)) = files.chain.split_first() else {
        return Err(unusable(config, "there is none".into()));
    };
    let now = UnixTime::now();
    clients
        .verify_client_cert(own, between, now)
        .map_err(|error| unusable(config, explain(&error)))?;
    // Without a name of the cluster, the name under which this host is reached is unknown here.
    let name = server_name(config.name.as_deref().unwrap_or("name.invalid"))?;
    match servers.verify_server_cert(own, between, &name, &[], now) {
        Err(rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) if config.name.is_none() => Ok(()),
        Err(error) => Err(unusable(config, explain(&error))),
        Ok(_) => Ok(()),
    }
}

fn unusable(config: &TlsConfig, why: String) -> Error {
    let what = format!(
        "no peer would accept the certificate in {}",
        config.certificate.display()
    );
    Error::new(ErrorCode::InvalidConfig, what)
        .because(why)
        .hint(format!(
            "have one signed by the authority in {}, for clients and servers",
            config.authority.display()
        ))
}

/// Parses a host name or an IP address, as certificates bear it.
pub(crate) fn server_name(name: &str) -> Result<ServerName<'static>> {
    ServerName::try_from(name.to_string()).map_err(|_| {
        let what = format!("{name:?} is neither a host's name nor an IP address");
        Error::new(ErrorCode::InvalidConfig, what)
            .hint("give the name that the certificate bears, such as prod.ardea or 10.0.0.7")
    })
}
