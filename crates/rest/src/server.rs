//! The HTTP server: a listener with limits, and its connections.

mod access;
mod bounds;
mod connections;
mod events;
mod forward;
mod guard;
mod handlers;
mod idempotency;
mod limits;
mod lines;
mod maps;
mod page;
mod rate;
mod rights;
mod router;
mod token_body;

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Token};
use ardea_network::tls::Tls;
use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutStream;

use crate::{AuditLog, Cluster, TokenRegistry};
use connections::{Connection, Connections, ResponseBody};

pub use limits::ServerLimits;

/// The address and the access rules of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Listen address; port 0 is any free port.
    pub address: SocketAddr,
    /// True if the server may use any other port when the port of `address` is taken.
    pub or_any_port: bool,
    /// Token that clients must send. Without a token and certificates, the server listens on
    /// loopback addresses only.
    pub token: Option<Token>,
    /// Named tokens that are accepted in addition.
    pub tokens: Arc<TokenRegistry>,
    /// Log of the actions of callers, if it is kept.
    pub audit: Option<Arc<AuditLog>>,
    /// Certificates for mutual TLS, if connections are encrypted.
    pub tls: Option<Tls>,
    /// Limits of connections, requests and responses.
    pub limits: ServerLimits,
}

impl ServerConfig {
    /// Creates the configuration for this address, without a token. As is, it is valid for loopback
    /// addresses only.
    pub fn at(address: SocketAddr) -> Self {
        ServerConfig {
            address,
            or_any_port: false,
            token: None,
            tokens: Arc::default(),
            audit: None,
            tls: None,
            limits: ServerLimits::default(),
        }
    }

    /// Allows any other port when the configured one is taken.
    pub fn or_any_port(mut self, may: bool) -> Self {
        self.or_any_port = may;
        self
    }

    /// Sets the limits.
    pub fn limits(mut self, limits: ServerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the token.
    pub fn token(mut self, token: Option<Token>) -> Self {
        self.token = token;
        self
    }

    /// Sets the named tokens.
    pub fn tokens(mut self, tokens: Arc<TokenRegistry>) -> Self {
        self.tokens = tokens;
        self
    }

    /// Sets the log of actions.
    pub fn audit(mut self, audit: Option<Arc<AuditLog>>) -> Self {
        self.audit = audit;
        self
    }

    /// Sets the certificates. Clients without a certificate of the same authority are refused.
    pub fn tls(mut self, tls: Option<Tls>) -> Self {
        self.tls = tls;
        self
    }
}

/// The server of a cluster's REST interface.
///
/// # Safe by default
///
/// Each route needs a right, which the token of the caller has to grant: see
/// [`AccessRole`](crate::AccessRole).
/// Without a token or certificates, the server listens on loopback addresses only. It then also
/// rejects requests from web pages of other sites in a local browser: the `Host` header must be an
/// address or `localhost`, and an `Origin` header must match `Host`.
pub struct Server {
    listener: TcpListener,
    router: Router,
    tls: Option<Tls>,
    connections: Arc<Connections>,
    limits: ServerLimits,
}

impl Server {
    /// Binds the port. Requests are served only by [`serve`](Self::serve).
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] for an address other than loopback without a token or
    /// certificates; [`ErrorCode::Network`] if the port is taken and
    /// [`or_any_port`](ServerConfig::or_any_port) is false.
    pub async fn bind(cluster: Arc<dyn Cluster>, config: ServerConfig) -> Result<Self> {
        let address = config.address;
        let proves = config.token.is_some() || config.tls.is_some();
        if !proves && !address.ip().is_loopback() {
            let what = format!("without a token the cluster's interface can't listen on {address}");
            return Err(Error::new(ErrorCode::InvalidConfig, what).hint(
                "give the cluster a token (cluster.token_file) or certificates, or listen on 127.0.0.1",
            ));
        }
        let listener = match TcpListener::bind(address).await {
            Err(error) if config.or_any_port && error.kind() == ErrorKind::AddrInUse => {
                TcpListener::bind(SocketAddr::new(address.ip(), 0)).await
            }
            bound => bound,
        };
        let listener = listener.map_err(|error| {
            let what = format!("the cluster's interface can't listen on {address}");
            Error::new(ErrorCode::Network, what)
                .because(error)
                .hint("choose another port (cluster.port), or stop what listens there")
        })?;
        Ok(Server {
            listener,
            router: router::router(cluster, &config),
            tls: config.tls,
            connections: Connections::new(config.limits.connections),
            limits: config.limits,
        })
    }

    /// Returns the listen address.
    ///
    /// # Errors
    /// [`ErrorCode::Network`] if the operating system can't provide the address.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(|error| {
            let what = "cannot determine the address of the cluster's interface";
            Error::new(ErrorCode::Network, what).because(error)
        })
    }

    /// Serves requests forever. Dropping this future frees the port and closes all connections.
    pub async fn serve(self) {
        let mut tasks = JoinSet::new();
        loop {
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    bounds::pause_after(&error).await;
                    continue;
                }
            };
            let connection = self.connections.enter(peer.ip()).await;
            while tasks.try_join_next().is_some() {}
            // Responses are short, so delaying small packets would only add latency.
            let _ = stream.set_nodelay(true);
            // A client that vanished must not occupy a connection for long.
            let _ = SockRef::from(&stream).set_tcp_keepalive(&keep_alive());
            let (router, limits) = (self.router.clone(), self.limits);
            let client = guard::ClientAddress(peer);
            let (tls, number) = (self.tls.clone(), connection.number());
            let task = tasks.spawn(async move {
                match tls {
                    None => serve_connection(stream, client, connection, router, limits).await,
                    Some(tls) => {
                        let peer = peer.to_string();
                        let greeted = tls.accept(stream, &peer);
                        // A failed handshake is not reported.
                        let greeted = tokio::time::timeout(limits.client_timeout, greeted).await;
                        if let Ok(Ok(stream)) = greeted {
                            serve_connection(stream, client, connection, router, limits).await;
                        }
                    }
                }
            });
            self.connections.set_task(number, task);
        }
    }
}

/// Returns the TCP settings that close a connection after some three minutes without a response of
/// the client's machine.
fn keep_alive() -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(15))
}

/// Serves the requests of one connection until the client disconnects, sends invalid HTTP, or does
/// not read a response in time.
async fn serve_connection<S>(
    stream: S,
    client: guard::ClientAddress,
    connection: Connection,
    router: Router,
    limits: ServerLimits,
) where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        let exchange = connection.begins();
        request.extensions_mut().insert(Arc::clone(&exchange));
        request.extensions_mut().insert(client);
        let answered = router.call(request);
        async move {
            let mut answer = answered.await?;
            // A request that was refused before it was complete counts as received too.
            exchange.received();
            if exchange.is_last() {
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(header::CONNECTION, close);
            }
            Ok::<_, Infallible>(answer.map(|body| ResponseBody::new(body, exchange)))
        }
    });
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.client_timeout));
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.client_timeout)
        .max_buf_size(limits.head_bytes)
        .serve_connection(TokioIo::new(Box::pin(stream)), service)
        .await;
}
