//! Handing a ring to another process, over a Unix socket.
//!
//! # Messages
//!
//! | message | from | bytes |
//! |---|---|---|
//! | hello | producer | magic (8), lowest version (2), highest version (2), zero (4) |
//! | welcome | consumer | magic (8), version (2), refusal (2), producer (1), zero (3), units (8) |
//! | ready | producer | magic (8) |
//!
//! Numbers are in the byte order of the machine. The welcome has the file of the ring's memory as
//! ancillary data (`SCM_RIGHTS`), unless the refusal is not zero: 1 for another version, 2 for a
//! ring with too many producers. The consumer opens a handle of the producer's process before it
//! receives "ready", so the handle is of a process that lived at that time.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::RingSize;
use crate::consumer::RingConsumer;
use crate::layout::UNIT;
use crate::memory::Memory;
use crate::peer_process::PeerProcess;
use crate::producer::RingProducer;
use crate::registry::Registry;
use crate::sync::Ordering;
use crate::watcher::watch;

const MAGIC: u64 = u64::from_le_bytes(*b"ardearng");
/// The version of the layout and the protocol.
const VERSION: u16 = 1;
const HELLO_BYTES: usize = 16;
pub(crate) const WELCOME_BYTES: usize = 24;

/// The longest time to wait for a message of the other side.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) const ACCEPTED: u16 = 0;
const OTHER_VERSION: u16 = 1;
const TOO_MANY: u16 = 2;

/// Adds producers to a ring; works on every thread of the consumer's process.
#[derive(Clone, Debug)]
pub struct RingAcceptor {
    memory: Arc<Memory>,
    registry: Arc<Registry>,
}

impl RingConsumer {
    /// Returns a handle that adds producers.
    pub fn acceptor(&self) -> RingAcceptor {
        let (memory, registry) = self.shared();
        RingAcceptor {
            memory: Arc::clone(memory),
            registry: Arc::clone(registry),
        }
    }
}

impl RingAcceptor {
    /// Adds a producer of this process, for another thread.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if the ring has 64 producers.
    pub fn local(&self) -> Result<RingProducer> {
        let (number, _) = self.registry.add(&self.memory)?;
        Ok(RingProducer::new(Arc::clone(&self.memory), number, None))
    }

    /// Adds the process at the other end of a socket, which calls [`RingProducer::connect`].
    /// Returns the number of the producer. The socket remains usable for other purposes.
    ///
    /// # Errors
    /// [`ErrorCode::VersionMismatch`] if the process has another version;
    /// [`ErrorCode::LimitReached`] if the ring has 64 producers; [`ErrorCode::PeerLost`] if the
    /// process does not answer.
    pub fn accept(&self, stream: &UnixStream) -> Result<u8> {
        let result = with_timeout(stream, || self.try_accept(stream));
        result.map_err(|error| lost("cannot hand a ring to a process", error))?
    }

    fn try_accept(&self, mut stream: &UnixStream) -> std::io::Result<Result<u8>> {
        let mut hello = [0; HELLO_BYTES];
        stream.read_exact(&mut hello)?;
        let (lowest, highest) = (number::<2>(&hello, 8), number::<2>(&hello, 10));
        if number::<8>(&hello, 0) != MAGIC || !(lowest..=highest).contains(&u64::from(VERSION)) {
            stream.write_all(&welcome(OTHER_VERSION, 0, 0))?;
            let what = format!("cannot hand a ring to a process: it lacks version {VERSION}");
            return Ok(Err(Error::new(ErrorCode::VersionMismatch, what)
                .hint("run the same version in all processes")));
        }
        let (producer, dead) = match self.registry.add(&self.memory) {
            Ok(added) => added,
            Err(error) => {
                stream.write_all(&welcome(TOO_MANY, 0, 0))?;
                return Ok(Err(error));
            }
        };
        let ended = {
            let (memory, registry) = (Arc::downgrade(&self.memory), Arc::downgrade(&self.registry));
            move || {
                dead.store(true, Ordering::Release);
                if let (Some(memory), Some(registry)) = (memory.upgrade(), registry.upgrade()) {
                    registry.wake(&memory);
                }
            }
        };
        let finish = || -> std::io::Result<Result<PeerProcess>> {
            let mut stream = stream;
            send_welcome(stream, &self.memory, producer)?;
            let process = PeerProcess::of(stream);
            stream.read_exact(&mut [0; 8])?;
            Ok(process)
        };
        match finish() {
            Ok(Ok(process)) => Ok(watch(process, Box::new(ended)).map(|()| producer)),
            failed => {
                // It was added, so it ends like any other.
                ended();
                failed.map(|process| process.map(|_| producer))
            }
        }
    }
}

impl RingProducer {
    /// Connects to the ring of the process at the other end of a socket, which calls
    /// [`RingAcceptor::accept`].
    ///
    /// The process must be the one that opened its end of the socket, and this one must have opened
    /// its own: each side waits for the end of that process.
    ///
    /// # Errors
    /// [`ErrorCode::VersionMismatch`] if the process has another version; [`ErrorCode::Refused`]
    /// if the ring has 64 producers; [`ErrorCode::PeerLost`] if the process does not answer;
    /// [`ErrorCode::BadMessage`] if the answer is damaged.
    pub fn connect(stream: &UnixStream) -> Result<RingProducer> {
        let result = with_timeout(stream, || try_connect(stream));
        result.map_err(|error| lost("cannot connect to a ring", error))?
    }
}

fn try_connect(mut stream: &UnixStream) -> std::io::Result<Result<RingProducer>> {
    let mut hello = [0; HELLO_BYTES];
    hello[0..8].copy_from_slice(&MAGIC.to_ne_bytes());
    hello[8..10].copy_from_slice(&VERSION.to_ne_bytes());
    hello[10..12].copy_from_slice(&VERSION.to_ne_bytes());
    stream.write_all(&hello)?;
    let (answer, file) = receive_welcome(stream)?;
    if number::<8>(&answer, 0) != MAGIC {
        return Ok(Err(refused(
            ErrorCode::BadMessage,
            "the answer is of another kind",
        )));
    }
    match number::<2>(&answer, 10) as u16 {
        ACCEPTED => {}
        TOO_MANY => {
            return Ok(Err(refused(
                ErrorCode::Refused,
                "it has too many producers",
            )));
        }
        _ => {
            return Ok(Err(refused(
                ErrorCode::VersionMismatch,
                "it has another version",
            )
            .hint("run the same version in all processes")));
        }
    }
    let opened = open_welcomed(&answer, file)
        .and_then(|(memory, producer)| Ok((memory, producer, PeerProcess::of(stream)?)));
    Ok(match opened {
        Err(error) => Err(error),
        Ok((memory, producer, consumer)) => {
            stream.write_all(&MAGIC.to_ne_bytes())?;
            Ok(RingProducer::new(
                Arc::new(memory),
                producer,
                Some(consumer),
            ))
        }
    })
}

fn refused(code: ErrorCode, what: &str) -> Error {
    Error::new(code, format!("cannot connect to a ring: {what}"))
}

/// Opens the memory of an accepting welcome; returns it with the number of the producer.
///
/// # Errors
/// [`ErrorCode::VersionMismatch`] if the welcome has another version; [`ErrorCode::BadMessage`] if
/// it is damaged; the errors of [`Memory::open`].
pub(crate) fn open_welcomed(
    welcome: &[u8; WELCOME_BYTES],
    file: Option<OwnedFd>,
) -> Result<(Memory, u8)> {
    if number::<2>(welcome, 8) != u64::from(VERSION) {
        return Err(refused(
            ErrorCode::VersionMismatch,
            "it has another version",
        ));
    }
    let (producer, units) = (welcome[12], number::<8>(welcome, 16));
    let size = RingSize::of_bytes(units.saturating_mul(UNIT as u64));
    let is_valid = number::<8>(welcome, 0) == MAGIC
        && size.geometry().units() == units
        && producer < crate::layout::MAX_PRODUCERS as u8;
    let (true, Some(file)) = (is_valid, file) else {
        return Err(refused(ErrorCode::BadMessage, "the answer is damaged"));
    };
    Ok((Memory::open(file, size.geometry())?, producer))
}

/// Encodes the welcome of a producer, or its refusal.
pub(crate) fn welcome(refusal: u16, producer: u8, units: u64) -> [u8; WELCOME_BYTES] {
    let mut bytes = [0; WELCOME_BYTES];
    bytes[0..8].copy_from_slice(&MAGIC.to_ne_bytes());
    bytes[8..10].copy_from_slice(&VERSION.to_ne_bytes());
    bytes[10..12].copy_from_slice(&refusal.to_ne_bytes());
    bytes[12] = producer;
    bytes[16..24].copy_from_slice(&units.to_ne_bytes());
    bytes
}

fn send_welcome(stream: &UnixStream, memory: &Memory, producer: u8) -> std::io::Result<()> {
    let bytes = welcome(ACCEPTED, producer, memory.geometry().units());
    let file = memory.file().ok_or(std::io::ErrorKind::Unsupported)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files = [file];
    ancillary.push(SendAncillaryMessage::ScmRights(&files));
    let pieces = [IoSlice::new(&bytes)];
    let sent = retry_on_intr(|| sendmsg(stream, &pieces, &mut ancillary, SendFlags::NOSIGNAL))?;
    // The file went with the first byte.
    let mut stream = stream;
    stream.write_all(&bytes[sent..])
}

fn receive_welcome(
    mut stream: &UnixStream,
) -> std::io::Result<([u8; WELCOME_BYTES], Option<OwnedFd>)> {
    let mut bytes = [0; WELCOME_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = retry_on_intr(|| {
        let mut pieces = [IoSliceMut::new(&mut bytes)];
        recvmsg(stream, &mut pieces, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    if received.bytes == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let file = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    stream.read_exact(&mut bytes[received.bytes..])?;
    Ok((bytes, file))
}

/// Runs a handshake with a timeout on the socket, and then restores the socket's timeout.
fn with_timeout<T>(
    stream: &UnixStream,
    handshake: impl FnOnce() -> std::io::Result<T>,
) -> std::io::Result<T> {
    let before = stream.read_timeout()?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let result = handshake();
    stream.set_read_timeout(before)?;
    result
}

/// Returns the number of `N` bytes at an offset.
fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    let low = if cfg!(target_endian = "big") {
        8 - N
    } else {
        0
    };
    number[low..low + N].copy_from_slice(&bytes[at..at + N]);
    u64::from_ne_bytes(number)
}

fn lost(what: &str, error: std::io::Error) -> Error {
    Error::new(ErrorCode::PeerLost, what).because(error)
}
