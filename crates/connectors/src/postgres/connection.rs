//! A connection that is made again whenever it breaks.

use std::io::Write;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

use crate::postgres::address::Server;
use crate::postgres::session::Session;
use crate::postgres::trouble::Trouble;

/// How long a server may take to let somebody in.
const GREETING: Duration = Duration::from_secs(20);
/// How soon a connection is tried again at first, and how late at most.
const SOONEST: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_secs(5);

/// A connection to a server, with what was prepared on it.
pub(crate) struct Connection<P> {
    server: Server,
    runtime: Runtime,
    session: Option<(Session, P)>,
    is_away: bool,
    wait: Duration,
}

impl<P> Connection<P> {
    /// None so far: it is made when it is needed.
    ///
    /// # Errors
    /// `LimitReached` if the system gives no more descriptors.
    pub fn new(server: Server) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| {
                Error::new(ErrorCode::LimitReached, "no connection can be made").because(error)
            })?;
        Ok(Connection {
            server,
            runtime,
            session: None,
            is_away: false,
            wait: SOONEST,
        })
    }

    /// What people call the server.
    pub fn name(&self) -> &str {
        &self.server.name
    }

    /// Adds the server to an error's hint.
    pub fn placed(&self, error: Error) -> Error {
        let place = format!("the server is {}", self.name());
        let hint = match error.what_next() {
            Some(next) => format!("{next}; {place}"),
            None => place,
        };
        error.hint(hint)
    }

    /// Does something on the connection, which is made first if there is none. If it was in vain for the moment the connection is given up,
    /// and it is not known what has come of it.
    pub fn attempt<R>(
        &mut self,
        prepare: impl AsyncFnOnce(&mut Session) -> std::result::Result<P, Trouble>,
        act: impl AsyncFnOnce(&mut Session, &mut P) -> std::result::Result<R, Trouble>,
    ) -> std::result::Result<R, Trouble> {
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
            Err(Trouble::Passing(why)) => {
                self.session = None;
                self.note_away(why);
            }
            _ => self.note_there(),
        }
        done
    }

    /// How long to wait before the next attempt: longer each time that one was in vain.
    pub fn next_wait(&mut self) -> Duration {
        let wait = self.wait;
        self.wait = (wait * 2).min(LATEST);
        wait
    }

    fn note_away(&mut self, why: &str) {
        if !self.is_away {
            self.is_away = true;
            self.say(&format!("it is away ({why}); waiting until it answers"));
        }
    }

    fn note_there(&mut self) {
        self.wait = SOONEST;
        if self.is_away {
            self.is_away = false;
            self.say("it answers again");
        }
    }

    /// Writes a line about the server to standard error.
    pub fn say(&self, what: &str) {
        // Nobody is left to be told that standard error is closed.
        let _ = writeln!(
            std::io::stderr().lock(),
            "ardea: postgres {}: {what}",
            self.server.name
        );
    }
}

/// A connection that has made no settings. It is closed at once when this is dropped, also while an
/// answer is waited for.
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
pub(crate) async fn open(server: &Server) -> std::result::Result<Opened, Trouble> {
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
        Err(_) => Err(Trouble::Passing(format!(
            "it has not answered for {} seconds",
            GREETING.as_secs()
        ))),
    }
}
