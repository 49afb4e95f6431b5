//! Connections over shared memory, between workers of one host.
//!
//! A connection begins as a Unix socket with the same handshake as any other. Then each side
//! creates a ring for what it receives, and offers it over the socket with the file of its memory.
//! The other side announces that it begins to use the ring. From there on its frames are a stream
//! of bytes in the messages of the ring. The socket carries wake-ups and later offers, and its end
//! is the end of the connection.
//!
//! # One ring for each direction
//!
//! TurboStream (section IV) has one ring per worker, into which all its peers write. A ring per
//! direction and pair of workers costs more memory, but a peer that writes anything into it damages
//! only its own connection. It also needs no demultiplexing, and its size follows the messages of
//! its one peer.
//!
//! # Messages on the socket
//!
//! A frame of kind [`Kind::Ring`] has one of these payloads:
//!
//! | first byte | rest | meaning |
//! |---|---|---|
//! | 0 | the description of a ring; its file is attached | an offer: send through this ring |
//! | 1 | | the sender's next frames come through the first ring that was offered to it |
//! | 2 | | a wake-up: look at the rings |
//!
//! A later offer replaces the ring: the sender closes its end of the former one. The receiver reads
//! the former ring up to that end, and then the next.
//!
//! # Sleeping
//!
//! The network thread sleeps until a socket is ready, so wake-ups are bytes on the socket: see
//! [`RingConsumer::may_sleep`](ardea_shm::RingConsumer::may_sleep). They are sent only to a thread
//! that sleeps, once for all messages of a flush. An eventfd would be cheaper by a system call for
//! each wake-up. But its owner could make it block, and so stop the network thread of its peer.

mod control;
mod reader;
mod writer;

use std::fmt;
use std::os::fd::OwnedFd;

use ardea_core::{Error, ErrorCode};
use ardea_shm::{RingOffer, RingProducer, RingSize};

use crate::exchange::assembler::AssemblerConfig;
use crate::exchange::disconnect::{DisconnectReason, Disconnected};
use crate::exchange::frame::{Frame, SendBuffer};
use crate::exchange::framed::{Framed, FramedConfig};
use crate::exchange::header::{FrameError, Kind};
use crate::exchange::transport::Connection;
use crate::exchange::unix::UnixSocket;
use control::ControlMessage;
use reader::{ReceiveRing, RingReader};
use writer::RingWriter;

/// The state of the rings of a connection, and what they have done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingCounts {
    /// Size of the ring of received frames, in bytes; zero without a ring.
    pub capacity_bytes: u64,
    /// Bytes in that ring that were not received yet.
    pub fill_bytes: u64,
    /// Messages received through rings, each with frames that were sent together.
    pub messages: u64,
    /// Slots of received rings that were given up by their producer.
    pub abandoned: u64,
    /// Times that the thread slept because the ring of received frames was empty.
    pub sleeps: u64,
    /// Times that the thread waited because the ring of sent frames was full.
    pub full: u64,
}

/// Configuration of connections over shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingSetup {
    /// Size of each ring; `None` if it follows the observed messages.
    pub size: Option<RingSize>,
    /// True if a connection without shared memory is given up. If false, it goes on over its
    /// socket.
    pub is_required: bool,
}

/// A connection over shared memory.
pub(crate) struct RingConnection {
    // The fields are dropped in this order: the rings are closed before the socket.
    writer: Option<RingWriter>,
    reader: Option<RingReader>,
    socket: Framed<UnixSocket>,
    setup: RingSetup,
    config: FramedConfig,
    /// Largest payload, once the handshake is complete.
    max_payload: Option<usize>,
    /// The first ring that was offered, until its use is announced.
    offered: Option<RingProducer>,
    /// True if a ring could not be created.
    has_failed: bool,
    owes_wake: bool,
}

impl fmt::Debug for RingConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RingConnection({})", self.socket.peer())
    }
}

impl RingConnection {
    pub(crate) fn new(
        socket: Framed<UnixSocket>,
        config: FramedConfig,
        setup: RingSetup,
    ) -> RingConnection {
        RingConnection {
            writer: None,
            reader: None,
            socket,
            setup,
            config,
            max_payload: None,
            offered: None,
            has_failed: false,
            owes_wake: false,
        }
    }

    fn gone(&self, why: DisconnectReason) -> Disconnected {
        Disconnected::new(self.socket.peer(), why)
    }

    /// Queues a control message on the socket. Returns false if its queue is full.
    fn say(&mut self, message: ControlMessage) -> bool {
        let parcel = SendBuffer::Frame(message.to_frame());
        self.socket.send(parcel).is_ok()
    }

    /// Returns the size of a ring that is to be offered now.
    fn due_size(&self) -> Option<RingSize> {
        // An offer needs room in the queue of the socket.
        if self.max_payload.is_none() || self.has_failed || self.socket.unsent() > 0 {
            return None;
        }
        match (&self.reader, self.setup.size) {
            (None, size) => Some(size.unwrap_or(reader::FIRST_SIZE)),
            (Some(_), Some(_)) => None,
            (Some(reader), None) => reader.wanted_size(),
        }
    }

    /// Creates the ring of received frames after the handshake, or a larger one when it is due.
    fn offer_ring(&mut self) -> Result<(), Disconnected> {
        let Some(size) = self.due_size() else {
            return Ok(());
        };
        match self.create_ring(size) {
            Ok((description, file)) => {
                self.socket.stream().attach(file);
                self.say(ControlMessage::Offer(description));
                self.socket.flush().map(drop)
            }
            Err(error) if self.setup.is_required && self.reader.is_none() => {
                Err(self.gone(DisconnectReason::RingFailed(error)))
            }
            Err(_) => {
                self.has_failed = true;
                Ok(())
            }
        }
    }

    /// Creates a ring for received frames. Returns its description and its file.
    fn create_ring(&mut self, size: RingSize) -> Result<([u8; RingOffer::BYTES], OwnedFd), Error> {
        let max_payload = self.max_payload.unwrap_or(0);
        let config = self.config.assembler;
        let assembler = AssemblerConfig {
            block_bytes: config.block_bytes.min(reader::BLOCK_BYTES),
            ..config
        };
        let (ring, offer) = ReceiveRing::new(size)?;
        let file = offer.file()?;
        match &mut self.reader {
            Some(reader) => reader.set_next(ring),
            None => self.reader = Some(RingReader::new(ring, assembler, max_payload)),
        }
        Ok((offer.to_bytes(), file))
    }

    /// Handles a control message of the peer.
    fn on_control(&mut self, frame: &Frame) -> Result<(), DisconnectReason> {
        let invalid = DisconnectReason::InvalidFrame(FrameError::UnknownKind {
            kind: Kind::Ring as u8,
        });
        if self.max_payload.is_none() {
            return Err(invalid);
        }
        match ControlMessage::from_frame(frame) {
            Some(ControlMessage::Wake) => Ok(()),
            Some(ControlMessage::Begin) => {
                let begins = self.reader.as_mut().is_some_and(RingReader::begin);
                if begins { Ok(()) } else { Err(invalid) }
            }
            Some(ControlMessage::Offer(description)) => {
                let file = self.socket.stream().take_file().ok_or(invalid)?;
                match RingProducer::accept(&description, file) {
                    Ok(producer) => self.use_ring(producer),
                    // This side can map no more memory; its frames stay where they are.
                    Err(error) if error.code() == ErrorCode::LimitReached => {}
                    Err(error) => return Err(DisconnectReason::RingFailed(error)),
                }
                Ok(())
            }
            None => Err(invalid),
        }
    }

    fn use_ring(&mut self, producer: RingProducer) {
        match &mut self.writer {
            Some(writer) => {
                writer.replace(producer);
                // The end of the former ring is news for the peer.
                self.owes_wake = true;
            }
            None => self.offered = Some(producer),
        }
    }

    /// Announces the use of the first offered ring, behind the frames on the socket.
    fn begin_writing(&mut self) {
        if let Some(producer) = self.offered.take() {
            if self.say(ControlMessage::Begin) {
                self.writer = Some(RingWriter::new(producer, self.config));
            } else {
                self.offered = Some(producer);
            }
        }
    }

    /// Sends the wake-ups that the rings owe.
    fn wake_peer(&mut self) {
        self.owes_wake |= self.writer.as_mut().is_some_and(RingWriter::take_wake);
        self.owes_wake |= self.reader.as_mut().is_some_and(RingReader::take_wake);
        // Unsent bytes wake the peer as well.
        if self.owes_wake && (self.socket.unsent() > 0 || self.say(ControlMessage::Wake)) {
            self.owes_wake = false;
        }
    }

    /// Returns true if received frames come through a ring.
    fn reads_ring(&self) -> bool {
        self.reader.as_ref().is_some_and(RingReader::has_begun)
    }

    fn receive_from_ring(&mut self) -> Result<Option<Frame>, Disconnected> {
        match &mut self.reader {
            Some(reader) if reader.has_begun() => {
                let next = reader.next_frame();
                next.map_err(|why| self.gone(why))
            }
            _ => Ok(None),
        }
    }
}

impl Connection for RingConnection {
    fn peer(&self) -> &str {
        self.socket.peer()
    }

    fn send(&mut self, parcel: SendBuffer) -> Result<(), SendBuffer> {
        match &mut self.writer {
            Some(writer) => writer.send(parcel),
            None => self.socket.send(parcel),
        }
    }

    fn flush(&mut self) -> Result<usize, Disconnected> {
        self.begin_writing();
        let moved = match &mut self.writer {
            Some(writer) => writer.flush(),
            None => Ok(0),
        };
        let moved = moved.map_err(|error| self.gone(DisconnectReason::RingFailed(error)))?;
        self.wake_peer();
        let sent = match self.socket.flush() {
            // The frames in the ring come before the end, which `receive` returns.
            Err(_) if self.reads_ring() => 0,
            flushed => flushed?,
        };
        self.offer_ring()?;
        // Control messages are no data of the link.
        Ok(if self.writer.is_some() { moved } else { sent })
    }

    fn receive(&mut self) -> Result<Option<Frame>, Disconnected> {
        loop {
            if let Some(frame) = self.receive_from_ring()? {
                return Ok(Some(frame));
            }
            match self.socket.receive() {
                Ok(None) => return Ok(None),
                Ok(Some(frame)) if frame.header.kind == Kind::Ring => {
                    if let Err(why) = self.on_control(&frame) {
                        return Err(self.gone(why));
                    }
                }
                Ok(Some(frame)) if self.reads_ring() => {
                    let kind = frame.header.kind as u8;
                    let error = FrameError::UnknownKind { kind };
                    return Err(self.gone(DisconnectReason::InvalidFrame(error)));
                }
                Ok(Some(frame)) => return Ok(Some(frame)),
                Err(gone) => match &mut self.reader {
                    // The frames in the ring come before the end.
                    Some(reader) if reader.has_begun() => reader.end(gone.reason),
                    _ => return Err(gone),
                },
            }
        }
    }

    fn allow(&mut self, max_payload: usize) {
        self.max_payload = Some(max_payload);
        self.socket.allow(max_payload);
        if let Some(reader) = &mut self.reader {
            reader.allow(max_payload);
        }
    }

    fn unsent(&self) -> usize {
        let in_ring = self.writer.as_ref().map_or(0, RingWriter::unsent);
        self.socket.unsent() + in_ring
    }

    fn may_wait(&mut self) -> bool {
        let is_empty = match &mut self.reader {
            Some(reader) if reader.has_begun() => reader.may_sleep(),
            _ => true,
        };
        if !is_empty || !self.writer.as_mut().is_none_or(RingWriter::may_sleep) {
            return false;
        }
        self.wake_peer();
        // An error is returned by the next call.
        let _ = self.socket.flush();
        true
    }

    fn kind(&self) -> Option<&'static str> {
        Some(if self.has_failed && self.reader.is_none() {
            "uds"
        } else {
            "shm"
        })
    }

    fn ring_counts(&self) -> Option<RingCounts> {
        let mut counts = RingCounts::default();
        if let Some(reader) = &self.reader {
            reader.add_counts(&mut counts);
        }
        if let Some(writer) = &self.writer {
            counts.full = writer.full_count();
        }
        Some(counts)
    }
}
