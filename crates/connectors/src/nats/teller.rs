//! Connections, and who hears when they break.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use async_nats::{Client, ConnectOptions, Event, ServerAddr};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How soon the server is asked whether it is still there.
const PING: Duration = Duration::from_secs(10);

/// Tells people, once, that the server is away, and once that it is back.
#[derive(Clone, Debug)]
pub(crate) struct Teller {
    /// Who waits for whom.
    what: Arc<str>,
    is_away: Arc<AtomicBool>,
    /// The number of times that a connection was made.
    connections: Arc<AtomicU64>,
}

impl Teller {
    pub fn new(servers: &[ServerAddr]) -> Self {
        let places: Vec<_> = servers
            .iter()
            .map(|server| format!("{}:{}", server.host(), server.port()))
            .collect();
        Teller {
            what: Arc::from(format!("nats {}", places.join(","))),
            is_away: Arc::default(),
            connections: Arc::default(),
        }
    }

    /// Returns the number of times that a connection was made.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Tells people once that something is otherwise than expected, and is dealt with.
    pub fn note(&self, what: &str) {
        self.say(what);
    }

    pub fn away(&self, why: &str) {
        if !self.is_away.swap(true, Ordering::Relaxed) {
            self.say(&format!("it is away ({why}); waiting until it answers"));
        }
    }

    pub fn heard(&self) {
        if self.is_away.swap(false, Ordering::Relaxed) {
            self.say("it answers again");
        }
    }

    fn say(&self, what: &str) {
        // Nobody is left to be told that standard error is closed.
        let _ = writeln!(std::io::stderr().lock(), "ardea: {}: {what}", self.what);
    }
}

/// Makes sense of an address, which may be several with commas between.
///
/// # Errors
/// `InvalidConfig`, without the address: it may hold a password.
pub(crate) fn servers(url: &str) -> Result<Vec<ServerAddr>> {
    let parsed: std::result::Result<Vec<ServerAddr>, _> =
        url.split(',').map(|one| one.trim().parse()).collect();
    parsed.map_err(|error: std::io::Error| {
        let what = "the address of the NATS server makes no sense";
        Error::new(ErrorCode::InvalidConfig, what)
            .because(error)
            .hint("write it as nats://[user:password@]host[:port], several with commas between")
    })
}

/// Connects; the client then connects again by itself.
///
/// # Errors
/// Why there is no connection at the moment, in words.
pub(crate) async fn connect(
    servers: &[ServerAddr],
    teller: &Teller,
) -> std::result::Result<Client, String> {
    let hears = teller.clone();
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
            let teller = hears.clone();
            async move {
                match event {
                    Event::Connected => {
                        teller.connections.fetch_add(1, Ordering::Relaxed);
                        teller.heard();
                    }
                    Event::Disconnected => teller.away("the connection broke"),
                    _ => {}
                }
            }
        });
    let client = options.connect(servers).await;
    client.map_err(|error| error.to_string())
}
