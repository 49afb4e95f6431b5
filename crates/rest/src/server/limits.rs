//! The limits of a server.

use std::time::Duration;

/// The limits for reading requests and sending responses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerLimits {
    /// Maximum number of connections. Beyond it, the server closes a connection that waits for its
    /// client: the longest waiting one of the client with most connections.
    pub connections: usize,
    /// Maximum size of a request's head in bytes, at least 8 KiB.
    pub head_bytes: usize,
    /// Maximum size of a request's body in bytes.
    pub body_bytes: usize,
    /// Maximum number of requests per second of one client address; zero for no limit.
    pub requests_per_second: u32,
    /// Time limit for each step of the client: to send the head, to send the body, to read a piece
    /// of the response.
    pub client_timeout: Duration,
    /// Time limit for the cluster, from the complete request to its response.
    pub answer_timeout: Duration,
}

impl ServerLimits {
    /// Returns the maximum number of concurrent streams that follow logs and maps. The remaining
    /// connections serve other requests.
    pub(super) fn followed(&self) -> usize {
        (self.connections * 3 / 8).max(1)
    }

    /// Returns the maximum number of concurrent savepoints and checks of checkpoints.
    pub(super) fn state_readings(&self) -> usize {
        (self.connections / 8).max(1)
    }
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits {
            connections: 256,
            head_bytes: 64 << 10,
            body_bytes: 16 << 20,
            requests_per_second: 1_000,
            client_timeout: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(30),
        }
    }
}
