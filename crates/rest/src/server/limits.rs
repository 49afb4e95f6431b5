//! The bounds of a server.

use std::time::Duration;

/// The bounds within which a server reads requests and sends answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerLimits {
    /// The maximum number of connections. Beyond it the connection that has waited longest for its
    /// client is closed, first those of the client that has most of them.
    pub connections: usize,
    /// The maximum size of a request's head, at least 8 KiB.
    pub head_bytes: usize,
    /// The maximum size of a request's body.
    pub body_bytes: usize,
    /// The time limit for the client: to send the head, to send the body, to take in a piece of
    /// the answer.
    pub client_timeout: Duration,
    /// The time limit for the cluster: from a complete request to its answer.
    pub answer_timeout: Duration,
}

impl ServerLimits {
    /// The number of logs and maps that may be followed at a time. Other requests always find
    /// connections.
    pub(super) fn followed(&self) -> usize {
        (self.connections * 3 / 8).max(1)
    }

    /// The number of savepoints and checks of snapshots that may be answered at a time.
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
            client_timeout: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(30),
        }
    }
}
