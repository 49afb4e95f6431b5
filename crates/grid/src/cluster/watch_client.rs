//! Client of a map watch over a connection.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::node::MapEvent;
use ardea_core::{Error, ErrorCode, Result};
use ardea_network::rpc::{Receiver, Sender};
use bytes::Bytes;
use tokio::task::JoinHandle;

use crate::cluster::maps::{WatchEvent, WatchQueue};
use crate::cluster::request::MapEventStream;

/// Timeout without a message from the host, which sends one at least every
/// [second](crate::cluster::watch_server::HEARTBEAT_INTERVAL).
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);

/// Client of a map watch. Reads events from a dedicated connection until the connection closes or
/// the client is dropped.
///
/// The socket is always drained immediately, so a host that cannot write knows that the client is
/// dead. Events not yet consumed are buffered up to a limit.
pub(crate) struct WatchClient {
    waiting: Arc<WatchQueue>,
    task: JoinHandle<()>,
}

/// The receiving end, used by the client's task. Dropping it ends the watch.
pub(crate) struct WatchReceiver(Arc<WatchQueue>);

impl WatchClient {
    /// Creates a client. `spawn` starts the task that receives the events.
    pub fn begin(spawn: impl FnOnce(WatchReceiver) -> Result<JoinHandle<()>>) -> Result<Self> {
        let waiting = Arc::<WatchQueue>::default();
        let task = spawn(WatchReceiver(Arc::clone(&waiting)))?;
        Ok(WatchClient { waiting, task })
    }
}

impl MapEventStream for WatchClient {
    fn next(&self, patience: Duration) -> Result<Option<MapEvent<Bytes, Bytes>>> {
        self.waiting.take(patience)
    }
}

impl Drop for WatchClient {
    fn drop(&mut self) {
        // The host notices that the connection is closed.
        self.task.abort();
    }
}

impl WatchReceiver {
    /// Receives all events. `_sender` is unused and keeps the connection open.
    pub async fn all_of(self, mut receiver: Receiver, _sender: Sender) {
        let error = loop {
            match tokio::time::timeout(HEARTBEAT_TIMEOUT, receiver.expect::<Vec<WatchEvent>>())
                .await
            {
                Ok(Ok(letter)) => self.0.hear(letter),
                Ok(Err(error)) => break error,
                Err(_) => {
                    let what = format!(
                        "{} has sent no message on a map watch for {} s",
                        receiver.peer(),
                        HEARTBEAT_TIMEOUT.as_secs()
                    );
                    break Error::new(ErrorCode::Network, what);
                }
            }
        };
        self.0.end(error);
    }
}

impl Drop for WatchReceiver {
    fn drop(&mut self) {
        let what = "the watch of a map has ended";
        self.0.end(Error::new(ErrorCode::StateUnavailable, what));
    }
}

impl fmt::Debug for WatchClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WatchClient({:?})", self.waiting)
    }
}
