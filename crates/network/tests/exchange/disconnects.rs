//! Tests of peers that close, crash or stop responding.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use ardea_core::{Chunk, Clock, Epoch, ManualClock, Marker, Rows, Timestamp, Waker};
use ardea_network::exchange::*;
use proptest::prelude::*;

use crate::pair::{Worker, identity, pair, take_numbers, tcp, transports, until};

fn numbers(from: u64, count: u64) -> Chunk {
    Chunk::new(
        (from..from + count)
            .map(|n| (n, Timestamp::MIN))
            .collect::<Rows<u64>>(),
    )
}

#[test]
fn a_sender_learns_what_was_in_flight_when_its_peer_went() {
    for (first, second, address) in transports() {
        let (mut first, mut second) = pair(first, second, address, LinkConfig::default());
        let stream = StreamId::new(1, 1);
        let mut receiver = second.receiver::<u64>(stream);
        let mut sender = first.sender::<u64>(stream);
        let mut got = Vec::new();
        let mut next = 0;
        until(|| {
            let mut chunk = numbers(next, 100);
            if sender.send(InstanceNumber(0), &mut chunk).unwrap() {
                next += 100;
            }
            sender.flush().unwrap();
            first.poll().unwrap();
            second.poll().unwrap();
            take_numbers(&mut receiver, second.clock.now(), &mut got).unwrap();
            // At least one acknowledgement must have come back.
            *sender.in_flight().start() > 1
        });
        let dealt_with = receiver.last_sequence();
        drop((second, receiver));
        let mut error = None;
        until(|| {
            let _ = first.poll();
            error = sender.flush().err();
            error.is_some()
        });
        assert!(error.unwrap().to_string().contains("worker 2"));
        let in_flight = sender.in_flight();
        assert!(
            *in_flight.start() > 1 && *in_flight.start() <= dealt_with + 1,
            "{in_flight:?}"
        );
        assert!(*in_flight.end() >= dealt_with, "{in_flight:?} {dealt_with}");
    }
}

#[test]
fn a_stream_that_ended_is_received_to_its_end_though_the_peer_has_gone() {
    for (first, second, address) in transports() {
        let (mut first, mut second) = pair(first, second, address, LinkConfig::default());
        let stream = StreamId::new(1, 1);
        let mut receiver = second.receiver::<u64>(stream);
        let mut sender = first.sender::<u64>(stream);
        let mut next = 0;
        // Many small frames: more than the queue of a port holds.
        until(|| {
            if next < 1000 {
                let sent = sender
                    .send(InstanceNumber(0), &mut numbers(next, 1))
                    .unwrap();
                next += u64::from(sent);
            }
            sender.flush().unwrap();
            first.poll().unwrap();
            second.poll().unwrap();
            next == 1000 && sender.mark(Marker::Done).unwrap()
        });
        until(|| {
            first.poll().unwrap();
            sender.flush().unwrap()
        });
        drop(sender);
        until(|| {
            let made = first.poll().unwrap();
            second.poll().unwrap();
            !made && second.link.counts().bytes_in == first.link.counts().bytes_out
        });
        drop(first);
        until(|| second.poll().is_err());
        let mut got = Vec::new();
        take_numbers(&mut receiver, second.clock.now(), &mut got).unwrap();
        assert!(receiver.is_done());
        assert!(got.into_iter().eq(0..1000));
    }
}

#[test]
fn a_receiver_whose_stream_had_not_ended_is_told_by_name() {
    for (first, second, address) in transports() {
        let (first, mut second) = pair(first, second, address, LinkConfig::default());
        let mut receiver = second.receiver::<u64>(StreamId::new(1, 1));
        drop(first);
        until(|| second.poll().is_err());
        let error = receiver
            .receive(Duration::ZERO, &mut Chunk::default())
            .unwrap_err();
        assert!(error.to_string().contains("worker 1"), "{error}");
    }
}

/// Creates a worker with a manual clock, connected over TCP to a plain socket that has completed
/// the handshake.
fn half_open(clock: &Clock) -> (Worker, TcpStream) {
    half_open_with(clock, LinkConfig::default())
}

fn half_open_with(clock: &Clock, config: LinkConfig) -> (Worker, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut transport = tcp();
    let address = listener.local_addr().unwrap().to_string();
    let connection = transport.connect(&address).unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    let mut worker = Worker {
        link: Link::new(
            connection,
            Side::Connected(None),
            identity(1),
            transport.waker(),
            config,
            clock.now(),
        ),
        transport: Box::new(transport),
        clock: clock.clone(),
    };
    until(|| {
        worker.poll().unwrap();
        worker.link.counts().bytes_out > 0
    });
    // The hello is that of another worker: only the number after the version is changed.
    let mut greeting = vec![0; worker.link.counts().bytes_out as usize];
    socket.read_exact(&mut greeting).unwrap();
    greeting[HEADER_BYTES + 2] = 2;
    socket.write_all(&greeting).unwrap();
    until(|| {
        worker.poll().unwrap();
        worker.link.peer().is_some()
    });
    (worker, socket)
}

#[test]
fn a_peer_that_is_silent_on_an_open_connection_is_gone_after_the_limit() {
    let hand = ManualClock::new();
    let (mut worker, _socket) = half_open(&hand.clock());
    hand.advance(Duration::from_millis(1_900));
    worker.poll().unwrap();
    assert_eq!(worker.link.next_poll(), Duration::from_secs(2));
    hand.advance(Duration::from_millis(200));
    let gone = worker.poll().unwrap_err();
    assert!(
        matches!(gone.reason, DisconnectReason::TimedOut(_)),
        "{gone}"
    );
    assert!(gone.to_string().contains("worker 2"), "{gone}");
}

#[test]
fn workers_that_have_nothing_to_say_stay_connected() {
    for (first, second, address) in transports() {
        let (mut first, mut second) = pair(first, second, address, LinkConfig::default());
        let hand = ManualClock::new();
        hand.advance(first.clock.now().max(second.clock.now()));
        first.clock = hand.clock();
        second.clock = hand.clock();
        for _ in 0..100 {
            hand.advance(Duration::from_millis(300));
            let heard = (
                first.link.counts().frames_in,
                second.link.counts().frames_in,
            );
            until(|| {
                first.poll().unwrap();
                second.poll().unwrap();
                first.link.counts().frames_in > heard.0 && second.link.counts().frames_in > heard.1
            });
        }
    }
}

#[test]
fn a_peer_that_acknowledges_what_was_never_sent_is_found_out() {
    let clock = Clock::system();
    let (mut worker, mut socket) = half_open(&clock);
    let stream = StreamId::new(1, 1);
    let mut sender = worker.sender::<u64>(stream);
    let mut lie = Header::new(Kind::Grant, stream).encode(16).to_vec();
    lie.extend_from_slice(&500u64.to_le_bytes());
    lie.extend_from_slice(&1000u64.to_le_bytes());
    socket.write_all(&lie).unwrap();
    let mut error = None;
    until(|| {
        worker.poll().unwrap();
        error = sender.flush().err();
        error.is_some()
    });
    assert!(error.unwrap().to_string().contains("never sent"));
}

#[test]
fn duplicates_are_left_out_and_gaps_are_errors() {
    let (mut worker, mut socket) = half_open(&Clock::system());
    let stream = StreamId::new(1, 1);
    let mut receiver = worker.receiver::<u64>(stream);
    let mut write = |sequence, epoch| {
        let mut header = Header::new(Kind::Barrier, stream);
        header.sequence = sequence;
        header.epoch = Epoch(epoch);
        socket.write_all(&header.encode(0)).unwrap();
    };
    for sequence in [1, 2, 1, 2, 3] {
        write(sequence, sequence);
    }
    let mut got = Vec::new();
    until(|| {
        worker.poll().unwrap();
        let received = receiver.receive(worker.clock.now(), &mut Chunk::default());
        got.extend(received.unwrap());
        got.len() == 3
    });
    let expected: Vec<_> = (1..=3)
        .map(|epoch| Received::Marker(Marker::Barrier(Epoch(epoch))))
        .collect();
    assert_eq!(got, expected);
    assert_eq!(receiver.duplicates(), 2);
    write(7, 7);
    let mut error = None;
    until(|| {
        worker.poll().unwrap();
        error = receiver
            .receive(worker.clock.now(), &mut Chunk::default())
            .err();
        error.is_some()
    });
    let error = error.unwrap().to_string();
    assert!(error.contains("frame 7 came where 4 was due"), "{error}");
}

#[test]
fn a_peer_that_ignores_its_window_is_cut_off_before_it_fills_the_memory() {
    let config = LinkConfig {
        max_window: 100_000,
        max_payload: 10_000,
        ..LinkConfig::default()
    };
    let (mut worker, mut socket) = half_open_with(&Clock::system(), config);
    let stream = StreamId::new(1, 1);
    let _port = worker
        .link
        .open(End::Receiver, stream, Waker::none())
        .unwrap();
    let writing = std::thread::spawn(move || {
        let mut flood = Header::new(Kind::Records, stream).encode(5_000).to_vec();
        flood.resize(flood.len() + 5_000, 0);
        for sent in 0..10_000 {
            if socket.write_all(&flood).is_err() {
                return sent;
            }
        }
        10_000
    });
    let mut gone = None;
    until(|| {
        gone = worker.poll().err();
        gone.is_some()
    });
    assert!(matches!(gone.unwrap().reason, DisconnectReason::Overrun(of) if of == stream));
    assert!(worker.link.counts().bytes_in < 300_000);
    drop(worker);
    assert!(writing.join().unwrap() < 10_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whenever a connection is cut, the received records are a prefix of the sent ones, in order,
    /// and both sides are notified.
    #[test]
    fn a_cut_at_any_moment_leaves_a_prefix_and_tells_both_sides(
        steps in 1usize..60, held in 0usize..60, sizes in prop::collection::vec(1u64..3000, 1..10),
    ) {
        let network = MemoryNetwork::default();
        let (mut first, mut second) = pair(
            Box::new(network.transport()),
            Box::new(network.transport()),
            "second",
            LinkConfig::default(),
        );
        let stream = StreamId::new(1, 1);
        let mut receiver = second.receiver::<u64>(stream);
        let mut sender = first.sender::<u64>(stream);
        let (mut next, mut got) = (0, Vec::new());
        for step in 0..steps {
            network.stall(step >= held);
            let size = sizes[step % sizes.len()];
            let mut chunk = numbers(next, size);
            sender.send(InstanceNumber(0), &mut chunk).unwrap();
            next += size - chunk.len() as u64;
            sender.flush().unwrap();
            first.poll().unwrap();
            second.poll().unwrap();
            take_numbers(&mut receiver, second.clock.now(), &mut got).unwrap();
        }
        network.cut();
        prop_assert!(matches!(first.poll().unwrap_err().reason, DisconnectReason::Broken(_)));
        prop_assert!(matches!(second.poll().unwrap_err().reason, DisconnectReason::Broken(_)));
        prop_assert!(sender.flush().is_err());
        prop_assert!(take_numbers(&mut receiver, second.clock.now(), &mut got).is_err());
        prop_assert!(got.len() as u64 <= next);
        prop_assert!(got.iter().copied().eq(0..got.len() as u64));
        let lost_at_most = sender.in_flight();
        prop_assert!(*lost_at_most.start() <= receiver.last_sequence() + 1);
        prop_assert!(*lost_at_most.end() >= receiver.last_sequence());
    }
}
