//! Sessions as separate connections, and their supervision.

use crate::zookeeper::change::{ChangeConnection, session_id};
use crate::zookeeper::connection::ZooKeeperConnection;
use crate::{
    Expected, Pending, Session, SessionEnd, SessionEndNotifier, SessionEnding, SessionId,
    StatePath, Version, session_ending,
};
use ardea_core::Result;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use zookeeper_client::{Client, Error as ZkError, SessionState, StateWatcher};

/// A session of ZooKeeper.
#[derive(Debug)]
pub(crate) struct ZooKeeperSession {
    id: SessionId,
    link: Arc<ZooKeeperConnection>,
    connection: SessionConnection,
    end_notifier: SessionEndNotifier,
}

/// The session's connection, until the session has ended. ZooKeeper ends a session when the last of
/// its clients is dropped.
#[derive(Clone, Debug)]
struct SessionConnection {
    client: Arc<Mutex<Option<Client>>>,
    /// True once the session has ended; cancels operations in progress.
    is_over: Arc<watch::Sender<bool>>,
}

impl SessionConnection {
    fn of(client: Client) -> Self {
        SessionConnection {
            client: Arc::new(Mutex::new(Some(client))),
            is_over: Arc::new(watch::Sender::new(false)),
        }
    }

    fn client(&self) -> Option<Client> {
        self.held().clone()
    }

    /// Ends the session: nothing is created on its behalf any more.
    fn end(&self) -> Option<Client> {
        let client = self.held().take();
        self.is_over.send_replace(true);
        client
    }

    fn held(&self) -> MutexGuard<'_, Option<Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a session.
pub(crate) async fn open(
    link: &Arc<ZooKeeperConnection>,
) -> Result<(Box<dyn Session>, SessionEnding)> {
    let doing = "open a session";
    let client = link.connect(&mut link.deadline(), doing).await?;
    let (teller, ending) = session_ending();
    let watcher = client.state_watcher();
    let timeout = client.session_timeout();
    let session = ZooKeeperSession {
        id: session_id(client.session_id().0),
        link: Arc::clone(link),
        connection: SessionConnection::of(client),
        end_notifier: teller.clone(),
    };
    let own = session.connection.clone();
    tokio::spawn(supervise(Arc::clone(link), own, teller, watcher, timeout));
    Ok((Box::new(session), ending))
}

/// Notifies the owner when the session has ended, or may have ended.
///
/// The client detects a silent connection after two fifths of the timeout, and a twentieth more for
/// the ticks of its timer. Half of the timeout after that, and so before the full timeout of the
/// server, the session is abandoned.
async fn supervise(
    link: Arc<ZooKeeperConnection>,
    own: SessionConnection,
    teller: SessionEndNotifier,
    mut watcher: StateWatcher,
    timeout: Duration,
) {
    let mut state = watcher.state();
    loop {
        let why = match state {
            SessionState::Disconnected => {
                match tokio::time::timeout(timeout / 2, watcher.changed()).await {
                    Ok(next) => {
                        state = next;
                        continue;
                    }
                    Err(_) => format!("the server was not reached for nearly {timeout:?}"),
                }
            }
            state if state.is_terminated() => "the server has ended it".to_string(),
            _ => {
                state = watcher.changed().await;
                continue;
            }
        };
        let client = own.end();
        // If the owner has closed it, the end was reported before.
        teller.notify(SessionEnd::Expired(link.place().session_ended(why)));
        return drop(client);
    }
}

impl Session for ZooKeeperSession {
    fn id(&self) -> &SessionId {
        &self.id
    }

    fn create<'a>(&'a self, path: &'a StatePath, value: &'a [u8]) -> Pending<'a, Version> {
        Box::pin(async move {
            let mut is_over = self.connection.is_over.subscribe();
            let client = self
                .connection
                .client()
                .ok_or_else(|| self.link.session_ended())?;
            let by = ChangeConnection::Session(&client);
            tokio::select! {
                made = self.link.set(by, path, value, Expected::Absent) => made,
                // If the node is still created, it is deleted with the session.
                _ = is_over.wait_for(|is_over| *is_over) => Err(self.link.session_ended()),
            }
        })
    }

    fn close(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            self.end_notifier.notify(SessionEnd::Closed);
            let Some(client) = self.connection.end() else {
                return Ok(());
            };
            let mut watcher = client.state_watcher();
            let patience = self.link.deadline();
            drop(client);
            // The client closes the session, and terminates when the server has confirmed that.
            let gone = async { while !watcher.changed().await.is_terminated() {} };
            match tokio::time::timeout(patience.rest(), gone).await {
                Ok(()) => Ok(()),
                Err(_) => {
                    let doing = "close the session; its nodes are deleted when it times out";
                    Err(self.link.place().unavailable(doing, ZkError::Timeout))
                }
            }
        })
    }
}

impl Drop for ZooKeeperSession {
    fn drop(&mut self) {
        self.end_notifier.notify(SessionEnd::Closed);
        drop(self.connection.end());
    }
}
