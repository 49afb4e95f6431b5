//! The server: a listener, its limits, and one connection after the other.

mod bounds;
mod connections;
mod guard;
mod handlers;
mod lines;
mod maps;
mod router;

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Token};
use ardea_tls::Tls;
use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::Cluster;
use connections::{Answering, Connection, Connections};

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
    /// The largest body that is read, in bytes.
    pub most_body_bytes: usize,
    /// The most connections at a time: for one more the longest idle one is closed, or if none is idle, it waits.
    pub most_connections: usize,
    /// How long a client may take to send a request, and the cluster to answer it.
    pub patience: Duration,
}

impl ServerConfig {
    /// At this address, without a token: for this machine only.
    pub fn at(address: SocketAddr) -> Self {
        ServerConfig {
            address,
            or_any_port: false,
            token: None,
            tls: None,
            most_body_bytes: 16 << 20,
            most_connections: 256,
            patience: Duration::from_secs(30),
        }
    }

    /// At any other port, if that one is taken.
    pub fn or_any_port(mut self, may: bool) -> Self {
        self.or_any_port = may;
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
    patience: Duration,
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
            connections: Connections::new(config.most_connections),
            patience: config.patience,
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
            let connection = self.connections.enter().await;
            while tasks.try_join_next().is_some() {}
            // Answers are short: a delayed one would only wait for the client.
            let _ = stream.set_nodelay(true);
            let (router, patience) = (self.router.clone(), self.patience);
            let (tls, number) = (self.tls.clone(), connection.number());
            let task = tasks.spawn(async move {
                match tls {
                    None => answer(stream, connection, router, patience).await,
                    Some(tls) => {
                        let peer = peer.to_string();
                        let greeted = tls.accept(stream, &peer);
                        // A stranger is not missed.
                        if let Ok(Ok(stream)) = tokio::time::timeout(patience, greeted).await {
                            answer(stream, connection, router, patience).await;
                        }
                    }
                }
            });
            self.connections.answered_by(number, task);
        }
    }
}

/// Answers the requests of one connection, whatever it runs over. Whoever breaks it off, or sends what is no HTTP, is not missed.
async fn answer<S>(stream: S, connection: Connection, router: Router, patience: Duration)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(router);
    let service = service_fn(|request: Request<Incoming>| {
        let busy = connection.begins();
        let answered = router.call(request);
        async move {
            let answer = answered.await?;
            Ok::<_, Infallible>(answer.map(|body| Answering::new(body, busy)))
        }
    });
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .max_buf_size(bounds::MOST_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
