//! Detection of a connection pooler that gives each transaction another server process.
//!
//! A server announces the number of its process when a connection begins; a pooler announces a
//! number of its own. Only where the two differ further connections are made: if one of them is
//! served by the process of the first, or the first is served by another process while it holds its
//! own, the pooler assigns processes by transaction.

use std::future::{Ready, ready};
use std::io;
use std::time::Duration;

use ardea_core::{Error, ErrorCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_postgres::tls::TlsConnect;

use crate::postgres::address::Server;
use crate::postgres::connection::{Opened, open};
use crate::postgres::held;
use crate::postgres::trouble::Trouble;
use crate::postgres::unbound::Unbound;

/// Number of further connections that are made at most.
const PROBES: usize = 3;
/// Time limit of a probe. A pooler in session mode whose connections are all in use does not
/// answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit of the first statement. A pooler whose connections are all in use lets a client in,
/// and keeps its first statement waiting.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Code of the message that asks for TLS.
const TLS_REQUEST: u32 = 80_877_103;

/// Returns whether the server process may change between two transactions of this connection.
///
/// # Errors
/// `StoreUnsuitable` if the pooler allows no transactions of several statements, or has no
/// connection left beside those that this process holds; those of the connection.
pub(crate) async fn is_pooled(server: &Server, client: &Client) -> Result<bool, Trouble> {
    let own = match timeout(FIRST_ANSWER_TIMEOUT, process(client)).await {
        Ok(own) => own?,
        Err(_) => return Err(no_connection(held::count(server))),
    };
    if announced(client).await == Some(own) {
        return Ok(false);
    }
    let mut probes = Vec::with_capacity(PROBES);
    let is_pooled = compare(server, client, own, &mut probes).await;
    for probe in &probes {
        // Otherwise the pooler would close the server process with the transaction.
        let _ = timeout(PROBE_TIMEOUT, probe.client.batch_execute("rollback")).await;
    }
    is_pooled
}

/// Compares the server process of a connection with those of probes.
async fn compare(
    server: &Server,
    client: &Client,
    own: i32,
    probes: &mut Vec<Opened>,
) -> Result<bool, Trouble> {
    for _ in 0..PROBES {
        let Ok(held) = timeout(PROBE_TIMEOUT, hold(server)).await else {
            break;
        };
        let (probe, held) = held?;
        probes.push(probe);
        if held == own {
            return Ok(true);
        }
        // Without an answer a probe has taken the last process of the pool.
        let Ok(now) = timeout(PROBE_TIMEOUT, process(client)).await else {
            return Ok(true);
        };
        if now? != own {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Opens a connection with a transaction, and returns the server process that it holds.
async fn hold(server: &Server) -> Result<(Opened, i32), Trouble> {
    let opened = open(server).await?;
    let begun = opened.client.batch_execute("begin").await;
    if let Err(error) = begun {
        return Err(match error.as_db_error() {
            Some(refusal) if refusal.code().code().starts_with("08") => {
                Trouble::Final(by_statement(refusal.message()))
            }
            _ => error.into(),
        });
    }
    let process = process(&opened.client).await?;
    Ok((opened, process))
}

async fn process(client: &Client) -> Result<i32, Trouble> {
    let row = client
        .query_typed_one("select pg_backend_pid()", &[])
        .await?;
    Ok(row.try_get(0)?)
}

/// Returns the process number that was announced for the connection. It is read from a request to
/// cancel a statement, which is written to memory and not sent.
async fn announced(client: &Client) -> Option<i32> {
    let (mut near, far) = tokio::io::duplex(64);
    let token = client.cancel_token();
    let write = tokio::spawn(async move { token.cancel_query_raw(far, InMemory).await });
    let mut head = [0; 8];
    near.read_exact(&mut head).await.ok()?;
    if u32::from_be_bytes([head[4], head[5], head[6], head[7]]) == TLS_REQUEST {
        near.write_all(b"S").await.ok()?;
        near.read_exact(&mut head).await.ok()?;
    }
    let mut process = [0; 4];
    near.read_exact(&mut process).await.ok()?;
    drop(near);
    drop(write.await);
    Some(i32::from_be_bytes(process))
}

/// Describes a pooler without a free connection. Those of this process stay in use until its job
/// ends, so waiting is of no use if it holds any.
fn no_connection(held: usize) -> Trouble {
    let what = "the connection pooler in front of PostgreSQL has no free connection";
    if held == 0 {
        return Trouble::Passing(what.to_string());
    }
    let hint = "each instance keeps one in session mode: raise `pool_size` or `default_pool_size`, use fewer \
                instances, or set `pool_mode` to `transaction`";
    let why = format!("this process holds {held} of them");
    Trouble::Final(
        Error::new(ErrorCode::StoreUnsuitable, what)
            .because(why)
            .hint(hint),
    )
}

fn by_statement(why: &str) -> Error {
    let what = "the connection pooler in front of PostgreSQL allows no transactions";
    Error::new(ErrorCode::StoreUnsuitable, what)
        .because(why)
        .hint("set its `pool_mode` to `session` or `transaction`, or connect to the server itself")
}

/// Takes the place of TLS on a stream in memory: passes all bytes through.
struct InMemory;

impl TlsConnect<DuplexStream> for InMemory {
    type Stream = Unbound<DuplexStream>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Stream>>;

    fn connect(self, stream: DuplexStream) -> Self::Future {
        ready(Ok(Unbound(stream)))
    }
}
