//! The interfaces to the destination of snapshots and the source of restored state.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Epoch, Error, Instance, MetricsSnapshot, PartitionId, Result, SnapshotRequest, StateChunk,
    Waker,
};

use crate::StateHandoff;

/// The name of an instance in snapshots.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct InstanceName {
    /// The vertex's name.
    pub vertex: Arc<str>,
    /// The index and the parallelism.
    pub instance: Instance,
}

impl fmt::Display for InstanceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.vertex, self.instance.index)
    }
}

/// The statistics of a complete snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotReport {
    /// The request.
    pub snapshot: SnapshotRequest,
    /// Number of entries.
    pub entries: u64,
    /// Bytes of the entries in their chunks.
    pub bytes: u64,
    /// Time from taking the snapshot until it was complete.
    pub took: Duration,
    /// The counters of the instance when the snapshot was taken.
    pub counted: RecordCounts,
}

/// Record counters of an instance since the start of its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecordCounts {
    /// Records read.
    pub records_in: u64,
    /// Records written.
    pub records_out: u64,
    /// Late records.
    pub late: u64,
    /// Records that are missing in some of their windows.
    pub late_in_part: u64,
    /// Bad records.
    pub bad: u64,
}

impl RecordCounts {
    /// Returns the sums of the counters of `self` and `other`.
    pub fn plus(self, other: RecordCounts) -> RecordCounts {
        RecordCounts {
            records_in: self.records_in.saturating_add(other.records_in),
            records_out: self.records_out.saturating_add(other.records_out),
            late: self.late.saturating_add(other.late),
            late_in_part: self.late_in_part.saturating_add(other.late_in_part),
            bad: self.bad.saturating_add(other.bad),
        }
    }
}

impl From<&MetricsSnapshot> for RecordCounts {
    fn from(metrics: &MetricsSnapshot) -> Self {
        RecordCounts {
            records_in: metrics.records_in,
            records_out: metrics.records_out,
            late: metrics.late,
            late_in_part: metrics.late_in_part,
            bad: metrics.bad,
        }
    }
}

/// The reason why a snapshot was not completed.
#[derive(Clone, Debug)]
pub enum SnapshotAbort {
    /// The epoch was aborted, or the next one ended, before the snapshot was written.
    Superseded,
    /// The instance failed to take or to write the snapshot.
    Failed(Error),
}

/// The destination of the snapshots of a job's instances.
///
/// Called on data-path threads, a few times per snapshot: no method may block. The calls for one
/// instance are sequential: [`buffer`](Self::buffer) and [`take`](Self::take) in turn, then
/// [`finish`](Self::finish) or [`abort`](Self::abort). Each instance has at most one snapshot in
/// progress. A stateless instance delivers snapshots without entries of its own, to report that it
/// has reached the end of the epoch.
///
/// A [last snapshot](SnapshotRequest::is_last) is valid for its epoch and all later ones, since its
/// instance has ended. A last snapshot is delivered even if its own epoch is aborted. An instance
/// that is about to move to another process delivers no last snapshot.
pub trait SnapshotSink: Send + Sync {
    /// Returns true if the snapshot of this epoch must be full instead of an increment. An instance
    /// that was never notified of a commit takes full snapshots anyway.
    fn wants_all(&self, of: &InstanceName, epoch: Epoch) -> bool {
        let _ = (of, epoch);
        false
    }

    /// Returns an empty chunk for the next entries; `None` if there is no room at the moment. Then
    /// `waker` is woken when there is, and processing goes on until then.
    fn buffer(&self, of: &InstanceName, waker: &Waker) -> Option<StateChunk>;

    /// Receives the next entries of a snapshot, in a chunk from [`buffer`](Self::buffer).
    fn take(&self, of: &InstanceName, snapshot: SnapshotRequest, entries: StateChunk);

    /// Receives the last entries of a snapshot, if any; it is now complete.
    fn finish(&self, of: &InstanceName, report: SnapshotReport, entries: StateChunk);

    /// Cancels a snapshot: its entries so far are void.
    fn abort(&self, of: &InstanceName, snapshot: SnapshotRequest, why: SnapshotAbort);

    /// Reports that the instance has processed the commit of `epoch`, and so of all earlier ones.
    fn commit_processed(&self, of: &InstanceName, epoch: Epoch) {
        let _ = (of, epoch);
    }

    /// Reports that the instance has ended, its last snapshot is delivered or cancelled, and it
    /// waits for no commit. Later epochs need not wait for the instance.
    fn instance_ended(&self, of: &InstanceName) {
        let _ = of;
    }
}

/// The source of the state to which a job's instances are restored: one committed epoch.
pub trait RestoreSource: Send + Sync {
    /// Returns the restored epoch. The first epoch to end now is the next one.
    fn epoch(&self) -> Epoch;

    /// Opens the state for an instance: at least all entries of its vertex in the partitions that
    /// it owns, and all without a partition. Each key has one entry, the newest; removed keys have
    /// none.
    ///
    /// # Errors
    /// Any error that prevents reading; the job then does not start.
    fn open(&self, of: &InstanceName) -> Result<Box<dyn RestoreReader>>;
}

/// A reader of the state of one instance.
pub trait RestoreReader: Send {
    /// Reads the next entries into `into`, which is empty. Does not block: if there are none yet,
    /// `waker` is woken when there are.
    ///
    /// # Errors
    /// Any error that prevents reading; it fails the job.
    fn read(&mut self, into: &mut StateChunk, waker: &Waker) -> Result<SnapshotRead>;

    /// Returns the approximate number of entries if they can be read by partition. Called before
    /// the first read.
    fn entries_by_partition(&self) -> Option<u64> {
        None
    }

    /// Switches to reading by partition, before the first read: entries without a partition come
    /// first, followed by [`Base`](SnapshotRead::Base). Then all partitions that the instance owns
    /// follow, each ended by [`Partition`](SnapshotRead::Partition).
    fn read_by_partition(&mut self) {}

    /// Gives these partitions priority over others that are not being read yet, in this order.
    fn prioritize(&mut self, partitions: &[PartitionId]) {
        let _ = partitions;
    }
}

/// The result of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotRead {
    /// Entries were read.
    Entries,
    /// No entries are available yet.
    Pending,
    /// All entries without a partition have been read.
    Base,
    /// All entries of this partition have been read.
    Partition(PartitionId),
    /// All entries have been read.
    End,
}

/// The destination of snapshots and the source of restored state of a job. By default no snapshots
/// are taken, and the job starts with empty state.
#[derive(Clone, Default)]
pub struct SnapshotIo {
    /// The destination of snapshots.
    pub sink: Option<Arc<dyn SnapshotSink>>,
    /// The source of restored state at the start of the job.
    pub source: Option<Arc<dyn RestoreSource>>,
    /// The latest epoch number already used: only later epochs end here, even if the restored state
    /// is older.
    pub after: Epoch,
    /// Receives the in-memory state of instances when the job ends, for the next attempt in this
    /// process.
    pub handoff_out: Option<Arc<StateHandoff>>,
    /// The in-memory state left by the previous attempt. An instance takes over its state if the
    /// job resumes from the epoch of that state; the instance is then not restored from `source`.
    pub handoff_in: Option<Arc<StateHandoff>>,
}

impl fmt::Debug for SnapshotIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshots")
            .field("are_taken", &self.sink.is_some())
            .field("restored", &self.source.as_ref().map(|from| from.epoch()))
            .finish()
    }
}

/// The outcome of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EpochOutcome {
    Committed(Epoch),
    Aborted(Epoch),
}
