//! Control messages between the processes of a cluster.
//!
//! A courier carries typed messages over one connection, both ways: a worker's to its job's master, a scheduler's to the
//! hosts where it starts containers. What has to be quick, the records, travels by `ardea-network`; this is for what has to
//! be right. It runs on tokio.
//!
//! In reading order:
//!
//! * [`Security`]: who may speak here, the secret that proves it, and what protects the connection; [`Limits`]: how much
//!   memory and patience a peer is given;
//! * [`Greeting`]: who speaks, and what for; [`Fault`]: an error as another process is told it;
//! * [`connect`], [`Listener`]: the two ways to a [`Courier`];
//! * [`Sender`], [`Receiver`]: its halves; [`Encoded`]: a message that goes to many, encoded once;
//! * [`Apart`], [`Messages`], [`write()`]: the same for who polls sockets himself, where every microsecond counts; [`Needed`]: how much memory that keeps.
//!
//! # On the wire
//!
//! Frames: the length of what follows (four bytes, little-endian), then the message, as postcard writes it. Before them each
//! side sends one frame of at most [`Limits::greeting_bytes`]: four letters, the [version](VERSION) of the protocol, and the
//! greeting, or the answer to it. Whoever connects greets first; a listener tells a stranger nothing but why it is refused.
//! Keeping a silent connection alive is up to the messages; [`Limits::stuck_within`] has the kernel break off what doesn't move.
//!
//! # Invariants
//!
//! * A stranger who is silent, or slow, keeps nobody waiting: each is greeted in a task of its own, and has
//!   [`Limits::greeting_within`].
//! * A peer makes this process reserve no more memory than it has sent bytes, times a small constant, and a stranger no more
//!   than a greeting's.
//! * Whatever is sent here leads to a message or to an error that names the peer, never to a panic.
//! * Futures may be dropped at any time: a message is never torn, and what was read of one is not lost.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use ardea_network::rpc::{Greeting, Listener, Security, connect};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let security = Security::new("harbour");
//! let mut listener = Listener::bind("127.0.0.1:0", security.clone()).await?;
//! let address = listener.address().to_string();
//!
//! let greeting = Greeting::new("ask for a berth");
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

mod fault;
mod security;

mod frame;
mod greeting;
mod needed;
mod polled;

mod connect;
mod halves;
mod listener;
mod turned_away;

pub use connect::connect;
pub use fault::Fault;
pub use frame::{Encoded, write};
pub use greeting::{Greeting, VERSION};
pub use halves::{Courier, Receiver, Sender};
pub use listener::Listener;
pub use needed::Needed;
pub use polled::{Apart, Messages};
pub use security::{Limits, Security};
pub use turned_away::TurnedAway;

/// How long the runtime of a process of a cluster keeps a thread for calls that block (names that are looked up, files of the state) without one.
/// Such threads take turns, and there are some calls a second: were it longer than the time between two turns, all threads that a burst
/// of them has made would stay.
pub const THREADS_STAY: std::time::Duration = std::time::Duration::from_millis(100);
