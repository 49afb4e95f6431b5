//! Detection of a connection pooler that gives each transaction another server process.
//!
//! A server announces the number of its process when a connection begins; a pooler announces a
//! number of its own. Only where the two differ further connections are made: if one of them is
//! served by the process of the first, or the first is served by another process while it holds its
//! own, the pooler assigns processes by transaction.

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ardea_core::{Error, ErrorCode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

use crate::address::Server;
use crate::connection::connect;
use crate::trouble::Trouble;

/// Number of further connections that are made at most.
const PROBES: usize = 3;
/// Time limit of a probe. A pooler in session mode whose connections are all in use does not
/// answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// Code of the message that asks for TLS.
const TLS_REQUEST: u32 = 80_877_103;

/// Returns whether the server process may change between two transactions of this connection.
///
/// # Errors
/// `StoreUnsuitable` if the pooler allows no transactions of several statements; those of the
/// connection.
pub(crate) async fn is_pooled(server: &Server, client: &Client) -> Result<bool, Trouble> {
    let own = process(client).await?;
    if announced(client).await == Some(own) {
        return Ok(false);
    }
    let mut probes = Vec::with_capacity(PROBES);
    for _ in 0..PROBES {
        let Ok(probe) = timeout(PROBE_TIMEOUT, hold(server)).await else {
            break;
        };
        let (probe, held) = probe?;
        if held == own || process(client).await? != own {
            return Ok(true);
        }
        probes.push(probe);
    }
    Ok(false)
}

/// Opens a connection with a transaction, and returns the server process that it holds.
async fn hold(server: &Server) -> Result<(Client, i32), Trouble> {
    let client = connect(server).await?;
    let begun = client.batch_execute("begin").await;
    if let Err(error) = begun {
        return Err(match error.as_db_error() {
            Some(refusal) if refusal.code().code().starts_with("08") => {
                Trouble::Final(by_statement(refusal.message()))
            }
            _ => error.into(),
        });
    }
    let process = process(&client).await?;
    Ok((client, process))
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

fn by_statement(why: &str) -> Error {
    let what = "the connection pooler in front of PostgreSQL allows no transactions";
    Error::new(ErrorCode::StoreUnsuitable, what)
        .because(why)
        .hint("set its `pool_mode` to `session` or `transaction`, or connect to the server itself")
}

/// Takes the place of TLS on a stream in memory: passes all bytes through.
struct InMemory;

impl TlsConnect<DuplexStream> for InMemory {
    type Stream = Plain;
    type Error = io::Error;
    type Future = Ready<io::Result<Plain>>;

    fn connect(self, stream: DuplexStream) -> Self::Future {
        ready(Ok(Plain(stream)))
    }
}

struct Plain(DuplexStream);

impl AsyncRead for Plain {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Plain {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl TlsStream for Plain {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}
