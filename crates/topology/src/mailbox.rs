//! Where the news for one spout instance wait: for the spout itself, or for whoever carries them to where it lives.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ardea_core::Waker;

use crate::acker::Update;
use crate::anchor::Root;
use crate::letter;

/// What has been posted.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    pub(crate) updates: Vec<Update>,
    pub(crate) failed: Vec<Root>,
    /// Whatever is pending may be lost.
    pub(crate) is_loss: bool,
}

impl Mail {
    pub(crate) fn is_empty(&self) -> bool {
        self.updates.is_empty() && self.failed.is_empty() && !self.is_loss
    }

    pub(crate) fn clear(&mut self) {
        self.updates.clear();
        self.failed.clear();
        self.is_loss = false;
    }

    /// Adds what is in `other`, which is empty then.
    fn append(&mut self, other: &mut Mail) {
        self.updates.append(&mut other.updates);
        self.failed.append(&mut other.failed);
        self.is_loss |= mem::take(&mut other.is_loss);
    }
}

/// The mailbox of one spout instance.
///
/// It has one reader at a time: a carrier if there is one, else the spout. Lock order: `bag` before `inside`.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    inside: Mutex<Inside>,
    /// Whether there is mail; looked at without the lock.
    has_mail: AtomicBool,
    /// Whether the instance lives elsewhere; changed under the lock, looked at without it.
    is_carried: AtomicBool,
    bag: Mutex<Bag>,
}

#[derive(Debug, Default)]
struct Inside {
    mail: Mail,
    /// Whether the reader rests and is to be woken.
    rests: bool,
    /// How many spouts it has belonged to.
    incarnation: u64,
    spout: Option<Waker>,
    carrier: Option<Waker>,
}

/// What a carrier has taken out and not yet put into letters.
#[derive(Debug, Default)]
struct Bag {
    mail: Mail,
    updates_sent: usize,
    failed_sent: usize,
}

impl Mailbox {
    /// Says whom to wake where the instance lives here; returns which incarnation of it this is.
    pub(crate) fn belongs_to(&self, spout: Waker) -> u64 {
        let mut inside = self.inside();
        inside.spout = Some(spout);
        inside.incarnation += 1;
        inside.incarnation
    }

    /// The spout of this incarnation has ended.
    pub(crate) fn leave(&self, incarnation: u64) {
        let mut inside = self.inside();
        if inside.incarnation == incarnation {
            inside.spout = None;
        }
    }

    /// Has the spout called, if it lives here.
    pub(crate) fn wake_spout(&self) {
        let spout = self.inside().spout.clone();
        if let Some(spout) = spout {
            spout.wake();
        }
    }

    /// From now on what is posted is for `carrier`.
    pub(crate) fn carry(&self, carrier: Waker) {
        let mut inside = self.inside();
        inside.carrier = Some(carrier.clone());
        inside.rests = false;
        self.is_carried.store(true, Ordering::Release);
        let spout = inside.spout.clone();
        drop(inside);
        // There may be mail already. A spout that lived here learns that it has moved.
        carrier.wake();
        if let Some(spout) = spout {
            spout.wake();
        }
    }

    /// From now on what is posted is for the spout, and so is what no letter has been made of.
    pub(crate) fn keep(&self) {
        let mut bag = self.bag();
        let left = bag.take_rest();
        let mut inside = self.inside();
        inside.carrier = None;
        self.is_carried.store(false, Ordering::Release);
        drop(bag);
        let mut mail = left;
        mail.append(&mut inside.mail);
        inside.mail = mail;
        self.notify(inside);
    }

    /// Whether the instance lives elsewhere.
    #[inline]
    pub(crate) fn is_carried(&self) -> bool {
        self.is_carried.load(Ordering::Acquire)
    }

    /// Posts news, which is then gone from `mail`.
    pub(crate) fn post(&self, mail: &mut Mail) {
        let mut inside = self.inside();
        inside.mail.append(mail);
        self.notify(inside);
    }

    /// Posts that whatever is pending may be lost, if the instance lives elsewhere.
    pub(crate) fn post_loss_elsewhere(&self) {
        let mut inside = self.inside();
        if inside.carrier.is_some() {
            inside.mail.is_loss = true;
            self.notify(inside);
        }
    }

    /// Posts the news of a letter.
    pub(crate) fn post_letter(&self, letter: &letter::Letter<'_>) {
        let mut inside = self.inside();
        inside.mail.updates.extend(letter.updates());
        inside.mail.failed.extend(letter.failed());
        inside.mail.is_loss |= letter.is_loss();
        self.notify(inside);
    }

    /// Says that there may be mail.
    fn notify(&self, mut inside: MutexGuard<'_, Inside>) {
        if inside.mail.is_empty() {
            return;
        }
        self.has_mail.store(true, Ordering::Release);
        if !mem::take(&mut inside.rests) {
            return;
        }
        let reader = inside.carrier.as_ref().or(inside.spout.as_ref()).cloned();
        drop(inside);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// For the spout: exchanges what has come for the emptied `mail`; says whether anything had come.
    pub(crate) fn take(&self, mail: &mut Mail) -> bool {
        if !self.has_mail.load(Ordering::Acquire) || self.is_carried() {
            return false;
        }
        let mut inside = self.inside();
        if inside.carrier.is_some() {
            return false;
        }
        self.has_mail.store(false, Ordering::Release);
        mem::swap(&mut inside.mail, mail);
        true
    }

    /// For the spout, which is about to rest: from now on mail wakes it. Says `false` if there is some already.
    pub(crate) fn rest(&self) -> bool {
        let mut inside = self.inside();
        if inside.carrier.is_some() {
            return true;
        }
        inside.rests = inside.mail.is_empty();
        inside.rests
    }

    /// For a carrier: appends one letter to `out`. If there is nothing it says `false`, and from now on mail wakes the carrier.
    pub(crate) fn collect(&self, out: &mut Vec<u8>) -> bool {
        let mut bag = self.bag();
        if bag.is_read() {
            bag.clear();
            let mut inside = self.inside();
            if inside.carrier.is_none() {
                return false;
            }
            if inside.mail.is_empty() {
                inside.rests = true;
                return false;
            }
            self.has_mail.store(false, Ordering::Release);
            mem::swap(&mut inside.mail, &mut bag.mail);
        }
        let Bag {
            mail,
            updates_sent,
            failed_sent,
        } = &mut *bag;
        let (updates, failed) = letter::write(
            mail.updates.get(*updates_sent..).unwrap_or_default(),
            mail.failed.get(*failed_sent..).unwrap_or_default(),
            mem::take(&mut mail.is_loss),
            out,
        );
        *updates_sent += updates;
        *failed_sent += failed;
        true
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bag(&self) -> MutexGuard<'_, Bag> {
        self.bag.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bag {
    fn is_read(&self) -> bool {
        self.updates_sent >= self.mail.updates.len()
            && self.failed_sent >= self.mail.failed.len()
            && !self.mail.is_loss
    }

    fn clear(&mut self) {
        self.mail.clear();
        (self.updates_sent, self.failed_sent) = (0, 0);
    }

    /// What has not been put into letters; the bag is empty then.
    fn take_rest(&mut self) -> Mail {
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

    fn news(ids: impl IntoIterator<Item = u64>) -> Mail {
        let updates = ids.into_iter().map(|ids| Update { root: root(1), ids });
        Mail {
            updates: updates.collect(),
            ..Mail::default()
        }
    }

    #[test]
    fn a_loss_is_told_elsewhere_once_and_stays_when_the_spout_comes_back() {
        let mailbox = Mailbox::default();
        mailbox.belongs_to(Waker::none());
        mailbox.post_loss_elsewhere();
        assert!(mailbox.rest(), "the spout lives here");
        mailbox.carry(Waker::none());
        mailbox.post_loss_elsewhere();
        let mut bytes = Vec::new();
        assert!(mailbox.collect(&mut bytes));
        let letter = letter::Letter::read(&bytes, root(0).task()).unwrap();
        assert!(letter.is_loss());
        assert!(!mailbox.collect(&mut Vec::new()));
        mailbox.post_loss_elsewhere();
        mailbox.keep();
        let mut mail = Mail::default();
        assert!(mailbox.take(&mut mail) && mail.is_loss);
    }

    #[test]
    fn a_resting_spout_is_woken_once() {
        let mailbox = Mailbox::default();
        let (waker, woken) = counting();
        mailbox.belongs_to(waker);
        assert!(mailbox.rest());
        for id in 1..=3 {
            mailbox.post(&mut news([id]));
        }
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        assert!(!mailbox.rest(), "there is mail");
        let mut mail = Mail::default();
        assert!(mailbox.take(&mut mail));
        assert_eq!(mail.updates.len(), 3);
        assert!(mailbox.rest());
    }

    #[test]
    fn a_carrier_gets_what_came_before_it_and_is_woken_when_more_comes() {
        let mailbox = Mailbox::default();
        let (waker, woken) = counting();
        mailbox.post(&mut news([1, 2]));
        mailbox.carry(waker);
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        let mut out = Vec::new();
        assert!(mailbox.collect(&mut out) && !out.is_empty());
        assert!(!mailbox.collect(&mut out));
        mailbox.post(&mut news([3]));
        mailbox.post(&mut news([4]));
        assert_eq!(woken.load(Ordering::SeqCst), 2);
        assert!(!mailbox.take(&mut Mail::default()), "the spout is not here");
    }

    #[test]
    fn what_a_carrier_had_not_sent_goes_to_a_spout_that_comes_back() {
        let mailbox = Mailbox::default();
        let (spout, woken) = counting();
        mailbox.carry(Waker::none());
        mailbox.post(&mut news(0..10_000));
        let mut letter = Vec::new();
        assert!(mailbox.collect(&mut letter));
        let sent = letter::Letter::read(&letter, Task::new(0, 0).unwrap())
            .unwrap()
            .updates()
            .len();
        assert!(0 < sent && sent < 10_000);
        mailbox.post(&mut news([10_000]));
        mailbox.belongs_to(spout);
        assert!(mailbox.rest(), "the mail is not the spout's");
        mailbox.keep();
        let mut mail = Mail::default();
        assert!(mailbox.take(&mut mail));
        let ids: Vec<u64> = mail.updates.iter().map(|update| update.ids).collect();
        assert_eq!(ids, (sent as u64..=10_000).collect::<Vec<_>>());
        assert!(!mailbox.collect(&mut letter));
        assert!(mailbox.rest());
        mailbox.post(&mut news([1]));
        assert_eq!(woken.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn an_incarnation_that_ends_late_takes_nothing_from_its_successor() {
        let mailbox = Mailbox::default();
        let first = mailbox.belongs_to(Waker::none());
        let (waker, woken) = counting();
        let second = mailbox.belongs_to(waker);
        mailbox.leave(first);
        mailbox.wake_spout();
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        mailbox.leave(second);
        mailbox.wake_spout();
        assert_eq!(woken.load(Ordering::SeqCst), 1);
    }

    /// Reads as a spout and as a carrier in turn, until `done` says so and nothing is left.
    fn read_all(mailbox: &Mailbox, done: impl Fn() -> bool) -> Vec<u64> {
        let (mut ids, mut mail) = (Vec::new(), Mail::default());
        loop {
            let is_done = done();
            mailbox.carry(Waker::none());
            let mut letter = Vec::new();
            // Often leaves some for the spout.
            if mailbox.collect(&mut letter) {
                let letter = letter::Letter::read(&letter, root(0).task()).unwrap();
                ids.extend(letter.updates().map(|update| update.ids));
            }
            mailbox.keep();
            if mailbox.take(&mut mail) {
                ids.extend(mail.updates.iter().map(|update| update.ids));
                mail.clear();
            }
            if is_done && mailbox.rest() {
                return ids;
            }
        }
    }

    #[test]
    fn nothing_is_lost_or_doubled_however_often_its_reader_changes() {
        const EACH: u64 = 50_000;
        let (mailbox, posted) = (Mailbox::default(), AtomicUsize::new(0));
        let mut ids = std::thread::scope(|scope| {
            for poster in 0..2 {
                let (mailbox, posted) = (&mailbox, &posted);
                scope.spawn(move || {
                    let ids = poster * EACH..(poster + 1) * EACH;
                    let ids: Vec<u64> = ids.collect();
                    ids.chunks(100)
                        .for_each(|ids| mailbox.post(&mut news(ids.iter().copied())));
                    posted.fetch_add(1, Ordering::SeqCst);
                });
            }
            read_all(&mailbox, || posted.load(Ordering::SeqCst) == 2)
        });
        ids.sort_unstable();
        assert_eq!(ids, (0..2 * EACH).collect::<Vec<_>>());
    }
}
