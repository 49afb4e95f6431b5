//! The port slot of a stream endpoint, which receives the ports of successive connections to the
//! peer.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::{Error, Waker};

use crate::exchange::ids::{StreamId, WorkerNumber};
use crate::exchange::port::{End, Port};

/// The number of a connection of this process. Numbers start at one and grow with each connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LinkNumber(pub u64);

/// The callback for a connection whose data is invalid or that is closed. It must not block.
type InvalidLink = dyn Fn(LinkNumber, &Error) + Send + Sync;

/// The connection between the network and one endpoint of a stream to a peer.
///
/// The network thread puts a port into the slot after each new connection to the peer. The user of
/// the endpoint takes the port.
pub struct PortSlot {
    /// The peer.
    pub peer: WorkerNumber,
    /// The end of the stream in this process.
    pub end: End,
    /// The stream.
    pub stream: StreamId,
    on_invalid: Box<InvalidLink>,
    state: Mutex<PortSlotState>,
    has_port: AtomicBool,
    is_aborted: AtomicBool,
}

/// The port of a new connection.
#[derive(Debug)]
pub struct NewPort {
    /// The port.
    pub port: Port,
    /// The connection.
    pub link: LinkNumber,
    /// The incarnation of the peer, which differs between processes of the same worker.
    pub incarnation: u64,
}

#[derive(Debug)]
struct PortSlotState {
    owner: Waker,
    port: Option<NewPort>,
    /// The connection of the port that was last put in.
    last: LinkNumber,
}

impl PortSlot {
    /// Creates the slot of one end of `stream`. `on_invalid` is called for a connection whose data
    /// is invalid or that is closed; it must not block.
    pub fn new(
        peer: WorkerNumber,
        end: End,
        stream: StreamId,
        on_invalid: impl Fn(LinkNumber, &Error) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(PortSlot {
            peer,
            end,
            stream,
            on_invalid: Box::new(on_invalid),
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
    pub fn set_owner(&self, owner: Waker) {
        self.desk().owner = owner;
    }

    /// Returns a waker for the endpoint's current user. The waker holds the slot weakly, because a
    /// port in the slot contains the waker.
    pub fn waker(self: &Arc<Self>) -> Waker {
        let slot = Arc::downgrade(self);
        Waker::new(move || {
            if let Some(slot) = slot.upgrade() {
                slot.wake();
            }
        })
    }

    /// Wakes the endpoint's current user.
    pub fn wake(&self) {
        let owner = self.desk().owner.clone();
        owner.wake();
    }

    /// Puts in the port of a new connection; called by the network.
    pub fn put(&self, new: NewPort) {
        let mut desk = self.desk();
        desk.last = new.link;
        let before = desk.port.replace(new);
        // Set under the lock. Otherwise a concurrent `take` of the previous port could clear the
        // flag.
        self.has_port.store(true, Ordering::Release);
        drop(desk);
        self.wake();
        drop(before);
    }

    /// Returns the connection of the port that was last put in; called by the network.
    pub fn last_given(&self) -> LinkNumber {
        self.desk().last
    }

    /// Takes the port of the newest connection, once.
    pub fn take(&self) -> Option<NewPort> {
        if !self.has_port() {
            return None;
        }
        let mut desk = self.desk();
        self.has_port.store(false, Ordering::Release);
        desk.port.take()
    }

    /// Returns true if the slot contains a port that has not been taken.
    pub fn has_port(&self) -> bool {
        self.has_port.load(Ordering::Acquire)
    }

    /// Reports a connection as invalid or closed.
    pub(crate) fn report_invalid(&self, link: LinkNumber, error: &Error) {
        (self.on_invalid)(link, error);
    }

    /// Sets the aborted flag; called by the network. The flag is true while the peer is gone and
    /// not part of the job, and data for the peer is then dropped.
    pub fn set_aborted(&self, is_aborted: bool) {
        if self.is_aborted.swap(is_aborted, Ordering::AcqRel) != is_aborted {
            self.wake();
        }
    }

    /// Returns true if the peer is gone and no longer part of the job.
    pub fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::Acquire)
    }

    fn desk(&self) -> MutexGuard<'_, PortSlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for PortSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PortSlot {
            peer, end, stream, ..
        } = self;
        write!(f, "PortSlot({end:?} of {stream}, worker {})", peer.0)
    }
}
