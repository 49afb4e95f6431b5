//! Where one end of a stream gets its ports: one after the other, as connections to the peer come and go.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::Waker;
use ardea_engine::Site;
use ardea_network::exchange::{End, Port, StreamId};

/// Which connection of this process, counted from one: a later one is greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct LinkNumber(pub(crate) u64);

/// One end of a stream to a peer, as the network sees it.
///
/// The thread of the network puts a port here whenever there is a new connection to the peer; whoever works with this end takes it.
pub(crate) struct Station {
    pub(crate) site: Site,
    pub(crate) end: End,
    pub(crate) stream: StreamId,
    desk: Mutex<Desk>,
    has_port: AtomicBool,
    is_given_up: AtomicBool,
}

#[derive(Debug)]
struct Desk {
    owner: Waker,
    port: Option<(Port, LinkNumber)>,
    /// The connection of the last port.
    last: LinkNumber,
}

impl Station {
    pub(crate) fn new(site: Site, end: End, stream: StreamId) -> Arc<Self> {
        Arc::new(Station {
            site,
            end,
            stream,
            desk: Mutex::new(Desk {
                owner: Waker::none(),
                port: None,
                last: LinkNumber::default(),
            }),
            has_port: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
        })
    }

    /// From now on this one is woken.
    pub(crate) fn set_owner(&self, owner: Waker) {
        self.desk().owner = owner;
    }

    /// A waker of whoever works with this end at the time. It doesn't keep the station: a port that waits in it has one.
    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        let station = Arc::downgrade(self);
        Waker::new(move || {
            if let Some(station) = station.upgrade() {
                station.wake();
            }
        })
    }

    /// Wakes whoever works with this end at the time.
    pub(crate) fn wake(&self) {
        let owner = self.desk().owner.clone();
        owner.wake();
    }

    /// For the network: there is a new connection.
    pub(crate) fn give(&self, port: Port, link: LinkNumber) {
        let mut desk = self.desk();
        let before = desk.port.replace((port, link));
        desk.last = link;
        // At the desk, or who takes the one before at the same time says that there is none.
        self.has_port.store(true, Ordering::Release);
        drop(desk);
        self.wake();
        drop(before);
    }

    /// For the network: the connection of the port that was given last.
    pub(crate) fn last_given(&self) -> LinkNumber {
        self.desk().last
    }

    /// The port of the newest connection, once.
    pub(crate) fn take(&self) -> Option<(Port, LinkNumber)> {
        if !self.has_port() {
            return None;
        }
        let mut desk = self.desk();
        self.has_port.store(false, Ordering::Release);
        desk.port.take()
    }

    /// Whether a port waits to be taken.
    pub(crate) fn has_port(&self) -> bool {
        self.has_port.load(Ordering::Acquire)
    }

    /// For the network: whether the peer is gone and no part of the job any more, so that nobody should wait for it.
    pub(crate) fn give_up(&self, is_given_up: bool) {
        if self.is_given_up.swap(is_given_up, Ordering::AcqRel) != is_given_up {
            self.wake();
        }
    }

    /// Whether the peer will not come back.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Station {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Station {
            site, end, stream, ..
        } = self;
        write!(f, "Station({end:?} of {stream}, container {})", site.0)
    }
}
