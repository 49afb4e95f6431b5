//! Notification of a thread about its ready tasklets, with a wake-up if it sleeps.
//!
//! **Access.** Any thread adds to `ready`; only the owning thread takes from it. The owning thread
//! writes `sleeping`: true before it checks `ready` a last time and parks, false when it wakes.
//!
//! **No lost wake-ups.** A waker adds to `ready` and then reads `sleeping`; the thread writes
//! `sleeping` and then reads `ready`. All four are sequentially consistent. So either the waker
//! sees `sleeping` and unparks the thread, or the thread sees the addition and doesn't park. An
//! unpark before the park makes the park return at once.
//!
//! **Deferred tasklets.** A tasklet that gathers records has a deadline, at which the thread wakes
//! by itself. Until then data makes the tasklet ready without waking the thread. A waker adds to
//! `ready` and then reads `deferred`; the thread ends the deferral and then takes from `ready`. So
//! either the waker sees the end and wakes the thread, or the thread takes the addition.

use crate::executor::ready::{ReadySet, TaskletSet};
use crate::shim::{AtomicBool, Ordering, in_sequence};

/// The ready tasklets of a thread, and its sleeping flag.
#[derive(Debug)]
pub(crate) struct ThreadNotifier {
    ready: ReadySet,
    sleeping: AtomicBool,
    deferred: TaskletSet,
}

impl ThreadNotifier {
    /// Creates the notifier of a running thread with up to `tasklets` tasklets.
    pub(crate) fn new(tasklets: usize) -> Self {
        ThreadNotifier {
            ready: ReadySet::new(tasklets),
            sleeping: AtomicBool::new(false),
            deferred: TaskletSet::new(tasklets),
        }
    }

    /// Makes a tasklet ready. Returns true if the thread sleeps and must be unparked.
    #[inline]
    #[must_use]
    pub(crate) fn notify(&self, tasklet: u32) -> bool {
        self.ready.add(tasklet);
        in_sequence();
        self.sleeping.load(Ordering::SeqCst)
    }

    /// Like [`notify`](Self::notify), for data: the wake-up of a deferred tasklet waits.
    #[inline]
    #[must_use]
    pub(crate) fn notify_data(&self, tasklet: u32) -> bool {
        self.notify(tasklet) && !self.is_deferred(tasklet)
    }

    /// For the owning thread: defers the wake-ups for data of a tasklet until
    /// [`end_deferral`](Self::end_deferral). The thread must wake by itself for that call.
    pub(crate) fn defer(&self, tasklet: u32) {
        self.deferred.insert(tasklet);
    }

    /// Returns true if the wake-ups for data of a tasklet are deferred.
    #[inline]
    pub(crate) fn is_deferred(&self, tasklet: u32) -> bool {
        self.deferred.contains(tasklet)
    }

    /// For the owning thread: ends the deferral of a tasklet, if it is deferred. The thread must
    /// then take the ready tasklets before it parks.
    pub(crate) fn end_deferral(&self, tasklet: u32) {
        self.deferred.remove(tasklet);
        in_sequence();
    }

    /// For the owning thread: makes a tasklet ready.
    #[inline]
    pub(crate) fn add(&self, tasklet: u32) {
        self.ready.add(tasklet);
    }

    /// For the owning thread: takes all ready tasklets, appending them to `taken`.
    pub(crate) fn take(&self, taken: &mut Vec<u32>) {
        self.ready.take(taken);
    }

    /// Returns true if no tasklet is ready.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// For the owning thread, before it parks: sets the sleeping flag, so that every tasklet that
    /// becomes ready unparks the thread. Returns false if a tasklet is ready already; then the
    /// thread must not park. In both cases [`awake`](Self::awake) must follow.
    #[must_use]
    pub(crate) fn may_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        in_sequence();
        self.ready.is_empty()
    }

    /// For the owning thread: clears the sleeping flag.
    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }
}
