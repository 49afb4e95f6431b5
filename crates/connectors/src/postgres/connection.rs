//! A connection that is re-established after failures.

use std::time::Duration;

use ardea_core::{Error, OutageReporter, Result};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

use crate::blocking_worker::runtime;
use crate::postgres::address::Server;
use crate::postgres::error_class::PgErrorClass;
use crate::postgres::session::Session;

/// Timeout of connection and login.
const GREETING: Duration = Duration::from_secs(20);
/// Initial and maximum delay before a reconnect.
const SOONEST: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_secs(5);

/// A connection to a server with its prepared state.
pub(crate) struct Connection<P> {
    server: Server,
    runtime: Runtime,
    session: Option<(Session, P)>,
    outage: OutageReporter,
    wait: Duration,
}

impl<P> Connection<P> {
    /// Creates the handle; the connection is opened on first use.
    ///
    /// # Errors
    /// `LimitReached` if no file descriptors are left.
    pub fn new(server: Server) -> Result<Self> {
        Ok(Connection {
            outage: OutageReporter::new(format!("postgres {}", server.name)),
            server,
            runtime: runtime()?,
            session: None,
            wait: SOONEST,
        })
    }

    /// Returns the server's name for messages.
    pub fn name(&self) -> &str {
        &self.server.name
    }

    /// Adds the name of the server to an error's hint.
    pub fn placed(&self, error: Error) -> Error {
        let place = format!("the server is {}", self.name());
        let hint = match error.hint_text() {
            Some(next) => format!("{next}; {place}"),
            None => place,
        };
        error.hint(hint)
    }

    /// Runs `act` on the connection, which is opened and passed to `prepare` first if necessary.
    /// After a transient error the connection is dropped, and the outcome of `act` is unknown.
    pub fn attempt<R>(
        &mut self,
        prepare: impl AsyncFnOnce(&mut Session) -> std::result::Result<P, PgErrorClass>,
        act: impl AsyncFnOnce(&mut Session, &mut P) -> std::result::Result<R, PgErrorClass>,
    ) -> std::result::Result<R, PgErrorClass> {
        let (server, kept) = (&self.server, &mut self.session);
        let done = self.runtime.block_on(async {
            let (session, prepared) = match kept {
                Some((session, prepared)) if !session.is_closed() => (session, prepared),
                _ => {
                    let opened = open(server).await?;
                    let mut session = Session::begin(server, opened).await?;
                    let prepared = prepare(&mut session).await?;
                    let (session, prepared) = kept.insert((session, prepared));
                    (session, prepared)
                }
            };
            act(session, prepared).await
        });
        match &done {
            Err(PgErrorClass::Passing(why)) => {
                self.session = None;
                self.outage.away(why);
            }
            _ => {
                self.wait = SOONEST;
                self.outage.answers();
            }
        }
        done
    }

    /// Returns the delay before the next attempt, which grows with each failure.
    pub fn next_wait(&mut self) -> Duration {
        let wait = self.wait;
        self.wait = (wait * 2).min(LATEST);
        wait
    }

    /// Writes a line about the server to standard error.
    pub fn log_line(&self, what: &str) {
        self.outage.log_line(what);
    }
}

/// An open connection without settings. Dropping it closes it at once, even while a request is
/// pending.
pub(crate) struct Opened {
    pub client: Client,
    task: JoinHandle<Result<(), tokio_postgres::Error>>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Opens a connection.
pub(crate) async fn open(server: &Server) -> std::result::Result<Opened, PgErrorClass> {
    let greeted = timeout(GREETING, async {
        let (client, task) = match &server.encryption {
            None => {
                let (client, connection) = server.config.connect(NoTls).await?;
                (client, tokio::spawn(connection))
            }
            Some(encryption) => {
                let (client, connection) = server.config.connect(encryption.clone()).await?;
                (client, tokio::spawn(connection))
            }
        };
        Ok(Opened { client, task })
    });
    match greeted.await {
        Ok(opened) => opened,
        Err(_) => Err(PgErrorClass::Passing(format!(
            "it has not responded for {} seconds",
            GREETING.as_secs()
        ))),
    }
}
