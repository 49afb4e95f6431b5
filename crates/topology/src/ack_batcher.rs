//! The acks of a bolt instance for all spouts, gathered over a chunk and sent at once.

use std::mem;
use std::sync::Arc;

use crate::ack_channel::AckQueues;
use crate::ack_queue::{AckMessages, AckQueue};
use crate::acker::Update;
use crate::anchor::{Root, Task};

/// The buffer of the acks that a bolt instance sends to spouts, over one chunk.
#[derive(Debug, Default)]
pub(crate) struct AckBatcher {
    /// The ack queues of all spouts; `None` if acks are off.
    queues: Option<Arc<AckQueues>>,
    buffers: Vec<InstanceAcks>,
    /// The position of each spout instance's buffer, if it has one.
    places: Vec<Vec<Option<usize>>>,
    /// The spout instance of the latest ack, and the position of its buffer.
    current: Option<(Task, usize)>,
    /// The acks for the current instance. They are moved to its buffer when another becomes
    /// current.
    pending: AckMessages,
    /// The buffers that may contain acks.
    filled: Vec<usize>,
}

/// The acks for one spout instance.
#[derive(Debug)]
struct InstanceAcks {
    queue: Arc<AckQueue>,
    pending: AckMessages,
    /// True if this buffer is in the list `filled`.
    is_filled: bool,
}

impl AckBatcher {
    /// Creates a batcher that sends to `mailboxes`; `None` if acks are off.
    pub(crate) fn new(mailboxes: Option<Arc<AckQueues>>) -> Self {
        AckBatcher {
            queues: mailboxes,
            ..AckBatcher::default()
        }
    }

    /// Records emitted or acked tuples of a tree, by the exclusive-or of their ids. Consecutive
    /// updates of one tree are merged.
    #[inline]
    pub(crate) fn update(&mut self, root: Root, ids: u64) {
        if !self.select(root.task()) {
            return;
        }
        let updates = &mut self.pending.updates;
        match updates.last_mut() {
            Some(last) if last.root == root => last.ids ^= ids,
            _ => updates.push(Update { root, ids }),
        }
    }

    /// Records that a tree has failed.
    pub(crate) fn fail(&mut self, root: Root) {
        if self.select(root.task()) {
            self.pending.failed.push(root);
        }
    }

    /// Sends all gathered acks.
    pub(crate) fn flush(&mut self) {
        self.store_current();
        for place in self.filled.drain(..) {
            if let Some(bag) = self.buffers.get_mut(place) {
                bag.is_filled = false;
                if !bag.pending.is_empty() {
                    bag.queue.push(&mut bag.pending);
                }
            }
        }
    }

    /// Makes `task` the current instance; returns false if no such spout exists.
    #[inline]
    fn select(&mut self, task: Task) -> bool {
        self.current.is_some_and(|(current, _)| current == task) || self.set_current(task)
    }

    /// Moves the acks of the current instance into its buffer, after which no instance is current.
    fn store_current(&mut self) {
        if let Some((_, place)) = self.current.take()
            && let Some(bag) = self.buffers.get_mut(place)
        {
            mem::swap(&mut bag.pending, &mut self.pending);
        }
    }

    fn set_current(&mut self, task: Task) -> bool {
        self.store_current();
        let instances = self.places.get(task.spout());
        let known = instances.and_then(|instances| *instances.get(task.instance() as usize)?);
        let Some(place) = known.or_else(|| self.add_buffer(task)) else {
            return false;
        };
        let Some(bag) = self.buffers.get_mut(place) else {
            return false;
        };
        if !bag.is_filled {
            bag.is_filled = true;
            self.filled.push(place);
        }
        mem::swap(&mut bag.pending, &mut self.pending);
        self.current = Some((task, place));
        true
    }

    /// Creates the buffer of `task`, which has none; returns its position.
    #[cold]
    fn add_buffer(&mut self, task: Task) -> Option<usize> {
        let mailbox = self.queues.as_ref()?.of(task)?;
        let place = self.buffers.len();
        self.buffers.push(InstanceAcks {
            queue: mailbox,
            pending: AckMessages::default(),
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
        let mailboxes = Arc::new(AckQueues::new(1));
        let mut postman = AckBatcher::new(Some(Arc::clone(&mailboxes)));
        let (one, other) = (root(0, 0, 1), root(0, 0, 2));
        for (root, ids) in [(one, 1), (one, 2), (other, 4), (one, 8)] {
            postman.update(root, ids);
        }
        // For a spout that does not exist.
        postman.update(root(7, 0, 0), 1);
        postman.flush();
        let mut mail = AckMessages::default();
        mailboxes.of(one.task()).unwrap().take(&mut mail);
        let ids: Vec<u64> = mail.updates.iter().map(|update| update.ids).collect();
        assert_eq!(ids, [3, 4, 8]);
    }

    #[test]
    fn each_instance_gets_its_own_news_however_they_are_mixed() {
        let mailboxes = Arc::new(AckQueues::new(2));
        let mut postman = AckBatcher::new(Some(Arc::clone(&mailboxes)));
        let tasks = [(0, 0), (1, 0), (1, 9_000), (0, 3)];
        for round in 0..3 {
            for (spout, instance) in tasks {
                postman.update(root(spout, instance, round), 1);
                postman.fail(root(spout, instance, round + 100));
            }
            postman.flush();
        }
        for (spout, instance) in tasks {
            let task = Task::new(spout, instance).unwrap();
            let mut mail = AckMessages::default();
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
