//! The ack channel, through which bolts report to spout instances whether their tuples were
//! processed.
//!
//! Acks flow against the edges of the graph, so they cannot use edges: the graph must have no
//! cycle. A bounded queue from bolt to spout could deadlock while the spout waits for room
//! downstream. Instead there is an [ack queue](AckQueue) per spout instance. A bolt gathers the
//! acks of a chunk and sends them at once; the spout takes all waiting acks at once. The size of a
//! queue is bounded by the tuples in flight, which the queues of the graph and the maximum number
//! of pending messages bound.
//!
//! If a topology runs in several processes, each process has an ack queue for every spout instance
//! that it sends acks to. The runtime transfers the acks of remote instances as [ack
//! batches](crate::ack_batch).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_core::{Backchannel, Error, ErrorCode, MessageReport, Result, VertexId, Waker};

use crate::ack_batch::AckBatch;
use crate::ack_queue::AckQueue;
use crate::anchor::Task;
use crate::parallelism::ComponentParallelism;
use crate::running::SpoutInstances;

/// The ack queues of one spout, by instance.
type OfSpout = Mutex<BTreeMap<u32, Arc<AckQueue>>>;

/// The ack queues of all spout instances, created on first use.
#[derive(Debug)]
pub(crate) struct AckQueues {
    spouts: Box<[OfSpout]>,
    /// The number of processes of the topology that were lost.
    losses: AtomicU64,
}

impl AckQueues {
    /// Creates the ack queues of a topology with this number of spouts.
    pub(crate) fn new(spouts: usize) -> Self {
        AckQueues {
            spouts: (0..spouts).map(|_| Mutex::default()).collect(),
            losses: AtomicU64::new(0),
        }
    }

    /// Returns the queue of the spout instance `task`; `None` if the spout does not exist.
    pub(crate) fn of(&self, task: Task) -> Option<Arc<AckQueue>> {
        let mut instances = lock(self.spouts.get(task.spout())?);
        Some(Arc::clone(instances.entry(task.instance()).or_default()))
    }

    /// Returns the number of processes of the topology that were lost.
    #[inline]
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// Records the loss of a process, and wakes every local spout instance.
    fn record_process_loss(&self) {
        self.losses.fetch_add(1, Ordering::AcqRel);
        for instances in &self.spouts {
            let mailboxes: Vec<Arc<AckQueue>> = lock(instances).values().cloned().collect();
            mailboxes.iter().for_each(|mailbox| mailbox.wake_spout());
        }
    }

    /// Records the loss of an instance, and notifies every spout instance, local or remote.
    fn record_instance_loss(&self) {
        self.record_process_loss();
        for instances in &self.spouts {
            let mailboxes: Vec<Arc<AckQueue>> = lock(instances).values().cloned().collect();
            mailboxes.iter().for_each(|it| it.push_loss_if_remote());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The communication of a topology's instances outside the graph: acks, and parallelism changes.
#[derive(Debug)]
pub(crate) struct AckChannel {
    /// The spouts, in the order of the topology; empty if acks are off.
    spouts: Vec<VertexId>,
    queues: Arc<AckQueues>,
    /// The present parallelism of each component, by vertex.
    parallelism: Arc<ComponentParallelism>,
    /// The instances of every spout, with or without acks.
    instances: Vec<Arc<SpoutInstances>>,
}

impl AckChannel {
    pub(crate) fn new(
        spouts: Vec<VertexId>,
        mailboxes: Arc<AckQueues>,
        roster: Arc<ComponentParallelism>,
        instances: Vec<Arc<SpoutInstances>>,
    ) -> Self {
        AckChannel {
            instances,
            spouts,
            queues: mailboxes,
            parallelism: roster,
        }
    }

    fn task(&self, vertex: VertexId, instance: u32) -> Option<Task> {
        let spout = self.spouts.iter().position(|spout| *spout == vertex)?;
        Task::new(spout, instance)
    }

    fn queue(&self, vertex: VertexId, instance: u32) -> Option<Arc<AckQueue>> {
        self.queues.of(self.task(vertex, instance)?)
    }
}

impl Backchannel for AckChannel {
    fn name(&self) -> &str {
        "acks"
    }

    fn vertices(&self) -> &[VertexId] {
        &self.spouts
    }

    fn start_forwarding(&self, vertex: VertexId, instance: u32, carrier: Waker) {
        if let Some(mailbox) = self.queue(vertex, instance) {
            mailbox.route_to_transport(carrier);
        }
    }

    fn stop_forwarding(&self, vertex: VertexId, instance: u32) {
        if let Some(mailbox) = self.queue(vertex, instance) {
            mailbox.route_to_spout();
        }
    }

    fn collect(&self, vertex: VertexId, instance: u32, out: &mut Vec<u8>) -> bool {
        let mailbox = self.queue(vertex, instance);
        mailbox.is_some_and(|mailbox| mailbox.encode_batch(out))
    }

    fn deliver(&self, vertex: VertexId, instance: u32, letter: &[u8]) -> Result<()> {
        let task = self.task(vertex, instance);
        let found = task.and_then(|task| Some((task, self.queues.of(task)?)));
        let Some((task, mailbox)) = found else {
            let what = format!(
                "an ack batch was received for instance {instance} of vertex {}, which has no ack queue",
                vertex.index()
            );
            return Err(Error::new(ErrorCode::BadRecord, what)
                .hint("check that all workers run the same version of the topology"));
        };
        mailbox.push_batch(&AckBatch::read(letter, task)?);
        Ok(())
    }

    fn process_lost(&self) {
        self.queues.record_process_loss();
    }

    fn instance_lost(&self, vertex: VertexId) {
        // The accounts of a lost spout instance are lost with it; other messages are not affected.
        if !self.spouts.contains(&vertex) {
            self.queues.record_instance_loss();
        }
    }

    fn rescaled(&self, vertex: VertexId, parallelism: u32) {
        self.parallelism.rescale(vertex.index(), parallelism);
    }

    fn messages(&self) -> Vec<MessageReport> {
        let instances = self.instances.iter();
        instances.flat_map(|spout| spout.reports()).collect()
    }
}
