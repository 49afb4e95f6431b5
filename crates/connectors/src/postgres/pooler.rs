//! Detection of a connection pooler in transaction mode.
//!
//! A server announces its process id when a connection begins; a pooler announces another id. If
//! the announced id differs from the actual one, up to three further connections (probes) are
//! opened, each with a transaction. The pooler works in transaction mode if a probe reaches the
//! server process of the first connection, or if the first connection then reaches another process.

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
use crate::postgres::connection_count;
use crate::postgres::error_class::PgErrorClass;
use crate::postgres::unbound::Unbound;

/// Maximum number of probes.
const PROBES: usize = 3;
/// Timeout of a probe. A pooler in session mode without a free connection does not respond.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of the first statement. A pooler without a free connection accepts a client and blocks
/// its first statement.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Code of the message that requests TLS.
const TLS_REQUEST: u32 = 80_877_103;

/// Returns true if the server process may change between two transactions of this connection.
///
/// # Errors
/// `StoreUnsuitable` if the pooler allows no multi-statement transactions, or if it has no free
/// connection while this process uses some. Errors of the connection.
pub(crate) async fn is_pooled(server: &Server, client: &Client) -> Result<bool, PgErrorClass> {
    let own = match timeout(FIRST_ANSWER_TIMEOUT, process(client)).await {
        Ok(own) => own?,
        Err(_) => return Err(no_connection(connection_count::count(server))),
    };
    if announced(client).await == Some(own) {
        return Ok(false);
    }
    let mut probes = Vec::with_capacity(PROBES);
    let is_pooled = compare(server, client, own, &mut probes).await;
    for probe in &probes {
        // Without a rollback the pooler would close the server process with its open transaction.
        let _ = timeout(PROBE_TIMEOUT, probe.client.batch_execute("rollback")).await;
    }
    is_pooled
}

/// Compares the server process of a connection with the processes that serve the probes. Returns
/// true if the processes are assigned by transaction.
async fn compare(
    server: &Server,
    client: &Client,
    own: i32,
    probes: &mut Vec<Opened>,
) -> Result<bool, PgErrorClass> {
    for _ in 0..PROBES {
        let Ok(held) = timeout(PROBE_TIMEOUT, hold(server)).await else {
            break;
        };
        let (probe, held) = held?;
        probes.push(probe);
        if held == own {
            return Ok(true);
        }
        // No response: a probe has taken the last process of the pool.
        let Ok(now) = timeout(PROBE_TIMEOUT, process(client)).await else {
            return Ok(true);
        };
        if now? != own {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Opens a connection with a transaction, and returns its server process.
async fn hold(server: &Server) -> Result<(Opened, i32), PgErrorClass> {
    let opened = open(server).await?;
    let begun = opened.client.batch_execute("begin").await;
    if let Err(error) = begun {
        return Err(match error.as_db_error() {
            Some(refusal) if refusal.code().code().starts_with("08") => {
                PgErrorClass::Final(by_statement(refusal.message()))
            }
            _ => error.into(),
        });
    }
    let process = process(&opened.client).await?;
    Ok((opened, process))
}

async fn process(client: &Client) -> Result<i32, PgErrorClass> {
    let row = client
        .query_typed_one("select pg_backend_pid()", &[])
        .await?;
    Ok(row.try_get(0)?)
}

/// Returns the process id announced for the connection. The id is read from a cancel request, which
/// is written to memory and not sent.
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

/// Returns the error of a pooler without a free connection. If this process has connections
/// (`held`), waiting is useless, since they stay in use until the job ends.
fn no_connection(held: usize) -> PgErrorClass {
    let what = "the connection pooler in front of PostgreSQL has no free connection";
    if held == 0 {
        return PgErrorClass::Passing(what.to_string());
    }
    let hint = "each instance keeps one in session mode: raise `pool_size` or `default_pool_size`, use fewer \
                instances, or set `pool_mode` to `transaction`";
    let why = format!("this process holds {held} of them");
    PgErrorClass::Final(
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

/// Replacement for TLS on an in-memory stream: passes all bytes through.
struct InMemory;

impl TlsConnect<DuplexStream> for InMemory {
    type Stream = Unbound<DuplexStream>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Stream>>;

    fn connect(self, stream: DuplexStream) -> Self::Future {
        ready(Ok(Unbound(stream)))
    }
}
