//! Who may speak here, and how much is taken of them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Token};
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
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            greeting_bytes: 4 << 10,
            greeting_within: Duration::from_secs(5),
            message_bytes: 64 << 20,
            strangers: 1024,
        }
    }
}

/// What proves that a process belongs to a cluster, and keeps what it says from others. Cheap to clone.
#[derive(Clone)]
pub struct Security {
    pub(crate) cluster: Arc<str>,
    pub(crate) token: Option<Token>,
    pub(crate) protection: Option<Arc<dyn Protection>>,
    pub(crate) limits: Limits,
}

impl Security {
    /// That of the cluster of this name, which has no secret: it can only be listened to on this machine.
    pub fn new(cluster: impl Into<Arc<str>>) -> Self {
        Security {
            cluster: cluster.into(),
            token: None,
            protection: None,
            limits: Limits::default(),
        }
    }

    /// The cluster's secret, if it has one. It is as secret as the connection is: between hosts that others can listen to, it
    /// needs [protection](Self::protection) as well.
    pub fn token(mut self, token: Option<Token>) -> Self {
        self.token = token;
        self
    }

    /// What is laid around each connection, such as TLS.
    pub fn protection(mut self, protection: Arc<dyn Protection>) -> Self {
        self.protection = Some(protection);
        self
    }

    /// Other limits than the default ones.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The cluster's name.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Whether peers have to prove who they are.
    pub(crate) fn proves(&self) -> bool {
        self.token.is_some() || self.protection.is_some()
    }

    /// Lays the protection around a connection that has come in.
    pub(crate) async fn wrap_accepted(&self, stream: TcpStream) -> Result<Box<dyn Stream>> {
        match &self.protection {
            Some(protection) => protection.accept(stream).await,
            None => Ok(Box::new(stream)),
        }
    }

    /// Lays the protection around a connection to `host`.
    pub(crate) async fn wrap_connected(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<Box<dyn Stream>> {
        match &self.protection {
            Some(protection) => protection.connect(host, stream).await,
            None => Ok(Box::new(stream)),
        }
    }
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security")
            .field("cluster", &self.cluster)
            .field("token", &self.token)
            .field("protected", &self.protection.is_some())
            .field("limits", &self.limits)
            .finish()
    }
}

/// A two-way stream of bytes, whatever is below it.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The stream within a protection, once both sides have agreed.
pub type Wrapping<'a> = Pin<Box<dyn Future<Output = Result<Box<dyn Stream>>> + Send + 'a>>;

/// Something laid around a connection before anything is said: TLS.
pub trait Protection: Send + Sync {
    /// Agrees with whoever has connected.
    ///
    /// # Errors
    /// If the peer doesn't speak it, or can't prove who it is.
    fn accept(&self, stream: TcpStream) -> Wrapping<'_>;

    /// Agrees with the host that was connected to.
    ///
    /// # Errors
    /// If the peer doesn't speak it, or can't prove that it is `host`.
    fn connect<'a>(&'a self, host: &'a str, stream: TcpStream) -> Wrapping<'a>;
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
