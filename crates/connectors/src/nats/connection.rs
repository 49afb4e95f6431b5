//! Connections to the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, OutageReporter, Result};
use async_nats::{Client, ConnectOptions, Event, ServerAddr};

/// Timeout for establishing a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Interval of keep-alive pings to the server.
const PING: Duration = Duration::from_secs(10);

/// Availability of a server, as reported by its client.
#[derive(Clone, Debug)]
pub(crate) struct ServerStatus {
    pub outage: OutageReporter,
    /// Number of connections established so far.
    connections: Arc<AtomicU64>,
}

impl ServerStatus {
    pub fn new(servers: &[ServerAddr]) -> Self {
        let places: Vec<_> = servers
            .iter()
            .map(|server| format!("{}:{}", server.host(), server.port()))
            .collect();
        ServerStatus {
            outage: OutageReporter::new(format!("nats {}", places.join(","))),
            connections: Arc::default(),
        }
    }

    /// Returns the number of connections established so far.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Parses a server address, or several separated by commas.
///
/// # Errors
/// `InvalidConfig` if the address is invalid. The error text omits the address, which may contain a
/// password.
pub(crate) fn servers(url: &str) -> Result<Vec<ServerAddr>> {
    let parsed: std::result::Result<Vec<ServerAddr>, _> =
        url.split(',').map(|one| one.trim().parse()).collect();
    parsed.map_err(|error: std::io::Error| {
        let what = "the address of the NATS server is invalid";
        Error::new(ErrorCode::InvalidConfig, what)
            .because(error)
            .hint("write it as nats://[user:password@]host[:port], several with commas between")
    })
}

/// Connects to the server; the client reconnects by itself afterwards.
///
/// # Errors
/// The reason why no connection could be established.
pub(crate) async fn connect(
    servers: &[ServerAddr],
    status: &ServerStatus,
) -> std::result::Result<Client, String> {
    let shared = status.clone();
    let options = ConnectOptions::new()
        .name("ardea")
        .connection_timeout(CONNECT)
        .ping_interval(PING)
        .max_reconnects(None)
        .reconnect_delay_callback(|attempts| {
            let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
            (Duration::from_millis(100) * 2u32.saturating_pow(attempts.min(6)))
                .min(Duration::from_secs(2))
        })
        .event_callback(move |event| {
            let status = shared.clone();
            async move {
                match event {
                    Event::Connected => {
                        status.connections.fetch_add(1, Ordering::Relaxed);
                        status.outage.answers();
                    }
                    Event::Disconnected => status.outage.away("the connection broke"),
                    _ => {}
                }
            }
        });
    let client = options.connect(servers).await;
    client.map_err(|error| error.to_string())
}
