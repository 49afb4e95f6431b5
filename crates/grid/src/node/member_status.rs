//! State of a member, for threads other than the driver's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::protocol::View;

/// State of a member, for threads other than the driver's.
#[derive(Debug, Default)]
pub(crate) struct MemberStatus {
    seen: Mutex<StatusSnapshot>,
    changed: Condvar,
    is_out: AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct StatusSnapshot {
    pub view: Option<Arc<View>>,
    pub is_out: bool,
    pub has_parted: bool,
}

impl MemberStatus {
    /// Returns the current view, if there is one.
    pub fn view(&self) -> Option<Arc<View>> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .view
            .clone()
    }

    /// Returns true if the member is no longer part of the grid.
    pub fn is_out(&self) -> bool {
        self.is_out.load(Ordering::Relaxed)
    }

    pub fn change(&self, change: impl FnOnce(&mut StatusSnapshot)) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut seen);
        self.is_out.store(seen.is_out, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Waits until `is_it` returns true for the view, or the member is out. Returns the last result
    /// of `is_it`.
    pub fn wait(&self, patience: Duration, is_it: impl Fn(Option<&View>, bool) -> bool) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on =
            |seen: &mut StatusSnapshot| !is_it(seen.view.as_deref(), seen.is_out) && !seen.is_out;
        let (seen, _) = self
            .changed
            .wait_timeout_while(seen, patience, goes_on)
            .unwrap_or_else(PoisonError::into_inner);
        is_it(seen.view.as_deref(), seen.is_out)
    }

    /// Waits until the remaining members do not need this member, which has left, any more.
    pub fn wait_parted(&self, patience: Duration) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(seen, patience, |seen| !seen.has_parted);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}
