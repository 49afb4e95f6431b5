//! Authentication, encryption and limits of control connections.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::tls::{Tls, TlsStream, rustls};
use ardea_core::{Error, ErrorCode, Result, Token};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// The memory and time spent on a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Longest handshake frame, in bytes: the memory that an unauthenticated peer can use.
    pub greeting_bytes: usize,
    /// Time within which a peer must complete the handshake, or is disconnected.
    pub handshake_timeout: Duration,
    /// Longest message, in bytes.
    pub message_bytes: usize,
    /// Maximum number of handshakes in progress; further connections wait to be accepted.
    pub max_handshakes: usize,
    /// Time that sent bytes or a keep-alive may stay unacknowledged until the kernel closes the
    /// connection. If unset, the kernel waits many minutes.
    pub tcp_user_timeout: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            greeting_bytes: 4 << 10,
            handshake_timeout: Duration::from_secs(5),
            message_bytes: 64 << 20,
            max_handshakes: 1024,
            tcp_user_timeout: None,
        }
    }
}

/// The credentials of a cluster member, and the encryption of its connections. Cheap to clone.
#[derive(Clone)]
pub struct Security {
    pub(crate) cluster: Arc<str>,
    pub(crate) token: Option<Token>,
    pub(crate) tls: Option<Tls>,
    pub(crate) limits: Limits,
}

impl Security {
    /// Creates the settings of the cluster named `cluster`, without a secret. Its processes can
    /// listen only on loopback addresses.
    pub fn new(cluster: impl Into<Arc<str>>) -> Self {
        Security {
            cluster: cluster.into(),
            token: None,
            tls: None,
            limits: Limits::default(),
        }
    }

    /// Sets the cluster's secret. It is sent in clear: between hosts whose traffic can be
    /// intercepted, [TLS](Self::tls) is needed as well.
    pub fn token(mut self, token: Option<Token>) -> Self {
        self.token = token;
        self
    }

    /// Sets the certificates for mutual authentication and encryption. Either all processes of a
    /// cluster have them, or none.
    pub fn tls(mut self, tls: Option<Tls>) -> Self {
        self.tls = tls;
        self
    }

    /// Sets another cluster name, for example for a part of the cluster that must not connect to
    /// other parts.
    pub fn within(mut self, cluster: impl Into<Arc<str>>) -> Self {
        self.cluster = cluster.into();
        self
    }

    /// Sets the limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Modifies the current limits.
    pub fn with_limits(self, change: impl FnOnce(Limits) -> Limits) -> Self {
        let limits = change(self.limits);
        self.limits(limits)
    }

    /// Returns the cluster's name.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Returns true if peers have to authenticate.
    pub(crate) fn authenticates(&self) -> bool {
        self.token.is_some() || self.tls.is_some()
    }

    /// Sets socket options: no delay for small writes, and a timeout for stalled connections.
    pub(crate) fn set_socket_options(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        if let Some(within) = self.limits.tcp_user_timeout {
            let millis = u32::try_from(within.as_millis()).unwrap_or(u32::MAX);
            sockopt::set_tcp_user_timeout(stream, millis)?;
            sockopt::set_socket_keepalive(stream, true)?;
            // The kernel accepts whole seconds, at least one.
            let pause = Duration::from_secs(within.as_secs().max(1));
            sockopt::set_tcp_keepidle(stream, pause)?;
            sockopt::set_tcp_keepintvl(stream, pause)?;
        }
        Ok(())
    }

    /// Encrypts an incoming connection if TLS is configured.
    pub(crate) async fn wrap_accepted(
        &self,
        stream: TcpStream,
        peer: &str,
    ) -> Result<Box<dyn Stream>> {
        match &self.tls {
            Some(tls) => Ok(Box::new(tls.accept(stream, peer).await?)),
            None => Ok(Box::new(stream)),
        }
    }

    /// Encrypts a connection to `host` if TLS is configured.
    pub(crate) async fn wrap_connected(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<Box<dyn Stream>> {
        match &self.tls {
            Some(tls) => Ok(Box::new(tls.connect(stream, host).await?)),
            None => Ok(Box::new(stream)),
        }
    }
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security")
            .field("cluster", &self.cluster)
            .field("token", &self.token)
            .field("tls", &self.tls.is_some())
            .field("limits", &self.limits)
            .finish()
    }
}

/// A bidirectional byte stream: a socket, or TLS over one.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// Returns the socket, and the TLS state if there is one.
    fn detach(self: Box<Self>) -> (TcpStream, Option<rustls::Connection>);
}

impl Stream for TcpStream {
    fn detach(self: Box<Self>) -> (TcpStream, Option<rustls::Connection>) {
        (*self, None)
    }
}

impl Stream for TlsStream<TcpStream> {
    fn detach(self: Box<Self>) -> (TcpStream, Option<rustls::Connection>) {
        match *self {
            TlsStream::Client(stream) => {
                let (socket, tls) = stream.into_inner();
                (socket, Some(tls.into()))
            }
            TlsStream::Server(stream) => {
                let (socket, tls) = stream.into_inner();
                (socket, Some(tls.into()))
            }
        }
    }
}

/// Refuses to listen at an address reachable from other machines if members are not authenticated.
pub(crate) fn check_listen_address(security: &Security, at: &std::net::SocketAddr) -> Result<()> {
    if security.authenticates() || at.ip().is_loopback() {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::InvalidConfig,
        format!("{at} can be reached from other machines, and peers are not authenticated"),
    )
    .hint("configure a token or certificates, or listen at 127.0.0.1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_told_how_long_it_may_be_stuck() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let stream = TcpStream::connect(address).await.unwrap();
            Security::new("test").set_socket_options(&stream).unwrap();
            assert!(!sockopt::socket_keepalive(&stream).unwrap());
            let security = Security::new("test").with_limits(|limits| Limits {
                tcp_user_timeout: Some(Duration::from_millis(1_500)),
                ..limits
            });
            security.set_socket_options(&stream).unwrap();
            assert!(sockopt::socket_keepalive(&stream).unwrap());
            assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 1_500);
        });
    }
}
