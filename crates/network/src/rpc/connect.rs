//! The way to a listener.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::rpc::frame::{Cutter, cut_off};
use crate::rpc::greeting::{Greeting, hello, read_answer};
use crate::rpc::halves::Courier;
use crate::rpc::security::Security;

/// Connects to the process that listens at `address` (`host:port`, the host a name or an IP address), and greets it. Tries once, and
/// gives up after `patience`.
///
/// # Errors
/// [`ErrorCode::Network`] if nobody is there, or nobody answers in time; [`ErrorCode::VersionMismatch`], [`ErrorCode::WrongCluster`] or
/// [`ErrorCode::Refused`] if the listener does not want this process.
pub async fn connect(
    address: &str,
    greeting: &Greeting,
    security: &Security,
    patience: Duration,
) -> Result<Courier> {
    match tokio::time::timeout(patience, greeted(address, greeting, security)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Error::new(
            ErrorCode::Network,
            format!(
                "{address} did not answer within {} ms",
                patience.as_millis()
            ),
        )
        .hint("is the process running, and does it listen at this address?")),
    }
}

async fn greeted(address: &str, greeting: &Greeting, security: &Security) -> Result<Courier> {
    let unreachable = |error: std::io::Error| {
        Error::new(ErrorCode::Network, format!("cannot connect to {address}"))
            .because(error)
            .hint("is the process running, and does it listen at this address?")
    };
    let first = hello(greeting, security)?;
    if first.body_bytes() > security.limits.greeting_bytes {
        return Err(Error::new(
            ErrorCode::InvalidConfig,
            format!(
                "a greeting of {} bytes is too long: {} are allowed",
                first.body_bytes(),
                security.limits.greeting_bytes
            ),
        )
        .hint("shorten the names of cluster and job"));
    }
    let stream = TcpStream::connect(address).await.map_err(unreachable)?;
    security.tune(&stream).map_err(unreachable)?;
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let stream = security.wrap_connected(host, stream).await?;
    let (mut read, mut write) = tokio::io::split(stream);
    let written = async {
        write.write_all(first.bytes()).await?;
        write.flush().await
    };
    let written = written.await;
    let mut cutter = Cutter::default();
    // A listener that has refused may have closed before it had read everything: what it said counts.
    let answered = read_answer(&mut cutter, &mut read, security, address).await;
    match (answered, written) {
        (Err(error), Err(broken)) if error.code() == ErrorCode::Network => {
            return Err(cut_off(address, broken));
        }
        (answered, _) => answered?,
    }
    Ok(Courier::new(
        greeting.clone(),
        Arc::from(address),
        read,
        write,
        cutter,
        security.limits.message_bytes,
    ))
}
