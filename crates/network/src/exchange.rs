//! The data plane between workers: frames, transports and flow control.
//!
//! An edge whose instances live on several workers has one [`EdgeSender`] and one [`EdgeReceiver`]
//! per remote worker. All edges between two workers share one connection, a [`Link`], so a cluster
//! has as many connections as pairs of workers, regardless of its jobs.
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
//! - [`Header`], [`Frame`], [`Payload`], [`Assembler`]: the wire format, and decoding without
//!   copying;
//! - [`RowsCodec`], [`ChunkCodec`]: the encoding of payloads, from the crate `ardea-codec`;
//! - [`SendWindow`], [`ReceiveWindow`]: flow control, as pure state machines;
//! - [`Transport`], [`Connection`], [`ByteStream`]: the interfaces of a transport, implemented by
//!   [`TcpTransport`], [`HostTransport`] (shared memory and Unix sockets) and [`MemoryTransport`];
//!   [`Poller`] and [`Polled`] help transports over sockets;
//! - [`Link`], [`Port`], [`Identity`]: one connection, the streams that share it, and its
//!   authentication;
//! - [`EdgeSender`], [`EdgeReceiver`]: the ends of an edge over one connection;
//! - [`StreamSender`], [`StreamReceiver`], [`PortSlot`]: the ends over successive connections.
//!
//! # Invariants
//!
//! - No call of this module blocks except [`Transport::wait`]. Every other call does a bounded
//!   slice of work.
//! - Frames of a stream arrive once and in order, or the peer is reported as disconnected, with the
//!   sequence numbers of the frames in flight.
//! - A slow receiver stops its sender, but no other stream of the connection. The frames of each
//!   receiver are buffered separately, bounded by its window.
//! - A peer can make this worker reserve at most a small constant times the bytes that it sent, and
//!   one ring if it is a worker of this host. Any input leads to frames or to an error that names
//!   the peer, never to a panic.
//! - In a steady state nothing is allocated per frame or per buffer: blocks are reused.
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
//! let mut ours = Link::new(connection, Side::Connected(None), identity(1), here.waker(), config, now);
//! let accepted = listener.accept()?.expect("it was connected to");
//! let mut theirs = Link::new(accepted, Side::Accepted, identity(2), there.waker(), config, now);
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

mod disconnect;
mod framed;
mod host;
mod memory;
mod network_waker;
mod polling;
mod ring;
mod send_queue;
mod tcp;
mod tls;
mod transport;
mod unix;

mod handshake;
mod kept_output;
mod link;
mod port;
mod port_slot;

mod receiver;
mod sender;
mod stream_receiver;
mod stream_sender;

pub use ardea_codec::{
    ExchangeData, Local, MAX_FRAME_RECORDS, RowsCodec, SerdeValues, ValueCodec, Wire, WireError,
    WireValues, codec_of, wire,
};
pub use ardea_core::{ChunkCodec, Token};
pub use ardea_shm::RingSize;
pub use assembler::{Assembler, AssemblerConfig};
pub use disconnect::{DisconnectReason, Disconnected};
pub use flow::{BadGrant, Grant, ReceiveEvent, ReceiveWindow, SendWindow, WindowConfig};
pub use frame::{Frame, Payload, SendBuffer};
pub use framed::{Framed, FramedConfig};
pub use handshake::{Identity, MAX_HELLO_BYTES, PROTOCOL_VERSION, PeerIdentity, Side};
pub use header::{FRAME_VERSION, FrameError, HEADER_BYTES, Header, Kind, MAX_PAYLOAD_BYTES};
pub use host::{HostConfig, HostPath, HostTransport};
pub use ids::{EdgeNumber, InstanceNumber, JobNumber, StreamId, WorkerNumber};
pub use kept_output::{RetainedBytes, RetainedOutput, RetainedStreamState};
pub use link::{Link, LinkConfig, LinkCounts};
pub use memory::{MemoryNetwork, MemoryTransport};
pub use network_waker::NetworkWaker;
pub use polling::{Polled, Poller, Readiness, Sockets};
pub use port::{End, Port};
pub use port_slot::{LinkNumber, NewPort, PortSlot};
pub use receiver::{EdgeReceiver, Received, ReceiverConfig};
pub use ring::{RingCounts, RingSetup};
pub use sender::{EdgeSender, SenderConfig};
pub use stream_receiver::{StreamItem, StreamReceiver};
pub use stream_sender::{StreamCounts, StreamSender, StreamSenderConfig};
pub use tcp::{TcpConfig, TcpTransport};
pub use tls::TlsStream;
pub use transport::{AddressScope, ByteStream, Connection, Listener, Transport};
pub use unix::host_address;
