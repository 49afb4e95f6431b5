//! Control messages between the processes of a cluster.
//!
//! An [`RpcConnection`] carries typed messages in both directions: between a worker and its job's
//! leader, or between a scheduler and the hosts where it starts containers. Records travel through
//! [`exchange`](crate::exchange) instead. This module runs on tokio.
//!
//! In reading order:
//!
//! - [`Security`]: authentication and encryption of connections; [`Limits`]: the memory and time
//!   spent on a peer;
//! - [`HandshakeRequest`]: the peer's identity and purpose; [`ApiError`]: an error as sent to
//!   another process;
//! - [`connect`], [`Listener`]: the two ways to get an [`RpcConnection`];
//! - [`Sender`], [`Receiver`]: the halves of a connection; [`Encoded`]: a message for many peers,
//!   encoded once;
//! - [`DetachedConnection`], [`MessageReader`], [`write()`]: connections of threads that poll
//!   sockets without tokio, where every microsecond counts; [`BufferUsage`]: how much memory their
//!   buffers retain.
//!
//! # On the wire
//!
//! Frames: the length of the body (four bytes, little-endian), then the message, encoded by
//! postcard. Before them each side sends one handshake frame of at most [`Limits::greeting_bytes`]:
//! four magic bytes, the [version](VERSION) of the protocol, and the request or the response. The
//! connecting side sends first; a listener reveals nothing to a refused peer but the reason.
//! Keep-alive is up to the messages; with [`Limits::tcp_user_timeout`] the kernel closes stalled
//! connections.
//!
//! # Invariants
//!
//! - A silent or slow unauthenticated peer delays no other: each handshake runs in a separate task
//!   and is limited by [`Limits::handshake_timeout`].
//! - A peer can make this process reserve at most a small constant times the bytes that it sent,
//!   and before the handshake at most the size of a request.
//! - Any input leads to a message or to an error that names the peer, never to a panic.
//! - Futures may be dropped at any time: a message is never torn, and received bytes are not lost.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use ardea_network::rpc::{HandshakeRequest, Listener, Security, connect};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let security = Security::new("harbour");
//! let mut listener = Listener::bind("127.0.0.1:0", security.clone()).await?;
//! let address = listener.address().to_string();
//!
//! let greeting = HandshakeRequest::new("ask for a berth");
//! let ours = connect(&address, &greeting, &security, Duration::from_secs(5)).await?;
//! let theirs = listener.accept().await?;
//! assert_eq!(theirs.greeting().purpose, "ask for a berth");
//!
//! let (mut sender, _) = ours.split();
//! sender.send(&("seagull", 7_u32)).await?;
//! let (_, mut receiver) = theirs.split();
//! assert_eq!(receiver.receive::<(String, u32)>().await?, Some(("seagull".to_string(), 7)));
//! # Ok::<(), ardea_core::Error>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod api_error;
mod security;

mod buffer_shrink;
mod frame;
mod handshake;
mod sync_connection;

mod connect;
mod connection;
mod listener;
mod refused_log;

pub use api_error::ApiError;
pub use buffer_shrink::BufferUsage;
pub use connect::connect;
pub use connection::{Receiver, RpcConnection, Sender};
pub use frame::{Encoded, write};
pub use handshake::{HandshakeRequest, VERSION};
pub use listener::Listener;
pub use refused_log::RefusedLog;
pub use security::{Limits, Security};
pub use sync_connection::{DetachedConnection, MessageReader};

/// Keep-alive of an idle blocking thread (name lookup, state files) in the runtime of a cluster
/// process. Blocking calls occur several times a second and the threads take turns; a longer
/// keep-alive would retain all threads that a burst has created.
pub const BLOCKING_THREAD_KEEP_ALIVE: std::time::Duration = std::time::Duration::from_millis(100);
