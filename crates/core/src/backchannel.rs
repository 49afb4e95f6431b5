//! Messages between instances of a job outside its graph.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{LatencySnapshot, Result, VertexId, Waker};

/// A channel for messages between instances of a job outside the graph, such as acks, which flow
/// against the edges.
///
/// Each instance of the [`vertices`](Self::vertices) has a mailbox to which any instance of the job
/// can send. Within one process the channel delivers by itself. Between processes the workers
/// forward: the sender's worker [collects](Self::collect) messages, the receiver's worker
/// [delivers](Self::deliver) them. Messages from one process to one mailbox arrive in the order
/// sent, or are lost with one of the two processes.
pub trait Backchannel: Send + Sync {
    /// Returns the name of the channel, unique among the channels of its job.
    fn name(&self) -> &str;

    /// Returns the vertices whose instances have a mailbox, in the same order in all processes.
    fn vertices(&self) -> &[VertexId];

    /// Starts forwarding to an instance in another process: `carrier` is woken when there are
    /// messages for the instance.
    fn start_forwarding(&self, vertex: VertexId, instance: u32, carrier: Waker);

    /// Stops forwarding to this instance, which now runs in this process.
    fn stop_forwarding(&self, vertex: VertexId, instance: u32);

    /// Appends to `out`, as one batch, all messages for an instance of another process. Returns
    /// false if there are none; the next message then wakes the carrier.
    fn collect(&self, vertex: VertexId, instance: u32, out: &mut Vec<u8>) -> bool;

    /// Delivers `letter`, a batch collected by another process, to an instance of this process.
    ///
    /// # Errors
    /// [`ErrorCode::BadRecord`](crate::ErrorCode::BadRecord) if the bytes are not a valid batch.
    fn deliver(&self, vertex: VertexId, instance: u32, letter: &[u8]) -> Result<()>;

    /// Called when another process of the job has failed. Messages in flight to and from it are
    /// lost too.
    fn process_lost(&self);

    /// Handles the loss of an instance of this process, with all its messages, while the process
    /// goes on. Other processes cannot detect this loss and are notified by a message.
    fn instance_lost(&self, vertex: VertexId);

    /// Sets the new parallelism of a vertex.
    fn rescaled(&self, vertex: VertexId, parallelism: u32);

    /// Returns the message counts of all instances that have run in this process, empty if the
    /// channel does not count.
    fn messages(&self) -> Vec<MessageReport> {
        Vec::new()
    }
}

/// The message counts of one instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MessageReport {
    /// The vertex's name.
    pub vertex: Arc<str>,
    /// The index of the instance.
    pub instance: u32,
    /// The messages of this instance, by outcome.
    pub counts: MessageCounts,
}

/// Counts of the messages of a source by outcome.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MessageCounts {
    /// Messages emitted, tracked or not.
    pub emitted: u64,
    /// Messages processed completely.
    pub acked: u64,
    /// Messages failed by a processor.
    pub failed: u64,
    /// Messages not processed within the timeout.
    pub timed_out: u64,
    /// Pending messages lost with a process or an instance that they may have passed.
    pub lost: u64,
    /// Messages still pending.
    pub pending: u64,
    /// Latencies from the emission of a message until everything derived from it was processed.
    pub complete: LatencySnapshot,
}

impl MessageCounts {
    /// Adds the counts of another attempt of the instance.
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
