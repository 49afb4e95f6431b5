//! Telling a thread which of its tasklets have something to do, and waking it if it sleeps.
//!
//! **Who writes what.** Anybody adds to `ready`; the thread alone takes from it. `sleeping` is written by the thread: true
//! before it looks at `ready` a last time and parks, false when it wakes.
//!
//! **Why no wake-up is lost.** A waker adds to `ready` and then reads `sleeping`; the thread writes `sleeping` and then reads
//! `ready`; all four are sequentially consistent. So either the waker sees `sleeping` and unparks the thread, or the thread
//! sees the addition and doesn't park. An unpark before the park makes the park return at once.

use crate::ready::ReadySet;
use crate::shim::{AtomicBool, Ordering, in_sequence};

/// The ready tasklets of a thread, and whether it sleeps.
#[derive(Debug)]
pub(crate) struct Bell {
    ready: ReadySet,
    sleeping: AtomicBool,
}

impl Bell {
    /// For a thread of up to `tasklets` tasklets, awake.
    pub(crate) fn new(tasklets: usize) -> Self {
        Bell {
            ready: ReadySet::new(tasklets),
            sleeping: AtomicBool::new(false),
        }
    }

    /// Makes a tasklet ready. True if the thread sleeps: it must then be unparked.
    #[inline]
    #[must_use]
    pub(crate) fn ring(&self, tasklet: u32) -> bool {
        self.ready.add(tasklet);
        in_sequence();
        self.sleeping.load(Ordering::SeqCst)
    }

    /// For the thread itself: makes a tasklet ready.
    #[inline]
    pub(crate) fn add(&self, tasklet: u32) {
        self.ready.add(tasklet);
    }

    /// For the thread itself: takes all ready tasklets out, appending them to `taken`.
    pub(crate) fn take(&self, taken: &mut Vec<u32>) {
        self.ready.take(taken);
    }

    /// Whether no tasklet is ready.
    pub(crate) fn is_silent(&self) -> bool {
        self.ready.is_empty()
    }

    /// For the thread itself, before it parks: from now on it is unparked for every tasklet that becomes ready. False if one is
    /// ready already: it must not park then. In both cases [`awake`](Self::awake) follows.
    #[must_use]
    pub(crate) fn may_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        in_sequence();
        self.ready.is_empty()
    }

    /// For the thread itself, after it parked, or did not.
    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }
}
