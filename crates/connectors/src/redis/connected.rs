//! Connections to a server that is checked before use. They are re-established after failures.

use ardea_core::{Error, ErrorCode};
use redis::cluster_routing::Slot;
use redis::{Client, Connection, ConnectionInfo, ErrorKind, RedisError};

use crate::redis::answers::{is_final, is_passing, is_redirection, is_refusal};
use crate::redis::checks::{ServerInfo, SinkGuarantee, is_replica, try_transaction};
use crate::redis::nodes::{NodeName, Nodes};
use crate::redis::place::{Server, ServerAddresses, open};
use crate::redis::sentinels::{Confirmation, UNKNOWN_PRIMARY};

/// An open connection.
pub(crate) enum Connected {
    /// Connection to a single server.
    One(Box<Connection>),
    /// Connections to the nodes of a cluster.
    Cluster(Box<Nodes>),
}

/// Reason why there is no connection or no response.
pub(crate) enum Failure {
    /// The server is unavailable or temporarily refuses commands.
    Away(RedisError),
    /// Retrying is useless.
    Final(Error),
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        Failure::Away(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Final(error)
    }
}

/// Factory of checked connections.
pub(crate) struct Connector {
    server: Server,
    promise: SinkGuarantee,
    /// Nodes of the cluster, as last reported.
    known: Vec<Client>,
    /// True if a server has redirected a command, which shows that it is a node of a cluster.
    has_redirected: bool,
    has_connected: bool,
}

impl Connector {
    pub fn new(server: Server, promise: SinkGuarantee) -> Self {
        Connector {
            server,
            promise,
            known: Vec::new(),
            has_redirected: false,
            has_connected: false,
        }
    }

    /// Returns the name of the server for messages.
    pub fn name(&self) -> &str {
        &self.server.name
    }

    /// Handles an error. Records, after a redirection, that the server is a node of a cluster.
    pub fn note(&mut self, error: &RedisError) {
        self.has_redirected |= is_redirection(error);
    }

    /// Opens a connection and checks the server. The first connection also returns warnings about
    /// the server.
    ///
    /// # Errors
    /// A final error if the server cannot support the guarantee. A replica, which may be about to
    /// be promoted, is a transient error if a connection existed before or `is_restored`.
    pub fn connect(&mut self, is_restored: bool) -> Result<(Connected, Vec<String>), Failure> {
        let is_first = !self.has_connected;
        let opened = self.open();
        let (mut connection, like) = opened.map_err(|error| match error.kind() {
            UNKNOWN_PRIMARY if is_first && !is_restored => unknown_primary(error).into(),
            _ => Failure::Away(error),
        })?;
        let mut info = ServerInfo::query(&mut connection)?;
        if self.has_redirected {
            info.note_cluster();
        }
        let name = &self.server.name;
        info.refuse(name, &self.promise)?;
        let mut connected = match info.is_cluster() {
            true => {
                let nodes = Nodes::find(connection, like)?;
                self.known = nodes.clients()?;
                Connected::Cluster(Box::new(nodes))
            }
            false => {
                if let Some(primary) = info.primary() {
                    let is_named = matches!(self.server.place, ServerAddresses::Servers(_));
                    return Err(match is_first && !is_restored && is_named {
                        true => is_replica(name, &primary).into(),
                        false => still_replica(&primary).into(),
                    });
                }
                Connected::One(Box::new(connection))
            }
        };
        if let (SinkGuarantee::Once { key, .. }, true) = (&self.promise, is_first) {
            let tried = try_transaction(connected.of_key(key)?, key);
            tried.map_err(|error| forbidden(name, error))?;
        }
        self.has_connected = true;
        let warnings = if is_first {
            info.warnings(&self.promise)
        } else {
            Vec::new()
        };
        Ok((connected, warnings))
    }

    /// Checks, if sentinels are configured, that acknowledged commands will not be lost by a
    /// failover in progress.
    ///
    /// # Errors
    /// An error means that the commands must be sent again, to the primary at the time of the
    /// retry.
    pub fn confirm(&mut self, connected: &mut Connected) -> Result<Confirmation, RedisError> {
        match (&mut self.server.place, connected) {
            (ServerAddresses::Sentinels(sentinels), Connected::One(connection)) => {
                sentinels.confirm(connection)
            }
            _ => Ok(Confirmation::Confirmed),
        }
    }

    /// Returns the primary named by the sentinels; `None` without sentinels.
    pub fn primary(&self) -> Option<NodeName> {
        match &self.server.place {
            ServerAddresses::Sentinels(sentinels) => sentinels.primary().cloned(),
            ServerAddresses::Servers(_) => None,
        }
    }

    fn open(&mut self) -> Result<(Connection, ConnectionInfo), RedisError> {
        let mut opened = self.server.place.connect();
        for client in &self.known {
            if opened.is_ok() {
                break;
            }
            if let Ok(other) = open(client) {
                opened = Ok(other);
            }
        }
        opened
    }
}

impl Connected {
    /// Returns the connection to the server that owns a key.
    pub fn of_key(&mut self, key: &str) -> Result<&mut Connection, RedisError> {
        match self {
            Connected::One(connection) => Ok(connection),
            Connected::Cluster(nodes) => {
                let name = nodes.node_of(Slot::for_key(key))?;
                nodes.connection(&name)
            }
        }
    }
}

fn still_replica(primary: &str) -> RedisError {
    RedisError::from((
        ErrorKind::Io,
        "it is a replica at the moment",
        format!("of {primary}"),
    ))
}

fn unknown_primary(error: RedisError) -> Error {
    let what = "the sentinels of Redis do not know the primary server of the address";
    Error::new(ErrorCode::InvalidConfig, what)
        .because(error)
        .hint("write its name after the sentinels: redis+sentinel://host:port/MASTER; `sentinel monitor` sets it")
}

/// Converts an error of the transaction test: a missing permission and a server without
/// transactions are final, an unavailable server is not.
fn forbidden(server: &str, error: RedisError) -> Failure {
    if error.code() != Some("NOPERM") {
        let is_known = is_passing(&error) || is_redirection(&error) || is_final(&error);
        return match is_refusal(&error) && !is_known {
            true => no_transactions(server, error).into(),
            false => Failure::Away(error),
        };
    }
    let what =
        format!("the user lacks rights on the Redis server {server} that `exactly_once` needs");
    Failure::Final(
        Error::new(ErrorCode::InvalidJob, what)
            .because(error)
            .hint("allow it WATCH, UNWATCH, GET, SET, EXPIRE, MULTI, EXEC and DISCARD for keys that begin with ardea:"),
    )
}

fn no_transactions(server: &str, error: RedisError) -> Error {
    let what = format!("the Redis server {server} lacks commands that `exactly_once` needs");
    Error::new(ErrorCode::StoreUnsuitable, what)
        .because(error)
        .hint(
            "connect to the server itself if this is a proxy: it needs WATCH, UNWATCH, MULTI, EXEC \
             and DISCARD; or use `idempotent`",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_transactions_is_refused_and_one_that_can_not_now_is_waited_for() {
        let code = |answer: &str| {
            let answer = redis::parse_redis_value(answer.as_bytes()).unwrap();
            let error = crate::redis::answers::expect(Ok(answer)).unwrap_err();
            match forbidden("x", error) {
                Failure::Final(error) => Some(error.code()),
                Failure::Away(_) => None,
            }
        };
        let unsuitable = Some(ErrorCode::StoreUnsuitable);
        assert_eq!(code("-ERR unknown command 'WATCH'\r\n"), unsuitable);
        assert_eq!(code("-NOPERM no\r\n"), Some(ErrorCode::InvalidJob));
        for passing in ["-LOADING it\r\n", "-MOVED 1 a:1\r\n", "-NOAUTH no\r\n"] {
            assert_eq!(code(passing), None, "{passing}");
        }
    }
}
