//! A connection between two workers, which all edges between them share.
//!
//! The link belongs to the thread that polls the network. It greets the peer, hands what comes to the port that it is for, sends
//! what ports want to send (in turn, so that none starves), keeps a silent connection alive and notices a dead one. It never
//! waits for a port: a receiver that is slow holds its own frames, up to its window, and a peer that sends more than that is cut off.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Progress, Result, Waker};
use foldhash::fast::FixedState;

use crate::exchange::doorbell::Doorbell;
use crate::exchange::flow::WindowConfig;
use crate::exchange::frame::{Frame, Parcel};
use crate::exchange::gone::{PeerGone, Why};
use crate::exchange::handshake::{self, Greeted, Identity, Outcome, Side};
use crate::exchange::header::{HEADER_BYTES, Header, Kind, MOST_PAYLOAD_BYTES};
use crate::exchange::ids::StreamId;
use crate::exchange::port::{End, Port, PortEnd, port};
use crate::exchange::transport::Connection;

/// How many first grants are kept for senders that are not there yet.
const MOST_EARLY_GRANTS: usize = 65_536;

/// How a link behaves.
#[derive(Clone, Copy, Debug)]
pub struct LinkConfig {
    /// A peer that has nothing to say says so this often.
    pub heartbeat_every: Duration,
    /// A peer that has not been heard of for this long is gone.
    pub silence_limit: Duration,
    /// A peer that has not greeted by then is gone.
    pub greeting_limit: Duration,
    /// The greatest payload, in bytes.
    pub most_payload: usize,
    /// The greatest window that receivers of this link grant, in bytes: what a peer may have under way on one stream.
    pub most_window: u64,
    /// How many frames are dealt with in a slice.
    pub slice_frames: usize,
    /// How many frames a port's queue holds; more wait behind it.
    pub port_frames: usize,
    /// How many parcels a port may have on the way to the link.
    pub port_parcels: usize,
}

impl Default for LinkConfig {
    fn default() -> Self {
        LinkConfig {
            heartbeat_every: Duration::from_millis(250),
            silence_limit: Duration::from_secs(2),
            greeting_limit: Duration::from_secs(5),
            most_payload: 16 << 20,
            most_window: WindowConfig::default().most,
            slice_frames: 256,
            port_frames: 128,
            port_parcels: 16,
        }
    }
}

/// What a link has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkCounts {
    /// Frames that came in.
    pub frames_in: u64,
    /// Bytes of these, headers included.
    pub bytes_in: u64,
    /// Bytes that went out.
    pub bytes_out: u64,
    /// Frames for streams that nobody here has open: of jobs that have ended here, and were not told there yet.
    pub stray_frames: u64,
    /// Records in these.
    pub stray_records: u64,
}

/// One connection with its ports.
pub struct Link {
    connection: Box<dyn Connection>,
    identity: Identity,
    side: Side,
    peer: Option<Greeted>,
    name: String,
    config: LinkConfig,
    doorbell: Doorbell,
    ports: Vec<((End, StreamId), PortEnd)>,
    places: HashMap<(End, StreamId), usize, FixedState>,
    early_grants: HashMap<StreamId, Frame, FixedState>,
    /// Which port sends first in the next slice.
    turn: usize,
    /// A parcel that the connection had no room for.
    held: Option<Parcel>,
    /// A refusal is on its way; the link ends when it has left.
    ending: Option<PeerGone>,
    began: Duration,
    heard: Duration,
    spoke: Duration,
    counts: LinkCounts,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link({}, {} ports)", self.name, self.ports.len())
    }
}

impl Link {
    /// A link over a new connection. `doorbell` is that of the connection's transport.
    pub fn new(
        mut connection: Box<dyn Connection>,
        side: Side,
        identity: Identity,
        doorbell: Doorbell,
        config: LinkConfig,
        now: Duration,
    ) -> Self {
        let held = match side {
            Side::Connected(_) => connection
                .send(Parcel::Frame(handshake::hello(&identity)))
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
            places: HashMap::default(),
            early_grants: HashMap::default(),
            turn: 0,
            held,
            ending: None,
            began: now,
            heard: now,
            spoke: now,
            counts: LinkCounts::default(),
        }
    }

    /// Who is at the other end, once it has greeted.
    pub fn peer(&self) -> Option<Greeted> {
        self.peer
    }

    /// What it has done so far.
    pub fn counts(&self) -> LinkCounts {
        self.counts
    }

    /// Opens one end of a stream for a tasklet, which `owner` wakes. It can be opened before the peer has greeted.
    ///
    /// # Errors
    /// If this end of the stream is open already.
    pub fn open(&mut self, end: End, stream: StreamId, owner: Waker) -> Result<Port> {
        let Entry::Vacant(place) = self.places.entry((end, stream)) else {
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
        if end == End::Sender
            && let Some(grant) = self.early_grants.remove(&stream)
        {
            port_end.deliver(grant);
        }
        self.ports.push(((end, stream), port_end));
        Ok(port)
    }

    /// Does a slice of what there is to do, and never waits. The transport must have been polled for what is new to be seen.
    ///
    /// # Errors
    /// The peer is gone, and all ports have been told. The link is of no use after that.
    pub fn poll(&mut self, now: Duration) -> Result<Progress, PeerGone> {
        match self.work(now) {
            Ok(made) => Ok(Progress { made, done: false }),
            Err(mut gone) => {
                gone.peer.clone_from(&self.name);
                self.places.clear();
                for (_, port) in self.ports.drain(..) {
                    port.end(&gone);
                }
                Err(gone)
            }
        }
    }

    /// When to poll again at the latest, if nothing happens before.
    pub fn next_poll(&self) -> Duration {
        let silence = match self.peer {
            Some(_) => self.heard + self.config.silence_limit,
            None => self.began + self.config.greeting_limit,
        };
        silence.min(self.spoke + self.config.heartbeat_every)
    }

    fn work(&mut self, now: Duration) -> Result<bool, PeerGone> {
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
            self.spoke = now;
            self.counts.bytes_out += sent as u64;
            self.ports.iter().for_each(|(_, port)| port.wake_sender());
        }
        self.check_silence(now)?;
        match &self.ending {
            Some(gone) if self.connection.unsent() == 0 && self.held.is_none() => Err(gone.clone()),
            _ => Ok(made),
        }
    }

    fn receive(&mut self, now: Duration) -> Result<bool, PeerGone> {
        let mut made = false;
        for (_, port) in &mut self.ports {
            made |= port.forward();
        }
        for _ in 0..self.config.slice_frames {
            // A peer that is refused is not listened to any more.
            let Some(frame) = (if self.ending.is_none() {
                self.connection.receive()?
            } else {
                None
            }) else {
                break;
            };
            made = true;
            self.heard = now;
            self.counts.frames_in += 1;
            self.counts.bytes_in += frame.wire_bytes() as u64;
            if self.peer.is_some() {
                self.dispatch(frame)?;
            } else {
                self.greet(&frame)?;
            }
        }
        Ok(made)
    }

    fn greet(&mut self, first: &Frame) -> Result<(), PeerGone> {
        match handshake::judge(&self.identity, self.side, first) {
            Outcome::Welcome { peer, reply } => {
                self.name = format!("{} ({})", peer.worker, self.connection.peer());
                self.peer = Some(peer);
                self.connection
                    .allow(self.config.most_payload.min(MOST_PAYLOAD_BYTES));
                if let Some(reply) = reply {
                    self.held = self.connection.send(Parcel::Frame(reply)).err();
                }
                Ok(())
            }
            Outcome::Refuse { reason, reply } => {
                self.held = self.connection.send(Parcel::Frame(reply)).err();
                self.ending = Some(self.gone(Why::WeRefused(reason)));
                Ok(())
            }
            Outcome::Refused { reason } => Err(self.gone(Why::RefusedUs(reason))),
        }
    }

    /// Hands a frame to whom it is for.
    fn dispatch(&mut self, frame: Frame) -> Result<(), PeerGone> {
        let header = &frame.header;
        let end = match header.kind {
            Kind::Heartbeat | Kind::Hello => return Ok(()),
            Kind::Refusal => {
                let reason = handshake::shown(&frame.payload);
                return Err(self.gone(Why::RefusedUs(reason)));
            }
            Kind::Grant => End::Sender,
            _ => End::Receiver,
        };
        let stream = header.stream;
        let Some(&place) = self.places.get(&(end, stream)) else {
            self.stray(end, frame);
            return Ok(());
        };
        let (_, port) = &mut self.ports[place];
        // The last frame may exceed its window; grants are few, unless somebody means harm.
        let most = self.config.most_window as usize + self.config.most_payload + HEADER_BYTES;
        if port.queued_bytes() > most {
            return Err(self.gone(Why::Overrun(stream)));
        }
        port.deliver(frame);
        Ok(())
    }

    fn stray(&mut self, end: End, frame: Frame) {
        if end == End::Sender && self.early_grants.len() < MOST_EARLY_GRANTS {
            // The receiver was opened before the sender: its word is kept.
            self.early_grants.insert(frame.header.stream, frame);
        } else {
            self.counts.stray_frames += 1;
            self.counts.stray_records += u64::from(frame.header.records);
        }
    }

    /// Takes parcels of the ports in turn, until the connection has enough.
    fn collect(&mut self) -> bool {
        let mut made = false;
        let count = self.ports.len();
        let mut idle = 0;
        while self.held.is_none() && idle < count {
            let at = self.turn % count;
            self.turn = at + 1;
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

    /// Forgets the ports whose owners have dropped them.
    fn forget_closed(&mut self) {
        let mut at = 0;
        while at < self.ports.len() {
            if self.ports[at].1.is_over() {
                let (key, _) = self.ports.swap_remove(at);
                self.places.remove(&key);
                if let Some((moved, _)) = self.ports.get(at) {
                    self.places.insert(*moved, at);
                }
            } else {
                at += 1;
            }
        }
    }

    fn keep_alive(&mut self, now: Duration) {
        let is_due = now >= self.spoke + self.config.heartbeat_every;
        if is_due && self.connection.unsent() == 0 && self.held.is_none() {
            let beat = Header::new(Kind::Heartbeat, StreamId::new(0, 0));
            self.held = self.connection.send(Parcel::Frame(Frame::bare(beat))).err();
        }
    }

    fn check_silence(&self, now: Duration) -> Result<(), PeerGone> {
        let (since, limit) = match self.peer {
            Some(_) => (self.heard, self.config.silence_limit),
            None => (self.began, self.config.greeting_limit),
        };
        let silence = now.saturating_sub(since);
        if silence > limit {
            return Err(self.gone(Why::Silent(silence)));
        }
        Ok(())
    }

    fn gone(&self, why: Why) -> PeerGone {
        PeerGone::new(self.name.clone(), why)
    }
}
