//! Tests that a steady state allocates nothing, neither for a forwarded frame nor for a chunk sent
//! and received.

use std::alloc::System;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ardea_core::{Chunk, Clock, Timestamp, Waker};
use ardea_network::exchange::*;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Repeats `done` until it returns true; fails after a minute.
fn until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "timed out");
    }
}

fn connected(transport: &mut TcpTransport) -> (Box<dyn Connection>, Box<dyn Connection>) {
    let mut listener = transport.listen("127.0.0.1:0").unwrap();
    let connecting = transport.connect(listener.address()).unwrap();
    let mut accepted = None;
    until(|| {
        transport.wait(Duration::ZERO).unwrap();
        accepted = listener.accept().unwrap();
        accepted.is_some()
    });
    (connecting, accepted.unwrap())
}

/// Passes `count` frames from one connection through a forwarder to another.
fn forward(
    transport: &mut TcpTransport,
    ends: &mut [Box<dyn Connection>; 4],
    forwarder: &mut Forwarder,
    payload: &Payload,
    count: u64,
) {
    let [source, from, to, sink] = ends;
    let (mut sent, mut received) = (0, 0);
    until(|| {
        transport.wait(Duration::ZERO).unwrap();
        while sent < count {
            let mut header = Header::new(Kind::Records, StreamId::new(1, 1));
            header.target = InstanceNumber(4);
            let frame = Frame {
                header,
                payload: payload.clone(),
            };
            if source.send(SendBuffer::Frame(frame)).is_err() {
                break;
            }
            sent += 1;
        }
        source.flush().unwrap();
        while !forwarder.is_full(0)
            && let Some(frame) = from.receive().unwrap()
        {
            forwarder.forward(frame).unwrap();
        }
        forwarder.drain(0, &mut **to).unwrap();
        while let Some(frame) = sink.receive().unwrap() {
            assert_eq!(frame.header.target, InstanceNumber(9));
            assert_eq!(frame.payload.len(), payload.len());
            received += 1;
        }
        received == count
    });
}

fn passing_on_allocates_nothing(bytes: usize) {
    let mut transport = TcpTransport::new(TcpConfig::default()).unwrap();
    let (source, mut from) = connected(&mut transport);
    let (to, mut sink) = connected(&mut transport);
    from.allow(1 << 20);
    sink.allow(1 << 20);
    let mut ends = [source, from, to, sink];
    let mut forwarder = Forwarder::new(1, 1 << 20);
    let stream = StreamId::new(1, 1);
    forwarder.route(
        RouteKey {
            stream,
            target: InstanceNumber(4),
            is_grant: false,
        },
        Route {
            destination: 0,
            stream,
            target: InstanceNumber(9),
        },
    );
    let payload = Payload::copy_of(&vec![7; bytes]);
    forward(&mut transport, &mut ends, &mut forwarder, &payload, 20_000);
    let region = Region::new(ALLOCATOR);
    forward(&mut transport, &mut ends, &mut forwarder, &payload, 5_000);
    let change = region.change();
    let allocations = change.allocations + change.reallocations;
    // Blocks allocated by a burst are kept; there are a few dozen at most.
    assert!(allocations < 50, "{bytes}: {allocations} for 5,000 frames");
}

fn link(connection: Box<dyn Connection>, side: Side, worker: u64, bell: NetworkWaker) -> Link {
    let identity = Identity {
        cluster: "harbour".into(),
        worker: WorkerNumber(worker),
        incarnation: 1,
        token: None,
    };
    Link::new(
        connection,
        side,
        identity,
        bell,
        LinkConfig::default(),
        Duration::ZERO,
    )
}

fn sending_and_receiving_allocates_nothing() {
    let clock = Clock::system();
    let mut transport = TcpTransport::new(TcpConfig::default()).unwrap();
    let (a, b) = connected(&mut transport);
    let mut links = [
        link(a, Side::Connected(None), 1, transport.waker()),
        link(b, Side::Accepted, 2, transport.waker()),
    ];
    let stream = StreamId::new(1, 1);
    let codec = Arc::new(RowsCodec::<u64>::wire());
    let port = links[0].open(End::Sender, stream, Waker::none()).unwrap();
    let all = InstanceNumber::ALL;
    let mut sender = EdgeSender::new(stream, all, port, codec.clone(), SenderConfig::default());
    let port = links[1].open(End::Receiver, stream, Waker::none()).unwrap();
    let mut receiver =
        EdgeReceiver::new(stream, port, codec, ReceiverConfig::default(), clock.now());
    let (mut out, mut into) = (Chunk::default(), Chunk::default());
    let (mut sent, mut received) = (0u64, 0u64);
    let mut carry = |chunks: u64| {
        let end = sent + chunks;
        until(|| {
            transport.wait(Duration::ZERO).unwrap();
            if out.is_empty() && sent < end {
                let rows = out.rows_or_new::<u64>(1000).unwrap();
                rows.extend((0..1000).map(|n| (n, Timestamp::from_micros(n as i64))));
                sent += 1;
            }
            sender.send(InstanceNumber(0), &mut out).unwrap();
            sender.flush().unwrap();
            for link in &mut links {
                let _ = link.poll(clock.now()).unwrap();
            }
            while receiver.receive(clock.now(), &mut into).unwrap().is_some() {
                received += into.len() as u64;
                into.clear();
            }
            received == end * 1000
        });
    };
    carry(5_000);
    let region = Region::new(ALLOCATOR);
    carry(5_000);
    let change = region.change();
    let allocations = change.allocations + change.reallocations;
    assert!(allocations < 50, "{allocations} for 5,000 chunks");
}

/// One test function, since the counter counts the allocations of all threads.
#[test]
fn a_steady_state_allocates_nothing_per_frame() {
    passing_on_allocates_nothing(16_384);
    passing_on_allocates_nothing(100);
    sending_and_receiving_allocates_nothing();
}
