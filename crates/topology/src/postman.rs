//! A bolt instance's news for all spouts, gathered over a chunk and posted in one go.

use std::sync::Arc;

use crate::ack_channel::Mailboxes;
use crate::acker::Update;
use crate::anchor::{Root, Task};
use crate::mailbox::{Mail, Mailbox};

/// A bolt instance's news for all spouts, gathered over a chunk.
#[derive(Debug, Default)]
pub(crate) struct Postman {
    /// None if acks are off.
    mailboxes: Option<Arc<Mailboxes>>,
    bags: Vec<Bag>,
    /// Where the bag of each spout's each instance is, if there has been news for it.
    places: Vec<Vec<Option<usize>>>,
    /// The bag that the latest news went into.
    current: Option<(Task, usize)>,
    /// The bags that may have something in them.
    filled: Vec<usize>,
}

/// The news for one spout instance.
#[derive(Debug)]
struct Bag {
    mailbox: Arc<Mailbox>,
    mail: Mail,
    /// Whether it is among the filled ones.
    is_filled: bool,
}

impl Postman {
    /// To these mailboxes; none if acks are off.
    pub(crate) fn new(mailboxes: Option<Arc<Mailboxes>>) -> Self {
        Postman {
            mailboxes,
            ..Postman::default()
        }
    }

    /// Notes that ids of a tree came or went. News of one tree in a row becomes one piece.
    #[inline]
    pub(crate) fn update(&mut self, root: Root, ids: u64) {
        let Some(mail) = self.mail_for(root.task()) else {
            return;
        };
        match mail.updates.last_mut() {
            Some(last) if last.root == root => last.ids ^= ids,
            _ => mail.updates.push(Update { root, ids }),
        }
    }

    /// Notes that a tree has failed.
    pub(crate) fn fail(&mut self, root: Root) {
        if let Some(mail) = self.mail_for(root.task()) {
            mail.failed.push(root);
        }
    }

    /// Posts what has gathered.
    pub(crate) fn deliver(&mut self) {
        self.current = None;
        for place in self.filled.drain(..) {
            if let Some(bag) = self.bags.get_mut(place) {
                bag.is_filled = false;
                if !bag.mail.is_empty() {
                    bag.mailbox.post(&mut bag.mail);
                }
            }
        }
    }

    #[inline]
    fn mail_for(&mut self, task: Task) -> Option<&mut Mail> {
        let place = match self.current {
            Some((current, place)) if current == task => place,
            _ => self.turn_to(task)?,
        };
        self.bags.get_mut(place).map(|bag| &mut bag.mail)
    }

    /// The place of the bag for this instance, which is the current one then; none for spouts that there are not.
    fn turn_to(&mut self, task: Task) -> Option<usize> {
        let instances = self.places.get(task.spout());
        let known = instances.and_then(|instances| *instances.get(task.instance() as usize)?);
        let place = match known {
            Some(place) => place,
            None => self.meet(task)?,
        };
        let bag = self.bags.get_mut(place)?;
        if !bag.is_filled {
            bag.is_filled = true;
            self.filled.push(place);
        }
        self.current = Some((task, place));
        Some(place)
    }

    /// Makes a bag for an instance that there has been no news for.
    #[cold]
    fn meet(&mut self, task: Task) -> Option<usize> {
        let mailbox = self.mailboxes.as_ref()?.of(task)?;
        let place = self.bags.len();
        self.bags.push(Bag {
            mailbox,
            mail: Mail::default(),
            is_filled: false,
        });
        let (spout, instance) = (task.spout(), task.instance() as usize);
        if self.places.len() <= spout {
            self.places.resize_with(spout + 1, Vec::new);
        }
        let instances = &mut self.places[spout];
        if instances.len() <= instance {
            instances.resize(instance + 1, None);
        }
        instances[instance] = Some(place);
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(spout: usize, instance: u32, slot: u32) -> Root {
        Root::new(Task::new(spout, instance).unwrap(), slot, 0)
    }

    #[test]
    fn news_of_one_tree_in_a_row_is_one_piece() {
        let mailboxes = Arc::new(Mailboxes::new(1));
        let mut postman = Postman::new(Some(Arc::clone(&mailboxes)));
        let (one, other) = (root(0, 0, 1), root(0, 0, 2));
        for (root, ids) in [(one, 1), (one, 2), (other, 4), (one, 8)] {
            postman.update(root, ids);
        }
        // Of a spout that there is not.
        postman.update(root(7, 0, 0), 1);
        postman.deliver();
        let mut mail = Mail::default();
        mailboxes.of(one.task()).unwrap().take(&mut mail);
        let ids: Vec<u64> = mail.updates.iter().map(|update| update.ids).collect();
        assert_eq!(ids, [3, 4, 8]);
    }

    #[test]
    fn each_instance_gets_its_own_news_however_they_are_mixed() {
        let mailboxes = Arc::new(Mailboxes::new(2));
        let mut postman = Postman::new(Some(Arc::clone(&mailboxes)));
        let tasks = [(0, 0), (1, 0), (1, 9_000), (0, 3)];
        for round in 0..3 {
            for (spout, instance) in tasks {
                postman.update(root(spout, instance, round), 1);
                postman.fail(root(spout, instance, round + 100));
            }
            postman.deliver();
        }
        for (spout, instance) in tasks {
            let task = Task::new(spout, instance).unwrap();
            let mut mail = Mail::default();
            assert!(mailboxes.of(task).unwrap().take(&mut mail));
            assert!(mail.updates.iter().all(|update| update.root.task() == task));
            let slots: Vec<usize> = mail
                .updates
                .iter()
                .map(|update| update.root.slot())
                .collect();
            assert_eq!((slots, mail.failed.len()), (vec![0, 1, 2], 3));
        }
    }
}
