//! Wakes the thread that moves frames, at almost no cost while it is awake.
//!
//! **Why no wake-up is lost.** The waking thread makes its buffer visible, sets `rung`, and then
//! reads `sleeping`. The network thread sets `sleeping`, then takes `rung` a last time, and sleeps
//! only if it was not set. All four accesses are sequentially consistent, so one of the two threads
//! sees the other's write. If `rung` is already set, no wake-up is needed: the network thread has
//! yet to take it, and checks all queues after that.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ardea_core::Waker;

/// Wakes the thread that polls a transport.
#[derive(Clone)]
pub struct NetworkWaker(Arc<WakerState>);

struct WakerState {
    rung: AtomicBool,
    sleeping: AtomicBool,
    wake: Waker,
}

impl NetworkWaker {
    /// Creates a waker; `wake` ends the sleep of the polling thread, and is called from any thread.
    pub fn new(wake: Waker) -> Self {
        NetworkWaker(Arc::new(WakerState {
            rung: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            wake,
        }))
    }

    /// Signals that there is work. Cheap while the polling thread is awake.
    #[inline]
    pub fn notify(&self) {
        if !self.0.rung.swap(true, Ordering::SeqCst) && self.0.sleeping.load(Ordering::SeqCst) {
            self.0.wake.wake();
        }
    }

    /// Announces that the network thread is about to sleep; returns true if there was no
    /// [`notify`](Self::notify) since the last call. Must be followed by [`awake`](Self::awake).
    pub fn may_sleep(&self) -> bool {
        self.0.sleeping.store(true, Ordering::SeqCst);
        !self.0.rung.swap(false, Ordering::SeqCst)
    }

    /// Marks the network thread as awake. Called after it slept, or decided not to.
    pub fn awake(&self) {
        self.0.sleeping.store(false, Ordering::SeqCst);
    }
}

/// Wakes the other side when it is dropped. Declared after the field whose drop the other side must
/// notice.
#[derive(Debug)]
pub(crate) struct WakeOnDrop(pub(crate) NetworkWaker);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.notify();
    }
}

impl fmt::Debug for NetworkWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NetworkWaker")
    }
}
