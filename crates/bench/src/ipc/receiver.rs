//! The receiver of the messages of all producers.

use std::io::{ErrorKind, Read};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_shm::{ProducerEnd, RingConfig, RingConsumer, RingEvent, RingSize};
use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, poll};

use super::io;
use super::params::{IpcParams, IpcTransport, ReceiverMode};
use crate::nanoseconds;
use crate::usage::monotonic_nanos;

/// The measurements of a run.
pub(super) struct Received {
    pub(super) from_send: Histogram<u64>,
    pub(super) from_due: Histogram<u64>,
    pub(super) messages: u64,
    pub(super) out_of_order: u64,
    pub(super) sleeps: u64,
    /// From the start of the measurement to its last message.
    pub(super) span: Duration,
    from: u64,
    next: Vec<u64>,
}

impl Received {
    fn new(from: u64, producers: usize) -> Result<Self> {
        Ok(Received {
            from_send: nanoseconds()?,
            from_due: nanoseconds()?,
            messages: 0,
            out_of_order: 0,
            sleeps: 0,
            span: Duration::ZERO,
            from,
            next: vec![0; producers],
        })
    }

    /// Records a message that was copied out.
    fn record(&mut self, producer: usize, message: &[u8]) {
        let now = monotonic_nanos();
        let field = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&message[at..at + 8]);
            u64::from_le_bytes(number)
        };
        let (number, sent, due) = (field(0), field(8), field(16));
        self.out_of_order += u64::from(number != self.next[producer]);
        self.next[producer] = number + 1;
        if due >= self.from {
            self.messages += 1;
            self.from_send.saturating_record(now.saturating_sub(sent));
            self.from_due.saturating_record(now.saturating_sub(due));
            self.span = Duration::from_nanos(now - self.from);
        }
    }
}

/// A socket and the message that it is receiving.
struct IncomingStream {
    stream: Box<dyn ByteStream>,
    filled: usize,
    buffer: Vec<u8>,
    is_open: bool,
}

trait ByteStream: Read + AsFd {}
impl<T: Read + AsFd> ByteStream for T {}

enum ReceiveEnd {
    Ring(Box<RingConsumer>),
    Sockets(Vec<IncomingStream>, Option<TcpListener>),
}

/// The receiving ends of the connections to all producers.
pub(super) struct Receiver {
    end: ReceiveEnd,
    bytes: usize,
}

impl Receiver {
    pub(super) fn new(params: &IpcParams) -> Result<Self> {
        let end = match params.transport {
            IpcTransport::Ring => ReceiveEnd::Ring(Box::new(RingConsumer::new(RingConfig {
                size: match params.ring {
                    Some(bytes) => RingSize::of_bytes(bytes),
                    None => RingSize::for_messages(params.bytes as u64),
                },
                ..RingConfig::default()
            })?)),
            IpcTransport::Uds => ReceiveEnd::Sockets(Vec::new(), None),
            IpcTransport::Tcp => {
                let listener = TcpListener::bind("127.0.0.1:0")
                    .map_err(|error| io("listen for TCP connections", error))?;
                ReceiveEnd::Sockets(Vec::new(), Some(listener))
            }
        };
        let bytes = params.bytes;
        Ok(Receiver { end, bytes })
    }

    /// Returns the port at which producers connect, for TCP.
    pub(super) fn tcp_port(&self) -> Option<u16> {
        match &self.end {
            ReceiveEnd::Sockets(_, Some(listener)) => Some(listener.local_addr().ok()?.port()),
            _ => None,
        }
    }

    /// Adds the producer that has connected its control socket.
    pub(super) fn add(&mut self, control: &UnixStream) -> Result<()> {
        let failed = |error| io("accept a producer", error);
        match &mut self.end {
            ReceiveEnd::Ring(consumer) => consumer.acceptor().accept(control).map(|_| ()),
            ReceiveEnd::Sockets(sockets, listener) => {
                let stream: Box<dyn ByteStream> = match listener {
                    Some(listener) => {
                        let (stream, _) = listener.accept().map_err(failed)?;
                        stream.set_nonblocking(true).map_err(failed)?;
                        Box::new(stream)
                    }
                    None => {
                        control.set_nonblocking(true).map_err(failed)?;
                        Box::new(control.try_clone().map_err(failed)?)
                    }
                };
                sockets.push(IncomingStream {
                    stream,
                    filled: 0,
                    buffer: vec![0; self.bytes],
                    is_open: true,
                });
                Ok(())
            }
        }
    }

    /// Receives until all producers have ended.
    pub(super) fn run(self, params: &IpcParams, from: u64) -> Result<Received> {
        let received = Received::new(from, params.producers as usize)?;
        match self.end {
            ReceiveEnd::Ring(consumer) => run_ring(*consumer, params, received),
            ReceiveEnd::Sockets(sockets, _) => run_sockets(sockets, params.receiver, received),
        }
    }
}

fn run_ring(
    mut consumer: RingConsumer,
    params: &IpcParams,
    mut received: Received,
) -> Result<Received> {
    let mut private = vec![0; params.bytes];
    let mut ended = 0;
    while ended < params.producers {
        match consumer.poll()? {
            Some(RingEvent::Message(message)) if message.payload.len() == private.len() => {
                message.payload.copy_to(&mut private);
                received.record(usize::from(message.producer), &private);
            }
            Some(RingEvent::Message(_)) => return Err(lost("it sent a message of another size")),
            Some(RingEvent::Ended { end, .. }) => match end {
                ProducerEnd::Closed => ended += 1,
                ProducerEnd::Lost => return Err(lost("it died")),
                ProducerEnd::Faulty(error) => return Err(error),
            },
            None if params.receiver == ReceiverMode::Poll => std::hint::spin_loop(),
            None => consumer.wait(None)?,
        }
    }
    received.sleeps = consumer.counters().sleeps;
    Ok(received)
}

fn run_sockets(
    mut sockets: Vec<IncomingStream>,
    mode: ReceiverMode,
    mut received: Received,
) -> Result<Received> {
    while sockets.iter().any(|socket| socket.is_open) {
        let mut has_read = false;
        let open = sockets.iter_mut().enumerate();
        for (number, socket) in open.filter(|(_, socket)| socket.is_open) {
            let IncomingStream {
                stream,
                filled,
                buffer,
                is_open,
            } = socket;
            match stream.read(&mut buffer[*filled..]) {
                Ok(0) if *filled == 0 => *is_open = false,
                Ok(0) => return Err(lost("it ended within a message")),
                Ok(count) => *filled += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => return Err(io("receive", error)),
            }
            has_read = true;
            if *filled == buffer.len() {
                received.record(number, buffer);
                *filled = 0;
            }
        }
        if !has_read && mode == ReceiverMode::Sleep {
            received.sleeps += 1;
            let open = sockets.iter().filter(|socket| socket.is_open);
            let mut handles: Vec<PollFd<'_>> = open
                .map(|socket| PollFd::new(&socket.stream, PollFlags::IN))
                .collect();
            // An interruption leaves no event, and the loop starts again.
            let _ = poll(&mut handles, None);
        }
    }
    Ok(received)
}

fn lost(why: &str) -> Error {
    Error::new(ErrorCode::PeerLost, "lost a producer of the benchmark").because(why)
}
