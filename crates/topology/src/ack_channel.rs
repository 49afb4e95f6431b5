//! The way back: how bolts tell a spout instance what became of its tuples.
//!
//! Acks flow against the arrows of the graph, so they are no edge of it: the graph has no cycle, and a bounded queue from bolt to spout would
//! stop both when the spout waits for room downstream. A mailbox lies beside the graph instead. A bolt gathers the news of a whole
//! chunk and posts it in one go; the spout takes all that has come in one go. What lies in a mailbox is bounded by what is
//! in flight, which the queues of the graph and the greatest number of pending tuples bound.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ardea_core::Waker;

use crate::acker::Update;
use crate::anchor::Root;

/// What has been posted.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    pub(crate) updates: Vec<Update>,
    pub(crate) failed: Vec<Root>,
}

impl Mail {
    pub(crate) fn is_empty(&self) -> bool {
        self.updates.is_empty() && self.failed.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.updates.clear();
        self.failed.clear();
    }
}

/// The mailbox of one spout instance.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    mail: Mutex<Inside>,
    /// Whether there is mail; looked at without the lock.
    has_mail: AtomicBool,
    spout: OnceLock<Waker>,
}

#[derive(Debug, Default)]
struct Inside {
    mail: Mail,
    /// Whether the spout rests and is to be woken.
    rests: bool,
}

impl Mailbox {
    /// Says whom to wake.
    pub(crate) fn belongs_to(&self, spout: Waker) {
        // A spout instance is opened once; a second waker would be the same.
        let _ = self.spout.set(spout);
    }

    /// Posts news, which is then gone from `mail`.
    fn post(&self, mail: &mut Mail) {
        let mut inside = self.lock();
        inside.mail.updates.append(&mut mail.updates);
        inside.mail.failed.append(&mut mail.failed);
        self.has_mail.store(true, Ordering::Release);
        let wake = mem::take(&mut inside.rests);
        drop(inside);
        if let (true, Some(spout)) = (wake, self.spout.get()) {
            spout.wake();
        }
    }

    /// Exchanges what has come for the emptied `mail`; says whether anything had come.
    pub(crate) fn take(&self, mail: &mut Mail) -> bool {
        if !self.has_mail.load(Ordering::Acquire) {
            return false;
        }
        let mut inside = self.lock();
        self.has_mail.store(false, Ordering::Release);
        mem::swap(&mut inside.mail, mail);
        true
    }

    /// The spout is about to rest: from now on mail wakes it. Says `false` if there is some already.
    pub(crate) fn rest(&self) -> bool {
        let mut inside = self.lock();
        inside.rests = inside.mail.is_empty();
        inside.rests
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A bolt instance's news for all spouts, gathered over a chunk.
#[derive(Debug, Default)]
pub(crate) struct Postman {
    mailboxes: Arc<[Arc<Mailbox>]>,
    bags: Vec<Mail>,
}

impl Postman {
    /// To these mailboxes, by the number of the spout instance; none if acks are off.
    pub(crate) fn new(mailboxes: Arc<[Arc<Mailbox>]>) -> Self {
        let bags = mailboxes.iter().map(|_| Mail::default()).collect();
        Postman { mailboxes, bags }
    }

    /// Notes that ids of a tree came or went. News of one tree in a row becomes one piece.
    #[inline]
    pub(crate) fn update(&mut self, root: Root, ids: u64) {
        let Some(bag) = self.bags.get_mut(root.task()) else {
            return;
        };
        match bag.updates.last_mut() {
            Some(last) if last.root == root => last.ids ^= ids,
            _ => bag.updates.push(Update { root, ids }),
        }
    }

    /// Notes that a tree has failed.
    pub(crate) fn fail(&mut self, root: Root) {
        if let Some(bag) = self.bags.get_mut(root.task()) {
            bag.failed.push(root);
        }
    }

    /// Delivers what has gathered.
    pub(crate) fn deliver(&mut self) {
        for (bag, mailbox) in self.bags.iter_mut().zip(self.mailboxes.iter()) {
            if !bag.is_empty() {
                mailbox.post(bag);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn a_resting_spout_is_woken_once() {
        let mailbox = Arc::new(Mailbox::default());
        let woken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&woken);
        mailbox.belongs_to(Waker::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        }));
        let mut postman = Postman::new(Arc::from([Arc::clone(&mailbox)]));
        let root = Root::new(0, 0, 0);
        assert!(mailbox.rest());
        for id in 1..=3 {
            postman.update(root, id);
            postman.deliver();
        }
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        assert!(!mailbox.rest(), "there is mail");
        let mut mail = Mail::default();
        assert!(mailbox.take(&mut mail));
        assert_eq!(mail.updates.len(), 3);
        assert!(mailbox.rest());
    }

    #[test]
    fn news_of_one_tree_in_a_row_is_one_piece() {
        let mailbox = Arc::new(Mailbox::default());
        let mut postman = Postman::new(Arc::from([Arc::clone(&mailbox)]));
        let (one, other) = (Root::new(0, 1, 0), Root::new(0, 2, 0));
        for (root, ids) in [(one, 1), (one, 2), (other, 4), (one, 8)] {
            postman.update(root, ids);
        }
        postman.update(Root::new(7, 0, 0), 1);
        postman.deliver();
        let mut mail = Mail::default();
        mailbox.take(&mut mail);
        let ids: Vec<u64> = mail.updates.iter().map(|update| update.ids).collect();
        assert_eq!(ids, [3, 4, 8]);
    }
}
