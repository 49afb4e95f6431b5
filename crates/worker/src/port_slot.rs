//! The port slot of a stream endpoint, which receives the ports of successive connections to the
//! peer.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::Waker;
use ardea_engine::Site;
use ardea_network::exchange::{End, Port, StreamId};

/// The number of a connection of this process. Numbers start at one and grow with each connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct LinkNumber(pub(crate) u64);

/// The connection between the network and one endpoint of a stream to a peer.
///
/// The network thread puts a port into the slot after each new connection to the peer. The user of
/// the endpoint takes the port.
pub(crate) struct PortSlot {
    pub(crate) site: Site,
    pub(crate) end: End,
    pub(crate) stream: StreamId,
    state: Mutex<PortSlotState>,
    has_port: AtomicBool,
    is_aborted: AtomicBool,
}

#[derive(Debug)]
struct PortSlotState {
    owner: Waker,
    port: Option<(Port, LinkNumber)>,
    /// The connection of the port that was last put in.
    last: LinkNumber,
}

impl PortSlot {
    pub(crate) fn new(site: Site, end: End, stream: StreamId) -> Arc<Self> {
        Arc::new(PortSlot {
            site,
            end,
            stream,
            state: Mutex::new(PortSlotState {
                owner: Waker::none(),
                port: None,
                last: LinkNumber::default(),
            }),
            has_port: AtomicBool::new(false),
            is_aborted: AtomicBool::new(false),
        })
    }

    /// Sets the waker of the endpoint's current user.
    pub(crate) fn set_owner(&self, owner: Waker) {
        self.desk().owner = owner;
    }

    /// Returns a waker for the endpoint's current user. The waker holds the slot weakly, because a
    /// port in the slot contains the waker.
    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        let station = Arc::downgrade(self);
        Waker::new(move || {
            if let Some(station) = station.upgrade() {
                station.wake();
            }
        })
    }

    /// Wakes the endpoint's current user.
    pub(crate) fn wake(&self) {
        let owner = self.desk().owner.clone();
        owner.wake();
    }

    /// Puts in the port of a new connection; called by the network.
    pub(crate) fn put(&self, port: Port, link: LinkNumber) {
        let mut desk = self.desk();
        let before = desk.port.replace((port, link));
        desk.last = link;
        // Set under the lock. Otherwise a concurrent `take` of the previous port could clear the
        // flag.
        self.has_port.store(true, Ordering::Release);
        drop(desk);
        self.wake();
        drop(before);
    }

    /// Returns the connection of the port that was last put in; called by the network.
    pub(crate) fn last_given(&self) -> LinkNumber {
        self.desk().last
    }

    /// Takes the port of the newest connection, once.
    pub(crate) fn take(&self) -> Option<(Port, LinkNumber)> {
        if !self.has_port() {
            return None;
        }
        let mut desk = self.desk();
        self.has_port.store(false, Ordering::Release);
        desk.port.take()
    }

    /// Returns true if the slot contains a port that has not been taken.
    pub(crate) fn has_port(&self) -> bool {
        self.has_port.load(Ordering::Acquire)
    }

    /// Sets the aborted flag; called by the network. The flag is true while the peer is gone and
    /// not part of the job, and data for the peer is then dropped.
    pub(crate) fn set_aborted(&self, is_aborted: bool) {
        if self.is_aborted.swap(is_aborted, Ordering::AcqRel) != is_aborted {
            self.wake();
        }
    }

    /// Returns true if the peer is gone and no longer part of the job.
    pub(crate) fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::Acquire)
    }

    fn desk(&self) -> MutexGuard<'_, PortSlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for PortSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PortSlot {
            site, end, stream, ..
        } = self;
        write!(f, "Station({end:?} of {stream}, container {})", site.0)
    }
}
