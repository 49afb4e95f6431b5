//! The sentinels of a primary server: they name it, and it is checked that it stays the one.
//!
//! # Failovers
//!
//! A promoted replica does not stop the old primary server, which takes commands until it becomes a
//! replica itself, some seconds later, and then loses them. Replication is asynchronous, so
//! commands that were answered shortly before may be missing in the promoted server as well.
//! Therefore answers count only when the replicas have acknowledged the commands and the sentinels
//! then still name the same server. A replica is promoted before the sentinels name it. As it
//! leaves its primary server with that, a missing acknowledgement is waited for until sentinels
//! would know of a failover.

use std::time::{Duration, Instant};

use redis::{Client, Cmd, Connection, ConnectionInfo, ErrorKind, RedisError, Role, Value};

use crate::redis::answers::is_refusal;
use crate::redis::nodes::NodeName;
use crate::redis::place::{client_of_node, open};

/// Time limit of one wait for acknowledgements, after which the sentinels are asked.
const ACKNOWLEDGEMENT_MILLIS: u32 = 500;
/// Time after a promotion by which all sentinels name the new primary server. They exchange this
/// every two seconds.
const SENTINELS_AGREE: Duration = Duration::from_secs(10);

/// Kind of the error that no sentinel knows the name.
pub(crate) const UNKNOWN_PRIMARY: ErrorKind = ErrorKind::MasterNameNotFoundBySentinel;

/// Sentinels, and the primary server that they named last.
pub(crate) struct Sentinels {
    /// Never empty. The one that answered last is first.
    clients: Vec<Client>,
    /// The sentinels' name of the primary server, whichever it is.
    name: String,
    /// The settings of connections to the primary server. Host and port differ.
    like: ConnectionInfo,
    /// The connection to the sentinel that has answered.
    answering: Option<Connection>,
    primary: Option<NodeName>,
    /// The expected number of acknowledgements.
    replicas: u64,
    missing_since: Option<Instant>,
}

/// The result of a check of answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Confirmation {
    /// They will not be lost by a failover that has begun.
    Confirmed,
    /// Replicas are missing. It is to be checked again.
    Pending,
    /// So many replicas stay missing although there was no failover.
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

    /// Opens a connection to the primary server. Returns also how it was made. If it can't be used
    /// another sentinel is asked first the next time.
    pub fn connect(&mut self) -> Result<(Connection, ConnectionInfo), RedisError> {
        let primary = self.ask_primary()?;
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
        self.replicas = self.ask_replicas();
        self.missing_since = None;
        Ok((connection, info))
    }

    /// Returns the server to which the last connection was made.
    pub fn primary(&self) -> Option<&NodeName> {
        self.primary.as_ref()
    }

    /// Checks that commands which this connection has had answered will not be lost by a failover
    /// that has begun. Waits for replicas, at most half a second.
    ///
    /// # Errors
    /// Those of the connection, or that another server is the primary one: then the commands are to
    /// be sent again.
    pub fn confirm(&mut self, connection: &mut Connection) -> Result<Confirmation, RedisError> {
        let acknowledged = acknowledgements(connection, self.replicas)?;
        let primary = self.ask_primary()?;
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

    /// Refuses a primary server to which the connection was not made.
    fn expect(&self, primary: &NodeName) -> Result<(), RedisError> {
        if self.primary.as_ref() == Some(primary) {
            return Ok(());
        }
        let (host, port) = primary;
        let what = "the sentinels name another server";
        Err((ErrorKind::Io, what, format!("{host}:{port}")).into())
    }

    /// Asks all sentinels that answer. One that missed a failover goes on naming the old primary
    /// server. A sentinel with another answer is asked first from then on.
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

    /// Asks one sentinel after the other for the primary server, first the one that answered last.
    fn ask_primary(&mut self) -> Result<NodeName, RedisError> {
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

    /// Asks the sentinel that has answered for the number of replicas that it reaches. A promoted
    /// one counts until the sentinel names it.
    fn ask_replicas(&mut self) -> u64 {
        let Some(connection) = &mut self.answering else {
            return 0;
        };
        let mut question = redis::cmd("SENTINEL");
        // The name of this command in all versions.
        question.arg("SLAVES").arg(&self.name);
        // A sentinel that does not tell leaves the primary server's own number.
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

/// Checks that a server is a primary one, if it tells.
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

/// Waits until so many replicas have acknowledged what this connection has written, for half a
/// second at most. Returns their number, or `None` if the server does not tell it to this user.
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

/// Returns true if a user, or this kind of server, may not use a command.
fn is_not_allowed(error: &RedisError) -> bool {
    is_refusal(error)
        && (error.code() == Some("NOPERM") || error.to_string().contains("unknown command"))
}
