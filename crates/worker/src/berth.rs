//! Where an end of a stream lies while no processor works with it.
//!
//! The processors at the ends of a stream come and go with the instances that need them; the stream between two processes stays, for
//! its frames are numbered. So an end is lent to a processor and comes back when that is dropped. While it lies here, the thread of the
//! network tends it: a peer that was started anew learns that a stream has ended, and is not kept waiting by what nobody reads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ardea_core::Waker;

use crate::network::Network;
use crate::station::Station;

/// An end of a stream that needs little while nobody works with it.
pub(crate) trait Resting: Send + 'static {
    /// Its station.
    fn station(&self) -> &Arc<Station>;

    /// Does what there is to do meanwhile.
    fn tend(&mut self, now: Duration);
}

/// Something that the thread of the network tends.
pub(crate) trait Tended: Send + Sync {
    fn tend(&self, now: Duration);
}

/// The home of an end.
pub(crate) struct Berth<E> {
    inside: Mutex<Inside<E>>,
    network: Network,
}

struct Inside<E> {
    end: Option<E>,
    /// Who waits for the end, which somebody else still has.
    waiting: Option<Waker>,
}

/// An end that is lent; it goes back when this is dropped.
pub(crate) struct Lent<E: Resting> {
    end: Option<E>,
    berth: Arc<Berth<E>>,
}

impl<E: Resting> Berth<E> {
    /// For this end, which the network hears of.
    pub(crate) fn new(end: E, network: Network) -> Arc<Self> {
        network.join(end.station());
        Arc::new(Berth {
            inside: Mutex::new(Inside {
                end: Some(end),
                waiting: None,
            }),
            network,
        })
    }

    /// Lends the end to `owner`, who is woken when there is something to do. If somebody still has it, `owner` is woken when it is back.
    pub(crate) fn lend(self: &Arc<Self>, owner: &Waker) -> Option<Lent<E>> {
        let mut inside = self.inside();
        match inside.end.take() {
            Some(end) => {
                end.station().set_owner(owner.clone());
                Some(Lent {
                    end: Some(end),
                    berth: Arc::clone(self),
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
        let resting: Weak<dyn Tended> = Arc::<Berth<E>>::downgrade(self);
        let network = self.network.clone();
        // Before anybody else can borrow it, and become its owner.
        station.set_owner(Waker::new(move || network.tend(resting.clone())));
        drop(inside);
        match waiting {
            Some(waiting) => waiting.wake(),
            None => station.wake(),
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside<E>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: Resting> Tended for Berth<E> {
    fn tend(&self, now: Duration) {
        if let Some(end) = &mut self.inside().end {
            end.tend(now);
        }
    }
}

impl<E: Resting> Lent<E> {
    /// The end; always there.
    pub(crate) fn end(&mut self) -> Option<&mut E> {
        self.end.as_mut()
    }
}

impl<E: Resting> Drop for Lent<E> {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            self.berth.put_back(end);
        }
    }
}
