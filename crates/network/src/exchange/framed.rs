//! Frames over a stream of bytes.

use std::io;
use std::sync::Arc;

use crate::exchange::assembler::{Assembler, AssemblerConfig};
use crate::exchange::disconnect::{DisconnectReason, Disconnected};
use crate::exchange::frame::{Frame, SendBuffer};
use crate::exchange::send_queue::SendQueue;
use crate::exchange::transport::{ByteStream, Connection};

/// Limits of the send queue and of one slice of work.
#[derive(Clone, Copy, Debug)]
pub struct FramedConfig {
    /// Memory for received bytes.
    pub assembler: AssemblerConfig,
    /// Number of unsent bytes from which on no further buffer is accepted.
    pub most_unsent_bytes: usize,
    /// Number of unsent buffers from which on no further buffer is accepted.
    pub most_unsent_parcels: usize,
    /// A flush ends after this many bytes.
    pub slice_bytes: usize,
}

impl Default for FramedConfig {
    fn default() -> Self {
        FramedConfig {
            assembler: AssemblerConfig::default(),
            most_unsent_bytes: 1 << 20,
            most_unsent_parcels: 256,
            slice_bytes: 1 << 20,
        }
    }
}

/// A [`Connection`] over any [`ByteStream`]. One write gathers several frames, and one read may
/// yield several.
#[derive(Debug)]
pub struct Framed<S> {
    stream: S,
    peer: String,
    kind: Option<&'static str>,
    config: FramedConfig,
    assembler: Assembler,
    unsent: SendQueue,
    /// Number of bytes read, and number of bytes in the returned frames. Both are equal at the end
    /// of a frame.
    received: u64,
    whole: u64,
    gone: Option<DisconnectReason>,
}

impl<S: ByteStream> Framed<S> {
    /// Creates a connection over `stream` that accepts payloads of up to `most_payload` bytes.
    /// `peer` is the name of the peer in messages.
    pub fn new(stream: S, peer: String, config: FramedConfig, most_payload: usize) -> Self {
        Framed {
            stream,
            peer,
            kind: None,
            assembler: Assembler::new(config.assembler, most_payload),
            unsent: SendQueue::new(config.most_unsent_bytes, config.most_unsent_parcels),
            config,
            received: 0,
            whole: 0,
            gone: None,
        }
    }

    /// Returns the number of blocks allocated for received bytes; constant in a steady state.
    pub fn blocks_made(&self) -> u64 {
        self.assembler.blocks_made()
    }

    /// Sets the kind of the connection.
    pub(crate) fn of_kind(mut self, kind: &'static str) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Returns the stream below.
    pub(crate) fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    fn gone(&self, why: &DisconnectReason) -> Disconnected {
        Disconnected::new(self.peer.clone(), why.clone())
    }

    fn lose(&mut self, why: DisconnectReason) -> Disconnected {
        let gone = self.gone(&why);
        self.gone = Some(why);
        gone
    }

    fn failure(&self, error: io::Error) -> DisconnectReason {
        if self.stream.is_connected() {
            DisconnectReason::Broken(Arc::new(error))
        } else {
            DisconnectReason::Unreachable(Arc::new(error))
        }
    }

    fn ready_frame(&mut self) -> Option<Frame> {
        let frame = self.assembler.next_frame()?;
        self.whole += frame.wire_bytes() as u64;
        Some(frame)
    }

    /// Reads once; returns true if there may be more bytes. The end of the connection is reported
    /// only after the frames before it have been taken.
    fn read(&mut self) -> bool {
        let why = match self.stream.read(self.assembler.space()) {
            Ok(0) if self.received == self.whole => DisconnectReason::Closed,
            Ok(0) => {
                let missing = "it was closed in the middle of a frame";
                DisconnectReason::Broken(Arc::new(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    missing,
                )))
            }
            Ok(bytes) => {
                self.received += bytes as u64;
                match self.assembler.filled(bytes) {
                    Ok(()) => return true,
                    Err(error) => DisconnectReason::InvalidFrame(error),
                }
            }
            Err(error) if is_later(&error) => return false,
            Err(error) => self.failure(error),
        };
        self.gone = Some(why);
        false
    }
}

/// Returns true if the operation that returned `error` may be retried.
fn is_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

impl<S: ByteStream> Connection for Framed<S> {
    fn peer(&self) -> &str {
        &self.peer
    }

    fn send(&mut self, parcel: SendBuffer) -> Result<(), SendBuffer> {
        self.unsent.push(parcel)
    }

    fn flush(&mut self) -> Result<usize, Disconnected> {
        let mut moved = 0;
        if self.stream.held() > 0 {
            let held = self.stream.held();
            match self.stream.flush() {
                Err(error) if !is_later(&error) => {
                    let why = self.failure(error);
                    return Err(self.lose(why));
                }
                _ => moved += held.saturating_sub(self.stream.held()),
            }
        }
        while self.unsent.bytes() > 0 && moved < self.config.slice_bytes {
            let stream = &mut self.stream;
            match self.unsent.with_pieces(|pieces| stream.write(pieces)) {
                Ok(0) => {
                    let error = io::Error::from(io::ErrorKind::WriteZero);
                    return Err(self.lose(DisconnectReason::Broken(Arc::new(error))));
                }
                Ok(bytes) => {
                    self.unsent.advance(bytes);
                    moved += bytes;
                }
                Err(error) if is_later(&error) => break,
                Err(error) => {
                    let why = self.failure(error);
                    return Err(self.lose(why));
                }
            }
        }
        Ok(moved)
    }

    fn receive(&mut self) -> Result<Option<Frame>, Disconnected> {
        if let Some(frame) = self.ready_frame() {
            return Ok(Some(frame));
        }
        // Polling is edge-triggered: everything that arrived must be read until nothing is left.
        while self.gone.is_none() {
            let may_be_more = self.read();
            if let Some(frame) = self.ready_frame() {
                return Ok(Some(frame));
            }
            if !may_be_more {
                break;
            }
        }
        match &self.gone {
            Some(why) => Err(self.gone(why)),
            None => Ok(None),
        }
    }

    fn allow(&mut self, most_payload: usize) {
        self.assembler.allow(most_payload);
    }

    fn unsent(&self) -> usize {
        self.unsent.bytes() + self.stream.held()
    }

    fn kind(&self) -> Option<&'static str> {
        self.kind
    }
}
