//! Changes: each is one transaction.

use crate::zookeeper::connection::{EPHEMERAL, PERSISTENT, ZooKeeperConnection, wait_connected};
use crate::zookeeper::failure::is_lost;
use crate::{Expected, Node, RetryDeadline, SessionId, StatePath, Version};
use ardea_core::Result;
use std::future::Future;
use std::sync::Arc;
use zookeeper_client::{
    Client, Error as ZkError, MultiWriteError, MultiWriteResult, MultiWriter, Stat,
};

/// The connection on which a change is made.
#[derive(Clone, Copy)]
pub(crate) enum ChangeConnection<'a> {
    /// The shared connection.
    Shared,
    /// The connection of a session, which owns the created node.
    Session(&'a Client),
}

/// The result of an attempt.
enum Attempt {
    Done(Version),
    /// A concurrent change was faster: read again.
    Again,
}

/// Creates the node stored in a znode.
pub(crate) fn node(value: Vec<u8>, stat: &Stat) -> Node {
    Node {
        value: Arc::from(value),
        version: version(stat),
        session: (stat.ephemeral_owner != 0).then(|| session_id(stat.ephemeral_owner)),
    }
}

/// Returns the name of a session.
pub(crate) fn session_id(id: i64) -> SessionId {
    SessionId::new(format!("{id:016x}"))
}

fn version(stat: &Stat) -> Version {
    Version::new(stat.mzxid.cast_unsigned())
}

impl ZooKeeperConnection {
    /// Writes a node.
    pub(crate) async fn set(
        &self,
        by: ChangeConnection<'_>,
        path: &StatePath,
        value: &[u8],
        expected: Expected,
    ) -> Result<Version> {
        self.place().check_value(path, value)?;
        let mut patience = self.deadline();
        loop {
            let client = self.connection(by, path, &mut patience).await?;
            let attempt = self.try_set(&client, by, path, value, expected);
            match self.in_time(path, &patience, attempt).await? {
                Attempt::Done(version) => return Ok(version),
                Attempt::Again => {
                    self.pause_before_retry(path, &client, &mut patience)
                        .await?
                }
            }
        }
    }

    async fn try_set(
        &self,
        client: &Client,
        by: ChangeConnection<'_>,
        path: &StatePath,
        value: &[u8],
        expected: Expected,
    ) -> Result<Attempt> {
        let znode = self.znode(path);
        let Some((births, found)) = self.read_before_change(client, path, &znode).await? else {
            return Ok(Attempt::Again);
        };
        let Some(found) = self.as_expected(path, expected, found)? else {
            return self.try_create(client, by, path, value).await;
        };
        let mut change = client.new_multi_writer();
        let counter = self.condition(path, &mut change, expected, &births, &found)?;
        self.add(path, change.add_set_data(&znode, value, counter))?;
        match self.commit(path, &mut change).await? {
            Ok(results) => Ok(results.last().map_or(Attempt::Again, written)),
            // The next read shows if it is a conflict.
            Err(ZkError::BadVersion | ZkError::NoNode) => Ok(Attempt::Again),
            Err(error) => Err(self.failed(path, error)),
        }
    }

    /// Reads the state before a change; returns `None` to retry, because nothing was changed yet.
    async fn read_before_change(
        &self,
        client: &Client,
        path: &StatePath,
        znode: &str,
    ) -> Result<Option<(Stat, Option<Stat>)>> {
        match Self::read_stats(client, &self.births(), znode).await {
            Ok((births, found)) => Ok(births.map(|births| (births, found))),
            Err(error) if is_lost(&error) => Ok(None),
            Err(error) => Err(self.failed(path, error)),
        }
    }

    /// Returns the existing znode, if the condition holds.
    fn as_expected(
        &self,
        path: &StatePath,
        expected: Expected,
        found: Option<Stat>,
    ) -> Result<Option<Stat>> {
        match expected.is_met_by(found.as_ref().map(version)) {
            true => Ok(found),
            false => {
                let found = found.map(|stat| node(Vec::new(), &stat));
                Err(self.place().conflict(path, expected, found.as_ref()))
            }
        }
    }

    /// Adds the check that the node is still the one that was read, unless the change is
    /// unconditional; returns the counter to compare.
    fn condition(
        &self,
        path: &StatePath,
        change: &mut MultiWriter<'_>,
        expected: Expected,
        births: &Stat,
        found: &Stat,
    ) -> Result<Option<i32>> {
        if expected == Expected::Any {
            return Ok(None);
        }
        self.add(
            path,
            change.add_check_version(&self.births(), births.version),
        )?;
        Ok(Some(found.version))
    }

    /// Creates a node and its missing ancestors, and counts the creation.
    async fn try_create(
        &self,
        client: &Client,
        by: ChangeConnection<'_>,
        path: &StatePath,
        value: &[u8],
    ) -> Result<Attempt> {
        let ancestors: Vec<_> = path.ancestors().map(|above| self.znode(&above)).collect();
        let looks: Vec<_> = ancestors
            .iter()
            .map(|above| client.check_stat(above))
            .collect();
        let mut change = client.new_multi_writer();
        self.add(path, change.add_set_data(&self.births(), b"", None))?;
        for (above, look) in ancestors.iter().zip(looks) {
            match look.await {
                Ok(Some(stat)) if stat.ephemeral_owner != 0 => {
                    return Err(self.place().below_ephemeral(path));
                }
                Ok(Some(_)) => {}
                Ok(None) => self.add(path, change.add_create(above, b"", &PERSISTENT))?,
                Err(error) if is_lost(&error) => return Ok(Attempt::Again),
                Err(error) => return Err(self.failed(path, error)),
            }
        }
        let options = match by {
            ChangeConnection::Shared => PERSISTENT,
            ChangeConnection::Session(_) => EPHEMERAL,
        };
        self.add(path, change.add_create(&self.znode(path), value, &options))?;
        match self.commit(path, &mut change).await? {
            // Servers do not always fill in the stat of a creation in a transaction. The stat of
            // the first operation is filled in, and all operations have the same transaction id.
            Ok(results) => Ok(results.first().map_or(Attempt::Again, written)),
            Err(ZkError::NodeExists | ZkError::NoNode) => Ok(Attempt::Again),
            Err(error) => Err(self.failed(path, error)),
        }
    }

    /// Deletes a node.
    pub(crate) async fn delete(&self, path: &StatePath, expected: Expected) -> Result<()> {
        self.place().check_value(path, b"")?;
        let mut patience = self.deadline();
        loop {
            let client = self
                .connection(ChangeConnection::Shared, path, &mut patience)
                .await?;
            let attempt = self.try_delete(&client, path, expected);
            match self.in_time(path, &patience, attempt).await? {
                Attempt::Done(_) => return Ok(()),
                Attempt::Again => {
                    self.pause_before_retry(path, &client, &mut patience)
                        .await?
                }
            }
        }
    }

    async fn try_delete(
        &self,
        client: &Client,
        path: &StatePath,
        expected: Expected,
    ) -> Result<Attempt> {
        let done = Attempt::Done(Version::new(0));
        let znode = self.znode(path);
        let Some((births, found)) = self.read_before_change(client, path, &znode).await? else {
            return Ok(Attempt::Again);
        };
        let Some(found) = self.as_expected(path, expected, found)? else {
            return Ok(done);
        };
        let mut change = client.new_multi_writer();
        let counter = self.condition(path, &mut change, expected, &births, &found)?;
        self.add(path, change.add_delete(&znode, counter))?;
        match self.commit(path, &mut change).await? {
            Ok(_) => Ok(done),
            Err(ZkError::BadVersion | ZkError::NoNode) => Ok(Attempt::Again),
            Err(error) => Err(self.failed(path, error)),
        }
    }

    /// Sends a transaction; the inner result is the server's.
    async fn commit(
        &self,
        path: &StatePath,
        change: &mut MultiWriter<'_>,
    ) -> Result<Result<Vec<MultiWriteResult>, ZkError>> {
        match change.commit().await {
            Ok(results) => Ok(Ok(results)),
            Err(MultiWriteError::OperationFailed { source, .. }) => Ok(Err(source)),
            Err(MultiWriteError::RequestFailed { source }) if is_lost(&source) => {
                Err(self.place().unknown(path, source))
            }
            Err(MultiWriteError::RequestFailed { source }) => Ok(Err(source)),
        }
    }

    fn add(&self, path: &StatePath, added: Result<(), ZkError>) -> Result<()> {
        added.map_err(|error| self.failed(path, error))
    }

    async fn connection(
        &self,
        by: ChangeConnection<'_>,
        path: &StatePath,
        patience: &mut RetryDeadline,
    ) -> Result<Client> {
        let doing = format!("change {path}");
        match by {
            ChangeConnection::Shared => self.client(patience, &doing).await,
            ChangeConnection::Session(client) => {
                match wait_connected(client, patience.rest()).await {
                    Some(true) => Ok(client.clone()),
                    Some(false) => Err(self.session_ended()),
                    None => Err(self.place().unavailable(doing, ZkError::ConnectionLoss)),
                }
            }
        }
    }

    /// Limits the time of an attempt, whose outcome is unknown after a timeout.
    async fn in_time(
        &self,
        path: &StatePath,
        patience: &RetryDeadline,
        attempt: impl Future<Output = Result<Attempt>>,
    ) -> Result<Attempt> {
        match tokio::time::timeout(patience.rest(), attempt).await {
            Ok(attempt) => attempt,
            Err(_) => Err(self.place().unknown(path, ZkError::Timeout)),
        }
    }

    /// Pauses before another attempt, and recreates the root if it was deleted.
    async fn pause_before_retry(
        &self,
        path: &StatePath,
        client: &Client,
        patience: &mut RetryDeadline,
    ) -> Result<()> {
        let doing = format!("change {path}");
        if !patience.pause().await {
            let why =
                "the tree is changed concurrently all the time, or the connection is unstable";
            return Err(self.place().unavailable(doing, why));
        }
        match client.check_stat(&self.births()).await {
            Ok(None) => self.create_root(client, patience, &doing).await,
            // Other errors show at the next attempt.
            _ => Ok(()),
        }
    }
}

fn written(result: &MultiWriteResult) -> Attempt {
    match result {
        MultiWriteResult::SetData { stat } => Attempt::Done(version(stat)),
        _ => Attempt::Again,
    }
}
