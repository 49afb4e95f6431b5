//! An in-process transport: frames are moved between threads without the operating system.
//!
//! A bundle is copied once: its sender may reuse its block after sending, as with any transport. A
//! forwarded frame is not copied.
//!
//! For tests and simulations of workers in one process: a network can delay or stall everything, or
//! cut all connections. An embedded job needs no transport, since the engine's queues connect its
//! instances.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ardea_core::{Clock, Error, ErrorCode, Result, Waker};
use ardea_spsc::{Capacity, Consumer, Producer, PushError, ring};

use crate::exchange::block::BlockPool;
use crate::exchange::disconnect::{DisconnectReason, Disconnected};
use crate::exchange::frame::{Frame, Payload, SendBuffer};
use crate::exchange::header::{FrameError, HEADER_BYTES, Header};
use crate::exchange::network_waker::{NetworkWaker, WakeOnDrop};
use crate::exchange::transport::{Connection, Listener, Transport};

/// Capacity of a connection in each direction, in buffers.
const PARCELS: usize = 256;

/// Size of the blocks that bundles are copied into.
const BLOCK_BYTES: usize = 64 << 10;
const KEEP_BLOCKS: usize = 32;

/// Poll interval while something is delayed.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The state shared by all transports of one network: its addresses, and the faults injected by
/// tests.
///
/// ```
/// use ardea_network::exchange::{MemoryNetwork, Transport};
///
/// let network = MemoryNetwork::default();
/// let mut server = network.transport();
/// let mut listener = server.listen("worker-1")?;
/// let _to_server = network.transport().connect("worker-1")?;
/// assert!(listener.accept()?.is_some());
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryNetwork(Arc<Network>);

#[derive(Debug, Default)]
struct Network {
    places: Mutex<HashMap<String, ListenAddress>>,
    delay: Option<(Clock, Duration)>,
    /// Number of cuts so far. Connections made before the last cut are closed.
    cuts: AtomicU64,
    is_held: AtomicBool,
}

/// An address with a listener.
#[derive(Debug)]
struct ListenAddress {
    arrivals: Vec<MemoryConnection>,
    doorbell: NetworkWaker,
}

impl MemoryNetwork {
    /// Creates a network that delays everything by `delay`, measured by `clock`.
    pub fn with_delay(clock: Clock, delay: Duration) -> Self {
        MemoryNetwork(Arc::new(Network {
            delay: Some((clock, delay)),
            ..Network::default()
        }))
    }

    /// Creates a transport of this network, for one thread.
    pub fn transport(&self) -> MemoryTransport {
        let sleep = Arc::new(Sleep::default());
        MemoryTransport {
            network: self.clone(),
            doorbell: NetworkWaker::new(Waker::new({
                let sleep = Arc::clone(&sleep);
                move || sleep.end()
            })),
            sleep,
        }
    }

    /// Cuts all existing connections; data in flight is lost.
    pub fn cut(&self) {
        self.0.cuts.fetch_add(1, Ordering::SeqCst);
    }

    /// Stalls all traffic without closing connections, or resumes it.
    pub fn stall(&self, is_held: bool) {
        self.0.is_held.store(is_held, Ordering::SeqCst);
    }

    fn places(&self) -> MutexGuard<'_, HashMap<String, ListenAddress>> {
        self.0.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        match &self.0.delay {
            Some((clock, _)) => clock.now(),
            None => Duration::ZERO,
        }
    }
}

/// The sleep of the thread that polls a memory transport.
#[derive(Debug, Default)]
struct Sleep {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Sleep {
    fn end(&self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    fn sleep(&self, timeout: Duration) {
        let is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let woken = self
            .changed
            .wait_timeout_while(is_over, timeout, |is_over| !*is_over);
        *woken.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

/// The transport of one thread in a [`MemoryNetwork`]. Any string is a valid address.
#[derive(Debug)]
pub struct MemoryTransport {
    network: MemoryNetwork,
    doorbell: NetworkWaker,
    sleep: Arc<Sleep>,
}

impl Transport for MemoryTransport {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn connect(&mut self, address: &str) -> Result<Box<dyn Connection>> {
        let mut places = self.network.places();
        let Some(place) = places.get_mut(address) else {
            return Ok(Box::new(UnreachableConnection(address.to_string())));
        };
        let [(to_there, from_here), (to_here, from_there)] =
            [(); 2].map(|()| ring(Capacity::clamped(PARCELS)));
        let made_at = self.network.0.cuts.load(Ordering::SeqCst);
        let end = |peer: &str, out, into, bell: &NetworkWaker| MemoryConnection {
            peer: peer.to_string(),
            network: self.network.clone(),
            made_at,
            out,
            into,
            bell: WakeOnDrop(bell.clone()),
            unsent: VecDeque::new(),
            pool: BlockPool::new(BLOCK_BYTES, KEEP_BLOCKS),
            bundle: None,
            max_payload: crate::exchange::handshake::MAX_HELLO_BYTES,
            gone: None,
        };
        let theirs = end("memory", to_here, from_here, &self.doorbell);
        let ours = end(address, to_there, from_there, &place.doorbell);
        place.arrivals.push(theirs);
        place.doorbell.notify();
        Ok(Box::new(ours))
    }

    fn listen(&mut self, address: &str) -> Result<Box<dyn Listener>> {
        let mut places = self.network.places();
        if places.contains_key(address) {
            return Err(Error::new(
                ErrorCode::Network,
                format!("{address:?} has a listener already"),
            )
            .hint("choose another name"));
        }
        let place = ListenAddress {
            arrivals: Vec::new(),
            doorbell: self.doorbell.clone(),
        };
        places.insert(address.to_string(), place);
        Ok(Box::new(MemoryListener {
            address: address.to_string(),
            network: self.network.clone(),
        }))
    }

    fn waker(&self) -> NetworkWaker {
        self.doorbell.clone()
    }

    fn wait(&mut self, timeout: Duration) -> Result<()> {
        if !timeout.is_zero() && self.doorbell.may_sleep() {
            let is_delayed = self.network.0.delay.is_some();
            self.sleep.sleep(if is_delayed {
                timeout.min(POLL_INTERVAL)
            } else {
                timeout
            });
        }
        self.doorbell.awake();
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryListener {
    address: String,
    network: MemoryNetwork,
}

impl Listener for MemoryListener {
    fn address(&self) -> &str {
        &self.address
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Connection>>> {
        let mut places = self.network.places();
        let arrivals = places
            .get_mut(&self.address)
            .map(|place| &mut place.arrivals);
        Ok(match arrivals {
            Some(arrivals) if !arrivals.is_empty() => Some(Box::new(arrivals.remove(0))),
            _ => None,
        })
    }
}

impl Drop for MemoryListener {
    fn drop(&mut self) {
        self.network.places().remove(&self.address);
    }
}

/// A connection to an address without a listener.
#[derive(Debug)]
struct UnreachableConnection(String);

impl UnreachableConnection {
    fn gone(&self) -> Disconnected {
        let error = io::Error::new(
            io::ErrorKind::ConnectionRefused,
            "no listener at this address",
        );
        Disconnected::new(
            self.0.clone(),
            DisconnectReason::Unreachable(Arc::new(error)),
        )
    }
}

impl Connection for UnreachableConnection {
    fn peer(&self) -> &str {
        &self.0
    }

    fn send(&mut self, parcel: SendBuffer) -> Result<(), SendBuffer> {
        Err(parcel)
    }

    fn flush(&mut self) -> Result<usize, Disconnected> {
        Err(self.gone())
    }

    fn receive(&mut self) -> Result<Option<Frame>, Disconnected> {
        Err(self.gone())
    }

    fn allow(&mut self, _: usize) {}

    fn unsent(&self) -> usize {
        0
    }
}

/// A buffer, and the time from which it may be received.
type Timed = (Duration, SendBuffer);

struct MemoryConnection {
    peer: String,
    network: MemoryNetwork,
    made_at: u64,
    out: Producer<Timed>,
    into: Consumer<Timed>,
    /// Waker of the peer's thread, rung after `out` is dropped, so that the peer notices the end.
    bell: WakeOnDrop,
    unsent: VecDeque<SendBuffer>,
    pool: BlockPool,
    /// A received bundle, and the number of its bytes already returned in frames.
    bundle: Option<(Payload, usize)>,
    max_payload: usize,
    gone: Option<DisconnectReason>,
}

impl fmt::Debug for MemoryConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryConnection({})", self.peer)
    }
}

impl MemoryConnection {
    fn copy(&mut self, bytes: &[u8]) -> Payload {
        if bytes.len() < BLOCK_BYTES / 4 {
            return Payload::copy_of(bytes);
        }
        let mut block = self.pool.take();
        let room = Arc::make_mut(&mut block);
        room.clear();
        room.extend_from_slice(bytes);
        self.pool.lend(&block);
        Payload::in_block(&block, 0, bytes.len())
    }

    fn check(&mut self) -> Result<(), Disconnected> {
        if self.gone.is_none() && self.network.0.cuts.load(Ordering::SeqCst) > self.made_at {
            let error = io::Error::from(io::ErrorKind::ConnectionReset);
            self.gone = Some(DisconnectReason::Broken(Arc::new(error)));
        }
        match &self.gone {
            Some(why) => Err(Disconnected::new(self.peer.clone(), why.clone())),
            None => Ok(()),
        }
    }

    fn lose(&mut self, why: DisconnectReason) -> Result<Option<Frame>, Disconnected> {
        self.gone = Some(why);
        self.check().map(|()| None)
    }

    /// Returns the next frame of the current bundle.
    fn unpack(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some((bundle, at)) = &mut self.bundle else {
            return Ok(None);
        };
        let Some(bytes) = bundle[*at..].first_chunk::<HEADER_BYTES>() else {
            self.bundle = None;
            return Ok(None);
        };
        let (header, length) = Header::decode(bytes, self.max_payload)?;
        let start = *at + HEADER_BYTES;
        if bundle.len() - start < length {
            return Err(FrameError::WrongLength {
                kind: header.kind,
                bytes: length,
            });
        }
        let payload = bundle.slice(start, length);
        *at = start + length;
        Ok(Some(Frame { header, payload }))
    }

    fn arrived(&mut self) -> Option<SendBuffer> {
        if self.network.0.is_held.load(Ordering::SeqCst) {
            return None;
        }
        let now = self.network.now();
        if self.into.peek()?.0 > now {
            return None;
        }
        self.into.pop().map(|(_, parcel)| parcel)
    }
}

impl Connection for MemoryConnection {
    fn peer(&self) -> &str {
        &self.peer
    }

    fn send(&mut self, parcel: SendBuffer) -> Result<(), SendBuffer> {
        if self.unsent.len() >= PARCELS {
            return Err(parcel);
        }
        let parcel = match parcel {
            SendBuffer::Bundle(bytes) => SendBuffer::Bundle(self.copy(&bytes)),
            frame => frame,
        };
        self.unsent.push_back(parcel);
        Ok(())
    }

    fn flush(&mut self) -> Result<usize, Disconnected> {
        self.check()?;
        let delay = self
            .network
            .0
            .delay
            .as_ref()
            .map_or(Duration::ZERO, |(_, delay)| *delay);
        let due = self.network.now() + delay;
        let mut moved = 0;
        while let Some(parcel) = self.unsent.pop_front() {
            let bytes = parcel.wire_bytes();
            match self.out.push((due, parcel)) {
                Ok(()) => moved += bytes,
                Err(PushError::Full((_, parcel))) => {
                    self.unsent.push_front(parcel);
                    break;
                }
                Err(PushError::Gone(_)) => return self.lose(DisconnectReason::Closed).map(|_| 0),
            }
        }
        if moved > 0 {
            self.bell.0.notify();
        }
        Ok(moved)
    }

    fn receive(&mut self) -> Result<Option<Frame>, Disconnected> {
        self.check()?;
        loop {
            match self.unpack() {
                Ok(Some(frame)) => return Ok(Some(frame)),
                Ok(None) => {}
                Err(error) => return self.lose(DisconnectReason::InvalidFrame(error)),
            }
            match self.arrived() {
                Some(SendBuffer::Bundle(bundle)) => self.bundle = Some((bundle, 0)),
                Some(SendBuffer::Frame(frame)) if frame.payload.len() > self.max_payload => {
                    return self.lose(DisconnectReason::InvalidFrame(FrameError::TooLong {
                        bytes: frame.payload.len(),
                        most: self.max_payload,
                    }));
                }
                Some(SendBuffer::Frame(frame)) => return Ok(Some(frame)),
                None if self.into.is_finished() => return self.lose(DisconnectReason::Closed),
                None => return Ok(None),
            }
        }
    }

    fn allow(&mut self, most_payload: usize) {
        self.max_payload = most_payload;
    }

    fn unsent(&self) -> usize {
        self.unsent.iter().map(SendBuffer::wire_bytes).sum()
    }
}
