//! The thread that talks to the server: it sends what has been gathered, hears the answers, and connects again.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ardea_core::{Error, ErrorCode};
use redis::{Client, Connection, ErrorKind, RedisError, Value};

use crate::commands::Commands;
use crate::link::{Desk, Refused};
use crate::transactions::Transaction;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer may take before the connection is given up.
const ANSWER: Duration = Duration::from_secs(30);
/// How soon a connection is tried again.
const AGAIN: Duration = Duration::from_millis(200);

/// Commands that are left out of a transaction, as the server does not even take them, by their numbers.
type LeftOut = BTreeMap<usize, Refused>;

/// What is being sent, again and again until it is known what came of it.
#[derive(Default)]
struct Work {
    commands: Commands,
    /// How many of them have been answered for good, and which of those were refused.
    answered: usize,
    refused: Vec<Refused>,
    transaction: Option<Transaction>,
    left_out: LeftOut,
}

impl Work {
    fn is_nothing(&self) -> bool {
        self.commands.is_empty() && self.transaction.is_none()
    }

    fn clear(&mut self) {
        self.commands.clear();
        self.answered = 0;
        self.transaction = None;
        self.left_out.clear();
    }
}

/// What came of the attempt to carry out a transaction.
enum Attempt {
    /// It was. These were refused on the way.
    CarriedOut(Vec<Refused>),
    /// It was not, since somebody else has set the marker meanwhile.
    Overtaken,
    /// It was not, since the server does not take these commands.
    NotTaken(LeftOut),
}

/// Talks to a server until the desk is closed.
pub(crate) struct Talker {
    client: Client,
    /// What people call the server.
    name: String,
    desk: Arc<Desk>,
    connection: Option<Connection>,
    is_away: bool,
}

impl Talker {
    pub(crate) fn new(client: Client, desk: Arc<Desk>) -> Self {
        Talker {
            name: client.get_connection_info().addr().to_string(),
            client,
            desk,
            connection: None,
            is_away: false,
        }
    }

    pub(crate) fn run(mut self) {
        let mut work = Work::default();
        while self.get(&mut work) {
            let answered = if work.transaction.is_some() {
                self.transact(&mut work)
            } else {
                self.talk(&mut work)
            };
            match answered {
                Ok(refused) => {
                    self.note_there();
                    self.put(&mut work, refused);
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
                    self.desk.waker.wake();
                    return;
                }
                Err(error) => self.rest(&error),
            }
        }
    }

    /// Waits for something to do, if nothing is left; false if there will be nothing more.
    fn get(&self, work: &mut Work) -> bool {
        let mut state = self.desk.lock();
        while work.is_nothing() && !state.is_over {
            work.transaction = state.transactions.pop_front();
            if work.transaction.is_none() {
                std::mem::swap(&mut work.commands, &mut state.waiting);
            }
            state.is_busy = !work.is_nothing();
            if !state.is_busy {
                let changed = &self.desk.changed;
                state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        let is_over = state.is_over;
        // Those who wait for room hear of it.
        self.desk.changed.notify_all();
        !is_over
    }

    /// Everything at hand has been answered.
    fn put(&self, work: &mut Work, refused: Vec<Refused>) {
        let was_transaction = work.transaction.is_some();
        work.clear();
        let mut state = self.desk.lock();
        state.refused.extend(refused);
        state.is_busy = false;
        let wakes = was_transaction && state.transactions.is_empty();
        drop(state);
        self.desk.changed.notify_all();
        if wakes {
            self.desk.waker.wake();
        }
    }

    fn connection(&mut self) -> Result<&mut Connection, RedisError> {
        Ok(match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(connect(&self.client)?),
        })
    }

    fn note_there(&mut self) {
        if self.is_away {
            self.is_away = false;
            say(&self.name, "it answers again");
        }
    }

    /// Sends commands and hears their answers. After an error it is not known which were carried out of those that are not answered; nor
    /// were all that lie behind the first that a server can't take at the moment, so that they are sent again with it, in their order.
    fn talk(&mut self, work: &mut Work) -> Result<Vec<Refused>, RedisError> {
        let connection = self.connection()?;
        connection.send_packed_command(work.commands.bytes_from(work.answered))?;
        let mut passing = None;
        for &record in &work.commands.records()[work.answered..] {
            match refusal(connection.recv_response())? {
                _ if passing.is_some() => {}
                Some(error) if is_passing(&error) => passing = Some(error),
                answer => {
                    work.answered += 1;
                    work.refused.extend(answer.map(|error| Refused {
                        record,
                        reason: error.to_string(),
                    }));
                }
            }
        }
        match passing {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut work.refused)),
        }
    }

    /// Carries out a transaction, unless its marker says that it has been. After an error that is not known; then it is tried again.
    fn transact(&mut self, work: &mut Work) -> Result<Vec<Refused>, RedisError> {
        let connection = self.connection()?;
        let Some(transaction) = &work.transaction else {
            return Ok(Vec::new());
        };
        loop {
            let mut refused = Vec::new();
            if !has_been(connection, transaction)? {
                match attempt(connection, transaction, &work.left_out)? {
                    Attempt::CarriedOut(on_the_way) => refused = on_the_way,
                    Attempt::Overtaken => continue,
                    Attempt::NotTaken(more) => {
                        work.left_out.extend(more);
                        continue;
                    }
                }
            }
            let left_out = std::mem::take(&mut work.left_out);
            refused.extend(left_out.into_values());
            return Ok(refused);
        }
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

/// Whether the marker says that a transaction has been carried out. If not, the marker is watched: if somebody else sets it, the next
/// transaction of this connection comes to nothing.
fn has_been(connection: &mut Connection, transaction: &Transaction) -> Result<bool, RedisError> {
    let marker = &transaction.marker;
    redis::cmd("WATCH").arg(marker).query::<()>(connection)?;
    let at: Option<u64> = redis::cmd("GET").arg(marker).query(connection)?;
    let has_been = at >= Some(transaction.epoch.0);
    if has_been {
        redis::cmd("UNWATCH").query::<()>(connection)?;
    }
    Ok(has_been)
}

/// Sends a transaction, but for what is left out, and hears what came of it.
fn attempt(
    connection: &mut Connection,
    transaction: &Transaction,
    left_out: &LeftOut,
) -> Result<Attempt, RedisError> {
    let mut frame = Commands::default();
    frame.command("MULTI", &[]);
    connection.send_packed_command(frame.bytes())?;
    send(connection, transaction, left_out)?;
    frame.clear();
    frame.set(&transaction.marker, transaction.epoch.0);
    frame.command("EXEC", &[]);
    connection.send_packed_command(frame.bytes())?;

    let records = transaction.parts.iter().flat_map(|part| part.records());
    let sent = records.copied().enumerate();
    let sent = sent.filter(|(number, _)| !left_out.contains_key(number));
    expect(connection.recv_response())?;
    let mut not_taken = LeftOut::new();
    for (number, record) in sent.clone() {
        let answer = connection.recv_response();
        match refusal(answer)? {
            Some(error) if is_passing(&error) => return Err(error),
            Some(error) => {
                let reason = error.to_string();
                not_taken.insert(number, Refused { record, reason });
            }
            None => {}
        }
    }
    expect(connection.recv_response())?;
    let answer = connection.recv_response();
    if !not_taken.is_empty() {
        // The server gives the transaction up, and says so.
        return match refusal(answer)? {
            Some(_) => Ok(Attempt::NotTaken(not_taken)),
            None => Err(confused()),
        };
    }
    match expect(answer)? {
        Value::Nil => Ok(Attempt::Overtaken),
        Value::Array(answers) => {
            let answers = sent.zip(answers).filter_map(|((_, record), answer)| {
                let Value::ServerError(error) = answer else {
                    return None;
                };
                let reason = RedisError::from(error).to_string();
                Some(Refused { record, reason })
            });
            Ok(Attempt::CarriedOut(answers.collect()))
        }
        _ => Err(confused()),
    }
}

/// Sends the commands of a transaction, but for what is left out.
fn send(
    connection: &mut Connection,
    transaction: &Transaction,
    left_out: &LeftOut,
) -> Result<(), RedisError> {
    let mut first = 0;
    for part in &transaction.parts {
        let numbers = first..first + part.records().len();
        first = numbers.end;
        if left_out.range(numbers.clone()).next().is_none() {
            connection.send_packed_command(part.bytes())?;
            continue;
        }
        let taken = numbers.zip(part.each());
        let taken = taken.filter(|(number, _)| !left_out.contains_key(number));
        let bytes: Vec<u8> = taken.flat_map(|(_, command)| command).copied().collect();
        connection.send_packed_command(&bytes)?;
    }
    Ok(())
}

fn connect(client: &Client) -> Result<Connection, RedisError> {
    let mut connection = client.get_connection_with_timeout(CONNECT)?;
    connection.set_read_timeout(Some(ANSWER))?;
    connection.set_write_timeout(Some(ANSWER))?;
    // A server that still reads its files refuses this, and would refuse everything else.
    redis::cmd("PING").query::<()>(&mut connection)?;
    Ok(connection)
}

/// The answer, if it is none that says no.
fn expect(answer: Result<Value, RedisError>) -> Result<Value, RedisError> {
    match answer? {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

/// That the server said no, if it did.
fn refusal(answer: Result<Value, RedisError>) -> Result<Option<RedisError>, RedisError> {
    match answer {
        Ok(Value::ServerError(error)) => Ok(Some(error.into())),
        Ok(_) => Ok(None),
        Err(error) if is_refusal(&error) => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

/// Whether the server has answered, and said no.
fn is_refusal(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

/// Whether the server says no to any command at the moment, and will not for ever.
fn is_passing(error: &RedisError) -> bool {
    const CODES: [&str; 9] = [
        "LOADING",
        "BUSY",
        "OOM",
        "MISCONF",
        "READONLY",
        "MASTERDOWN",
        "NOREPLICAS",
        "CLUSTERDOWN",
        "TRYAGAIN",
    ];
    error.code().is_some_and(|code| CODES.contains(&code))
}

/// Whether trying again is of no use.
fn is_final(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"))
}

fn confused() -> RedisError {
    RedisError::from((
        ErrorKind::UnexpectedReturnType,
        "the server answered a transaction with something else",
    ))
}

fn say(server: &str, what: &str) {
    // Nobody is left to be told that standard error is closed.
    let _ = writeln!(std::io::stderr().lock(), "ardea: redis {server}: {what}");
}
