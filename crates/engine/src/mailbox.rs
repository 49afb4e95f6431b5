//! What a running tasklet is told to change of itself.
//!
//! Who rearranges a job posts changes and wakes the tasklet; the tasklet alone carries them out, between two slices. So nothing that
//! records pass through is shared with anybody, and a change costs a tasklet that has none one relaxed look a slice,
//! and one each time before it lets records pass on through its stages.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::coming::Comers;
use crate::cuts::Fate;
use crate::input::NewInlet;
use crate::output::NewLanes;
use crate::queue::QueueSender;

/// A change of a running tasklet.
#[derive(Debug)]
pub(crate) enum Change {
    /// More queues to read from.
    Inlets(Vec<NewInlet>),
    /// Other queues for this output of the last stage.
    Lanes {
        /// Which; there are so many outputs from then on, if there were fewer.
        output: usize,
        lanes: NewLanes,
    },
    /// It is to end: a source at once, others when nobody routes to them any more. If its place in the job is to be taken by another,
    /// it does not tell its consumers, but leaves its queues here.
    Leave(Option<Handover>),
    /// It is not to end after all.
    Stay,
    /// A source that was kept back may begin.
    Begin,
    /// The end of an edge to another process is not needed any more, and ends as soon as it can.
    Dismiss,
    /// It is needed again.
    Recall,
    /// There is another change of the job: who comes by it in other processes, by the tasklets that read what comes from there. For those
    /// themselves, and for those that they give it to.
    Expect(Vec<(u64, Comers)>),
    /// Producers are about to come here: the other ends of the edge are to be told.
    Announce,
    /// What came of an epoch.
    Epoch(Fate),
}

/// Queues of a tasklet that has ended, whose readers are not to take that for the end of all.
pub(crate) type Handover = Arc<Mutex<Vec<QueueSender>>>;

/// The changes that wait for a tasklet.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    /// Whether there are any. Written under the lock; may be read without.
    has_changes: AtomicBool,
    post: Mutex<Post>,
}

#[derive(Debug, Default)]
struct Post {
    changes: Vec<Change>,
    /// Nothing more is taken: the tasklet is about to end, or has.
    is_closed: bool,
    /// The tasklet has given away all that it had.
    has_ended: bool,
}

impl Mailbox {
    /// Leaves a change; the caller wakes the tasklet then.
    ///
    /// # Errors
    /// The change, if the tasklet has ended or is about to.
    pub(crate) fn post(&self, change: Change) -> Result<(), Change> {
        let mut post = self.lock();
        if post.is_closed {
            return Err(change);
        }
        post.changes.push(change);
        self.has_changes.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether changes wait.
    ///
    /// Relaxed: whoever has posted one rings the bell after that, so that a slice comes which sees it. And what another tasklet did
    /// because of a change that was posted later comes through a queue, which orders the look behind the post.
    #[inline]
    pub(crate) fn has_changes(&self) -> bool {
        self.has_changes.load(Ordering::Relaxed)
    }

    /// Takes all changes out, in the order in which they came.
    pub(crate) fn take(&self) -> Vec<Change> {
        let mut post = self.lock();
        self.has_changes.store(false, Ordering::Relaxed);
        mem::take(&mut post.changes)
    }

    /// The tasklet is about to end; it does not if changes wait. Nothing more comes if it does.
    pub(crate) fn close_if_empty(&self) -> bool {
        let mut post = self.lock();
        post.is_closed |= post.changes.is_empty();
        post.is_closed
    }

    /// The tasklet has ended, and given away what it had: takes out what came too late, and nothing more comes.
    pub(crate) fn close(&self) -> Vec<Change> {
        let mut post = self.lock();
        post.is_closed = true;
        post.has_ended = true;
        mem::take(&mut post.changes)
    }

    /// Whether the tasklet has ended. One that takes no more changes may still be ending: its queues are not where they are to go yet.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    fn lock(&self) -> MutexGuard<'_, Post> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many changes have been posted that are not carried out yet.
#[derive(Debug, Default)]
pub(crate) struct Unsettled(AtomicUsize);

impl Unsettled {
    /// One more.
    pub(crate) fn begin(self: &Arc<Self>, when_done: Arc<dyn Fn() + Send + Sync>) -> Receipt {
        self.0.fetch_add(1, Ordering::AcqRel);
        Receipt {
            unsettled: Arc::clone(self),
            when_done,
        }
    }

    /// Whether all have been carried out.
    pub(crate) fn is_none(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

/// Goes with a change, and is dropped when that has been carried out, or the tasklet has ended.
pub(crate) struct Receipt {
    unsettled: Arc<Unsettled>,
    when_done: Arc<dyn Fn() + Send + Sync>,
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if self.unsettled.0.fetch_sub(1, Ordering::AcqRel) == 1 {
            (self.when_done)();
        }
    }
}

impl std::fmt::Debug for Receipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receipt")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_closed_mailbox_gives_changes_back() {
        let mailbox = Mailbox::default();
        mailbox.post(Change::Stay).unwrap();
        assert!(mailbox.has_changes());
        assert_eq!(mailbox.take().len(), 1);
        assert!(!mailbox.has_changes());
        mailbox.post(Change::Stay).unwrap();
        assert_eq!(mailbox.close().len(), 1);
        assert!(mailbox.post(Change::Stay).is_err() && mailbox.has_ended());
    }

    #[test]
    fn who_takes_no_more_changes_has_not_ended_before_all_is_given_away() {
        let mailbox = Mailbox::default();
        assert!(mailbox.close_if_empty());
        assert!(mailbox.post(Change::Stay).is_err() && !mailbox.has_ended());
        assert!(mailbox.close().is_empty() && mailbox.has_ended());
    }

    #[test]
    fn changes_are_settled_when_the_last_receipt_is_gone() {
        let unsettled = Arc::new(Unsettled::default());
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
