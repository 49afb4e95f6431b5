//! Slots that hold the endpoint of a stream while no processor uses it.
//!
//! The processors at the ends of a stream come and go with instances. The endpoint stays, because
//! it numbers the frames of the stream; one processor at a time borrows it. While the endpoint is
//! in its slot, the network thread services it: it signals the end of the stream to a restarted
//! peer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ardea_core::Waker;

use crate::network::Network;
use crate::port_slot::PortSlot;

/// An endpoint that the network thread services while no processor uses it.
pub(crate) trait IdleEndpoint: Send + 'static {
    /// Returns the endpoint's port slot.
    fn station(&self) -> &Arc<PortSlot>;

    /// Services the endpoint while it is in its slot, at the time `now`.
    fn tend(&mut self, now: Duration);
}

/// An object that the network thread services.
pub(crate) trait Serviced: Send + Sync {
    fn tend(&self, now: Duration);
}

/// A slot for an endpoint.
pub(crate) struct EndpointSlot<E> {
    inside: Mutex<SlotContent<E>>,
    network: Network,
}

struct SlotContent<E> {
    end: Option<E>,
    /// The waker of the processor that waits for the endpoint.
    waiting: Option<Waker>,
}

/// A borrowed endpoint; dropping it returns the endpoint to its slot.
pub(crate) struct EndpointGuard<E: IdleEndpoint> {
    end: Option<E>,
    slot: Arc<EndpointSlot<E>>,
}

impl<E: IdleEndpoint> EndpointSlot<E> {
    /// Creates the slot of an endpoint and registers it with the network.
    pub(crate) fn new(end: E, network: Network) -> Arc<Self> {
        network.join(end.station());
        Arc::new(EndpointSlot {
            inside: Mutex::new(SlotContent {
                end: Some(end),
                waiting: None,
            }),
            network,
        })
    }

    /// Lends the endpoint, which then wakes `owner` when it can continue. If the endpoint is in
    /// use, returns `None` and wakes `owner` when it is free.
    pub(crate) fn borrow(self: &Arc<Self>, owner: &Waker) -> Option<EndpointGuard<E>> {
        let mut inside = self.inside();
        match inside.end.take() {
            Some(end) => {
                end.station().set_owner(owner.clone());
                Some(EndpointGuard {
                    end: Some(end),
                    slot: Arc::clone(self),
                })
            }
            None => {
                inside.waiting = Some(owner.clone());
                None
            }
        }
    }

    fn put_back(self: &Arc<Self>, end: E) {
        let station = Arc::clone(end.station());
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
    fn tend(&self, now: Duration) {
        if let Some(end) = &mut self.inside().end {
            end.tend(now);
        }
    }
}

impl<E: IdleEndpoint> EndpointGuard<E> {
    /// Returns the endpoint; always `Some` until the guard is dropped.
    pub(crate) fn end(&mut self) -> Option<&mut E> {
        self.end.as_mut()
    }
}

impl<E: IdleEndpoint> Drop for EndpointGuard<E> {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            self.slot.put_back(end);
        }
    }
}
