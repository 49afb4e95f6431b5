//! What is known of a member, outside of who drives it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::protocol::View;

/// What is known of a member, outside of who drives it.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    seen: Mutex<Seen>,
    changed: Condvar,
    is_out: AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub view: Option<Arc<View>>,
    pub is_out: bool,
    pub has_parted: bool,
}

impl Standing {
    /// The view, if there is one.
    pub fn view(&self) -> Option<Arc<View>> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .view
            .clone()
    }

    /// Whether the member belongs to the grid no more.
    pub fn is_out(&self) -> bool {
        self.is_out.load(Ordering::Relaxed)
    }

    pub fn change(&self, change: impl FnOnce(&mut Seen)) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut seen);
        self.is_out.store(seen.is_out, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Waits until the view is as wanted, or the member is out; whether it is as wanted.
    pub fn wait(&self, patience: Duration, is_it: impl Fn(Option<&View>, bool) -> bool) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = |seen: &mut Seen| !is_it(seen.view.as_deref(), seen.is_out) && !seen.is_out;
        let (seen, _) = self
            .changed
            .wait_timeout_while(seen, patience, goes_on)
            .unwrap_or_else(PoisonError::into_inner);
        is_it(seen.view.as_deref(), seen.is_out)
    }

    /// Waits until those who stay need nothing more of this member, which has left.
    pub fn wait_parted(&self, patience: Duration) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(seen, patience, |seen| !seen.has_parted);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}
