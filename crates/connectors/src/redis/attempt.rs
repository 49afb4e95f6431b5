//! A transaction on a connection: whether it has been carried out, and the attempt to do so.

use std::collections::BTreeMap;

use redis::{Connection, RedisError, Value};

use crate::redis::answers::{confused, expect, is_passing, is_redirection, is_refusal, refusal};
use crate::redis::commands::Commands;
use crate::redis::link::Refused;
use crate::redis::transactions::Transaction;

/// Commands that are left out of a transaction, as the server does not even take them, by their
/// numbers.
pub(crate) type LeftOut = BTreeMap<usize, Refused>;

/// The outcome of an attempt to carry out a transaction.
pub(crate) enum Attempt {
    /// It was. These were refused on the way.
    CarriedOut(Vec<Refused>),
    /// It was not, since another connection has set the marker meanwhile.
    Overtaken,
    /// It was not, since the server does not take these commands.
    NotTaken(LeftOut),
}

/// Returns true if the marker says that a transaction has been carried out. If not, the marker is
/// watched: if another connection sets it, the next transaction of this connection comes to
/// nothing.
pub(crate) fn has_been(
    connection: &mut Connection,
    transaction: &Transaction,
) -> Result<bool, RedisError> {
    let marker = &transaction.marker;
    redis::cmd("WATCH").arg(marker).query::<()>(connection)?;
    let at: Option<u64> = redis::cmd("GET").arg(marker).query(connection)?;
    let Some(at) = at.filter(|at| *at >= transaction.epoch.0) else {
        return Ok(false);
    };
    // `WAIT` speaks of what its own connection has written. Another one may have set the marker.
    let mut again = redis::pipe();
    again.atomic().cmd("SET").arg(marker).arg(at).arg("KEEPTTL");
    match again.query::<Value>(connection) {
        Err(error) if !is_refusal(&error) => Err(error),
        _ => Ok(true),
    }
}

/// Sends a transaction without the commands that are left out, and reads the answers.
pub(crate) fn attempt(
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
            Some(error) if is_passing(&error) || is_redirection(&error) => return Err(error),
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
