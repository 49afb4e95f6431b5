//! Two workers with a link between them, polled by one thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ardea_core::{Chunk, Clock, Result, Waker};
use ardea_network::exchange::*;
use ardea_network::tls::Tls;
use ardea_network::tls::testing::certificates;

/// Timeout of a test step.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Repeats `done` until it returns true; fails after [`TIMEOUT`].
pub fn until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < TIMEOUT, "timed out");
        std::thread::yield_now();
    }
}

/// Returns the identity of a member of the test cluster.
pub fn identity(worker: u64) -> Identity {
    Identity {
        cluster: "harbour".into(),
        worker: WorkerNumber(worker),
        incarnation: 1,
        token: None,
    }
}

/// The transports of two workers, and the address at which the second listens.
pub type Ways = (Box<dyn Transport>, Box<dyn Transport>, &'static str);

/// Creates a transport within a host, with small blocks.
pub fn host(path: HostPath) -> Box<dyn Transport> {
    let mut framed = FramedConfig::default();
    framed.assembler.block_bytes = 20_000;
    let tcp = None;
    Box::new(HostTransport::new(HostConfig { path, tcp, framed }).unwrap())
}

/// Returns shared memory with rings of the least size.
pub fn small_rings() -> HostPath {
    HostPath::SharedMemory(RingSetup {
        size: Some(RingSize::MIN),
        is_required: true,
    })
}

/// Returns shared memory with rings that follow the messages.
pub fn rings() -> HostPath {
    HostPath::SharedMemory(RingSetup {
        size: None,
        is_required: true,
    })
}

/// Returns an address on this host that no other test uses.
pub fn unused_address() -> &'static str {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let cluster = format!("harbour of process {}", std::process::id());
    host_address(&cluster, WorkerNumber(2), number, 0).leak()
}

/// Returns the transports to test.
pub fn transports() -> Vec<Ways> {
    let network = MemoryNetwork::default();
    let certificates = certificates();
    let mut ways: Vec<Ways> = vec![
        (
            Box::new(network.transport()),
            Box::new(network.transport()),
            "second",
        ),
        (Box::new(tcp()), Box::new(tcp()), "127.0.0.1:0"),
        (
            Box::new(tls(&certificates)),
            Box::new(tls(&certificates)),
            "127.0.0.1:0",
        ),
    ];
    for path in [HostPath::UnixSocket, rings(), small_rings()] {
        ways.push((host(path), host(path), unused_address()));
    }
    ways
}

/// Creates a TCP transport with TLS and small blocks.
fn tls(certificates: &Tls) -> TcpTransport {
    let mut config = TcpConfig {
        tls: Some(certificates.clone()),
        ..TcpConfig::default()
    };
    config.framed.assembler.block_bytes = 20_000;
    TcpTransport::new(config).unwrap()
}

/// Creates a TCP transport with small blocks, so that frames are split in many places.
pub fn tcp() -> TcpTransport {
    let mut config = TcpConfig::default();
    config.framed.assembler.block_bytes = 20_000;
    TcpTransport::new(config).unwrap()
}

/// A worker with one link.
pub struct Worker {
    pub transport: Box<dyn Transport>,
    pub link: Link,
    pub clock: Clock,
}

impl Worker {
    pub fn poll(&mut self) -> Result<bool, Disconnected> {
        self.transport.wait(Duration::ZERO).unwrap();
        Ok(self.link.poll(self.clock.now())?.made)
    }

    pub fn sender<T: Wire>(&mut self, stream: StreamId) -> EdgeSender {
        let port = self.link.open(End::Sender, stream, Waker::none()).unwrap();
        let codec = Arc::new(RowsCodec::<T>::wire());
        EdgeSender::new(
            stream,
            InstanceNumber::ALL,
            port,
            codec,
            SenderConfig::default(),
        )
    }

    pub fn receiver<T: Wire>(&mut self, stream: StreamId) -> EdgeReceiver {
        let port = self
            .link
            .open(End::Receiver, stream, Waker::none())
            .unwrap();
        let codec = Arc::new(RowsCodec::<T>::wire());
        let config = ReceiverConfig::default();
        EdgeReceiver::new(stream, port, codec, config, self.clock.now())
    }
}

/// Connects two transports; returns both ends.
pub fn connections(
    first: &mut dyn Transport,
    second: &mut dyn Transport,
    address: &str,
) -> (Box<dyn Connection>, Box<dyn Connection>) {
    let mut listener = second.listen(address).unwrap();
    let connecting = first.connect(listener.address()).unwrap();
    let mut accepted = None;
    until(|| {
        second.wait(Duration::ZERO).unwrap();
        accepted = listener.accept().unwrap();
        accepted.is_some()
    });
    (connecting, accepted.unwrap())
}

/// Creates two workers that have completed the handshake.
pub fn pair(
    first: Box<dyn Transport>,
    second: Box<dyn Transport>,
    address: &str,
    config: LinkConfig,
) -> (Worker, Worker) {
    let clock = Clock::system();
    pair_by(&clock, || {}, (first, second, address), config)
}

/// Creates two workers as [`pair`] does, with `clock`, whose time passes when `pass` is called.
pub fn pair_by(
    clock: &Clock,
    mut pass: impl FnMut(),
    (mut first, mut second, address): (Box<dyn Transport>, Box<dyn Transport>, &str),
    config: LinkConfig,
) -> (Worker, Worker) {
    let (there, here) = connections(&mut *first, &mut *second, address);
    let link = |connection, side, worker, transport: &dyn Transport| {
        let bell = transport.waker();
        Link::new(
            connection,
            side,
            identity(worker),
            bell,
            config,
            clock.now(),
        )
    };
    let mut workers = (
        Worker {
            link: link(there, Side::Connected(Some(WorkerNumber(2))), 1, &*first),
            transport: first,
            clock: clock.clone(),
        },
        Worker {
            link: link(here, Side::Accepted, 2, &*second),
            transport: second,
            clock: clock.clone(),
        },
    );
    until(|| {
        pass();
        workers.0.poll().unwrap();
        workers.1.poll().unwrap();
        workers.0.link.peer().is_some() && workers.1.link.peer().is_some()
    });
    workers
}

/// Appends the received numbers to `into`; returns how many there were.
pub fn take_numbers(
    receiver: &mut EdgeReceiver,
    now: Duration,
    into: &mut Vec<u64>,
) -> Result<usize> {
    let mut chunk = Chunk::default();
    let before = into.len();
    while receiver.receive(now, &mut chunk)?.is_some() {
        if !chunk.is_empty() {
            into.extend_from_slice(chunk.rows::<u64>()?.values());
            chunk.clear();
        }
    }
    Ok(into.len() - before)
}
