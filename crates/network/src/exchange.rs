//! What moves chunks between workers: frames, transports, flow control.
//!
//! An edge whose instances live on several workers has one [`EdgeSender`] and one [`EdgeReceiver`] for each other worker. All
//! edges between two workers share one connection, a [`Link`]; so a cluster has as many connections as pairs of workers,
//! whatever its jobs are.
//!
//! ```text
//!  tasklets                   network thread          network thread                   tasklets
//!  EdgeSender ──▶ Port ──▶ ┐                                       ┌ ──▶ Port ──▶ EdgeReceiver
//!  EdgeSender ──▶ Port ──▶ ├ Link ─ Connection ═════ Connection ─ Link ├ ──▶ Port ──▶ EdgeReceiver
//!  EdgeReceiver ◀─ Port ◀─ ┘                                       └ ◀── Port ◀── EdgeSender
//! ```
//!
//! In reading order:
//!
//! * [`Header`], [`Frame`], [`Payload`], [`Assembler`]: what is on the wire, byte by byte, and how it is read without copying;
//! * [`RowsCodec`], [`ChunkCodec`]: what is in a payload, from the crate `ardea-codec`;
//! * [`SendWindow`], [`ReceiveWindow`]: flow control, as pure state machines;
//! * [`Transport`], [`Connection`], [`ByteStream`]: what a transport has to do; [`TcpTransport`], [`MemoryTransport`] do it; [`Poller`]
//!   and [`Polled`] help those over sockets;
//! * [`Link`], [`Port`], [`Identity`]: one connection and all who share it, and who may;
//! * [`EdgeSender`], [`EdgeReceiver`], [`Forwarder`]: the ends of an edge, and who stands between.
//!
//! # Invariants
//!
//! * Nothing here blocks, but [`Transport::wait`]. Every other call does a bounded slice of work.
//! * Frames of a stream arrive once and in order, or the peer is told as gone, with the numbers of what was in flight.
//! * A slow receiver stops its sender, and no other stream of the connection: what has come for it waits in memory of its own,
//!   bounded by its window.
//! * A peer can make this worker reserve no more memory than it has sent bytes, times a small constant; whatever it sends leads to
//!   frames or to an error that names it, never to a panic.
//! * In a steady state nothing is allocated, neither for a frame nor for a parcel: blocks are used again.
//! * A payload that is only passed on is neither decoded nor copied.
//!
//! # Example: an edge between two workers of one process
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use ardea_core::{Chunk, Marker, Rows, Timestamp, Waker};
//! use ardea_network::exchange::*;
//!
//! let network = MemoryNetwork::default();
//! let (mut here, mut there) = (network.transport(), network.transport());
//! let identity = |worker| Identity {
//!     cluster: "harbour".into(),
//!     worker: WorkerNumber(worker),
//!     incarnation: 1,
//!     token: None,
//! };
//! let now = Duration::ZERO;
//! let mut listener = there.listen("worker-2")?;
//! let connection = here.connect("worker-2")?;
//! let config = LinkConfig::default();
//! let mut ours = Link::new(connection, Side::Connected(None), identity(1), here.doorbell(), config, now);
//! let accepted = listener.accept()?.expect("it was connected to");
//! let mut theirs = Link::new(accepted, Side::Accepted, identity(2), there.doorbell(), config, now);
//!
//! let stream = StreamId::new(1, 0);
//! let codec = Arc::new(RowsCodec::<String>::wire());
//! let port = ours.open(End::Sender, stream, Waker::none())?;
//! let mut sender = EdgeSender::new(stream, InstanceNumber::ALL, port, codec.clone(), SenderConfig::default());
//! let port = theirs.open(End::Receiver, stream, Waker::none())?;
//! let mut receiver = EdgeReceiver::new(stream, port, codec, ReceiverConfig::default(), now);
//!
//! let mut out = Chunk::new(Rows::from_iter([("gate 7".to_string(), Timestamp::from_secs(1))]));
//! let mut into = Chunk::default();
//! let mut was_marked = false;
//! while !receiver.is_done() {
//!     if sender.send(InstanceNumber(3), &mut out)? && !was_marked {
//!         was_marked = sender.mark(Marker::Done)?;
//!     }
//!     sender.flush()?;
//!     ours.poll(now)?;
//!     theirs.poll(now)?;
//!     if let Some(Received::Records { target, .. }) = receiver.receive(now, &mut into)? {
//!         assert_eq!(target, InstanceNumber(3));
//!         assert_eq!(into.rows::<String>()?.values(), ["gate 7"]);
//!         into.clear();
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod ids;

mod assembler;
mod block;
mod frame;
mod header;

mod flow;

mod doorbell;
mod framed;
mod gone;
mod memory;
mod polling;
mod tcp;
mod tls;
mod transport;

mod handshake;
mod link;
mod port;

mod forwarder;
mod receiver;
mod sender;

pub use ardea_codec::{
    Exchange, Local, MOST_FRAME_RECORDS, RowsCodec, SerdeValues, ValueCodec, Wire, WireError,
    WireValues, codec_of, wire,
};
pub use ardea_core::{ChunkCodec, Token};
pub use assembler::{Assembler, AssemblerConfig};
pub use doorbell::Doorbell;
pub use flow::{BadGrant, Grant, ReceiveEvent, ReceiveWindow, SendWindow, WindowConfig};
pub use forwarder::{Forwarder, Route, RouteKey};
pub use frame::{Frame, Parcel, Payload};
pub use framed::{Framed, FramedConfig};
pub use gone::{PeerGone, Why};
pub use handshake::{Greeted, Identity, MOST_GREETING_BYTES, PROTOCOL_VERSION, Side};
pub use header::{FRAME_VERSION, FrameError, HEADER_BYTES, Header, Kind, MOST_PAYLOAD_BYTES};
pub use ids::{EdgeNumber, InstanceNumber, JobNumber, StreamId, WorkerNumber};
pub use link::{Link, LinkConfig, LinkCounts};
pub use memory::{MemoryNetwork, MemoryTransport};
pub use polling::{Polled, Poller, Readiness, Sockets};
pub use port::{End, Port};
pub use receiver::{EdgeReceiver, Received, ReceiverConfig};
pub use sender::{EdgeSender, SenderConfig};
pub use tcp::{TcpConfig, TcpTransport};
pub use tls::TlsStream;
pub use transport::{ByteStream, Connection, Listener, Transport};
