//! Changes: each is one transaction.

use crate::zookeeper::failure::is_lost;
use crate::zookeeper::link::{LASTING, Link, PASSING, stands};
use crate::{Expected, Node, Patience, SessionId, StatePath, Version};
use ardea_core::Result;
use std::future::Future;
use std::sync::Arc;
use zookeeper_client::{
    Client, Error as ZkError, MultiWriteError, MultiWriteResult, MultiWriter, Stat,
};

/// On whose connection a change is made.
#[derive(Clone, Copy)]
pub(crate) enum By<'a> {
    /// The one that all share.
    All,
    /// A session's own: what it makes goes with it.
    Session(&'a Client),
}

/// How an attempt ended.
enum Attempt {
    Done(Version),
    /// Something else was faster; look again.
    Again,
}

/// The node that a znode holds.
pub(crate) fn node(value: Vec<u8>, stat: &Stat) -> Node {
    Node {
        value: Arc::from(value),
        version: version(stat),
        session: (stat.ephemeral_owner != 0).then(|| session_id(stat.ephemeral_owner)),
    }
}

/// The name of a session.
pub(crate) fn session_id(id: i64) -> SessionId {
    SessionId::new(format!("{id:016x}"))
}

fn version(stat: &Stat) -> Version {
    Version::new(stat.mzxid.cast_unsigned())
}

impl Link {
    /// Writes a node.
    pub(crate) async fn set(
        &self,
        by: By<'_>,
        path: &StatePath,
        value: &[u8],
        expected: Expected,
    ) -> Result<Version> {
        self.place().check_value(path, value)?;
        let mut patience = self.patience();
        loop {
            let client = self.connection(by, path, &mut patience).await?;
            let attempt = self.try_set(&client, by, path, value, expected);
            match self.in_time(path, &patience, attempt).await? {
                Attempt::Done(version) => return Ok(version),
                Attempt::Again => self.again(path, &client, &mut patience).await?,
            }
        }
    }

    async fn try_set(
        &self,
        client: &Client,
        by: By<'_>,
        path: &StatePath,
        value: &[u8],
        expected: Expected,
    ) -> Result<Attempt> {
        let znode = self.znode(path);
        let Some((births, found)) = self.look_first(client, path, &znode).await? else {
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
            // Whether it is a conflict shows when it is looked at again.
            Err(ZkError::BadVersion | ZkError::NoNode) => Ok(Attempt::Again),
            Err(error) => Err(self.failed(path, error)),
        }
    }

    /// What there is before a change; `None` to look again, for nothing was changed yet.
    async fn look_first(
        &self,
        client: &Client,
        path: &StatePath,
        znode: &str,
    ) -> Result<Option<(Stat, Option<Stat>)>> {
        match Self::look(client, &self.births(), znode).await {
            Ok((births, found)) => Ok(births.map(|births| (births, found))),
            Err(error) if is_lost(&error) => Ok(None),
            Err(error) => Err(self.failed(path, error)),
        }
    }

    /// What was found, if it is as expected.
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

    /// Makes a change of a node happen only if it is still the one that was found, unless it does not matter; the counter to compare.
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

    /// Makes a node and its missing ancestors, and counts the birth.
    async fn try_create(
        &self,
        client: &Client,
        by: By<'_>,
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
                Ok(None) => self.add(path, change.add_create(above, b"", &LASTING))?,
                Err(error) if is_lost(&error) => return Ok(Attempt::Again),
                Err(error) => return Err(self.failed(path, error)),
            }
        }
        let options = match by {
            By::All => LASTING,
            By::Session(_) => PASSING,
        };
        self.add(path, change.add_create(&self.znode(path), value, &options))?;
        match self.commit(path, &mut change).await? {
            // The stat of a creation in a transaction is not always filled in by servers; that of the first part is,
            // and all parts have one transaction id.
            Ok(results) => Ok(results.first().map_or(Attempt::Again, written)),
            Err(ZkError::NodeExists | ZkError::NoNode) => Ok(Attempt::Again),
            Err(error) => Err(self.failed(path, error)),
        }
    }

    /// Removes a node.
    pub(crate) async fn delete(&self, path: &StatePath, expected: Expected) -> Result<()> {
        self.place().check_value(path, b"")?;
        let mut patience = self.patience();
        loop {
            let client = self.connection(By::All, path, &mut patience).await?;
            let attempt = self.try_delete(&client, path, expected);
            match self.in_time(path, &patience, attempt).await? {
                Attempt::Done(_) => return Ok(()),
                Attempt::Again => self.again(path, &client, &mut patience).await?,
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
        let Some((births, found)) = self.look_first(client, path, &znode).await? else {
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

    /// Sends a transaction; inside is what the server says of it.
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
        by: By<'_>,
        path: &StatePath,
        patience: &mut Patience,
    ) -> Result<Client> {
        let doing = format!("change {path}");
        match by {
            By::All => self.client(patience, &doing).await,
            By::Session(client) => match stands(client, patience.rest()).await {
                Some(true) => Ok(client.clone()),
                Some(false) => Err(self.ended()),
                None => Err(self.place().unavailable(doing, ZkError::ConnectionLoss)),
            },
        }
    }

    /// An attempt that takes too long may still come to something.
    async fn in_time(
        &self,
        path: &StatePath,
        patience: &Patience,
        attempt: impl Future<Output = Result<Attempt>>,
    ) -> Result<Attempt> {
        match tokio::time::timeout(patience.rest(), attempt).await {
            Ok(attempt) => attempt,
            Err(_) => Err(self.place().unknown(path, ZkError::Timeout)),
        }
    }

    /// Before another attempt; if somebody has removed the root, it is made again.
    async fn again(
        &self,
        path: &StatePath,
        client: &Client,
        patience: &mut Patience,
    ) -> Result<()> {
        let doing = format!("change {path}");
        if !patience.pause().await {
            let why = "others change the tree all the time, or the connection breaks";
            return Err(self.place().unavailable(doing, why));
        }
        match client.check_stat(&self.births()).await {
            Ok(None) => self.found(client, patience, &doing).await,
            // Whatever else is wrong shows at the next attempt.
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
