//! The state of an instance: its snapshots, its restore, and the outcome of checkpoints.

use std::any::Any;

use crate::{
    Epoch, PartitionId, Progress, RestoredState, Result, SnapshotRequest, SnapshotWriter,
    StateShape,
};

/// The state of one instance of a stateful [`Processor`](crate::Processor).
///
/// # Snapshots and restore
///
/// A stateful processor writes its state at the end of each epoch, so that a new instance can be
/// restored from it. It does so only in a job whose [guarantee](crate::InstanceContext::guarantee)
/// keeps state. A processor that cannot save its state
/// [declares that](crate::Processor::unsaved_state).
///
/// * **Taking a snapshot.** When `on_epoch` is done, [`take_snapshot`](Self::take_snapshot) follows
///   at once, without another callback between; all later input belongs to the next epoch. It only
///   marks the state that belongs to the snapshot, and takes about as long as a record.
/// * **Writing a snapshot.** Then [`write_snapshot`](Self::write_snapshot) is called until done
///   while processing continues: between any two other callbacks, also those that returned not
///   done. The call writes the state as of `take_snapshot`, so entries that are about to change
///   must be copied first. A key is written once per snapshot.
/// * **Full snapshots and increments.** A full snapshot holds all state. An increment holds all
///   changes and removed keys since the snapshot of the last epoch whose commit the processor was
///   notified of. It repeats changes in later snapshots that were aborted or are undecided. It may
///   hold more.
/// * **Cancelled snapshots.** A snapshot is void, and need not be written to its end, after the
///   next `take_snapshot` or after `on_checkpoint_aborted` for its epoch.
/// * **The outcome of an epoch** is passed to
///   [`on_checkpoint_committed`](Self::on_checkpoint_committed) or
///   [`on_checkpoint_aborted`](Self::on_checkpoint_aborted), each called until done, between any
///   two callbacks other than those of a snapshot. A notification may be repeated, may concern an
///   epoch of which this instance took no snapshot, and may be missing. The commit of a later epoch
///   decides all earlier ones. A committed epoch is never aborted later, nor the reverse.
/// * **The last snapshot.** After `complete` (or `on_drain`) is done, one more snapshot with
///   [`is_last`](SnapshotRequest::is_last) is taken. An instance restored from it, whose inputs end
///   again, must not emit anything again. It is valid for all later epochs, so it is written to its
///   end even if its own epoch is aborted. `close` follows when the snapshot is written and, if the
///   processor [waits for the commit](Self::awaits_commit), its epoch or a later one is committed.
/// * **Restoring.** First the instance gets, from one committed epoch, all entries of the
///   partitions that it owns and all entries of its vertex without a partition:
///   [`restore`](Self::restore) until all are taken, then [`on_restored`](Self::on_restored) until
///   done. The parallelism may differ from that of the snapshot. Keys of entries without a
///   partition must differ between the instances of a vertex. Watermarks need not be saved: the
///   runtime repeats the last one by `on_watermark`. Ends of inputs need not be saved either:
///   upstream instances are restored too and end again, so `on_edge_done` is called once more. An
///   input that waits for an urgent one gets no record before the urgent input has ended.
/// * **Lazy restore.** Restoring a large state delays processing. A processor whose state is
///   partitioned, and that [supports this](Self::partitioned_restore), gets only the entries
///   without a partition before it starts. Then [`restore`](Self::restore) delivers partition after
///   partition, between any two other callbacks;
///   [`on_partition_restored`](PartitionRestore::on_partition_restored) follows each partition that
///   the instance owns, and [`on_restored`](Self::on_restored) the last one. Until then:
///   - A record whose partition is not restored stays in the inbox with all records after it, or is
///     set aside. The processor [reports](PartitionRestore::take_requested_partitions) the
///     partitions that it waits for; these are restored next.
///   - Records set aside are [processed](crate::Processor::catch_up) when their partition is
///     restored, before any later record of that partition.
///   - A watermark applies to the restored keys at once. To a partition restored later it applies
///     before any record of that partition. It is not passed on; the runtime repeats it when all
///     partitions are restored. While records are set aside no watermark is delivered.
///   - No epoch ends, no input ends and no snapshot is taken.
/// * **Broadcast state**, which is equal in all instances, is written once: by the instance that
///   owns the partition of its key, or by the first instance. It is written without a partition, so
///   that all instances get it back.
/// * **State handoff.** A job that is rearranged stops at the end of an epoch and restarts from
///   there. An instance without input since the snapshot of that epoch still has the same state in
///   memory. If it [hands the state over](crate::Processor::hand_over_state), its successor of the
///   same index in the same process [takes the state over](Self::take_over_state) and gets no
///   `restore` and no `on_restored`. Watermark, ends of inputs and commits are repeated as after a
///   restore, and `on_wake` is called once.
///
/// An error of `take_snapshot` or `write_snapshot` does not fail the job: the snapshot is void, and
/// its epoch is aborted with the error as the reason.
///
/// A processor must return its state from [`checkpointed`](crate::Processor::checkpointed): state
/// that is not returned is neither saved nor restored. `survives` of the test kit detects that.
pub trait Checkpointed {
    /// Returns the states of this processor's snapshots and their schemas. They are stored with the
    /// snapshots, so that another version of the program can check in advance whether it can
    /// restore them. May be called on an instance that never runs.
    ///
    /// The default returns none: then compatibility is only checked by [`restore`](Self::restore).
    fn states(&mut self) -> Vec<StateShape> {
        Vec::new()
    }

    /// Marks the current state as this snapshot, to be written by
    /// [`write_snapshot`](Self::write_snapshot). An earlier snapshot that is not completely written
    /// becomes void.
    ///
    /// Must take about as long as a record, whatever the size of the state: nothing is copied. The
    /// default is right for stateless processors.
    ///
    /// # Errors
    /// Any error that prevents the snapshot; its epoch is then aborted.
    fn take_snapshot(&mut self, snapshot: SnapshotRequest) -> Result<()> {
        let _ = snapshot;
        Ok(())
    }

    /// Writes the next entries of the latest snapshot while `writer` has room; done when all are
    /// written.
    ///
    /// Called until done. [`Progress::NONE`] means that there is nothing to write at the moment.
    ///
    /// # Errors
    /// Any error that prevents the snapshot; its epoch is then aborted.
    fn write_snapshot(&mut self, writer: &mut SnapshotWriter<'_>) -> Result<Progress> {
        let _ = writer;
        Ok(Progress::DONE)
    }

    /// Restores entries. Called, with more entries each time, until all entries have been taken.
    ///
    /// # Errors
    /// An entry that can't be decoded, or whose state the processor does not have; the job fails.
    /// The default accepts no entry.
    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        match state.next() {
            None => Ok(()),
            Some(entry) => Err(RestoredState::unknown(&entry)),
        }
    }

    /// Completes the restore from `epoch`, which may have had no entries. Called until done, before
    /// any record.
    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        let _ = epoch;
        Ok(Progress::DONE)
    }

    /// Handles the commit of `epoch`: its checkpoint is durable, and the job never goes back before
    /// it. Called until done.
    ///
    /// A processor that publishes output only when it is final does so here, for this epoch and all
    /// earlier ones.
    fn on_checkpoint_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        let _ = epoch;
        Ok(Progress::DONE)
    }

    /// Handles the abort of `epoch`: it will have no checkpoint, and the job goes on. Called until
    /// done.
    ///
    /// Records and output of the epoch are not lost: they belong to the next committed epoch.
    fn on_checkpoint_aborted(&mut self, epoch: Epoch) -> Result<Progress> {
        let _ = epoch;
        Ok(Progress::DONE)
    }

    /// Returns true if this instance, after its end, must stay until its last epoch is committed.
    /// Required if [`on_checkpoint_committed`](Self::on_checkpoint_committed) has effects outside
    /// the job.
    fn awaits_commit(&self) -> bool {
        false
    }

    /// Takes over `memory`, the state that another instance [handed
    /// over](crate::Processor::hand_over_state).
    /// Called before `init`, on any thread, instead of `restore` and `on_restored`. Returns false,
    /// without effect, if the state is not usable; the default does so.
    fn take_over_state(&mut self, memory: Box<dyn Any + Send>) -> bool {
        drop(memory);
        false
    }

    /// Returns the interface for a [lazy restore](Self); `None` if the state must be
    /// restored before the first record. The same answer at each call.
    fn partitioned_restore(&mut self) -> Option<&mut dyn PartitionRestore> {
        None
    }
}

/// State that can be restored partition by partition while records are processed.
pub trait PartitionRestore {
    /// Enables a lazy restore. Called once after `init` if the state can be read by partition;
    /// `entries` is the approximate number of entries. A processor that returns true must support
    /// the lazy restore described in [`Checkpointed`].
    fn enable_lazy_restore(&mut self, entries: u64) -> bool {
        let _ = entries;
        false
    }

    /// Completes the restore of `partition`, which may have had no entries.
    fn on_partition_restored(&mut self, partition: PartitionId) -> Result<()> {
        let _ = partition;
        Ok(())
    }

    /// Appends to `wanted` the partitions that records wait for, the most urgent first, without
    /// those already reported. Called after each `process`.
    fn take_requested_partitions(&mut self, wanted: &mut Vec<PartitionId>) {
        let _ = wanted;
    }
}

/// The state of a processor without state: writes no entry and accepts none.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoState;

impl Checkpointed for NoState {}

/// State that is always restored before the first record.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoPartitions;

impl PartitionRestore for NoPartitions {}

impl dyn Checkpointed + '_ {
    /// For the runtime: returns the interface for a lazy restore, or [`NoPartitions`].
    pub fn partitions(&mut self) -> &mut dyn PartitionRestore {
        match self.partitioned_restore() {
            Some(partitions) => partitions,
            // A value without size: nothing is allocated.
            None => Box::leak(Box::new(NoPartitions)),
        }
    }
}
