//! A bolt instance's news for all spouts, gathered over a chunk and posted in one go.

use std::mem;
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
    /// The instance that the latest news is for, and the place of its bag.
    current: Option<(Task, usize)>,
    /// Its news; they lie here, and not in the bag, as long as it is the current one.
    mail: Mail,
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
        if !self.is_for(root.task()) {
            return;
        }
        let updates = &mut self.mail.updates;
        match updates.last_mut() {
            Some(last) if last.root == root => last.ids ^= ids,
            _ => updates.push(Update { root, ids }),
        }
    }

    /// Notes that a tree has failed.
    pub(crate) fn fail(&mut self, root: Root) {
        if self.is_for(root.task()) {
            self.mail.failed.push(root);
        }
    }

    /// Posts what has gathered.
    pub(crate) fn deliver(&mut self) {
        self.put_back();
        for place in self.filled.drain(..) {
            if let Some(bag) = self.bags.get_mut(place) {
                bag.is_filled = false;
                if !bag.mail.is_empty() {
                    bag.mailbox.post(&mut bag.mail);
                }
            }
        }
    }

    /// Makes this instance the current one; says whether there can be such an instance.
    #[inline]
    fn is_for(&mut self, task: Task) -> bool {
        self.current.is_some_and(|(current, _)| current == task) || self.turn_to(task)
    }

    /// Puts the news for the current instance into its bag: nobody is the current one then.
    fn put_back(&mut self) {
        if let Some((_, place)) = self.current.take()
            && let Some(bag) = self.bags.get_mut(place)
        {
            mem::swap(&mut bag.mail, &mut self.mail);
        }
    }

    fn turn_to(&mut self, task: Task) -> bool {
        self.put_back();
        let instances = self.places.get(task.spout());
        let known = instances.and_then(|instances| *instances.get(task.instance() as usize)?);
        let Some(place) = known.or_else(|| self.meet(task)) else {
            return false;
        };
        let Some(bag) = self.bags.get_mut(place) else {
            return false;
        };
        if !bag.is_filled {
            bag.is_filled = true;
            self.filled.push(place);
        }
        mem::swap(&mut bag.mail, &mut self.mail);
        self.current = Some((task, place));
        true
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
