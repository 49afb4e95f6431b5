//! Who may speak here, and how much is taken of them.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::tls::{Tls, TlsStream, rustls};
use ardea_core::{Error, ErrorCode, Result, Token};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// How much memory and patience a peer is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The longest greeting, in bytes: what a stranger can make this process remember.
    pub greeting_bytes: usize,
    /// Who has not greeted by then is sent away.
    pub greeting_within: Duration,
    /// The longest message, in bytes.
    pub message_bytes: usize,
    /// How many strangers are greeted at a time; more wait to be taken.
    pub strangers: usize,
    /// How long a peer may leave bytes unacknowledged, or a silent connection unanswered, until the kernel breaks it off; unset, that takes many minutes.
    pub stuck_within: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            greeting_bytes: 4 << 10,
            greeting_within: Duration::from_secs(5),
            message_bytes: 64 << 20,
            strangers: 1024,
            stuck_within: None,
        }
    }
}

/// What proves that a process belongs to a cluster, and keeps what it says from others. Cheap to clone.
#[derive(Clone)]
pub struct Security {
    pub(crate) cluster: Arc<str>,
    pub(crate) token: Option<Token>,
    pub(crate) tls: Option<Tls>,
    pub(crate) limits: Limits,
}

impl Security {
    /// That of the cluster of this name, which has no secret: it can only be listened to on this machine.
    pub fn new(cluster: impl Into<Arc<str>>) -> Self {
        Security {
            cluster: cluster.into(),
            token: None,
            tls: None,
            limits: Limits::default(),
        }
    }

    /// The cluster's secret, if it has one. It is as secret as the connection is: between hosts that others can listen to, it
    /// needs [TLS](Self::tls) as well.
    pub fn token(mut self, token: Option<Token>) -> Self {
        self.token = token;
        self
    }

    /// The certificates by which both sides prove who they are, if connections are encrypted. All of a cluster have them, or nobody.
    pub fn tls(mut self, tls: Option<Tls>) -> Self {
        self.tls = tls;
        self
    }

    /// The same for what calls itself otherwise, such as a part of the cluster that has no business with other parts.
    pub fn within(mut self, cluster: impl Into<Arc<str>>) -> Self {
        self.cluster = cluster.into();
        self
    }

    /// Other limits than the default ones.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Other limits than those that it has: so one of them is changed, and the others stay.
    pub fn with_limits(self, change: impl FnOnce(Limits) -> Limits) -> Self {
        let limits = change(self.limits);
        self.limits(limits)
    }

    /// The cluster's name.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Whether peers have to prove who they are.
    pub(crate) fn proves(&self) -> bool {
        self.token.is_some() || self.tls.is_some()
    }

    /// Sets what the kernel is to do with a connection: nothing waits for more, and what is stuck is broken off.
    pub(crate) fn tune(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        if let Some(within) = self.limits.stuck_within {
            let millis = u32::try_from(within.as_millis()).unwrap_or(u32::MAX);
            sockopt::set_tcp_user_timeout(stream, millis)?;
            sockopt::set_socket_keepalive(stream, true)?;
            // Whole seconds, at least one: the kernel knows no less.
            let pause = Duration::from_secs(within.as_secs().max(1));
            sockopt::set_tcp_keepidle(stream, pause)?;
            sockopt::set_tcp_keepintvl(stream, pause)?;
        }
        Ok(())
    }

    /// A connection that has come in, encrypted if it has to be.
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

    /// A connection to `host`, encrypted if it has to be.
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

/// A two-way stream of bytes: a socket, or TLS over one.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// The socket, and TLS in the state in which it is.
    fn apart(self: Box<Self>) -> (TcpStream, Option<rustls::Connection>);
}

impl Stream for TcpStream {
    fn apart(self: Box<Self>) -> (TcpStream, Option<rustls::Connection>) {
        (*self, None)
    }
}

impl Stream for TlsStream<TcpStream> {
    fn apart(self: Box<Self>) -> (TcpStream, Option<rustls::Connection>) {
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

/// Refuses to listen where strangers can reach it, if members prove nothing.
pub(crate) fn may_listen(security: &Security, at: &std::net::SocketAddr) -> Result<()> {
    if security.proves() || at.ip().is_loopback() {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::InvalidConfig,
        format!("{at} can be reached from other machines, and peers prove nothing"),
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
            Security::new("test").tune(&stream).unwrap();
            assert!(!sockopt::socket_keepalive(&stream).unwrap());
            let security = Security::new("test").with_limits(|limits| Limits {
                stuck_within: Some(Duration::from_millis(1_500)),
                ..limits
            });
            security.tune(&stream).unwrap();
            assert!(sockopt::socket_keepalive(&stream).unwrap());
            assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 1_500);
        });
    }
}
