//! What a job's instances tell each other beside its graph.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{LatencySnapshot, Result, VertexId, Waker};

/// News that a job's instances send each other beside the graph, such as acks, which flow against the arrows.
///
/// Each instance of some vertices has a mailbox, into which any instance of the job posts. While both are in one process that is all
/// there is to it. Where a job is spread over several processes, whoever runs it there *carries* what is posted for instances
/// that live elsewhere: it [collects](Self::collect) the mail of these, and [delivers](Self::deliver) it where they live. The mail of
/// one mailbox between two processes arrives in the order in which it was posted, or is lost with one of the processes.
pub trait SideChannel: Send + Sync {
    /// Its name, unique among the side channels of its job.
    fn name(&self) -> &str;

    /// The vertices whose instances have a mailbox, in the same order in all processes.
    fn vertices(&self) -> &[VertexId];

    /// From now on the mail for this instance, which lives elsewhere, is carried by somebody, who is woken when there is some.
    fn carry(&self, vertex: VertexId, instance: u32, carrier: Waker);

    /// This instance lives here, from now on: nobody carries its mail.
    fn keep(&self, vertex: VertexId, instance: u32);

    /// Appends to `out` what was posted for an instance that lives elsewhere, as one letter. False if there is nothing: then the
    /// carrier is woken when there is.
    fn collect(&self, vertex: VertexId, instance: u32, out: &mut Vec<u8>) -> bool;

    /// Delivers a letter that was collected in another process to an instance that lives here.
    ///
    /// # Errors
    /// [`ErrorCode::BadRecord`](crate::ErrorCode::BadRecord) if this is no such letter.
    fn deliver(&self, vertex: VertexId, instance: u32, letter: &[u8]) -> Result<()>;

    /// A process that runs a part of the job was lost, with whatever was under way there.
    fn process_lost(&self);

    /// An instance that ran in this process was lost with whatever it had at hand, and its process was not: nobody else
    /// notices by themselves, so that whoever lives elsewhere has to be told by mail.
    fn instance_lost(&self, vertex: VertexId);

    /// A vertex has so many instances from now on.
    fn rescaled(&self, vertex: VertexId, parallelism: u32);

    /// What became of the messages of the instances that have lived in this process, as far as somebody counts them.
    fn messages(&self) -> Vec<MessageReport> {
        Vec::new()
    }
}

/// What became of the messages of one instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MessageReport {
    /// The vertex's name.
    pub vertex: Arc<str>,
    /// Which instance.
    pub instance: u32,
    /// How many.
    pub counts: MessageCounts,
}

/// What became of the messages that a source has emitted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MessageCounts {
    /// Emitted, followed or not.
    pub emitted: u64,
    /// Dealt with completely.
    pub acked: u64,
    /// Failed by whoever had to deal with them.
    pub failed: u64,
    /// Not dealt with in time.
    pub timed_out: u64,
    /// Pending when something that they may have gone through was lost.
    pub lost: u64,
    /// None of these yet.
    pub pending: u64,
    /// From the emission of each to the end of all that was made from it.
    pub complete: LatencySnapshot,
}

impl MessageCounts {
    /// Adds what another incarnation of the instance has counted.
    pub fn add(&mut self, other: &MessageCounts) {
        self.emitted += other.emitted;
        self.acked += other.acked;
        self.failed += other.failed;
        self.timed_out += other.timed_out;
        self.lost += other.lost;
        self.pending += other.pending;
        self.complete.add(&other.complete);
    }
}
