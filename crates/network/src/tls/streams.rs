//! TLS over streams of tokio.

use std::io;

use ardea_core::{Error, ErrorCode, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::tls::{Tls, explain};

/// A stream of tokio with TLS over it, of either side.
pub use tokio_rustls::TlsStream;

impl Tls {
    /// Greets whoever is at the other end of a stream that was connected to `host`; takes no time limit, which is the caller's.
    ///
    /// # Errors
    /// [`ErrorCode::Network`] if that is nobody of the cluster, or breaks off.
    pub async fn connect<S>(&self, stream: S, host: &str) -> Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = self.peer_name(host)?;
        let greeted = TlsConnector::from(self.client()).connect(name, stream);
        let stream = greeted.await.map_err(|error| failed(host, &error))?;
        Ok(stream.into())
    }

    /// Greets who has connected from `peer`, and has to be of the cluster.
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

    /// Greets who has connected from `peer`, whoever it is: see [`open_server`](Self::open_server).
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn accept_anybody<S>(&self, stream: S, peer: &str) -> Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let greeted = TlsAcceptor::from(self.open_server()).accept(stream);
        let stream = greeted.await.map_err(|error| failed(peer, &error))?;
        Ok(stream.into())
    }
}

fn failed(peer: &str, error: &io::Error) -> Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    let why = inner.map_or_else(|| error.to_string(), explain);
    Error::new(ErrorCode::Network, format!("no TLS with {peer}"))
        .because(why)
        .hint("both ends need certificates of one authority")
}
