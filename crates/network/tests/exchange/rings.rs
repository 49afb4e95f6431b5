//! Tests of connections over shared memory, with valid and hostile peers.

use std::fs::File;
use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use ardea_core::{Chunk, Clock, ManualClock, Rows, Timestamp};
use ardea_network::exchange::*;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::pair::{Worker, host, identity, pair, pair_by, rings, small_rings, take_numbers};
use crate::pair::{until, unused_address};

const STREAM: StreamId = StreamId::new(1, 1);

/// A stream of numbers between two workers.
struct Numbers {
    sender: EdgeSender,
    receiver: EdgeReceiver,
    next: u64,
    got: Vec<u64>,
}

impl Numbers {
    fn between(first: &mut Worker, second: &mut Worker) -> Self {
        Numbers {
            receiver: second.receiver::<u64>(STREAM),
            sender: first.sender::<u64>(STREAM),
            next: 0,
            got: Vec::new(),
        }
    }

    /// Sends up to `count` numbers, and receives what has arrived.
    fn step(&mut self, count: u64, first: &mut Worker, second: &mut Worker) {
        let rows: Rows<u64> = (self.next..self.next + count)
            .map(|number| (number, Timestamp::MIN))
            .collect();
        let mut chunk = Chunk::new(rows);
        self.sender.send(InstanceNumber(0), &mut chunk).unwrap();
        self.next += count - chunk.len() as u64;
        self.sender.flush().unwrap();
        first.poll().unwrap();
        second.poll().unwrap();
        take_numbers(&mut self.receiver, second.clock.now(), &mut self.got).unwrap();
    }

    fn check(&self) {
        assert!(self.got.iter().copied().eq(0..self.got.len() as u64));
    }
}

#[test]
fn frames_come_through_a_ring_whose_size_follows_them() {
    let config = LinkConfig::default();
    let (first, second) = (host(rings()), host(rings()));
    let (mut first, mut second) = pair(first, second, unused_address(), config);
    let mut numbers = Numbers::between(&mut first, &mut second);
    until(|| {
        numbers.step(10, &mut first, &mut second);
        second.link.counts().ring.messages > 10
    });
    let before = second.link.counts().ring.capacity_bytes;
    until(|| {
        numbers.step(7_000, &mut first, &mut second);
        second.link.counts().ring.capacity_bytes > before
    });
    let total = numbers.next + 1_000_000;
    until(|| {
        numbers.step(7_000, &mut first, &mut second);
        numbers.got.len() as u64 > total
    });
    numbers.check();
    assert_eq!(second.link.kind(), Some("shm"));
    assert_eq!(second.link.counts().ring.abandoned, 0);
}

#[test]
fn a_ring_of_a_configured_size_keeps_it() {
    let config = LinkConfig::default();
    let (first, second) = (host(small_rings()), host(small_rings()));
    let (mut first, mut second) = pair(first, second, unused_address(), config);
    let mut numbers = Numbers::between(&mut first, &mut second);
    until(|| {
        numbers.step(7_000, &mut first, &mut second);
        second.link.counts().ring.messages > 3_000
    });
    numbers.check();
    let ring = second.link.counts().ring;
    assert_eq!(ring.capacity_bytes, RingSize::MIN.bytes());
    assert!(ring.fill_bytes <= ring.capacity_bytes);
}

#[test]
fn a_link_with_a_full_ring_waits_for_room_and_not_for_the_time_of_a_heartbeat() {
    let hand = ManualClock::new();
    let clock = hand.clock();
    let ways = (host(small_rings()), host(small_rings()), unused_address());
    let config = LinkConfig::default();
    let (mut first, mut second) = pair_by(&clock, || {}, ways, config);
    let mut numbers = Numbers::between(&mut first, &mut second);
    until(|| {
        numbers.step(10, &mut first, &mut second);
        second.link.counts().ring.messages > 10
    });
    // The peer does not read any more.
    let (mut next, mut chunk) = (numbers.next, Chunk::default());
    until(|| {
        if chunk.is_empty() {
            let rows: Rows<u64> = (next..next + 1_000).map(|n| (n, Timestamp::MIN)).collect();
            chunk = Chunk::new(rows);
            next += 1_000;
        }
        numbers.sender.send(InstanceNumber(0), &mut chunk).unwrap();
        numbers.sender.flush().unwrap();
        !first.poll().unwrap() && first.link.may_wait() && first.link.counts().ring.full > 0
    });
    hand.advance(config.heartbeat_interval);
    assert!(!first.poll().unwrap());
    assert!(first.link.next_poll() > clock.now());
    // Room in the ring ends the wait.
    second.poll().unwrap();
    assert!(second.link.counts().ring.fill_bytes < RingSize::MIN.bytes());
    assert!(!first.link.may_wait() || first.poll().unwrap());
}

/// A peer that is connected to a worker by a plain socket.
struct HostilePeer {
    socket: UnixStream,
    transport: Box<dyn Transport>,
    link: Link,
    clock: Clock,
}

impl HostilePeer {
    fn connect() -> Self {
        let (mut transport, address) = (host(small_rings()), unused_address());
        let mut listener = transport.listen(address).unwrap();
        let name = address.strip_prefix("unix:").unwrap();
        let name = SocketAddr::from_abstract_name(name).unwrap();
        let socket = UnixStream::connect_addr(&name).unwrap();
        let mut accepted = None;
        until(|| {
            transport.wait(Duration::ZERO).unwrap();
            accepted = listener.accept().unwrap();
            accepted.is_some()
        });
        let clock = Clock::system();
        let link = Link::new(
            accepted.unwrap(),
            Side::Accepted,
            identity(2),
            transport.waker(),
            LinkConfig {
                silence_timeout: Duration::from_millis(300),
                ..LinkConfig::default()
            },
            clock.now(),
        );
        HostilePeer {
            socket,
            transport,
            link,
            clock,
        }
    }

    fn send(&mut self, kind: Kind, payload: &[u8]) {
        let header = Header::new(kind, StreamId::new(0, 0));
        // The worker may have closed the connection.
        let _ = self.socket.write_all(&header.encode(payload.len()));
        let _ = self.socket.write_all(payload);
    }

    /// Completes the handshake.
    fn greet(&mut self) {
        let own = identity(3);
        let greeting: (u16, u64, u64, String, Option<String>) =
            (PROTOCOL_VERSION, own.worker.0, 1, own.cluster, None);
        let mut bytes = Vec::new();
        greeting.put(&mut bytes);
        self.send(Kind::Hello, &bytes);
        until(|| {
            self.poll().unwrap();
            self.link.peer().is_some()
        });
    }

    fn poll(&mut self) -> Result<(), Disconnected> {
        self.transport.wait(Duration::ZERO).unwrap();
        self.link.poll(self.clock.now()).map(drop)
    }

    /// Receives the memory of the ring that the worker offers.
    fn memory(&mut self) -> File {
        let mut file = None;
        self.socket.set_nonblocking(true).unwrap();
        until(|| {
            self.poll().unwrap();
            file = receive_file(&self.socket);
            file.is_some()
        });
        self.socket.set_nonblocking(false).unwrap();
        File::from(file.unwrap())
    }

    /// Waits until the worker gives the peer up.
    fn end(&mut self) -> Disconnected {
        let mut gone = None;
        until(|| {
            gone = self.poll().err();
            gone.is_some()
        });
        gone.unwrap()
    }
}

fn receive_file(socket: &UnixStream) -> Option<OwnedFd> {
    let mut bytes = [0; 1_000];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut pieces = [IoSliceMut::new(&mut bytes)];
    recvmsg(socket, &mut pieces, &mut ancillary, RecvFlags::empty()).ok()?;
    let mut messages = ancillary.drain();
    messages.find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    })
}

#[test]
fn control_messages_that_contradict_the_protocol_end_the_connection() {
    type Act = fn(&mut HostilePeer);
    let acts: [Act; 6] = [
        |peer| peer.send(Kind::Ring, &[2]),
        |peer| {
            peer.greet();
            peer.send(Kind::Ring, &[3]);
        },
        |peer| {
            peer.greet();
            peer.send(Kind::Ring, &[]);
        },
        |peer| {
            peer.greet();
            // An offer without a file.
            peer.send(Kind::Ring, &[0; 25]);
        },
        |peer| {
            peer.greet();
            peer.memory();
            peer.send(Kind::Ring, &[1]);
            peer.send(Kind::Ring, &[1]);
        },
        |peer| {
            peer.greet();
            peer.memory();
            peer.send(Kind::Ring, &[1]);
            // Frames come through the ring now.
            peer.send(Kind::Heartbeat, &[]);
        },
    ];
    for act in acts {
        let mut peer = HostilePeer::connect();
        act(&mut peer);
        let gone = peer.end();
        let is_expected = matches!(gone.reason, DisconnectReason::InvalidFrame(_));
        assert!(is_expected, "{gone}");
    }
}

#[test]
fn a_peer_that_scribbles_over_a_ring_ends_its_own_connection_only() {
    let config = LinkConfig::default();
    let (first, second) = (host(rings()), host(rings()));
    let (mut first, mut second) = pair(first, second, unused_address(), config);
    let mut numbers = Numbers::between(&mut first, &mut second);
    let mut seed = 1u64;
    for round in 0..12u8 {
        let mut peer = HostilePeer::connect();
        peer.greet();
        let memory = peer.memory();
        peer.send(Kind::Ring, &[1]);
        let length = memory.metadata().unwrap().len();
        let mut gone = None;
        until(|| {
            numbers.step(100, &mut first, &mut second);
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (at, value) = (seed >> 20, seed.to_ne_bytes());
            match round {
                // A plausible mark of every slot, of one unit and ready.
                0 => {
                    let mark: u64 = 2 | 1 << 10;
                    memory.write_all_at(&mark.to_ne_bytes(), 8_832).unwrap();
                }
                1 => memory.write_all_at(&vec![0xff; 70_000], 0).unwrap(),
                2 => memory.write_all_at(&vec![1; 70_000], 0).unwrap(),
                // A tail without a slot.
                3 => memory.write_all_at(&5u64.to_ne_bytes(), 128).unwrap(),
                _ => memory
                    .write_all_at(&value, at % (length - 8) / 8 * 8 % 20_000)
                    .unwrap(),
            }
            peer.send(Kind::Ring, &[2]);
            // Otherwise its silence ends the connection.
            gone = peer.poll().err();
            gone.is_some() || !peer.link.may_wait() && peer.poll().is_err()
        });
    }
    assert!(numbers.got.len() > 1_000);
    numbers.check();
}
