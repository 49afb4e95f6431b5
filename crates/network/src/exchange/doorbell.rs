//! Waking the thread that moves frames, at no cost while it is awake.
//!
//! **Why no wake-up is lost.** Whoever rings has made its parcel visible, sets `rung`, and then reads `sleeping`. The thread
//! sets `sleeping`, then takes `rung` a last time, and sleeps only if it was not set. All four are sequentially consistent, so
//! one of the two sees the other. A ring that finds `rung` set leaves it at that: the thread has yet to take it, and looks
//! at all parcels after that.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ardea_core::Waker;

/// Rings for the thread that polls a transport.
#[derive(Clone)]
pub struct Doorbell(Arc<Bell>);

struct Bell {
    rung: AtomicBool,
    sleeping: AtomicBool,
    wake: Waker,
}

impl Doorbell {
    /// `wake` ends the sleep of the thread, from any thread.
    pub fn new(wake: Waker) -> Self {
        Doorbell(Arc::new(Bell {
            rung: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            wake,
        }))
    }

    /// There is something to do. Cheap while the thread is awake.
    #[inline]
    pub fn ring(&self) {
        if !self.0.rung.swap(true, Ordering::SeqCst) && self.0.sleeping.load(Ordering::SeqCst) {
            self.0.wake.wake();
        }
    }

    /// For the thread, before it sleeps: whether nobody has rung since it last asked. [`awake`](Self::awake) follows.
    pub fn may_sleep(&self) -> bool {
        self.0.sleeping.store(true, Ordering::SeqCst);
        !self.0.rung.swap(false, Ordering::SeqCst)
    }

    /// For the thread, after it slept or did not.
    pub fn awake(&self) {
        self.0.sleeping.store(false, Ordering::SeqCst);
    }
}

/// Rings when it is dropped: stands behind the field whose end has to be heard.
#[derive(Debug)]
pub(crate) struct RingAtEnd(pub(crate) Doorbell);

impl Drop for RingAtEnd {
    fn drop(&mut self) {
        self.0.ring();
    }
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Doorbell")
    }
}
