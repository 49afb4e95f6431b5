//! The timeouts of a metadata store.

use std::time::Duration;

/// The timeouts of a metadata store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateOptions {
    /// Time without contact to a session's owner after which its nodes are deleted. A shorter
    /// timeout detects dead processes sooner, a longer one tolerates longer network failures.
    /// Servers have limits (etcd: whole seconds, at least two; ZooKeeper: at least two of its
    /// ticks) and may choose the nearest value. Files need no timeout: a dead process is detected
    /// at once.
    pub session_timeout: Duration,
    /// Time that an operation waits for an unreachable server before it fails.
    pub timeout: Duration,
}

impl Default for StateOptions {
    fn default() -> Self {
        StateOptions {
            session_timeout: Duration::from_secs(6),
            timeout: Duration::from_secs(10),
        }
    }
}
