//! Connecting to a listener.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::rpc::connection::RpcConnection;
use crate::rpc::frame::{FrameReader, connection_lost};
use crate::rpc::handshake::{HandshakeRequest, hello, read_response};
use crate::rpc::security::Security;

/// Connects to the process that listens at `address` (`host:port`, the host a name or an IP
/// address), and performs the handshake. Makes one attempt, which fails after `patience`.
///
/// # Errors
/// [`ErrorCode::Network`] if no process listens there, or does not answer in time;
/// [`ErrorCode::VersionMismatch`], [`ErrorCode::WrongCluster`] or [`ErrorCode::Refused`] if the
/// listener refuses this process.
pub async fn connect(
    address: &str,
    greeting: &HandshakeRequest,
    security: &Security,
    patience: Duration,
) -> Result<RpcConnection> {
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

async fn greeted(
    address: &str,
    greeting: &HandshakeRequest,
    security: &Security,
) -> Result<RpcConnection> {
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
                "a handshake request of {} bytes is too long: {} are allowed",
                first.body_bytes(),
                security.limits.greeting_bytes
            ),
        )
        .hint("shorten the names of cluster and job"));
    }
    let stream = TcpStream::connect(address).await.map_err(unreachable)?;
    security.set_socket_options(&stream).map_err(unreachable)?;
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let stream = security.wrap_connected(host, stream).await?;
    let (mut read, mut write) = tokio::io::split(stream);
    let written = async {
        write.write_all(first.bytes()).await?;
        write.flush().await
    };
    let written = written.await;
    let mut cutter = FrameReader::default();
    // A listener that refuses may close before it has read everything, so its response takes
    // precedence over a failed write.
    let answered = read_response(&mut cutter, &mut read, security, address).await;
    match (answered, written) {
        (Err(error), Err(broken)) if error.code() == ErrorCode::Network => {
            return Err(connection_lost(address, broken));
        }
        (answered, _) => answered?,
    }
    Ok(RpcConnection::new(
        greeting.clone(),
        Arc::from(address),
        read,
        write,
        cutter,
        security.limits.message_bytes,
    ))
}
