//! How long a state manager waits.

use std::time::Duration;

/// How long a state manager waits, and for what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateOptions {
    /// For how long a server may not hear of a session before its nodes go. Shorter finds the dead sooner, longer
    /// forgives longer breaks of the network. Servers have limits of their own (etcd two seconds and whole seconds,
    /// ZooKeeper two of its ticks) and may choose the nearest. Files need no timeout: a dead process is noticed at once.
    pub session_timeout: Duration,
    /// For how long an operation waits for a server that is away before it fails.
    pub patience: Duration,
}

impl Default for StateOptions {
    fn default() -> Self {
        StateOptions {
            session_timeout: Duration::from_secs(6),
            patience: Duration::from_secs(10),
        }
    }
}
