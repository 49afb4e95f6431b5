//! The ways to the other containers: one connection for each, and one thread for all of them.
//!
//! Of two containers the one with the lower number connects. Both accept only who proves to be of the same submission of the job.
//! A connection belongs to one life of the peer: when a later life is told of, or greets, the earlier one's connection is dropped. A
//! connection that is cut is made again, at once and then with growing delays; the streams over it begin anew.

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
use ardea_network::exchange::{Doorbell, Identity, LinkConfig, LinkCounts, Transport};

use crate::berth::Tended;
use crate::station::{LinkNumber, Station};
pub(crate) use requests::Request;

/// Where a peer is, as its master told it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PeerAddress {
    pub(crate) site: Site,
    pub(crate) incarnation: u64,
    /// Where it may be reached; none if its name is not known (yet).
    pub(crate) addresses: Vec<SocketAddr>,
}

/// What the network tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NetworkEvent {
    /// A connection to this life of a peer is there.
    Up(Site, u64),
    /// It is gone, for this reason, with what was under way.
    Lost(Site, u64, String),
    /// A peer can't be reached, for this reason; it is tried again.
    Unreachable(Site, String),
    /// The thread has ended, and was not asked to.
    Failed(String),
}

/// Whom the network tells, on its own thread: it must not block.
pub(crate) type Tell = dyn Fn(NetworkEvent) + Send + Sync;

/// The network of this process, for whoever needs it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Network(Arc<Shared>);

pub(crate) struct Shared {
    requests: Mutex<Vec<Request>>,
    counts: Mutex<BTreeMap<Site, LinkCounts>>,
    doorbell: Doorbell,
}

/// The thread. When this is dropped it ends, and with it all connections.
pub(crate) struct NetworkThread {
    network: Network,
    address: String,
    thread: Option<JoinHandle<()>>,
}

impl NetworkThread {
    /// Listens at `listen` (numeric, port 0 for any that is free) and starts the thread, whose time is that of `clock`.
    ///
    /// # Errors
    /// If the address is taken, or may not be listened at; if the system refuses a thread.
    pub(crate) fn start(
        mut transport: Box<dyn Transport>,
        listen: &str,
        identity: Identity,
        config: LinkConfig,
        clock: Clock,
        tell: Arc<Tell>,
    ) -> Result<Self> {
        let listener = transport.listen(listen)?;
        let address = listener.address().to_string();
        let setup = thread::Setup {
            transport,
            listener: Some(listener),
            identity,
            config,
            clock,
            tell,
        };
        NetworkThread::spawn(setup, address)
    }

    /// Starts the thread of a process that listens nowhere, and connects to whoever it hears of.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub(crate) fn connecting(
        transport: Box<dyn Transport>,
        identity: Identity,
        config: LinkConfig,
        clock: Clock,
        tell: Arc<Tell>,
    ) -> Result<Self> {
        let setup = thread::Setup {
            transport,
            listener: None,
            identity,
            config,
            clock,
            tell,
        };
        NetworkThread::spawn(setup, String::new())
    }

    fn spawn(setup: thread::Setup, address: String) -> Result<Self> {
        let network = Network(Arc::new(Shared {
            requests: Mutex::default(),
            counts: Mutex::default(),
            doorbell: setup.transport.doorbell(),
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

    /// Where it listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// For those who need it.
    pub(crate) fn network(&self) -> Network {
        self.network.clone()
    }
}

impl Drop for NetworkThread {
    fn drop(&mut self) {
        self.network.ask(Request::Stop);
        if let Some(thread) = self.thread.take() {
            // If it panicked, it has said so itself.
            drop(thread.join());
        }
    }
}

impl Network {
    /// The network puts ports into this station from now on.
    pub(crate) fn join(&self, station: &Arc<Station>) {
        self.ask(Request::Join(Arc::clone(station)));
    }

    /// Where peers are.
    pub(crate) fn peers(&self, peers: Vec<PeerAddress>) {
        self.ask(Request::Peers(peers));
    }

    /// Which peers the job has: nobody waits for others once they are gone.
    pub(crate) fn members(&self, sites: impl IntoIterator<Item = Site>) {
        self.ask(Request::Members(sites.into_iter().collect()));
    }

    /// What came over a connection makes no sense, or it is gone: if it is still there, it is dropped.
    pub(crate) fn complain(&self, site: Site, link: LinkNumber, error: &Error) {
        self.ask(Request::Complaint(site, link, error.to_string()));
    }

    /// Has something tended by the thread, soon and once.
    pub(crate) fn tend(&self, tended: Weak<dyn Tended>) {
        self.ask(Request::Tend(tended));
    }

    /// What the connections to each peer have done so far, as of a moment ago.
    pub(crate) fn counts(&self) -> BTreeMap<Site, LinkCounts> {
        let counts = self.0.counts.lock();
        counts.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn ask(&self, request: Request) {
        let requests = self.0.requests.lock();
        requests
            .unwrap_or_else(PoisonError::into_inner)
            .push(request);
        self.0.doorbell.ring();
    }
}

impl Shared {
    fn take_requests(&self, into: &mut Vec<Request>) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *requests, into);
    }

    fn set_counts(&self, counts: BTreeMap<Site, LinkCounts>) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Network")
    }
}

/// The first delay before a connection is tried again, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

#[cfg(test)]
mod tests;
