//! The queue of acks for one spout instance, read by the spout or by the transport to its process.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ardea_core::Waker;

use crate::ack_batch;
use crate::acker::Update;
use crate::anchor::Root;

/// The acks queued for one spout instance.
#[derive(Debug, Default)]
pub(crate) struct AckMessages {
    pub(crate) updates: Vec<Update>,
    pub(crate) failed: Vec<Root>,
    /// True if pending messages may be lost.
    pub(crate) is_loss: bool,
}

impl AckMessages {
    pub(crate) fn is_empty(&self) -> bool {
        self.updates.is_empty() && self.failed.is_empty() && !self.is_loss
    }

    pub(crate) fn clear(&mut self) {
        self.updates.clear();
        self.failed.clear();
        self.is_loss = false;
    }

    /// Moves the contents of `other` to the end of this value.
    fn append(&mut self, other: &mut AckMessages) {
        self.updates.append(&mut other.updates);
        self.failed.append(&mut other.failed);
        self.is_loss |= mem::take(&mut other.is_loss);
    }
}

/// The ack queue of one spout instance.
///
/// The queue has one reader at a time: the transport if there is one, otherwise the spout. Lock
/// order: `outgoing` before `state`.
#[derive(Debug, Default)]
pub(crate) struct AckQueue {
    state: Mutex<AckQueueState>,
    /// True if there are acks; read without the lock.
    has_acks: AtomicBool,
    /// True if the instance is remote; written under the lock, read without it.
    is_remote: AtomicBool,
    outgoing: Mutex<AckBuffer>,
}

#[derive(Debug, Default)]
struct AckQueueState {
    mail: AckMessages,
    /// True if the reader waits and must be woken.
    is_waiting: bool,
    /// The number of spout incarnations so far.
    incarnation: u64,
    spout: Option<Waker>,
    transport: Option<Waker>,
}

/// The acks that the transport has taken and not yet encoded.
#[derive(Debug, Default)]
struct AckBuffer {
    mail: AckMessages,
    updates_sent: usize,
    failed_sent: usize,
}

impl AckQueue {
    /// Sets the waker of a spout that starts in this process; returns the number of its
    /// incarnation.
    pub(crate) fn set_spout(&self, spout: Waker) -> u64 {
        let mut inside = self.inside();
        inside.spout = Some(spout);
        inside.incarnation += 1;
        inside.incarnation
    }

    /// Removes the waker of the spout `incarnation`, which has ended.
    pub(crate) fn remove_spout(&self, incarnation: u64) {
        let mut inside = self.inside();
        if inside.incarnation == incarnation {
            inside.spout = None;
        }
    }

    /// Wakes the spout, if it is local.
    pub(crate) fn wake_spout(&self) {
        let spout = self.inside().spout.clone();
        if let Some(spout) = spout {
            spout.wake();
        }
    }

    /// Routes acks to the transport from now on; `carrier` wakes the transport.
    pub(crate) fn route_to_transport(&self, carrier: Waker) {
        let mut inside = self.inside();
        inside.transport = Some(carrier.clone());
        inside.is_waiting = false;
        self.is_remote.store(true, Ordering::Release);
        let spout = inside.spout.clone();
        drop(inside);
        // There may be acks already. A spout that was local must notice that it has moved.
        carrier.wake();
        if let Some(spout) = spout {
            spout.wake();
        }
    }

    /// Routes acks to the local spout from now on, including those not yet encoded.
    pub(crate) fn route_to_spout(&self) {
        let mut bag = self.bag();
        let left = bag.take_unsent();
        let mut inside = self.inside();
        inside.transport = None;
        self.is_remote.store(false, Ordering::Release);
        drop(bag);
        let mut mail = left;
        mail.append(&mut inside.mail);
        inside.mail = mail;
        self.notify(inside);
    }

    /// Returns true if the instance is remote.
    #[inline]
    pub(crate) fn is_remote(&self) -> bool {
        self.is_remote.load(Ordering::Acquire)
    }

    /// Queues acks, and empties `mail`.
    pub(crate) fn push(&self, mail: &mut AckMessages) {
        let mut inside = self.inside();
        inside.mail.append(mail);
        self.notify(inside);
    }

    /// Queues the loss of pending messages, if the instance is remote.
    pub(crate) fn push_loss_if_remote(&self) {
        let mut inside = self.inside();
        if inside.transport.is_some() {
            inside.mail.is_loss = true;
            self.notify(inside);
        }
    }

    /// Queues the contents of an ack batch.
    pub(crate) fn push_batch(&self, letter: &ack_batch::AckBatch<'_>) {
        let mut inside = self.inside();
        inside.mail.updates.extend(letter.updates());
        inside.mail.failed.extend(letter.failed());
        inside.mail.is_loss |= letter.is_loss();
        self.notify(inside);
    }

    /// Wakes the reader if it waits and there are acks.
    fn notify(&self, mut inside: MutexGuard<'_, AckQueueState>) {
        if inside.mail.is_empty() {
            return;
        }
        self.has_acks.store(true, Ordering::Release);
        if !mem::take(&mut inside.is_waiting) {
            return;
        }
        let reader = inside.transport.as_ref().or(inside.spout.as_ref()).cloned();
        drop(inside);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Swaps the queued acks with the empty `mail`, for the spout. Returns true if there were any.
    pub(crate) fn take(&self, mail: &mut AckMessages) -> bool {
        if !self.has_acks.load(Ordering::Acquire) || self.is_remote() {
            return false;
        }
        let mut inside = self.inside();
        if inside.transport.is_some() {
            return false;
        }
        self.has_acks.store(false, Ordering::Release);
        mem::swap(&mut inside.mail, mail);
        true
    }

    /// Prepares the spout for waiting: the next acks wake it. Returns false if acks are queued
    /// already.
    pub(crate) fn prepare_wait(&self) -> bool {
        let mut inside = self.inside();
        if inside.transport.is_some() {
            return true;
        }
        inside.is_waiting = inside.mail.is_empty();
        inside.is_waiting
    }

    /// Appends one ack batch to `out`, for the transport. Returns false if no acks are queued; the
    /// next acks then wake the transport.
    pub(crate) fn encode_batch(&self, out: &mut Vec<u8>) -> bool {
        let mut bag = self.bag();
        if bag.is_read() {
            bag.clear();
            let mut inside = self.inside();
            if inside.transport.is_none() {
                return false;
            }
            if inside.mail.is_empty() {
                inside.is_waiting = true;
                return false;
            }
            self.has_acks.store(false, Ordering::Release);
            mem::swap(&mut inside.mail, &mut bag.mail);
        }
        let AckBuffer {
            mail,
            updates_sent,
            failed_sent,
        } = &mut *bag;
        let (updates, failed) = ack_batch::write(
            mail.updates.get(*updates_sent..).unwrap_or_default(),
            mail.failed.get(*failed_sent..).unwrap_or_default(),
            mem::take(&mut mail.is_loss),
            out,
        );
        *updates_sent += updates;
        *failed_sent += failed;
        true
    }

    fn inside(&self) -> MutexGuard<'_, AckQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bag(&self) -> MutexGuard<'_, AckBuffer> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AckBuffer {
    fn is_read(&self) -> bool {
        self.updates_sent >= self.mail.updates.len()
            && self.failed_sent >= self.mail.failed.len()
            && !self.mail.is_loss
    }

    fn clear(&mut self) {
        self.mail.clear();
        (self.updates_sent, self.failed_sent) = (0, 0);
    }

    /// Takes the acks that are not encoded yet, and empties the buffer.
    fn take_unsent(&mut self) -> AckMessages {
        let mut mail = mem::take(&mut self.mail);
        mail.updates
            .drain(..self.updates_sent.min(mail.updates.len()));
        mail.failed.drain(..self.failed_sent.min(mail.failed.len()));
        (self.updates_sent, self.failed_sent) = (0, 0);
        mail
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::anchor::Task;

    fn counting() -> (Waker, Arc<AtomicUsize>) {
        let woken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&woken);
        let waker = Waker::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        (waker, woken)
    }

    fn root(slot: u32) -> Root {
        Root::new(Task::new(0, 0).unwrap(), slot, 0)
    }

    fn news(ids: impl IntoIterator<Item = u64>) -> AckMessages {
        let updates = ids.into_iter().map(|ids| Update { root: root(1), ids });
        AckMessages {
            updates: updates.collect(),
            ..AckMessages::default()
        }
    }

    #[test]
    fn a_loss_is_told_elsewhere_once_and_stays_when_the_spout_comes_back() {
        let mailbox = AckQueue::default();
        mailbox.set_spout(Waker::none());
        mailbox.push_loss_if_remote();
        assert!(mailbox.prepare_wait(), "the spout lives here");
        mailbox.route_to_transport(Waker::none());
        mailbox.push_loss_if_remote();
        let mut bytes = Vec::new();
        assert!(mailbox.encode_batch(&mut bytes));
        let letter = ack_batch::AckBatch::read(&bytes, root(0).task()).unwrap();
        assert!(letter.is_loss());
        assert!(!mailbox.encode_batch(&mut Vec::new()));
        mailbox.push_loss_if_remote();
        mailbox.route_to_spout();
        let mut mail = AckMessages::default();
        assert!(mailbox.take(&mut mail) && mail.is_loss);
    }

    #[test]
    fn a_resting_spout_is_woken_once() {
        let mailbox = AckQueue::default();
        let (waker, woken) = counting();
        mailbox.set_spout(waker);
        assert!(mailbox.prepare_wait());
        for id in 1..=3 {
            mailbox.push(&mut news([id]));
        }
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        assert!(!mailbox.prepare_wait(), "there is mail");
        let mut mail = AckMessages::default();
        assert!(mailbox.take(&mut mail));
        assert_eq!(mail.updates.len(), 3);
        assert!(mailbox.prepare_wait());
    }

    #[test]
    fn a_carrier_gets_what_came_before_it_and_is_woken_when_more_comes() {
        let mailbox = AckQueue::default();
        let (waker, woken) = counting();
        mailbox.push(&mut news([1, 2]));
        mailbox.route_to_transport(waker);
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        let mut out = Vec::new();
        assert!(mailbox.encode_batch(&mut out) && !out.is_empty());
        assert!(!mailbox.encode_batch(&mut out));
        mailbox.push(&mut news([3]));
        mailbox.push(&mut news([4]));
        assert_eq!(woken.load(Ordering::SeqCst), 2);
        assert!(
            !mailbox.take(&mut AckMessages::default()),
            "the spout is not here"
        );
    }

    #[test]
    fn what_a_carrier_had_not_sent_goes_to_a_spout_that_comes_back() {
        let mailbox = AckQueue::default();
        let (spout, woken) = counting();
        mailbox.route_to_transport(Waker::none());
        mailbox.push(&mut news(0..10_000));
        let mut letter = Vec::new();
        assert!(mailbox.encode_batch(&mut letter));
        let sent = ack_batch::AckBatch::read(&letter, Task::new(0, 0).unwrap())
            .unwrap()
            .updates()
            .len();
        assert!(0 < sent && sent < 10_000);
        mailbox.push(&mut news([10_000]));
        mailbox.set_spout(spout);
        assert!(mailbox.prepare_wait(), "the mail is not the spout's");
        mailbox.route_to_spout();
        let mut mail = AckMessages::default();
        assert!(mailbox.take(&mut mail));
        let ids: Vec<u64> = mail.updates.iter().map(|update| update.ids).collect();
        assert_eq!(ids, (sent as u64..=10_000).collect::<Vec<_>>());
        assert!(!mailbox.encode_batch(&mut letter));
        assert!(mailbox.prepare_wait());
        mailbox.push(&mut news([1]));
        assert_eq!(woken.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn an_incarnation_that_ends_late_takes_nothing_from_its_successor() {
        let mailbox = AckQueue::default();
        let first = mailbox.set_spout(Waker::none());
        let (waker, woken) = counting();
        let second = mailbox.set_spout(waker);
        mailbox.remove_spout(first);
        mailbox.wake_spout();
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        mailbox.remove_spout(second);
        mailbox.wake_spout();
        assert_eq!(woken.load(Ordering::SeqCst), 1);
    }

    /// Reads as spout and transport in turn, until `done` and nothing is left.
    fn read_all(mailbox: &AckQueue, done: impl Fn() -> bool) -> Vec<u64> {
        let (mut ids, mut mail) = (Vec::new(), AckMessages::default());
        loop {
            let is_done = done();
            mailbox.route_to_transport(Waker::none());
            let mut letter = Vec::new();
            // Often leaves some for the spout.
            if mailbox.encode_batch(&mut letter) {
                let letter = ack_batch::AckBatch::read(&letter, root(0).task()).unwrap();
                ids.extend(letter.updates().map(|update| update.ids));
            }
            mailbox.route_to_spout();
            if mailbox.take(&mut mail) {
                ids.extend(mail.updates.iter().map(|update| update.ids));
                mail.clear();
            }
            if is_done && mailbox.prepare_wait() {
                return ids;
            }
        }
    }

    #[test]
    fn nothing_is_lost_or_doubled_however_often_its_reader_changes() {
        const EACH: u64 = 50_000;
        let (mailbox, posted) = (AckQueue::default(), AtomicUsize::new(0));
        let mut ids = std::thread::scope(|scope| {
            for poster in 0..2 {
                let (mailbox, posted) = (&mailbox, &posted);
                scope.spawn(move || {
                    let ids = poster * EACH..(poster + 1) * EACH;
                    let ids: Vec<u64> = ids.collect();
                    ids.chunks(100)
                        .for_each(|ids| mailbox.push(&mut news(ids.iter().copied())));
                    posted.fetch_add(1, Ordering::SeqCst);
                });
            }
            read_all(&mailbox, || posted.load(Ordering::SeqCst) == 2)
        });
        ids.sort_unstable();
        assert_eq!(ids, (0..2 * EACH).collect::<Vec<_>>());
    }
}
