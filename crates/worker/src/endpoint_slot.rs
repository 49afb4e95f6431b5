//! Slots that hold the endpoint of a stream while no tasklet uses it.
//!
//! The tasklets at the ends of a stream come and go with instances. The endpoint stays, because it
//! numbers the frames of the stream; one user at a time borrows it. While the endpoint is in its
//! slot, the network thread services it: it signals the end of the stream to a restarted peer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ardea_core::Waker;
use ardea_network::exchange::{PortSlot, StreamReceiver, StreamSender};

use crate::network::Network;

/// An endpoint that the network thread services while no tasklet uses it.
pub(crate) trait IdleEndpoint: Send + 'static {
    /// Returns the endpoint's port slot.
    fn port_slot(&self) -> &Arc<PortSlot>;

    /// Starts the output of the endpoint's next user, after all output of the previous user.
    fn begin(&mut self) {}

    /// Services the endpoint while it is in its slot.
    fn service(&mut self) {}
}

impl IdleEndpoint for StreamSender {
    fn port_slot(&self) -> &Arc<PortSlot> {
        self.slot()
    }

    fn begin(&mut self) {
        StreamSender::begin(self);
    }

    fn service(&mut self) {
        StreamSender::service(self);
    }
}

/// Incoming data stays queued within the receive window while the endpoint is in its slot.
impl IdleEndpoint for StreamReceiver {
    fn port_slot(&self) -> &Arc<PortSlot> {
        self.slot()
    }
}

/// A user of an endpoint, which borrows it from its slot as soon as it is free. Dropping the user
/// returns the endpoint.
pub(crate) struct EndpointUser<E: IdleEndpoint> {
    slot: Arc<EndpointSlot<E>>,
    end: Option<E>,
    waker: Waker,
}

/// An object that the network thread services.
pub(crate) trait Serviced: Send + Sync {
    fn service(&self);
}

/// A slot for an endpoint.
pub(crate) struct EndpointSlot<E> {
    /// The port slot of the endpoint.
    slot: Arc<PortSlot>,
    inside: Mutex<SlotContent<E>>,
    network: Network,
}

struct SlotContent<E> {
    end: Option<E>,
    /// The waker of the tasklet that waits for the endpoint.
    waiting: Option<Waker>,
}

impl<E: IdleEndpoint> EndpointUser<E> {
    pub(crate) fn new(slot: Arc<EndpointSlot<E>>) -> Self {
        EndpointUser {
            slot,
            end: None,
            waker: Waker::none(),
        }
    }

    /// Sets the waker of the user, and borrows the endpoint if it is free.
    pub(crate) fn open(&mut self, waker: Waker) {
        self.waker = waker;
        self.get();
    }

    /// Returns the endpoint; `None` until its previous user has returned it.
    pub(crate) fn get(&mut self) -> Option<&mut E> {
        if self.end.is_none() {
            self.end = self.slot.borrow(&self.waker);
            self.end.as_mut()?.begin();
        }
        self.end.as_mut()
    }
}

impl<E: IdleEndpoint> EndpointSlot<E> {
    /// Creates the slot of an endpoint and registers it with the network.
    pub(crate) fn new(end: E, network: Network) -> Arc<Self> {
        network.join(end.port_slot());
        Arc::new(EndpointSlot {
            slot: Arc::clone(end.port_slot()),
            inside: Mutex::new(SlotContent {
                end: Some(end),
                waiting: None,
            }),
            network,
        })
    }

    /// Wakes the user of the endpoint.
    pub(crate) fn wake(&self) {
        self.slot.wake();
    }

    /// Lends the endpoint, which then wakes `owner` when it can continue. If the endpoint is in
    /// use, returns `None` and wakes `owner` when it is free.
    fn borrow(&self, owner: &Waker) -> Option<E> {
        let mut inside = self.inside();
        match &inside.end {
            Some(end) => end.port_slot().set_owner(owner.clone()),
            None => inside.waiting = Some(owner.clone()),
        }
        inside.end.take()
    }

    fn put_back(self: &Arc<Self>, end: E) {
        let station = Arc::clone(end.port_slot());
        let mut inside = self.inside();
        inside.end = Some(end);
        let waiting = inside.waiting.take();
        let resting: Weak<dyn Serviced> = Arc::<EndpointSlot<E>>::downgrade(self);
        let network = self.network.clone();
        // Set before the unlock, so that this does not replace the next borrower's waker.
        station.set_owner(Waker::new(move || network.tend(resting.clone())));
        drop(inside);
        match waiting {
            Some(waiting) => waiting.wake(),
            None => station.wake(),
        }
    }

    fn inside(&self) -> MutexGuard<'_, SlotContent<E>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: IdleEndpoint> Serviced for EndpointSlot<E> {
    fn service(&self) {
        if let Some(end) = &mut self.inside().end {
            end.service();
        }
    }
}

impl<E: IdleEndpoint> Drop for EndpointUser<E> {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            self.slot.put_back(end);
        }
    }
}
