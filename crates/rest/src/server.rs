//! The server: a listener, its limits, and one connection after the other.

mod bounds;
mod connections;
mod guard;
mod handlers;
mod limits;
mod lines;
mod maps;
mod router;

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

use crate::Cluster;
use connections::{Answering, Connection, Connections};

pub use limits::ServerLimits;

/// How the interface is reached, and by whom.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where it listens; port 0 is any free one.
    pub address: SocketAddr,
    /// Whether it may listen at any other port, if that one is taken.
    pub or_any_port: bool,
    /// What a client has to know. Without one only this machine is listened to.
    pub token: Option<Token>,
    /// The certificates by which it and its clients prove who they are, if its connections are encrypted.
    pub tls: Option<Tls>,
    /// The bounds of connections, requests and answers.
    pub limits: ServerLimits,
}

impl ServerConfig {
    /// At this address, without a token: for this machine only.
    pub fn at(address: SocketAddr) -> Self {
        ServerConfig {
            address,
            or_any_port: false,
            token: None,
            tls: None,
            limits: ServerLimits::default(),
        }
    }

    /// At any other port, if that one is taken.
    pub fn or_any_port(mut self, may: bool) -> Self {
        self.or_any_port = may;
        self
    }

    /// Sets the bounds.
    pub fn limits(mut self, limits: ServerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// With this token.
    pub fn token(mut self, token: Option<Token>) -> Self {
        self.token = token;
        self
    }

    /// With these certificates: who has none of the same authority is not talked to.
    pub fn tls(mut self, tls: Option<Tls>) -> Self {
        self.tls = tls;
        self
    }
}

/// The interface of a cluster, listening.
///
/// # Safe by default
///
/// Without a token or certificates it listens on loopback addresses only, and answers no page of another site that a browser of this machine
/// happens to show: the host that a request names has to be an address or `localhost`, and its origin, if it has one, the same.
pub struct Server {
    listener: TcpListener,
    router: Router,
    tls: Option<Tls>,
    connections: Arc<Connections>,
    limits: ServerLimits,
}

impl Server {
    /// Takes the port; nothing is answered before [`serve`](Self::serve).
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] for an address that isn't this machine's own without a token or certificates; [`ErrorCode::Network`] if the port
    /// is taken and it may have [no other](ServerConfig::or_any_port).
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

    /// Where it listens.
    ///
    /// # Errors
    /// [`ErrorCode::Network`] if the system doesn't say.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(|error| {
            let what = "cannot tell where the cluster's interface listens";
            Error::new(ErrorCode::Network, what).because(error)
        })
    }

    /// Answers for ever. When this future is dropped the port is free again and all connections are closed.
    pub async fn serve(self) {
        let mut tasks = JoinSet::new();
        loop {
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    bounds::rest_after(&error).await;
                    continue;
                }
            };
            let connection = self.connections.enter(peer.ip()).await;
            while tasks.try_join_next().is_some() {}
            // Answers are short: a delayed one would only wait for the client.
            let _ = stream.set_nodelay(true);
            // A client that vanished without a word takes no answer's place for long.
            let _ = SockRef::from(&stream).set_tcp_keepalive(&keep_alive());
            let (router, limits) = (self.router.clone(), self.limits);
            let (tls, number) = (self.tls.clone(), connection.number());
            let task = tasks.spawn(async move {
                match tls {
                    None => answer(stream, connection, router, limits).await,
                    Some(tls) => {
                        let peer = peer.to_string();
                        let greeted = tls.accept(stream, &peer);
                        // A stranger is not missed.
                        let greeted = tokio::time::timeout(limits.client_timeout, greeted).await;
                        if let Ok(Ok(stream)) = greeted {
                            answer(stream, connection, router, limits).await;
                        }
                    }
                }
            });
            self.connections.answered_by(number, task);
        }
    }
}

/// Returns the settings that close a connection after some three minutes without a sign of the
/// client.
fn keep_alive() -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(15))
}

/// Answers the requests of one connection. A client that breaks it off, sends what is no HTTP, or takes in nothing of an answer
/// for too long, loses it.
async fn answer<S>(stream: S, connection: Connection, router: Router, limits: ServerLimits)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        let exchange = connection.begins();
        request.extensions_mut().insert(Arc::clone(&exchange));
        let answered = router.call(request);
        async move {
            let mut answer = answered.await?;
            // A request that was refused before it was complete is being answered as well.
            exchange.received();
            if exchange.is_last() {
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(header::CONNECTION, close);
            }
            Ok::<_, Infallible>(answer.map(|body| Answering::new(body, exchange)))
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
