//! The connection to the servers: made when it is needed, and made again when its session is over.

use crate::zookeeper::failure::is_lost;
use crate::{Patience, Place, StateOptions, StatePath};
use ardea_core::{Error, Result};
use std::future::Future;
use std::time::Duration;
use tokio::sync::Mutex;
use zookeeper_client::{
    Acls, Client, CreateMode, CreateOptions, Error as ZkError, SessionState, Stat,
};

/// The znode that every creation below a root writes.
pub(crate) const BIRTHS: &str = ".births";

/// Nodes that stay.
pub(crate) const LASTING: CreateOptions<'static> =
    CreateMode::Persistent.with_acls(Acls::anyone_all());

/// Nodes that go with the session that makes them.
pub(crate) const PASSING: CreateOptions<'static> =
    CreateMode::Ephemeral.with_acls(Acls::anyone_all());

/// Some servers, a root on them, and the connection that everything but the sessions uses.
#[derive(Debug)]
pub(crate) struct Link {
    place: Place,
    cluster: String,
    root: StatePath,
    options: StateOptions,
    client: Mutex<Option<Client>>,
}

impl Link {
    /// A link that is not connected yet.
    pub(crate) fn new(servers: &[String], root: &StatePath, options: StateOptions) -> Self {
        let cluster = servers.join(",");
        Link {
            place: Place::new(format!("ZooKeeper at {cluster}, root {root}")),
            cluster,
            root: root.clone(),
            options,
            client: Mutex::default(),
        }
    }

    /// Which ZooKeeper, for messages.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// How long an operation waits.
    pub(crate) fn patience(&self) -> Patience {
        Patience::new(self.options.patience)
    }

    /// The znode of a node.
    pub(crate) fn znode(&self, path: &StatePath) -> String {
        if path.is_root() {
            return self.root.to_string();
        }
        format!("{}{path}", self.root)
    }

    /// The znode that counts creations.
    pub(crate) fn births(&self) -> String {
        format!("{}/{BIRTHS}", self.root)
    }

    /// A connection of its own, with a session of its own.
    pub(crate) async fn connect(&self, patience: &mut Patience, doing: &str) -> Result<Client> {
        loop {
            let connecting = Client::connector()
                .with_session_timeout(self.options.session_timeout)
                .connect(&self.cluster);
            let error = match tokio::time::timeout(patience.rest(), connecting).await {
                Ok(Ok(client)) => return Ok(client),
                Ok(Err(error @ (ZkError::BadArguments(_) | ZkError::AuthFailed))) => {
                    return Err(self.failed(&StatePath::root(), error));
                }
                Ok(Err(error)) => error,
                Err(_) => ZkError::Timeout,
            };
            if !patience.pause().await {
                return Err(self.place.unavailable(doing, error));
            }
        }
    }

    /// The shared connection, once it stands.
    pub(crate) async fn client(&self, patience: &mut Patience, doing: &str) -> Result<Client> {
        loop {
            let client = self.current(patience, doing).await?;
            match stands(&client, patience.rest()).await {
                Some(true) => return Ok(client),
                // The session is over, the next round makes another.
                Some(false) => {}
                None => return Err(self.place.unavailable(doing, ZkError::ConnectionLoss)),
            }
        }
    }

    async fn current(&self, patience: &mut Patience, doing: &str) -> Result<Client> {
        let locked = tokio::time::timeout(patience.rest(), self.client.lock()).await;
        let Ok(mut current) = locked else {
            return Err(self.place.unavailable(doing, ZkError::Timeout));
        };
        if let Some(client) = &*current
            && !client.state().is_terminated()
        {
            return Ok(client.clone());
        }
        let client = self.connect(patience, doing).await?;
        self.found(&client, patience, doing).await?;
        *current = Some(client.clone());
        Ok(client)
    }

    /// Makes the root, if it is not there.
    pub(crate) async fn found(
        &self,
        client: &Client,
        patience: &mut Patience,
        doing: &str,
    ) -> Result<()> {
        loop {
            let births = self.births();
            let made = async {
                client.mkdir(self.root.as_str(), &LASTING).await?;
                match client.create(&births, b"", &LASTING).await {
                    Ok(_) | Err(ZkError::NodeExists) => Ok(()),
                    Err(error) => Err(error),
                }
            };
            let error = match tokio::time::timeout(patience.rest(), made).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) if !is_lost(&error) => {
                    return Err(self.failed(&StatePath::root(), error));
                }
                Ok(Err(error)) => error,
                Err(_) => ZkError::Timeout,
            };
            if client.state().is_terminated() || !patience.pause().await {
                return Err(self.place.unavailable(doing, error));
            }
        }
    }

    /// Reads something, as often as it takes. `ask` gets a connection that stands; `NoNode` comes as `None`.
    pub(crate) async fn read<T, F: Future<Output = Result<T, ZkError>>>(
        &self,
        path: &StatePath,
        ask: impl Fn(Client) -> F,
    ) -> Result<Option<T>> {
        let doing = format!("read {path}");
        let mut patience = self.patience();
        loop {
            let client = self.client(&mut patience, &doing).await?;
            let error = match tokio::time::timeout(patience.rest(), ask(client)).await {
                Ok(Ok(answer)) => return Ok(Some(answer)),
                Ok(Err(ZkError::NoNode)) => return Ok(None),
                Ok(Err(error)) if !is_lost(&error) => return Err(self.failed(path, error)),
                Ok(Err(error)) => error,
                Err(_) => ZkError::Timeout,
            };
            if !patience.pause().await {
                return Err(self.place.unavailable(doing, error));
            }
        }
    }

    /// What is known of two znodes, and no older than the call.
    pub(crate) async fn look(
        client: &Client,
        births: &str,
        znode: &str,
    ) -> Result<(Option<Stat>, Option<Stat>), ZkError> {
        // The three requests travel together, and are answered in this order.
        let synced = client.sync(znode);
        let births = client.check_stat(births);
        let node = client.check_stat(znode);
        synced.await?;
        Ok((births.await?, node.await?))
    }

    /// The session is over.
    pub(crate) fn ended(&self) -> Error {
        self.place.session_ended(ZkError::SessionExpired)
    }
}

/// Waits until a client is connected: `Some(false)` if its session is over, `None` if it took too long.
pub(crate) async fn stands(client: &Client, patience: Duration) -> Option<bool> {
    let mut watcher = client.state_watcher();
    let standing = async {
        let mut state = watcher.state();
        loop {
            if state == SessionState::SyncConnected {
                return true;
            }
            if state.is_terminated() {
                return false;
            }
            state = watcher.changed().await;
        }
    };
    tokio::time::timeout(patience, standing).await.ok()
}
