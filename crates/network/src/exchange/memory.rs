//! Connections within a process: frames change hands, no bytes go through the operating system.
//!
//! A bundle is copied once, so that its sender has its block back as soon as it has been sent, as with any transport; a frame
//! that is passed on keeps the memory that it came in.
//!
//! For tests and simulations of workers in one process, which can delay everything, hold it up without a word, or cut every connection.
//! An embedded job needs none: its instances are joined by the engine's queues.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ardea_core::{Clock, Error, ErrorCode, Result, Waker};
use ardea_spsc::{Capacity, Consumer, Producer, PushError, ring};

use crate::exchange::block::BlockPool;
use crate::exchange::doorbell::{Doorbell, RingAtEnd};
use crate::exchange::frame::{Frame, Parcel, Payload};
use crate::exchange::gone::{PeerGone, Why};
use crate::exchange::header::{FrameError, HEADER_BYTES, Header};
use crate::exchange::transport::{Connection, Listener, Transport};

/// How many parcels may be on their way.
const PARCELS: usize = 256;

/// The blocks that bundles are copied into.
const BLOCK_BYTES: usize = 64 << 10;
const KEEP_BLOCKS: usize = 32;

/// How often something that is delayed is looked for.
const LOOK: Duration = Duration::from_millis(1);

/// What all transports of one network share: the addresses, and what tests do to the way.
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
    places: Mutex<HashMap<String, Place>>,
    delay: Option<(Clock, Duration)>,
    /// Connections that were made before it was last raised are cut.
    cuts: AtomicU64,
    is_held: AtomicBool,
}

/// An address that is listened at.
#[derive(Debug)]
struct Place {
    arrivals: Vec<MemoryConnection>,
    doorbell: Doorbell,
}

impl MemoryNetwork {
    /// A network where everything takes `delay`, by this clock.
    pub fn with_delay(clock: Clock, delay: Duration) -> Self {
        MemoryNetwork(Arc::new(Network {
            delay: Some((clock, delay)),
            ..Network::default()
        }))
    }

    /// A transport of this network, for one thread.
    pub fn transport(&self) -> MemoryTransport {
        let sleep = Arc::new(Sleep::default());
        MemoryTransport {
            network: self.clone(),
            doorbell: Doorbell::new(Waker::new({
                let sleep = Arc::clone(&sleep);
                move || sleep.end()
            })),
            sleep,
        }
    }

    /// Cuts all connections there are; what is on its way is lost.
    pub fn cut(&self) {
        self.0.cuts.fetch_add(1, Ordering::SeqCst);
    }

    /// Holds up everything and tells nobody, or lets it go on.
    pub fn hold(&self, is_held: bool) {
        self.0.is_held.store(is_held, Ordering::SeqCst);
    }

    fn places(&self) -> MutexGuard<'_, HashMap<String, Place>> {
        self.0.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        match &self.0.delay {
            Some((clock, _)) => clock.now(),
            None => Duration::ZERO,
        }
    }
}

/// Where a thread of a memory transport sleeps.
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

/// One thread's way into a [`MemoryNetwork`]. Addresses are any names.
#[derive(Debug)]
pub struct MemoryTransport {
    network: MemoryNetwork,
    doorbell: Doorbell,
    sleep: Arc<Sleep>,
}

impl Transport for MemoryTransport {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn connect(&mut self, address: &str) -> Result<Box<dyn Connection>> {
        let mut places = self.network.places();
        let Some(place) = places.get_mut(address) else {
            return Ok(Box::new(Nobody(address.to_string())));
        };
        let [(to_there, from_here), (to_here, from_there)] =
            [(); 2].map(|()| ring(Capacity::clamped(PARCELS)));
        let made_at = self.network.0.cuts.load(Ordering::SeqCst);
        let end = |peer: &str, out, into, bell: &Doorbell| MemoryConnection {
            peer: peer.to_string(),
            network: self.network.clone(),
            made_at,
            out,
            into,
            bell: RingAtEnd(bell.clone()),
            unsent: VecDeque::new(),
            pool: BlockPool::new(BLOCK_BYTES, KEEP_BLOCKS),
            bundle: None,
            most_payload: crate::exchange::handshake::MOST_GREETING_BYTES,
            gone: None,
        };
        let theirs = end("memory", to_here, from_here, &self.doorbell);
        let ours = end(address, to_there, from_there, &place.doorbell);
        place.arrivals.push(theirs);
        place.doorbell.ring();
        Ok(Box::new(ours))
    }

    fn listen(&mut self, address: &str) -> Result<Box<dyn Listener>> {
        let mut places = self.network.places();
        if places.contains_key(address) {
            return Err(Error::new(
                ErrorCode::Network,
                format!("somebody listens at {address:?} already"),
            )
            .hint("choose another name"));
        }
        let place = Place {
            arrivals: Vec::new(),
            doorbell: self.doorbell.clone(),
        };
        places.insert(address.to_string(), place);
        Ok(Box::new(MemoryListener {
            address: address.to_string(),
            network: self.network.clone(),
        }))
    }

    fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    fn wait(&mut self, timeout: Duration) -> Result<()> {
        if !timeout.is_zero() && self.doorbell.may_sleep() {
            let is_delayed = self.network.0.delay.is_some();
            self.sleep.sleep(if is_delayed {
                timeout.min(LOOK)
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

/// A connection to an address where nobody listens.
#[derive(Debug)]
struct Nobody(String);

impl Nobody {
    fn gone(&self) -> PeerGone {
        let error = io::Error::new(io::ErrorKind::ConnectionRefused, "nobody listens there");
        PeerGone::new(self.0.clone(), Why::Unreachable(Arc::new(error)))
    }
}

impl Connection for Nobody {
    fn peer(&self) -> &str {
        &self.0
    }

    fn send(&mut self, parcel: Parcel) -> Result<(), Parcel> {
        Err(parcel)
    }

    fn flush(&mut self) -> Result<usize, PeerGone> {
        Err(self.gone())
    }

    fn receive(&mut self) -> Result<Option<Frame>, PeerGone> {
        Err(self.gone())
    }

    fn allow(&mut self, _: usize) {}

    fn unsent(&self) -> usize {
        0
    }
}

/// A parcel, and when it may be seen.
type Timed = (Duration, Parcel);

struct MemoryConnection {
    peer: String,
    network: MemoryNetwork,
    made_at: u64,
    out: Producer<Timed>,
    into: Consumer<Timed>,
    /// That of the peer's thread, which hears of the end when `out` is gone.
    bell: RingAtEnd,
    unsent: VecDeque<Parcel>,
    pool: BlockPool,
    /// What has come, and how much of it has been given out.
    bundle: Option<(Payload, usize)>,
    most_payload: usize,
    gone: Option<Why>,
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

    fn check(&mut self) -> Result<(), PeerGone> {
        if self.gone.is_none() && self.network.0.cuts.load(Ordering::SeqCst) > self.made_at {
            let error = io::Error::from(io::ErrorKind::ConnectionReset);
            self.gone = Some(Why::CutOff(Arc::new(error)));
        }
        match &self.gone {
            Some(why) => Err(PeerGone::new(self.peer.clone(), why.clone())),
            None => Ok(()),
        }
    }

    fn lose(&mut self, why: Why) -> Result<Option<Frame>, PeerGone> {
        self.gone = Some(why);
        self.check().map(|()| None)
    }

    /// The next frame of the bundle at hand.
    fn unpack(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some((bundle, at)) = &mut self.bundle else {
            return Ok(None);
        };
        let Some(bytes) = bundle[*at..].first_chunk::<HEADER_BYTES>() else {
            self.bundle = None;
            return Ok(None);
        };
        let (header, length) = Header::decode(bytes, self.most_payload)?;
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

    fn arrived(&mut self) -> Option<Parcel> {
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

    fn send(&mut self, parcel: Parcel) -> Result<(), Parcel> {
        if self.unsent.len() >= PARCELS {
            return Err(parcel);
        }
        let parcel = match parcel {
            Parcel::Bundle(bytes) => Parcel::Bundle(self.copy(&bytes)),
            frame => frame,
        };
        self.unsent.push_back(parcel);
        Ok(())
    }

    fn flush(&mut self) -> Result<usize, PeerGone> {
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
                Err(PushError::Gone(_)) => return self.lose(Why::Closed).map(|_| 0),
            }
        }
        if moved > 0 {
            self.bell.0.ring();
        }
        Ok(moved)
    }

    fn receive(&mut self) -> Result<Option<Frame>, PeerGone> {
        self.check()?;
        loop {
            match self.unpack() {
                Ok(Some(frame)) => return Ok(Some(frame)),
                Ok(None) => {}
                Err(error) => return self.lose(Why::NotFrames(error)),
            }
            match self.arrived() {
                Some(Parcel::Bundle(bundle)) => self.bundle = Some((bundle, 0)),
                Some(Parcel::Frame(frame)) if frame.payload.len() > self.most_payload => {
                    return self.lose(Why::NotFrames(FrameError::TooLong {
                        bytes: frame.payload.len(),
                        most: self.most_payload,
                    }));
                }
                Some(Parcel::Frame(frame)) => return Ok(Some(frame)),
                None if self.into.is_finished() => return self.lose(Why::Closed),
                None => return Ok(None),
            }
        }
    }

    fn allow(&mut self, most_payload: usize) {
        self.most_payload = most_payload;
    }

    fn unsent(&self) -> usize {
        self.unsent.iter().map(Parcel::wire_bytes).sum()
    }
}
