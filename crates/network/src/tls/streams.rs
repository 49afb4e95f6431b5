//! TLS over tokio streams.

use std::io;

use ardea_core::{Error, ErrorCode, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::tls::{Tls, explain};

/// TLS handshakes over tokio streams, for either side.
pub use tokio_rustls::TlsStream;

impl Tls {
    /// Performs the handshake over a stream connected to `host`. The caller has to limit the time.
    ///
    /// # Errors
    /// [`ErrorCode::Network`] if the peer is not a member of the cluster, or closes the connection.
    pub async fn connect<S>(&self, stream: S, host: &str) -> Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = self.peer_name(host)?;
        let greeted = TlsConnector::from(self.client()).connect(name, stream);
        let stream = greeted.await.map_err(|error| failed(host, &error))?;
        Ok(stream.into())
    }

    /// Performs the handshake with a client connected from `peer`, which must be a member of the
    /// cluster.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn accept<S>(&self, stream: S, peer: &str) -> Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let greeted = TlsAcceptor::from(self.server()).accept(stream);
        let stream = greeted.await.map_err(|error| failed(peer, &error))?;
        Ok(stream.into())
    }

    /// Performs the handshake with any client connected from `peer`: see
    /// [`server_without_client_auth`](Self::server_without_client_auth).
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn accept_without_client_auth<S>(&self, stream: S, peer: &str) -> Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let greeted = TlsAcceptor::from(self.server_without_client_auth()).accept(stream);
        let stream = greeted.await.map_err(|error| failed(peer, &error))?;
        Ok(stream.into())
    }
}

fn failed(peer: &str, error: &io::Error) -> Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    let why = inner.map_or_else(|| error.to_string(), explain);
    Error::new(
        ErrorCode::Network,
        format!("the TLS handshake with {peer} failed"),
    )
    .because(why)
    .hint("both ends need certificates of one authority")
}
