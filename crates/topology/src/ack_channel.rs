//! The way back: how bolts tell a spout instance what became of its tuples.
//!
//! Acks flow against the arrows of the graph, so they are no edge of it: the graph has no cycle, and a bounded queue from bolt to spout would
//! stop both when the spout waits for room downstream. A [mailbox](Mailbox) lies beside the graph instead. A bolt gathers the news of a whole
//! chunk and posts it in one go; the spout takes all that has come in one go. What lies in a mailbox is bounded by what is
//! in flight, which the queues of the graph and the greatest number of pending tuples bound.
//!
//! Where a topology is spread over several processes, each of them has a mailbox for every spout instance that it hears of, wherever that
//! lives; whoever runs the topology there carries the mail of those that live elsewhere, as [letters](crate::letter).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::{Error, ErrorCode, MessageReport, Result, SideChannel, VertexId, Waker};

use crate::anchor::Task;
use crate::letter::Letter;
use crate::mailbox::Mailbox;
use crate::roster::Roster;
use crate::running::SpoutInstances;

/// The mailboxes of one spout, by instance.
type OfSpout = Mutex<BTreeMap<u32, Arc<Mailbox>>>;

/// The mailboxes of all spout instances, made when somebody first asks for one.
#[derive(Debug)]
pub(crate) struct Mailboxes {
    spouts: Box<[OfSpout]>,
    /// How many processes that run a part of the topology have been lost.
    losses: AtomicU64,
}

impl Mailboxes {
    /// For a topology with so many spouts.
    pub(crate) fn new(spouts: usize) -> Self {
        Mailboxes {
            spouts: (0..spouts).map(|_| Mutex::default()).collect(),
            losses: AtomicU64::new(0),
        }
    }

    /// The mailbox of an instance; none of a spout that there is not.
    pub(crate) fn of(&self, task: Task) -> Option<Arc<Mailbox>> {
        let mut instances = lock(self.spouts.get(task.spout())?);
        Some(Arc::clone(instances.entry(task.instance()).or_default()))
    }

    /// How many processes that run a part of the topology have been lost.
    #[inline]
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// A process was lost: every spout instance that lives here is to hear of it.
    fn lose(&self) {
        self.losses.fetch_add(1, Ordering::AcqRel);
        for instances in &self.spouts {
            let mailboxes: Vec<Arc<Mailbox>> = lock(instances).values().cloned().collect();
            mailboxes.iter().for_each(|mailbox| mailbox.wake_spout());
        }
    }

    /// An instance was lost: every spout instance is to hear of it, wherever it lives.
    fn lose_everywhere(&self) {
        self.lose();
        for instances in &self.spouts {
            let mailboxes: Vec<Arc<Mailbox>> = lock(instances).values().cloned().collect();
            mailboxes.iter().for_each(|it| it.post_loss_elsewhere());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a topology's instances tell each other beside the graph: acks, and how many instances there are.
#[derive(Debug)]
pub(crate) struct AckChannel {
    /// The spouts, in the order of the topology; none if acks are off.
    spouts: Vec<VertexId>,
    mailboxes: Arc<Mailboxes>,
    /// By vertex.
    roster: Arc<Roster>,
    /// Of all spouts, followed or not.
    instances: Vec<Arc<SpoutInstances>>,
}

impl AckChannel {
    pub(crate) fn new(
        spouts: Vec<VertexId>,
        mailboxes: Arc<Mailboxes>,
        roster: Arc<Roster>,
        instances: Vec<Arc<SpoutInstances>>,
    ) -> Self {
        AckChannel {
            instances,
            spouts,
            mailboxes,
            roster,
        }
    }

    fn task(&self, vertex: VertexId, instance: u32) -> Option<Task> {
        let spout = self.spouts.iter().position(|spout| *spout == vertex)?;
        Task::new(spout, instance)
    }

    fn mailbox(&self, vertex: VertexId, instance: u32) -> Option<Arc<Mailbox>> {
        self.mailboxes.of(self.task(vertex, instance)?)
    }
}

impl SideChannel for AckChannel {
    fn name(&self) -> &str {
        "acks"
    }

    fn vertices(&self) -> &[VertexId] {
        &self.spouts
    }

    fn carry(&self, vertex: VertexId, instance: u32, carrier: Waker) {
        if let Some(mailbox) = self.mailbox(vertex, instance) {
            mailbox.carry(carrier);
        }
    }

    fn keep(&self, vertex: VertexId, instance: u32) {
        if let Some(mailbox) = self.mailbox(vertex, instance) {
            mailbox.keep();
        }
    }

    fn collect(&self, vertex: VertexId, instance: u32, out: &mut Vec<u8>) -> bool {
        let mailbox = self.mailbox(vertex, instance);
        mailbox.is_some_and(|mailbox| mailbox.collect(out))
    }

    fn deliver(&self, vertex: VertexId, instance: u32, letter: &[u8]) -> Result<()> {
        let task = self.task(vertex, instance);
        let found = task.and_then(|task| Some((task, self.mailboxes.of(task)?)));
        let Some((task, mailbox)) = found else {
            let what = format!(
                "a letter came for instance {instance} of vertex {}, which has no mailbox",
                vertex.index()
            );
            return Err(Error::new(ErrorCode::BadRecord, what)
                .hint("check that all workers run the same version of the topology"));
        };
        mailbox.post_letter(&Letter::read(letter, task)?);
        Ok(())
    }

    fn process_lost(&self) {
        self.mailboxes.lose();
    }

    fn instance_lost(&self, vertex: VertexId) {
        // With a spout's instance its accounts are gone as well: nobody else's messages are.
        if !self.spouts.contains(&vertex) {
            self.mailboxes.lose_everywhere();
        }
    }

    fn rescaled(&self, vertex: VertexId, parallelism: u32) {
        self.roster.rescale(vertex.index(), parallelism);
    }

    fn messages(&self) -> Vec<MessageReport> {
        let instances = self.instances.iter();
        instances.flat_map(|spout| spout.reports()).collect()
    }
}
