//! The thread that talks to the server: it sends what has been gathered, hears the answers, and connects again.

use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use redis::{Client, Connection, ErrorKind, RedisError, Value};

use crate::commands::Commands;

/// With so many bytes waiting, whoever brings more has to wait.
const FULL: usize = 256 << 10;
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer may take before the connection is given up.
const ANSWER: Duration = Duration::from_secs(30);
/// How soon a connection is tried again.
const AGAIN: Duration = Duration::from_millis(200);

/// A command that the server refused.
pub(crate) struct Refused {
    /// The record's position.
    pub record: u64,
    pub reason: String,
}

#[derive(Default)]
struct State {
    waiting: Commands,
    /// The thread is sending, or waiting for answers.
    is_busy: bool,
    refused: Vec<Refused>,
    failed: Option<Error>,
    is_over: bool,
}

#[derive(Default)]
struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, at most `timeout`.
    fn wait<'a>(&self, state: MutexGuard<'a, State>, timeout: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, timeout);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A connection to a server, on a thread of its own, until this is dropped.
pub(crate) struct Link {
    desk: Arc<Desk>,
}

impl Link {
    /// Begins to connect to the server at `url`.
    pub fn open(url: &str) -> Result<Link> {
        let invalid = |error: RedisError| {
            // The address may hold a password, which is nobody's business.
            Error::new(
                ErrorCode::InvalidConfig,
                "the address of the Redis server makes no sense",
            )
            .because(error)
            .hint("write it as redis://[user:password@]host[:port][/database]")
        };
        let client = Client::open(url).map_err(invalid)?;
        let desk = Arc::new(Desk::default());
        let talker = Talker {
            name: client.get_connection_info().addr().to_string(),
            client,
            desk: Arc::clone(&desk),
            connection: None,
            is_away: false,
        };
        std::thread::Builder::new()
            .name("redis-writer".to_string())
            .spawn(move || talker.run())
            .map_err(|error| {
                Error::new(ErrorCode::LimitReached, "no thread could be started").because(error)
            })?;
        Ok(Link { desk })
    }

    /// Whether more may be brought; waited for, at most `timeout`.
    pub fn has_room(&self, timeout: Duration) -> Result<bool> {
        let mut state = self.desk.lock();
        if state.waiting.len() >= FULL && state.failed.is_none() {
            state = self.desk.wait(state, timeout);
        }
        match state.failed.take() {
            Some(error) => Err(error),
            None => Ok(state.waiting.len() < FULL),
        }
    }

    /// Brings commands, to be sent behind those that wait.
    pub fn bring(&self, commands: &mut Commands) {
        self.desk.lock().waiting.take_from(commands);
        self.desk.changed.notify_all();
    }

    /// Whether all commands have been answered; waited for, at most `timeout`.
    pub fn is_done(&self, timeout: Duration) -> Result<bool> {
        let mut state = self.desk.lock();
        let is_done = |state: &State| state.waiting.is_empty() && !state.is_busy;
        if !is_done(&state) && state.failed.is_none() {
            state = self.desk.wait(state, timeout);
        }
        match state.failed.take() {
            Some(error) => Err(error),
            None => Ok(is_done(&state)),
        }
    }

    /// What has been refused since the last call.
    pub fn take_refused(&self) -> Vec<Refused> {
        std::mem::take(&mut self.desk.lock().refused)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.desk.lock().is_over = true;
        self.desk.changed.notify_all();
    }
}

struct Talker {
    client: Client,
    /// What people call the server.
    name: String,
    desk: Arc<Desk>,
    connection: Option<Connection>,
    is_away: bool,
}

impl Talker {
    fn run(mut self) {
        let mut sending = Commands::default();
        loop {
            let mut state = self.desk.lock();
            state.is_busy = !sending.is_empty();
            self.desk.changed.notify_all();
            while sending.is_empty() && !state.is_over {
                sending.clear();
                std::mem::swap(&mut sending, &mut state.waiting);
                state.is_busy = !sending.is_empty();
                if sending.is_empty() {
                    state = self
                        .desk
                        .changed
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
            if state.is_over {
                return;
            }
            // Those who wait for room hear of it.
            self.desk.changed.notify_all();
            drop(state);
            match self.talk(&sending) {
                Ok(refused) => {
                    sending.clear();
                    self.desk.lock().refused.extend(refused);
                }
                Err(error) if is_final(&error) => {
                    let error = Error::new(
                        ErrorCode::Network,
                        format!("the Redis server {} does not let us in", self.name),
                    )
                    .because(error)
                    .hint("check the user and password of the address");
                    self.desk.lock().failed = Some(error);
                    self.desk.changed.notify_all();
                    return;
                }
                Err(error) => self.rest(&error),
            }
        }
    }

    /// Sends commands and hears their answers. After an error it is not known which were carried out.
    fn talk(&mut self, commands: &Commands) -> Result<Vec<Refused>, RedisError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(connect(&self.client)?),
        };
        if self.is_away {
            self.is_away = false;
            say(&self.name, "it answers again");
        }
        let mut refused = Vec::new();
        connection.send_packed_command(commands.bytes())?;
        for &record in commands.records() {
            let reason = match connection.recv_response() {
                Ok(Value::ServerError(error)) => RedisError::from(error).to_string(),
                Ok(_) => continue,
                Err(error) if is_refusal(&error) => error.to_string(),
                Err(error) => return Err(error),
            };
            refused.push(Refused { record, reason });
        }
        Ok(refused)
    }

    /// The connection broke: waits for a while before the next.
    fn rest(&mut self, error: &RedisError) {
        self.connection = None;
        if !self.is_away {
            self.is_away = true;
            say(
                &self.name,
                &format!("it is away ({error}); waiting until it answers"),
            );
        }
        let state = self.desk.lock();
        if !state.is_over {
            drop(self.desk.wait(state, AGAIN));
        }
    }
}

fn connect(client: &Client) -> Result<Connection, RedisError> {
    let mut connection = client.get_connection_with_timeout(CONNECT)?;
    connection.set_read_timeout(Some(ANSWER))?;
    connection.set_write_timeout(Some(ANSWER))?;
    // A server that still reads its files refuses this, and would refuse everything else.
    redis::cmd("PING").query::<()>(&mut connection)?;
    Ok(connection)
}

/// Whether the server has answered, and said no.
fn is_refusal(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

/// Whether trying again is of no use.
fn is_final(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"))
}

fn say(server: &str, what: &str) {
    // Nobody is left to be told that standard error is closed.
    let _ = writeln!(std::io::stderr().lock(), "ardea: redis {server}: {what}");
}
