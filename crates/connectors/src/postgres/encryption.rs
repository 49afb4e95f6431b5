//! TLS for connections to the server.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::postgres::unbound::Unbound;

/// TLS settings with trusted certificate authorities. The certificate of a server must match the
/// server's host name.
#[derive(Clone)]
pub(crate) struct Encryption {
    connector: TlsConnector,
}

impl Encryption {
    /// Creates settings that trust the certificate authorities in `file`.
    pub fn trusting(file: &Path) -> Result<Encryption> {
        let roots = ardea_network::tls::authorities(file)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::new(ErrorCode::Internal, "TLS can't be set up").because(error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Encryption {
            connector: TlsConnector::from(Arc::new(config)),
        })
    }
}

impl<S> MakeTlsConnect<S> for Encryption
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Unbound<Box<TlsStream<S>>>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        let name = ServerName::try_from(host.to_string())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(Handshake {
            connector: self.connector.clone(),
            name,
        })
    }
}

/// A pending TLS handshake.
pub(crate) struct Handshake {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl<S> TlsConnect<S> for Handshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Unbound<Box<TlsStream<S>>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Stream>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let stream = self.connector.connect(self.name, stream).await?;
            Ok(Unbound(Box::new(stream)))
        })
    }
}
