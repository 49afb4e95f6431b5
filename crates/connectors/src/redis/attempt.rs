//! Execution of one transaction on a connection, unless its marker shows that it has been executed.

use std::collections::BTreeMap;

use redis::{Connection, RedisError, Value};

use crate::redis::answers::{confused, expect, is_passing, is_redirection, is_refusal, refusal};
use crate::redis::commands::Commands;
use crate::redis::transactions::Transaction;
use crate::sink_worker::Refused;

/// Commands left out of a transaction because the server refuses to queue them, by their indices.
pub(crate) type LeftOut = BTreeMap<usize, Refused>;

/// Result of an attempt to execute a transaction.
pub(crate) enum Attempt {
    /// The transaction was executed; contains the refused commands.
    CarriedOut(Vec<Refused>),
    /// The transaction was not executed, since another connection has set the marker.
    Overtaken,
    /// The transaction was not executed, since the server rejects the contained commands.
    NotTaken(LeftOut),
}

/// Returns true if the marker shows that a transaction has been executed. Otherwise watches the
/// marker, so that the next transaction on this connection has no effect if another connection sets
/// the marker.
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
    // `WAIT` covers only writes of the same connection, but another connection may have set the
    // marker.
    let mut again = redis::pipe();
    again.atomic().cmd("SET").arg(marker).arg(at).arg("KEEPTTL");
    match again.query::<Value>(connection) {
        Err(error) if !is_refusal(&error) => Err(error),
        _ => Ok(true),
    }
}

/// Sends a transaction without the left-out commands, and reads the responses.
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
                not_taken.insert(number, Refused::new(record, reason));
            }
            None => {}
        }
    }
    expect(connection.recv_response())?;
    let answer = connection.recv_response();
    if !not_taken.is_empty() {
        // The server discards the transaction and returns an error.
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
                Some(Refused::new(record, reason))
            });
            Ok(Attempt::CarriedOut(answers.collect()))
        }
        _ => Err(confused()),
    }
}

/// Sends the commands of a transaction except those left out.
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
