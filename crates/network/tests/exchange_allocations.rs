//! Tests that a steady state allocates nothing for a chunk sent and received.

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

fn connected(
    transport: &mut dyn Transport,
    address: &str,
) -> (Box<dyn Connection>, Box<dyn Connection>) {
    let mut listener = transport.listen(address).unwrap();
    let connecting = transport.connect(listener.address()).unwrap();
    let mut accepted = None;
    until(|| {
        transport.wait(Duration::ZERO).unwrap();
        accepted = listener.accept().unwrap();
        accepted.is_some()
    });
    (connecting, accepted.unwrap())
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

fn sending_and_receiving_allocates_nothing(transport: &mut dyn Transport, address: &str) {
    let clock = Clock::system();
    let (a, b) = connected(transport, address);
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
    let mut tcp = TcpTransport::new(TcpConfig::default()).unwrap();
    sending_and_receiving_allocates_nothing(&mut tcp, "127.0.0.1:0");
    let rings = HostPath::SharedMemory(RingSetup {
        size: None,
        is_required: true,
    });
    for path in [HostPath::UnixSocket, rings] {
        let config = HostConfig {
            path,
            tcp: None,
            framed: FramedConfig::default(),
        };
        let mut transport = HostTransport::new(config).unwrap();
        let process = u64::from(std::process::id());
        let address = host_address("harbour", WorkerNumber(2), process, 0);
        sending_and_receiving_allocates_nothing(&mut transport, &address);
    }
}
