//! The count of posted changes that are not applied yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of posted changes that are not applied yet.
#[derive(Debug, Default)]
pub(crate) struct PendingAcks(AtomicUsize);

impl PendingAcks {
    /// Counts one more pending change; `when_done` is called when none is left.
    pub(crate) fn begin(self: &Arc<Self>, when_done: Arc<dyn Fn() + Send + Sync>) -> PendingAck {
        self.0.fetch_add(1, Ordering::AcqRel);
        PendingAck {
            unsettled: Arc::clone(self),
            when_done,
        }
    }

    /// Returns true if no change is pending.
    pub(crate) fn is_none(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

/// The receipt of a posted change, dropped when the change is applied or its tasklet has ended.
pub(crate) struct PendingAck {
    unsettled: Arc<PendingAcks>,
    when_done: Arc<dyn Fn() + Send + Sync>,
}

impl Drop for PendingAck {
    fn drop(&mut self) {
        if self.unsettled.0.fetch_sub(1, Ordering::AcqRel) == 1 {
            (self.when_done)();
        }
    }
}

impl std::fmt::Debug for PendingAck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receipt")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn changes_are_settled_when_the_last_receipt_is_gone() {
        let unsettled = Arc::new(PendingAcks::default());
        let told = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&told);
        let tell: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        let (one, other) = (
            unsettled.begin(Arc::clone(&tell)),
            unsettled.begin(Arc::clone(&tell)),
        );
        drop(one);
        assert!(!unsettled.is_none());
        drop(other);
        assert!(unsettled.is_none());
        assert_eq!(told.load(Ordering::SeqCst), 1);
    }
}
