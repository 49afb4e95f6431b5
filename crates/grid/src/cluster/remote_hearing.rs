//! What a worker hears of a map over a connection.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::node::MapEvent;
use ardea_core::{Error, ErrorCode, Result};
use ardea_network::rpc::{Receiver, Sender};
use bytes::Bytes;
use tokio::task::JoinHandle;

use crate::cluster::ask::Hearing;
use crate::cluster::maps::{News, Waiting};

/// A host that says nothing for so long is gone: it says [something](crate::cluster::telling::BEAT) each second.
const SILENCE: Duration = Duration::from_secs(5);

/// Hears what a host tells over a connection of its own, until the connection is lost or this is dropped.
///
/// All that comes is taken at once: so a host that waits for this end knows that it is gone. What nobody takes here waits, up to a bound.
pub(crate) struct RemoteHearing {
    waiting: Arc<Waiting>,
    task: JoinHandle<()>,
}

/// The end that hears. When it is dropped nothing more is heard.
pub(crate) struct Hears(Arc<Waiting>);

impl RemoteHearing {
    /// What is heard by the task that `spawn` has begun.
    pub fn begin(spawn: impl FnOnce(Hears) -> Result<JoinHandle<()>>) -> Result<Self> {
        let waiting = Arc::<Waiting>::default();
        let task = spawn(Hears(Arc::clone(&waiting)))?;
        Ok(RemoteHearing { waiting, task })
    }
}

impl Hearing for RemoteHearing {
    fn next(&self, patience: Duration) -> Result<Option<MapEvent<Bytes, Bytes>>> {
        self.waiting.take(patience)
    }
}

impl Drop for RemoteHearing {
    fn drop(&mut self) {
        // The host notices that the connection is closed.
        self.task.abort();
    }
}

impl Hears {
    /// Hears all that comes. The half that sends says nothing, and keeps the connection open.
    pub async fn all_of(self, mut receiver: Receiver, _sender: Sender) {
        let error = loop {
            match tokio::time::timeout(SILENCE, receiver.expect::<Vec<News>>()).await {
                Ok(Ok(letter)) => self.0.hear(letter),
                Ok(Err(error)) => break error,
                Err(_) => {
                    let what = format!(
                        "{} has told nothing of a map for {} s",
                        receiver.peer(),
                        SILENCE.as_secs()
                    );
                    break Error::new(ErrorCode::Network, what);
                }
            }
        };
        self.0.end(error);
    }
}

impl Drop for Hears {
    fn drop(&mut self) {
        let what = "nobody hears any more what happens to a map";
        self.0.end(Error::new(ErrorCode::StateUnavailable, what));
    }
}

impl fmt::Debug for RemoteHearing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteHearing({:?})", self.waiting)
    }
}
