//! Frames over a stream of bytes.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;

use crate::exchange::assembler::{Assembler, AssemblerConfig};
use crate::exchange::frame::{Frame, Parcel, Payload};
use crate::exchange::gone::{PeerGone, Why};
use crate::exchange::header::HEADER_BYTES;
use crate::exchange::transport::{ByteStream, Connection};

/// The pieces of one system call; each frame has up to two.
const PIECES: usize = 64;

/// How much is queued, and how much is moved in a slice.
#[derive(Clone, Copy, Debug)]
pub struct FramedConfig {
    /// Memory for what comes in.
    pub assembler: AssemblerConfig,
    /// No parcel is taken while this many bytes are unsent.
    pub most_unsent_bytes: usize,
    /// No parcel is taken while this many are unsent.
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

/// A [`Connection`] over any [`ByteStream`]: several frames are gathered in one write, and cut from one read.
#[derive(Debug)]
pub struct Framed<S> {
    stream: S,
    peer: String,
    config: FramedConfig,
    assembler: Assembler,
    unsent: VecDeque<Unsent>,
    unsent_bytes: usize,
    /// How many bytes of the front parcel have been written.
    written: usize,
    /// Bytes that were read, and bytes of the frames given out: equal where a frame ends.
    received: u64,
    whole: u64,
    gone: Option<Why>,
}

#[derive(Debug)]
struct Unsent {
    head: [u8; HEADER_BYTES],
    head_bytes: usize,
    body: Payload,
}

impl Unsent {
    fn len(&self) -> usize {
        self.head_bytes + self.body.len()
    }
}

impl<S: ByteStream> Framed<S> {
    /// Frames with payloads of up to `most_payload` bytes over `stream`; `peer` is its name in messages.
    pub fn new(stream: S, peer: String, config: FramedConfig, most_payload: usize) -> Self {
        Framed {
            stream,
            peer,
            assembler: Assembler::new(config.assembler, most_payload),
            unsent: VecDeque::with_capacity(config.most_unsent_parcels),
            config,
            unsent_bytes: 0,
            written: 0,
            received: 0,
            whole: 0,
            gone: None,
        }
    }

    /// How many blocks were allocated for what came in; in a steady state it stands still.
    pub fn blocks_made(&self) -> u64 {
        self.assembler.blocks_made()
    }

    fn gone(&self, why: &Why) -> PeerGone {
        PeerGone::new(self.peer.clone(), why.clone())
    }

    fn lose(&mut self, why: Why) -> PeerGone {
        let gone = self.gone(&why);
        self.gone = Some(why);
        gone
    }

    fn failure(&self, error: io::Error) -> Why {
        if self.stream.is_connected() {
            Why::CutOff(Arc::new(error))
        } else {
            Why::Unreachable(Arc::new(error))
        }
    }

    fn ready_frame(&mut self) -> Option<Frame> {
        let frame = self.assembler.next_frame()?;
        self.whole += frame.wire_bytes() as u64;
        Some(frame)
    }

    /// Reads once; whether there may be more. What the peer's end means is only told when the frames before it have been taken.
    fn read(&mut self) -> bool {
        let why = match self.stream.read(self.assembler.space()) {
            Ok(0) if self.received == self.whole => Why::Closed,
            Ok(0) => {
                let missing = "it was closed in the middle of a frame";
                Why::CutOff(Arc::new(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    missing,
                )))
            }
            Ok(bytes) => {
                self.received += bytes as u64;
                match self.assembler.filled(bytes) {
                    Ok(()) => return true,
                    Err(error) => Why::NotFrames(error),
                }
            }
            Err(error) if is_later(&error) => return false,
            Err(error) => self.failure(error),
        };
        self.gone = Some(why);
        false
    }

    /// One vectored write of what is unsent.
    fn write(&mut self) -> io::Result<usize> {
        let mut pieces = [IoSlice::new(&[]); PIECES];
        let mut count = 0;
        let mut skip = self.written;
        for parcel in self.unsent.iter().take(PIECES / 2) {
            for bytes in [&parcel.head[..parcel.head_bytes], &parcel.body[..]] {
                let rest = &bytes[skip.min(bytes.len())..];
                skip -= bytes.len() - rest.len();
                if !rest.is_empty() {
                    pieces[count] = IoSlice::new(rest);
                    count += 1;
                }
            }
        }
        self.stream.write(&pieces[..count])
    }

    fn advance(&mut self, bytes: usize) {
        self.unsent_bytes -= bytes;
        self.written += bytes;
        while let Some(front) = self.unsent.front() {
            if self.written < front.len() {
                break;
            }
            self.written -= front.len();
            self.unsent.pop_front();
        }
    }
}

/// Whether an operation may be tried again.
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

    fn send(&mut self, parcel: Parcel) -> Result<(), Parcel> {
        let bytes = parcel.wire_bytes();
        if self.unsent_bytes >= self.config.most_unsent_bytes
            || self.unsent.len() >= self.config.most_unsent_parcels
        {
            return Err(parcel);
        }
        self.unsent_bytes += bytes;
        self.unsent.push_back(match parcel {
            Parcel::Frame(frame) => Unsent {
                head: frame.header.encode(frame.payload.len()),
                head_bytes: HEADER_BYTES,
                body: frame.payload,
            },
            Parcel::Bundle(body) => Unsent {
                head: [0; HEADER_BYTES],
                head_bytes: 0,
                body,
            },
        });
        Ok(())
    }

    fn flush(&mut self) -> Result<usize, PeerGone> {
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
        while self.unsent_bytes > 0 && moved < self.config.slice_bytes {
            match self.write() {
                Ok(0) => {
                    let error = io::Error::from(io::ErrorKind::WriteZero);
                    return Err(self.lose(Why::CutOff(Arc::new(error))));
                }
                Ok(bytes) => {
                    self.advance(bytes);
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

    fn receive(&mut self) -> Result<Option<Frame>, PeerGone> {
        if let Some(frame) = self.ready_frame() {
            return Ok(Some(frame));
        }
        // Polling tells only of what comes from now on: what has come has to be read until there is nothing more.
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
        self.unsent_bytes + self.stream.held()
    }
}
