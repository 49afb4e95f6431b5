//! A session: a connection of its own, and somebody who watches over it.

use crate::zookeeper::change::{By, session_id};
use crate::zookeeper::link::Link;
use crate::{
    EndTeller, Expected, Pending, Session, SessionEnd, SessionEnding, SessionId, StatePath,
    Version, session_ending,
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
    link: Arc<Link>,
    own: Own,
    teller: EndTeller,
}

/// The session's connection, until it has ended. ZooKeeper ends a session when the last of its clients is dropped.
#[derive(Clone, Debug)]
struct Own {
    client: Arc<Mutex<Option<Client>>>,
    /// Whether it has ended; stops what is under way.
    is_over: Arc<watch::Sender<bool>>,
}

impl Own {
    fn of(client: Client) -> Self {
        Own {
            client: Arc::new(Mutex::new(Some(client))),
            is_over: Arc::new(watch::Sender::new(false)),
        }
    }

    fn client(&self) -> Option<Client> {
        self.held().clone()
    }

    /// From here on nothing is made in the session's name.
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
pub(crate) async fn open(link: &Arc<Link>) -> Result<(Box<dyn Session>, SessionEnding)> {
    let doing = "open a session";
    let client = link.connect(&mut link.patience(), doing).await?;
    let (teller, ending) = session_ending();
    let watcher = client.state_watcher();
    let timeout = client.session_timeout();
    let session = ZooKeeperSession {
        id: session_id(client.session_id().0),
        link: Arc::clone(link),
        own: Own::of(client),
        teller: teller.clone(),
    };
    let own = session.own.clone();
    tokio::spawn(watch_over(Arc::clone(link), own, teller, watcher, timeout));
    Ok((Box::new(session), ending))
}

/// Tells the owner when the session is over, or can't be sure any more not to be.
///
/// The client notices a silent connection after two fifths of the timeout, and a twentieth more for the ticks of its
/// timer. Half of the timeout later, and so before the server can have waited for all of it, the session is given up.
async fn watch_over(
    link: Arc<Link>,
    own: Own,
    teller: EndTeller,
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
                    Err(_) => format!("the server was not reached for {timeout:?}, nearly"),
                }
            }
            state if state.is_terminated() => "the server has ended it".to_string(),
            _ => {
                state = watcher.changed().await;
                continue;
            }
        };
        let client = own.end();
        // If the owner has closed it, that was told before.
        teller.tell(SessionEnd::Expired(link.place().session_ended(why)));
        return drop(client);
    }
}

impl Session for ZooKeeperSession {
    fn id(&self) -> &SessionId {
        &self.id
    }

    fn create<'a>(&'a self, path: &'a StatePath, value: &'a [u8]) -> Pending<'a, Version> {
        Box::pin(async move {
            let mut is_over = self.own.is_over.subscribe();
            let client = self.own.client().ok_or_else(|| self.link.ended())?;
            let by = By::Session(&client);
            tokio::select! {
                made = self.link.set(by, path, value, Expected::Absent) => made,
                // If it is made yet, it goes with the session.
                _ = is_over.wait_for(|is_over| *is_over) => Err(self.link.ended()),
            }
        })
    }

    fn close(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            self.teller.tell(SessionEnd::Closed);
            let Some(client) = self.own.end() else {
                return Ok(());
            };
            let mut watcher = client.state_watcher();
            let patience = self.link.patience();
            drop(client);
            // The client says goodbye, and is closed when the server has answered.
            let gone = async { while !watcher.changed().await.is_terminated() {} };
            match tokio::time::timeout(patience.rest(), gone).await {
                Ok(()) => Ok(()),
                Err(_) => {
                    let doing = "close the session; its nodes go when it has timed out";
                    Err(self.link.place().unavailable(doing, ZkError::Timeout))
                }
            }
        })
    }
}

impl Drop for ZooKeeperSession {
    fn drop(&mut self) {
        self.teller.tell(SessionEnd::Closed);
        drop(self.own.end());
    }
}
