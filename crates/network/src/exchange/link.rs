//! A connection between two workers, shared by all edges between them.
//!
//! The link belongs to the thread that polls the network. It performs the handshake, delivers
//! received frames to their ports, sends the ports' buffers round-robin, keeps an idle connection
//! alive and detects a dead one. It never waits for a port: frames of a slow receiver are queued
//! separately, up to its window, and a peer that exceeds the window is disconnected.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Progress, Result, Waker};
use foldhash::fast::FixedState;

use crate::admission::printable;
use crate::exchange::disconnect::{DisconnectReason, Disconnected};
use crate::exchange::flow::WindowConfig;
use crate::exchange::frame::{Frame, SendBuffer};
use crate::exchange::handshake::{self, Identity, Outcome, PeerIdentity, Side};
use crate::exchange::header::{FrameError, HEADER_BYTES, Header, Kind, MAX_PAYLOAD_BYTES};
use crate::exchange::ids::StreamId;
use crate::exchange::network_waker::NetworkWaker;
use crate::exchange::port::{End, Port, PortEnd, port};
use crate::exchange::ring::RingCounts;
use crate::exchange::transport::Connection;

/// Maximum number of first grants kept for senders that are not open yet.
const MAX_EARLY_GRANTS: usize = 65_536;

/// Configuration of a [`Link`].
#[derive(Clone, Copy, Debug)]
pub struct LinkConfig {
    /// Latency budget: the maximum time for which the thread that polls the link gathers frames
    /// before it passes them on. Zero passes each frame on at once.
    pub latency: Duration,
    /// Interval of keep-alives on an idle connection.
    pub heartbeat_interval: Duration,
    /// Time without received data after which a peer is disconnected.
    pub silence_timeout: Duration,
    /// Time within which a peer must complete the handshake, or is disconnected.
    pub handshake_timeout: Duration,
    /// Largest payload, in bytes.
    pub max_payload: usize,
    /// Largest window that receivers of this link grant, in bytes: the limit of a peer's bytes in
    /// flight on one stream.
    pub max_window: u64,
    /// Maximum number of frames processed in one slice of work.
    pub slice_frames: usize,
    /// Capacity of a port's queue in frames; further frames are buffered behind the queue.
    pub port_frames: usize,
    /// Number of buffers that a port may have queued for the link.
    pub port_parcels: usize,
}

impl Default for LinkConfig {
    fn default() -> Self {
        LinkConfig {
            latency: Duration::ZERO,
            heartbeat_interval: Duration::from_millis(250),
            silence_timeout: Duration::from_secs(2),
            handshake_timeout: Duration::from_secs(5),
            max_payload: 16 << 20,
            max_window: WindowConfig::default().most,
            slice_frames: 256,
            port_frames: 128,
            port_parcels: 16,
        }
    }
}

/// Counters of a [`Link`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkCounts {
    /// Received frames.
    pub frames_in: u64,
    /// Received bytes, headers included.
    pub bytes_in: u64,
    /// Sent bytes.
    pub bytes_out: u64,
    /// Received frames of streams that are not open on this worker, for example of a job that has
    /// ended here.
    pub stray_frames: u64,
    /// Records in the stray frames.
    pub stray_records: u64,
    /// The rings of a connection over shared memory; all zero for other connections.
    pub ring: RingCounts,
}

/// One connection with its ports.
pub struct Link {
    connection: Box<dyn Connection>,
    identity: Identity,
    side: Side,
    peer: Option<PeerIdentity>,
    name: String,
    config: LinkConfig,
    doorbell: NetworkWaker,
    ports: Vec<((End, StreamId), PortEnd)>,
    port_index: HashMap<(End, StreamId), usize, FixedState>,
    /// The latest frame of each kind for senders that are not opened yet.
    early_grants: HashMap<(StreamId, Kind), Frame, FixedState>,
    /// Index of the port that sends first in the next slice.
    next_port: usize,
    /// A buffer that the connection had no room for.
    held: Option<SendBuffer>,
    /// Set once a refusal is queued; the link ends when the refusal has been sent.
    ending: Option<Disconnected>,
    began: Duration,
    last_received: Duration,
    last_sent: Duration,
    counts: LinkCounts,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link({}, {} ports)", self.name, self.ports.len())
    }
}

impl Link {
    /// Creates a link over a new connection. `doorbell` is the waker of the connection's transport.
    pub fn new(
        mut connection: Box<dyn Connection>,
        side: Side,
        identity: Identity,
        doorbell: NetworkWaker,
        config: LinkConfig,
        now: Duration,
    ) -> Self {
        let held = match side {
            Side::Connected(_) => connection
                .send(SendBuffer::Frame(handshake::hello(&identity)))
                .err(),
            Side::Accepted => None,
        };
        Link {
            name: connection.peer().to_string(),
            connection,
            identity,
            side,
            peer: None,
            config,
            doorbell,
            ports: Vec::new(),
            port_index: HashMap::default(),
            early_grants: HashMap::default(),
            next_port: 0,
            held,
            ending: None,
            began: now,
            last_received: now,
            last_sent: now,
            counts: LinkCounts::default(),
        }
    }

    /// Returns the identity of the peer, after the handshake.
    pub fn peer(&self) -> Option<PeerIdentity> {
        self.peer
    }

    /// Returns the counters.
    pub fn counts(&self) -> LinkCounts {
        LinkCounts {
            ring: self.connection.ring_counts().unwrap_or_default(),
            ..self.counts
        }
    }

    /// Returns the number of bytes sent and received.
    pub fn moved_bytes(&self) -> u64 {
        self.counts.bytes_in + self.counts.bytes_out
    }

    /// Returns the kind of the connection, if its transport has several.
    pub fn kind(&self) -> Option<&'static str> {
        self.connection.kind()
    }

    /// Announces that the thread is about to wait: see [`Connection::may_wait`].
    pub fn may_wait(&mut self) -> bool {
        self.connection.may_wait()
    }

    /// Opens one end of a stream for the tasklet that `owner` wakes, also before the handshake is
    /// complete.
    ///
    /// # Errors
    /// If this end of the stream is open already.
    pub fn open(&mut self, end: End, stream: StreamId, owner: Waker) -> Result<Port> {
        let Entry::Vacant(place) = self.port_index.entry((end, stream)) else {
            return Err(Error::new(
                ErrorCode::Internal,
                format!("the {end:?} of {stream} to {} is open already", self.name),
            ));
        };
        place.insert(self.ports.len());
        let (port, mut port_end) = port(
            self.config.port_frames,
            self.config.port_parcels,
            self.name.clone(),
            owner,
            self.doorbell.clone(),
        );
        for kind in [Kind::Grant, Kind::SourceEnds] {
            if end == End::Sender
                && let Some(frame) = self.early_grants.remove(&(stream, kind))
            {
                port_end.deliver(frame);
            }
        }
        self.ports.push(((end, stream), port_end));
        Ok(port)
    }

    /// Does a slice of the pending work; never blocks. New input is processed only after the
    /// transport has been polled.
    ///
    /// # Errors
    /// The peer is disconnected, which is reported to all ports. The link must not be used
    /// afterwards.
    pub fn poll(&mut self, now: Duration) -> Result<Progress, Disconnected> {
        match self.work(now) {
            Ok(made) => Ok(Progress { made, done: false }),
            Err(mut gone) => {
                gone.peer.clone_from(&self.name);
                self.port_index.clear();
                for (_, port) in self.ports.drain(..) {
                    port.end(&gone);
                }
                Err(gone)
            }
        }
    }

    /// Returns the time by which [`poll`](Self::poll) must be called again, if nothing happens
    /// earlier.
    pub fn next_poll(&self) -> Duration {
        let silence = match self.peer {
            Some(_) => self.last_received + self.config.silence_timeout,
            None => self.began + self.config.handshake_timeout,
        };
        match self.is_sending() {
            // A heartbeat is not due before the data has been sent.
            true => silence,
            false => silence.min(self.last_sent + self.config.heartbeat_interval),
        }
    }

    /// Returns true if there is unsent data.
    fn is_sending(&self) -> bool {
        self.connection.unsent() > 0 || self.held.is_some()
    }

    fn work(&mut self, now: Duration) -> Result<bool, Disconnected> {
        let mut made = self.receive(now)?;
        if let Some(parcel) = self.held.take() {
            self.held = self.connection.send(parcel).err();
        }
        if self.peer.is_some() && self.ending.is_none() {
            made |= self.collect();
            self.keep_alive(now);
        }
        let sent = self.connection.flush()?;
        if sent > 0 {
            made = true;
            self.last_sent = now;
            self.counts.bytes_out += sent as u64;
            self.ports.iter().for_each(|(_, port)| port.wake_sender());
        }
        self.check_silence(now)?;
        match &self.ending {
            Some(gone) if self.connection.unsent() == 0 && self.held.is_none() => Err(gone.clone()),
            _ => Ok(made),
        }
    }

    fn receive(&mut self, now: Duration) -> Result<bool, Disconnected> {
        let mut made = false;
        for (_, port) in &mut self.ports {
            made |= port.forward();
        }
        for _ in 0..self.config.slice_frames {
            // Nothing more is read from a refused peer.
            let Some(frame) = (if self.ending.is_none() {
                self.connection.receive()?
            } else {
                None
            }) else {
                break;
            };
            made = true;
            self.last_received = now;
            self.counts.frames_in += 1;
            self.counts.bytes_in += frame.wire_bytes() as u64;
            if self.peer.is_some() {
                self.dispatch(frame)?;
            } else {
                self.handle_hello(&frame)?;
            }
        }
        Ok(made)
    }

    fn handle_hello(&mut self, first: &Frame) -> Result<(), Disconnected> {
        match handshake::check_hello(&self.identity, self.side, first) {
            Outcome::Welcome { peer, reply } => {
                self.name = format!("{} ({})", peer.worker, self.connection.peer());
                self.peer = Some(peer);
                self.connection
                    .allow(self.config.max_payload.min(MAX_PAYLOAD_BYTES));
                if let Some(reply) = reply {
                    self.held = self.connection.send(SendBuffer::Frame(reply)).err();
                }
                Ok(())
            }
            Outcome::Refuse { reason, reply } => {
                self.held = self.connection.send(SendBuffer::Frame(reply)).err();
                self.ending = Some(self.gone(DisconnectReason::PeerRefused(reason)));
                Ok(())
            }
            Outcome::Refused { reason } => Err(self.gone(DisconnectReason::RefusedByPeer(reason))),
        }
    }

    /// Delivers a frame to its port.
    fn dispatch(&mut self, frame: Frame) -> Result<(), Disconnected> {
        let header = &frame.header;
        let end = match header.kind {
            Kind::Heartbeat | Kind::Hello => return Ok(()),
            Kind::Ring => {
                let kind = header.kind as u8;
                let error = FrameError::UnknownKind { kind };
                return Err(self.gone(DisconnectReason::InvalidFrame(error)));
            }
            Kind::Refusal => {
                let reason = printable(&frame.payload);
                return Err(self.gone(DisconnectReason::RefusedByPeer(reason)));
            }
            Kind::Grant | Kind::SourceEnds => End::Sender,
            _ => End::Receiver,
        };
        let stream = header.stream;
        let Some(&place) = self.port_index.get(&(end, stream)) else {
            self.stray(end, frame);
            return Ok(());
        };
        let (_, port) = &mut self.ports[place];
        // The last frame may exceed its window. Grants are few, unless the peer is malicious.
        let most = self.config.max_window as usize + self.config.max_payload + HEADER_BYTES;
        if port.queued_bytes() > most {
            return Err(self.gone(DisconnectReason::Overrun(stream)));
        }
        port.deliver(frame);
        Ok(())
    }

    fn stray(&mut self, end: End, frame: Frame) {
        if end == End::Sender && self.early_grants.len() < MAX_EARLY_GRANTS {
            // The receiver was opened before the sender: its frame is stored.
            let key = (frame.header.stream, frame.header.kind);
            self.early_grants.insert(key, frame);
        } else {
            self.counts.stray_frames += 1;
            self.counts.stray_records += u64::from(frame.header.records);
        }
    }

    /// Takes buffers of the ports in turn, until the connection is full.
    fn collect(&mut self) -> bool {
        let mut made = false;
        let count = self.ports.len();
        let mut idle = 0;
        while self.held.is_none() && idle < count {
            let at = self.next_port % count;
            self.next_port = at + 1;
            match self.ports[at].1.next_parcel() {
                Some(parcel) => {
                    idle = 0;
                    made = true;
                    self.held = self.connection.send(parcel).err();
                    self.ports[at].1.wake_sender();
                }
                None => idle += 1,
            }
        }
        self.forget_closed();
        made
    }

    /// Removes the ports whose owners have dropped them.
    fn forget_closed(&mut self) {
        let mut at = 0;
        while at < self.ports.len() {
            if self.ports[at].1.is_over() {
                let (key, _) = self.ports.swap_remove(at);
                self.port_index.remove(&key);
                if let Some((moved, _)) = self.ports.get(at) {
                    self.port_index.insert(*moved, at);
                }
            } else {
                at += 1;
            }
        }
    }

    fn keep_alive(&mut self, now: Duration) {
        let is_due = now >= self.last_sent + self.config.heartbeat_interval;
        if is_due && !self.is_sending() {
            let beat = Header::new(Kind::Heartbeat, StreamId::new(0, 0));
            self.held = self
                .connection
                .send(SendBuffer::Frame(Frame::bare(beat)))
                .err();
        }
    }

    fn check_silence(&self, now: Duration) -> Result<(), Disconnected> {
        let (since, limit) = match self.peer {
            Some(_) => (self.last_received, self.config.silence_timeout),
            None => (self.began, self.config.handshake_timeout),
        };
        let silence = now.saturating_sub(since);
        if silence > limit {
            return Err(self.gone(DisconnectReason::TimedOut(silence)));
        }
        Ok(())
    }

    fn gone(&self, why: DisconnectReason) -> Disconnected {
        Disconnected::new(self.name.clone(), why)
    }
}
