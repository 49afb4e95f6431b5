//! The connection to the servers: made on demand, and remade when its session has ended.

use crate::zookeeper::failure::is_lost;
use crate::{RetryDeadline, StateOptions, StatePath, StoreAddress};
use ardea_core::{Error, Result};
use std::future::Future;
use std::time::Duration;
use tokio::sync::Mutex;
use zookeeper_client::{
    Acls, Client, CreateMode, CreateOptions, Error as ZkError, SessionState, Stat,
};

/// The znode that is written by every creation below a root.
pub(crate) const BIRTHS: &str = ".births";

/// Options of permanent nodes.
pub(crate) const PERSISTENT: CreateOptions<'static> =
    CreateMode::Persistent.with_acls(Acls::anyone_all());

/// Options of nodes that are deleted with the session that creates them.
pub(crate) const EPHEMERAL: CreateOptions<'static> =
    CreateMode::Ephemeral.with_acls(Acls::anyone_all());

/// The servers, the root on them, and the connection shared by everything except sessions.
#[derive(Debug)]
pub(crate) struct ZooKeeperConnection {
    place: StoreAddress,
    cluster: String,
    root: StatePath,
    options: StateOptions,
    client: Mutex<Option<Client>>,
}

impl ZooKeeperConnection {
    /// Creates a connection that is not established yet.
    pub(crate) fn new(servers: &[String], root: &StatePath, options: StateOptions) -> Self {
        let cluster = servers.join(",");
        ZooKeeperConnection {
            place: StoreAddress::new(format!("ZooKeeper at {cluster}, root {root}")),
            cluster,
            root: root.clone(),
            options,
            client: Mutex::default(),
        }
    }

    /// Returns the address of the store, for messages.
    pub(crate) fn place(&self) -> &StoreAddress {
        &self.place
    }

    /// Returns a new deadline for an operation.
    pub(crate) fn deadline(&self) -> RetryDeadline {
        RetryDeadline::new(self.options.timeout)
    }

    /// Returns the path of a node's znode.
    pub(crate) fn znode(&self, path: &StatePath) -> String {
        if path.is_root() {
            return self.root.to_string();
        }
        format!("{}{path}", self.root)
    }

    /// Returns the path of the znode that counts creations.
    pub(crate) fn births(&self) -> String {
        format!("{}/{BIRTHS}", self.root)
    }

    /// Makes a new connection with a new ZooKeeper session.
    pub(crate) async fn connect(
        &self,
        patience: &mut RetryDeadline,
        doing: &str,
    ) -> Result<Client> {
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

    /// Returns the shared connection, once it is established.
    pub(crate) async fn client(&self, patience: &mut RetryDeadline, doing: &str) -> Result<Client> {
        loop {
            let client = self.current(patience, doing).await?;
            match wait_connected(&client, patience.rest()).await {
                Some(true) => return Ok(client),
                // The session has ended; the next iteration makes a new connection.
                Some(false) => {}
                None => return Err(self.place.unavailable(doing, ZkError::ConnectionLoss)),
            }
        }
    }

    async fn current(&self, patience: &mut RetryDeadline, doing: &str) -> Result<Client> {
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
        self.create_root(&client, patience, doing).await?;
        *current = Some(client.clone());
        Ok(client)
    }

    /// Creates the root, if it does not exist.
    pub(crate) async fn create_root(
        &self,
        client: &Client,
        patience: &mut RetryDeadline,
        doing: &str,
    ) -> Result<()> {
        loop {
            let births = self.births();
            let made = async {
                client.mkdir(self.root.as_str(), &PERSISTENT).await?;
                match client.create(&births, b"", &PERSISTENT).await {
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

    /// Sends a read-only request, with retries. `ask` receives an established connection; `NoNode`
    /// becomes `None`.
    pub(crate) async fn read<T, F: Future<Output = Result<T, ZkError>>>(
        &self,
        path: &StatePath,
        ask: impl Fn(Client) -> F,
    ) -> Result<Option<T>> {
        let doing = format!("read {path}");
        let mut patience = self.deadline();
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

    /// Reads the stats of two znodes, including all changes acknowledged before the call.
    pub(crate) async fn read_stats(
        client: &Client,
        births: &str,
        znode: &str,
    ) -> Result<(Option<Stat>, Option<Stat>), ZkError> {
        // The three requests are pipelined, and answered in this order.
        let synced = client.sync(znode);
        let births = client.check_stat(births);
        let node = client.check_stat(znode);
        synced.await?;
        Ok((births.await?, node.await?))
    }

    /// Creates the error of an ended session.
    pub(crate) fn session_ended(&self) -> Error {
        self.place.session_ended(ZkError::SessionExpired)
    }
}

/// Waits until a client is connected: returns `Some(false)` if its session has ended, `None` after
/// the timeout.
pub(crate) async fn wait_connected(client: &Client, patience: Duration) -> Option<bool> {
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
