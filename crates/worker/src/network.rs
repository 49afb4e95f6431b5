//! The network of a container: one connection for each other container, and one thread for all of
//! them.
//!
//! The container with the lower number connects, over the address on this host if the transport has
//! one and the peer is there, else over the network. Both sides accept only peers of the same
//! submission of the job. A connection belongs to one incarnation of the peer. It is dropped when
//! the leader or a handshake reports a later incarnation. A broken connection is reopened at once,
//! then with increasing delays, and its streams start again.

mod links;
mod peers;
mod requests;
mod thread;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use ardea_core::{Clock, Error, ErrorCode, Result};
use ardea_engine::Site;
use ardea_network::exchange::{
    AddressScope, End, Identity, LinkConfig, LinkCounts, LinkNumber, Listener, NetworkWaker,
    PortSlot, StreamId, Transport, WorkerNumber,
};

use crate::endpoint_slot::Serviced;
pub(crate) use requests::Request;

/// The address of a peer, as the leader reported it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PeerAddress {
    pub(crate) site: Site,
    pub(crate) incarnation: u64,
    /// The resolved addresses of the peer; empty if the peer's host name cannot be resolved yet.
    pub(crate) addresses: Vec<SocketAddr>,
}

/// An event of the network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NetworkEvent {
    /// A connection of this kind to this incarnation of a peer is established.
    Up(Site, u64, &'static str),
    /// The connection to this incarnation of a peer is lost for this reason, with the data in
    /// flight.
    Lost(Site, u64, String),
    /// A peer is unreachable for this reason; the connection is retried.
    Unreachable(Site, String),
    /// A peer cannot be reached at its address on this host, for this reason. Its address in the
    /// network is tried next.
    NotOnHost(Site, String),
    /// This process cannot be reached at an address on this host, for this reason.
    NotListening(String),
    /// The network thread has ended unexpectedly, for this reason.
    Failed(String),
}

/// The counters of the connections to each peer, by their kinds.
pub(crate) type LinkTotals = BTreeMap<(Site, &'static str), LinkTotal>;

/// The counters of the connections of one kind to a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinkTotal {
    pub(crate) counts: LinkCounts,
    /// True if there is a connection at the moment.
    pub(crate) is_connected: bool,
}

/// The callback for network events. It is called on the network thread and must not block.
pub(crate) type EventCallback = dyn Fn(NetworkEvent) + Send + Sync;

/// A handle of this process's network. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Network(Arc<Shared>);

pub(crate) struct Shared {
    requests: Mutex<Vec<Request>>,
    counts: Mutex<LinkTotals>,
    doorbell: NetworkWaker,
}

/// The owner of the network thread. Dropping it ends the thread and all connections.
pub(crate) struct NetworkThread {
    network: Network,
    address: String,
    thread: Option<JoinHandle<()>>,
}

impl NetworkThread {
    /// Starts the network thread and listens at `listen` (a numeric address, with port 0 for any
    /// free one). `clock` is the thread's source of time.
    ///
    /// # Errors
    /// If the address is in use or the process must not listen there, or if the system refuses a
    /// thread.
    pub(crate) fn start(
        mut transport: Box<dyn Transport>,
        listen: &str,
        identity: Identity,
        config: LinkConfig,
        clock: Clock,
        tell: Arc<EventCallback>,
    ) -> Result<Self> {
        let (listeners, address) = self::listen(&mut *transport, listen, &identity, &*tell)?;
        let setup = thread::Setup {
            transport,
            listeners,
            identity,
            config,
            clock,
            tell,
        };
        NetworkThread::spawn(setup, address)
    }

    fn spawn(setup: thread::Setup, address: String) -> Result<Self> {
        let network = Network(Arc::new(Shared {
            requests: Mutex::default(),
            counts: Mutex::default(),
            doorbell: setup.transport.waker(),
        }));
        let shared = Arc::clone(&network.0);
        let thread = std::thread::Builder::new()
            .name("ardea-network".into())
            .spawn(move || thread::run(setup, &shared))
            .map_err(|error| {
                Error::new(ErrorCode::LimitReached, "cannot start the network's thread")
                    .because(error)
                    .hint("raise the limit of threads for this process")
            })?;
        Ok(NetworkThread {
            network,
            address,
            thread: Some(thread),
        })
    }

    /// Returns the listen address.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns a handle of the network.
    pub(crate) fn network(&self) -> Network {
        self.network.clone()
    }
}

impl Drop for NetworkThread {
    fn drop(&mut self) {
        self.network.send_request(Request::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by the thread itself.
            drop(thread.join());
        }
    }
}

impl Network {
    /// Registers a port slot. The network puts a port into it after each new connection to the
    /// slot's peer.
    pub(crate) fn join(&self, station: &Arc<PortSlot>) {
        self.send_request(Request::Join(Arc::clone(station)));
    }

    /// Creates the port slot of one end of a stream to or from a peer.
    pub(crate) fn port_slot(&self, site: Site, end: End, stream: StreamId) -> Arc<PortSlot> {
        // Held weakly, because requests of the network hold port slots.
        let network = Arc::downgrade(&self.0);
        let peer = WorkerNumber(u64::from(site.0));
        PortSlot::new(peer, end, stream, move |link, error| {
            if let Some(shared) = network.upgrade() {
                Network(shared).report_invalid(site, link, error);
            }
        })
    }

    /// Sets the addresses of peers.
    pub(crate) fn peers(&self, peers: Vec<PeerAddress>) {
        self.send_request(Request::Peers(peers));
    }

    /// Sets the containers of the job. Data for former members is dropped once they
    /// are gone.
    pub(crate) fn members(&self, sites: impl IntoIterator<Item = Site>) {
        self.send_request(Request::Members(sites.into_iter().collect()));
    }

    /// Reports a connection as invalid or closed, so that the network drops it.
    fn report_invalid(&self, site: Site, link: LinkNumber, error: &Error) {
        self.send_request(Request::Complaint(site, link, error.to_string()));
    }

    /// Limits the time for which the network thread gathers data to `most`, the least latency
    /// budget of the job's edges.
    pub(crate) fn limit_latency(&self, most: Duration) {
        self.send_request(Request::LimitLatency(most));
    }

    /// Requests that the network thread services an object once.
    pub(crate) fn tend(&self, tended: Weak<dyn Serviced>) {
        self.send_request(Request::Tend(tended));
    }

    /// Returns the counters of the connections to each peer. The network thread updates them every
    /// 500 ms.
    pub(crate) fn counts(&self) -> LinkTotals {
        let counts = self.0.counts.lock();
        counts.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn send_request(&self, request: Request) {
        let requests = self.0.requests.lock();
        requests
            .unwrap_or_else(PoisonError::into_inner)
            .push(request);
        self.0.doorbell.notify();
    }
}

impl Shared {
    fn take_requests(&self, into: &mut Vec<Request>) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *requests, into);
    }

    fn set_counts(&self, counts: LinkTotals) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }
}

/// Listens at the addresses of a transport. Returns the listeners, and the address in the network.
/// If the transport listens on this host only, the address has a port by which peers distinguish
/// this process.
fn listen(
    transport: &mut dyn Transport,
    address: &str,
    identity: &Identity,
    tell: &EventCallback,
) -> Result<(Vec<Box<dyn Listener>>, String)> {
    let scope = transport.scope();
    if scope == AddressScope::Host {
        return listen_on_host(transport, address, identity);
    }
    let listener = transport.listen(address)?;
    let address = listener.address().to_string();
    let mut listeners = vec![listener];
    if scope == AddressScope::HostThenNetwork {
        let port = port_of(&address);
        match transport.listen(&identity.host_address(port)) {
            Ok(listener) => listeners.push(listener),
            Err(error) => tell(NetworkEvent::NotListening(error.to_string())),
        }
    }
    Ok((listeners, address))
}

/// Listens on this host only, at the port of `address` or, if that is 0, at one that is free.
fn listen_on_host(
    transport: &mut dyn Transport,
    address: &str,
    identity: &Identity,
) -> Result<(Vec<Box<dyn Listener>>, String)> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let ports = match port_of(address) {
        0 => 1..=MAX_PORT_ATTEMPTS,
        port => port..=port,
    };
    let mut refused = None;
    for port in ports {
        match transport.listen(&identity.host_address(port)) {
            Ok(listener) => return Ok((vec![listener], format!("{host}:{port}"))),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or_else(|| Error::new(ErrorCode::Internal, "there is no port")))
}

fn port_of(address: &str) -> u16 {
    let port = address.rsplit_once(':').map(|(_, port)| port);
    port.and_then(|port| port.parse().ok()).unwrap_or(0)
}

/// Maximum number of ports that are tried on this host. Only several workers of one number and
/// incarnation, as in tests, use more than the first.
const MAX_PORT_ATTEMPTS: u16 = 1_000;

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Network")
    }
}

/// The first and the longest delay before a connection is retried.
const RETRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

#[cfg(test)]
mod tests;
