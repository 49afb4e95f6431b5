//! Sentinels of a primary server, and the check that the primary has not been replaced.
//!
//! # Failovers
//!
//! After a promotion, the old primary accepts commands for some seconds until it becomes a replica,
//! and then loses these commands. Replication is asynchronous, so the promoted server may lack
//! commands acknowledged shortly before. Therefore responses count only after the replicas have
//! acknowledged the commands and the sentinels then still name the same server. A replica leaves
//! its primary when it is promoted, before the sentinels name it. So the sink waits for a missing
//! acknowledgement until the sentinels would have reported a failover.

use std::time::{Duration, Instant};

use redis::{Client, Cmd, Connection, ConnectionInfo, ErrorKind, RedisError, Role, Value};

use crate::redis::answers::is_refusal;
use crate::redis::nodes::NodeName;
use crate::redis::place::{client_of_node, open};

/// Timeout in milliseconds of one wait for acknowledgements, after which the sentinels are queried.
const ACKNOWLEDGEMENT_MILLIS: u32 = 500;
/// Time after a promotion by which all sentinels name the new primary. Sentinels exchange its name
/// every two seconds.
const SENTINELS_AGREE: Duration = Duration::from_secs(10);

/// Error kind for a primary name that no sentinel knows.
pub(crate) const UNKNOWN_PRIMARY: ErrorKind = ErrorKind::MasterNameNotFoundBySentinel;

/// Sentinels and the primary that they named last.
pub(crate) struct Sentinels {
    /// Clients of the sentinels, never empty. The sentinel that responded last is first.
    clients: Vec<Client>,
    /// The name under which the sentinels monitor the primary.
    name: String,
    /// Connection settings of the primary, apart from host and port.
    like: ConnectionInfo,
    /// Connection to the sentinel that responded last.
    answering: Option<Connection>,
    primary: Option<NodeName>,
    /// Expected number of acknowledgements.
    replicas: u64,
    missing_since: Option<Instant>,
}

/// Result of a confirmation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Confirmation {
    /// The commands will not be lost by a failover in progress.
    Confirmed,
    /// Acknowledgements are missing; the check must be repeated.
    Pending,
    /// Some replicas do not acknowledge although there was no failover; contains their number.
    Missing(u64),
}

impl Sentinels {
    pub fn new(clients: Vec<Client>, name: &str, like: ConnectionInfo) -> Self {
        Sentinels {
            clients,
            name: name.to_string(),
            like,
            answering: None,
            primary: None,
            replicas: 0,
            missing_since: None,
        }
    }

    /// Opens a connection to the primary; returns the connection and its settings. After a failure,
    /// the next call queries another sentinel first.
    pub fn connect(&mut self) -> Result<(Connection, ConnectionInfo), RedisError> {
        let primary = self.query_primary()?;
        let opened = self.connect_to(primary);
        if opened.is_err() {
            self.answering = None;
            self.clients.rotate_left(1);
        }
        opened
    }

    fn connect_to(
        &mut self,
        primary: NodeName,
    ) -> Result<(Connection, ConnectionInfo), RedisError> {
        let (mut connection, info) = open(&client_of_node(&self.like, &primary)?)?;
        check_role(&mut connection)?;
        self.primary = Some(primary);
        self.replicas = self.query_replicas();
        self.missing_since = None;
        Ok((connection, info))
    }

    /// Returns the server of the last connection.
    pub fn primary(&self) -> Option<&NodeName> {
        self.primary.as_ref()
    }

    /// Checks that commands acknowledged on this connection will not be lost by a failover in
    /// progress. Waits for replicas for at most half a second.
    ///
    /// # Errors
    /// Errors of the connection. An error if another server is now the primary: the caller must
    /// send the commands again.
    pub fn confirm(&mut self, connection: &mut Connection) -> Result<Confirmation, RedisError> {
        let acknowledged = acknowledgements(connection, self.replicas)?;
        let primary = self.query_primary()?;
        self.expect(&primary)?;
        let missing = match acknowledged {
            Some(count) => self.replicas.saturating_sub(count),
            None => 0,
        };
        let confirmation = match missing {
            0 => Confirmation::Confirmed,
            missing => {
                let since = *self.missing_since.get_or_insert_with(Instant::now);
                if since.elapsed() < SENTINELS_AGREE {
                    return Ok(Confirmation::Pending);
                }
                self.ask_all()?;
                Confirmation::Missing(missing)
            }
        };
        self.missing_since = None;
        self.replicas = acknowledged.unwrap_or(self.replicas);
        Ok(confirmation)
    }

    /// Returns an error if another server is the primary.
    fn expect(&self, primary: &NodeName) -> Result<(), RedisError> {
        if self.primary.as_ref() == Some(primary) {
            return Ok(());
        }
        let (host, port) = primary;
        let what = "the sentinels name another server";
        Err((ErrorKind::Io, what, format!("{host}:{port}")).into())
    }

    /// Queries all available sentinels, because a sentinel that missed a failover keeps naming the
    /// old primary. If a sentinel names another primary, it is queried first from then on.
    fn ask_all(&mut self) -> Result<(), RedisError> {
        let question = self.question();
        for at in 0..self.clients.len() {
            let Ok((_, Some(primary))) = ask(&self.clients[at], &question) else {
                continue;
            };
            if let Err(error) = self.expect(&primary) {
                self.clients.rotate_left(at);
                self.answering = None;
                return Err(error);
            }
        }
        Ok(())
    }

    fn question(&self) -> Cmd {
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        question
    }

    /// Queries one sentinel after the other for the primary, starting with the one that responded
    /// last.
    fn query_primary(&mut self) -> Result<NodeName, RedisError> {
        let question = self.question();
        if let Some(mut connection) = self.answering.take()
            && let Ok(Some(primary)) = question.query(&mut connection)
        {
            self.answering = Some(connection);
            return Ok(primary);
        }
        let mut failed = None;
        for at in 0..self.clients.len() {
            match ask(&self.clients[at], &question) {
                Ok((connection, Some(primary))) => {
                    self.answering = Some(connection);
                    self.clients.rotate_left(at);
                    return Ok(primary);
                }
                Ok((_, None)) => {}
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(|| {
            let what = "no sentinel knows a primary server of this name";
            (UNKNOWN_PRIMARY, what, self.name.clone()).into()
        }))
    }

    /// Queries the number of reachable replicas. A promoted replica counts until the sentinel names
    /// it as the primary.
    fn query_replicas(&mut self) -> u64 {
        let Some(connection) = &mut self.answering else {
            return 0;
        };
        let mut question = redis::cmd("SENTINEL");
        // The command's name in all versions.
        question.arg("SLAVES").arg(&self.name);
        // If the sentinel does not return a list, the primary's own count is used.
        let replicas: Vec<std::collections::HashMap<String, String>> =
            question.query(connection).unwrap_or_default();
        let flags = replicas.iter().filter_map(|replica| replica.get("flags"));
        flags.filter(|flags| !flags.contains("s_down")).count() as u64
    }
}

fn ask(client: &Client, question: &Cmd) -> Result<(Connection, Option<NodeName>), RedisError> {
    let (mut connection, _) = open(client)?;
    let primary = question.query(&mut connection)?;
    Ok((connection, primary))
}

/// Checks that a server is a primary, if it reports its role.
fn check_role(connection: &mut Connection) -> Result<(), RedisError> {
    match redis::cmd("ROLE").query(connection) {
        Ok(Role::Primary { .. }) => Ok(()),
        Err(error) if is_not_allowed(&error) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => {
            let what = "the sentinels name a server that is a replica at the moment";
            Err((ErrorKind::Io, what).into())
        }
    }
}

/// Waits up to half a second until `of` replicas have acknowledged the writes of this connection.
/// Returns the number of replicas that have, or `None` if this user may not request it.
fn acknowledgements(connection: &mut Connection, of: u64) -> Result<Option<u64>, RedisError> {
    let mut wait = redis::cmd("WAIT");
    wait.arg(of).arg(ACKNOWLEDGEMENT_MILLIS);
    match wait.query::<Value>(connection) {
        Ok(Value::Int(count)) => Ok(u64::try_from(count).ok()),
        Ok(_) => Ok(None),
        Err(error) if is_not_allowed(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns true if the error means that the user may not execute a command or the server does not
/// support it.
fn is_not_allowed(error: &RedisError) -> bool {
    is_refusal(error)
        && (error.code() == Some("NOPERM") || error.to_string().contains("unknown command"))
}
