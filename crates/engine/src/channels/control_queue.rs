//! Requests to change a running tasklet.
//!
//! A thread that rearranges a job posts changes and wakes the tasklet. Only the tasklet itself
//! applies them, between two slices, so that the data path shares nothing. Without changes the cost
//! is one relaxed load per slice, and one before records pass through the stages.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::channels::inlet::NewInlet;
use crate::channels::output::NewLanes;
use crate::channels::pending_producers::ExpectedProducers;
use crate::channels::queue::QueueSender;
use crate::snapshotting::EpochOutcome;

/// A change of a running tasklet.
#[derive(Debug)]
pub(crate) enum Change {
    /// Adds input queues.
    Inlets(Vec<NewInlet>),
    /// Replaces the queues of an output of the last stage.
    Lanes {
        /// The index of the output; missing outputs up to it are created.
        output: usize,
        lanes: NewLanes,
    },
    /// Stops the tasklet: a source at once, others when no producer routes to them any more. With a
    /// handover, the tasklet stores its queues there for a successor, without an end-of-stream
    /// marker.
    Stop(Option<Handover>),
    /// Cancels a stop.
    CancelStop,
    /// Starts a source that was held back.
    StartSource,
    /// Stops the end of an edge to another process as soon as possible.
    Dismiss,
    /// Cancels a [`Dismiss`](Change::Dismiss).
    Recall,
    /// Announces producers that a change of the job will start in other processes, each with the
    /// number of the tasklet that receives from there. Sent to the receiving tasklets and to those
    /// that they feed.
    ExpectProducers(Vec<(u64, ExpectedProducers)>),
    /// Requests a start marker from the sending end of an edge, for producers that will start here.
    AnnounceProducers,
    /// Reports the outcome of an epoch.
    Epoch(EpochOutcome),
}

/// Queues of a stopped tasklet, to be reused by its successor without an end-of-stream marker.
pub(crate) type Handover = Arc<Mutex<Vec<QueueSender>>>;

/// The pending changes of a tasklet.
#[derive(Debug, Default)]
pub(crate) struct ControlQueue {
    /// True if there are changes. Written under the lock; may be read without the lock.
    has_changes: AtomicBool,
    post: Mutex<QueueState>,
}

#[derive(Debug, Default)]
struct QueueState {
    changes: Vec<Change>,
    /// True if no more changes are accepted: the tasklet is ending, or has ended.
    is_closed: bool,
    /// True if the tasklet has released all its resources.
    has_ended: bool,
}

impl ControlQueue {
    /// Adds a change; the caller then wakes the tasklet.
    ///
    /// # Errors
    /// The change, if the tasklet has ended or is ending.
    pub(crate) fn post(&self, change: Change) -> Result<(), Change> {
        let mut post = self.lock();
        if post.is_closed {
            return Err(change);
        }
        post.changes.push(change);
        self.has_changes.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns true if changes are pending.
    ///
    /// Relaxed: the sender of a change wakes the tasklet afterwards, so a later slice sees the
    /// change. Effects of a change posted later to another tasklet arrive through a queue, which
    /// orders this load after the post.
    #[inline]
    pub(crate) fn has_changes(&self) -> bool {
        self.has_changes.load(Ordering::Relaxed)
    }

    /// Takes all changes, in order.
    pub(crate) fn take(&self) -> Vec<Change> {
        let mut post = self.lock();
        self.has_changes.store(false, Ordering::Relaxed);
        mem::take(&mut post.changes)
    }

    /// Closes the queue if it is empty, since the tasklet is about to end. Returns true if it is
    /// closed.
    pub(crate) fn close_if_empty(&self) -> bool {
        let mut post = self.lock();
        post.is_closed |= post.changes.is_empty();
        post.is_closed
    }

    /// Closes the queue after the tasklet has released all its resources. Returns changes that
    /// arrived too late.
    pub(crate) fn close(&self) -> Vec<Change> {
        let mut post = self.lock();
        post.is_closed = true;
        post.has_ended = true;
        mem::take(&mut post.changes)
    }

    /// Returns true if the tasklet has ended. A closed queue is not enough: the tasklet may still
    /// be releasing its queues.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_closed_mailbox_gives_changes_back() {
        let mailbox = ControlQueue::default();
        mailbox.post(Change::CancelStop).unwrap();
        assert!(mailbox.has_changes());
        assert_eq!(mailbox.take().len(), 1);
        assert!(!mailbox.has_changes());
        mailbox.post(Change::CancelStop).unwrap();
        assert_eq!(mailbox.close().len(), 1);
        assert!(mailbox.post(Change::CancelStop).is_err() && mailbox.has_ended());
    }

    #[test]
    fn who_takes_no_more_changes_has_not_ended_before_all_is_given_away() {
        let mailbox = ControlQueue::default();
        assert!(mailbox.close_if_empty());
        assert!(mailbox.post(Change::CancelStop).is_err() && !mailbox.has_ended());
        assert!(mailbox.close().is_empty() && mailbox.has_ended());
    }
}
