//! The code of a vertex.

use std::any::Any;
use std::sync::Arc;

use crate::{
    Delivery, Epoch, FileUse, Inbox, Instance, InstanceContext, Ordinal, Outbox, PartitionId,
    Progress, RestoredState, Result, SnapshotRequest, SnapshotWriter, StateShape, Timestamp,
    Watermark,
};

/// The code of one instance of a vertex: reads an inbox, fills an outbox, never blocks.
///
/// # Contract
///
/// * One thread at a time calls an instance, but not always the same one.
/// * A processor of isolation [`Tasklet`](crate::Isolation::Tasklet) returns within about 100 µs
///   and never blocks. A longer call delays all other tasklets of its thread and shows in the
///   metrics (`longest_slice`). A processor that must block uses
///   [`Thread`](crate::Isolation::Thread) and returns at least once a second, so that cancelling is
///   prompt.
/// * Backpressure is never an error. A processor whose output is full leaves records in the inbox,
///   or returns a [`Progress`] that is not done, and is called again when there is room.
/// * Until a callback that returned not done has returned done, no other callback is called except
///   [`close`](Self::close) and those of snapshots, see below.
/// * An error or a panic fails the whole job; the error names vertex, instance and the record's
///   position. `close` is still called.
///
/// Order of the calls: `init`; for a restored instance `restore` and `on_restored` (but see "Lazy
/// restore"); then `process`, `on_watermark` and `on_epoch` as input arrives, and `on_edge_done`
/// once per input; `complete` until done; `close`.
///
/// # Snapshots and restore
///
/// A stateful processor writes its state at the end of each epoch, so that a new instance can be
/// restored from it. It does so only in a job whose [guarantee](crate::InstanceContext::guarantee)
/// keeps state. Stateless processors keep the default methods. A processor that cannot save its
/// state [declares that](Self::unsaved_state).
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
///   partitioned, and that [supports this](Self::enable_lazy_restore), gets only the entries
///   without a partition before it starts. Then [`restore`](Self::restore) delivers partition after
///   partition, between any two other callbacks;
///   [`on_partition_restored`](Self::on_partition_restored) follows each partition that the
///   instance owns, and [`on_restored`](Self::on_restored) the last one. Until then:
///   - A record whose partition is not restored stays in the inbox with all records after it, or is
///     set aside. The processor [reports](Self::take_requested_partitions) the partitions that it
///     waits for; these are restored next.
///   - Records set aside are [processed](Self::catch_up) when their partition is restored, before
///     any later record of that partition.
///   - A watermark applies to the restored keys at once. To a partition restored later it applies
///     before any record of that partition. It is not passed on; the runtime repeats it when all
///     partitions are restored. While records are set aside no watermark is delivered.
///   - No epoch ends, no input ends and no snapshot is taken.
/// * **Broadcast state**, which is equal in all instances, is written once: by the instance that
///   owns the partition of its key, or by the first instance. It is written without a partition, so
///   that all instances get it back.
/// * **State handoff.** A job that is rearranged stops at the end of an epoch and restarts from
///   there. An instance without input since the snapshot of that epoch still has the same state in
///   memory. If it [hands the state over](Self::hand_over_state), its successor of the same index
///   in the same process [takes the state over](Self::take_over_state) and gets no `restore` and no
///   `on_restored`. Watermark, ends of inputs and commits are repeated as after a restore, and
///   `on_wake` is called once.
///
/// An error of `take_snapshot` or `write_snapshot` does not fail the job: the snapshot is void, and
/// its epoch is aborted with the error as the reason.
pub trait Processor: Send {
    /// Initializes the instance. Called once before all other methods, on the thread that will run
    /// the instance. Must not block.
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        let _ = context;
        Ok(())
    }

    /// Processes records of the input `ordinal` and removes them from `inbox`.
    ///
    /// Called only with a non-empty inbox. Remaining records are offered again before newer ones of
    /// this input. Never called for a vertex without inputs.
    fn process(&mut self, ordinal: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let _ = (inbox, outbox);
        Err(crate::Error::new(
            crate::ErrorCode::UnexpectedInput,
            format!(
                "records came on input {} of a processor that takes none",
                ordinal.index()
            ),
        ))
    }

    /// Handles a watermark, merged over all inputs: emits final results, then passes the watermark
    /// on.
    ///
    /// Called with the same watermark until it returns done. The default passes it on at once.
    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        outbox.watermark(watermark);
        Ok(Progress::DONE)
    }

    /// Handles the end of `epoch`, after all its records have arrived on all inputs. The runtime
    /// passes the barrier on afterwards.
    fn on_epoch(&mut self, epoch: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        let _ = (epoch, outbox);
        Ok(Progress::DONE)
    }

    /// Handles idleness of all inputs, which then do not hold back the watermark. The runtime
    /// passes the marker on; only the sending ends of edges between processes implement this.
    fn on_idle(&mut self) {}

    /// Handles a [`Marker::Latency`](crate::Marker::Latency) created at `born`. Returns true if the
    /// processor forwards the marker itself and not by the outbox; the runtime then does not. Only
    /// for processors that represent an edge or an instance in another process. A marker may be
    /// lost.
    fn on_latency(&mut self, born: Timestamp) -> Result<bool> {
        let _ = born;
        Ok(false)
    }

    /// Handles the end of the input `ordinal`. Called until it returns done.
    fn on_edge_done(&mut self, ordinal: Ordinal, outbox: &mut Outbox) -> Result<Progress> {
        let _ = (ordinal, outbox);
        Ok(Progress::DONE)
    }

    /// Emits the remaining results after all inputs have ended; a source does all its work here,
    /// from the start.
    ///
    /// Called until it returns done. A source without data returns [`Progress::NONE`] and requests
    /// a call by [`Outbox::wake_at`] or by the [`Waker`](crate::Waker) of its context. Otherwise it
    /// is polled at the configured idle poll interval (10 ms).
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let _ = outbox;
        Ok(Progress::DONE)
    }

    /// Returns true if this source is also called while the job is paused, and then stops reading
    /// by itself; see [`is_paused`](crate::JobSignals::is_paused). By default the runtime does not
    /// call [`complete`](Self::complete) while paused.
    fn pauses_itself(&self) -> bool {
        false
    }

    /// Ends a source as if its input had ended: emits the records that were already read, and no
    /// more.
    ///
    /// Called for sources only, instead of [`complete`](Self::complete), until it returns done. It
    /// is the only notification of draining: [`is_draining`](crate::JobSignals::is_draining) is
    /// false in every call of `complete`, so a `complete` that returns done means the end of the
    /// input. Not called for a source upstream of an urgent input (see
    /// [`Priority`](crate::Priority)), which runs to its end. The default ends at once, which is
    /// right for a source that buffers no input.
    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let _ = outbox;
        Ok(Progress::DONE)
    }

    /// Returns true if a source whose [`on_drain`](Self::on_drain) is done had reached the end of
    /// its input anyway. If all sources had, the drained job counts as completed.
    ///
    /// The default is false.
    fn is_at_end(&self) -> bool {
        false
    }

    /// Handles the deadline requested by [`Outbox::wake_at`], for processing-time timers. Never
    /// called for sources, whose [`complete`](Self::complete) is called instead.
    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        let _ = outbox;
        Ok(())
    }

    /// Flushes data that was batched over several calls, at the end of a slice. Only for the
    /// sending ends of edges between processes.
    fn on_slice_end(&mut self) -> Result<()> {
        Ok(())
    }

    /// Returns a description of state that this processor cannot save in snapshots; `None` if there
    /// is none. A job whose guarantee keeps state is refused at its start if a processor returns
    /// one.
    fn unsaved_state(&self) -> Option<&'static str> {
        None
    }

    /// Returns the states of this processor's snapshots and their schemas. They are stored with the
    /// snapshots, so that another version of the program can check in advance whether it can
    /// restore them. May be called on an instance that never runs.
    ///
    /// The default returns none: then compatibility is only checked by [`restore`](Self::restore).
    fn states(&self) -> Vec<StateShape> {
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

    /// Enables a lazy restore. Called once after `init` if the state can be read by partition;
    /// `entries` is the approximate number of entries. A processor that returns true must implement
    /// the lazy restore described [above](Self).
    fn enable_lazy_restore(&mut self, entries: u64) -> bool {
        let _ = entries;
        false
    }

    /// For a [lazy restore](Self::enable_lazy_restore): completes the restore of `partition`, which
    /// may have had no entries.
    fn on_partition_restored(&mut self, partition: PartitionId) -> Result<()> {
        let _ = partition;
        Ok(())
    }

    /// For a [lazy restore](Self::enable_lazy_restore): processes records that were set aside and
    /// whose partitions are now restored, while the outbox has room. Called until done, before
    /// [`on_restored`](Self::on_restored).
    fn catch_up(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let _ = outbox;
        Ok(Progress::DONE)
    }

    /// For a [lazy restore](Self::enable_lazy_restore): appends to `wanted` the partitions that
    /// records wait for, the most urgent first, without those already reported. Called after each
    /// `process`.
    fn take_requested_partitions(&mut self, wanted: &mut Vec<PartitionId>) {
        let _ = wanted;
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

    /// Releases resources. Called once after all other methods, also after a failure, a
    /// cancellation or a panic, and even if `init` was never called. Must not panic.
    fn close(&mut self) {}

    /// Returns the state in memory, for the instance that takes the place of this one. Called after
    /// `close`, if at all, and normally only at the end of an epoch without later input. It may be
    /// called at any time if the result is only dropped. With the default `None` the successor is
    /// restored from the checkpoint.
    ///
    /// For in-memory state that is expensive to restore. Files, connections and external effects
    /// are not handed over.
    fn hand_over_state(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        None
    }

    /// Takes over `memory`, the state that another instance [handed over](Self::hand_over_state).
    /// Called before `init`, on any thread, instead of `restore` and `on_restored`. Returns false,
    /// without effect, if the state is not usable; the default does so.
    fn take_over_state(&mut self, memory: Box<dyn Any + Send>) -> bool {
        drop(memory);
        false
    }
}

/// A factory for the processors of a vertex.
pub trait ProcessorSupplier: Send + Sync {
    /// Returns a new processor for `instance`.
    ///
    /// # Errors
    /// Any error in creating the processor; the job then does not start.
    fn supply(&self, instance: Instance) -> Result<Box<dyn Processor>>;

    /// Returns the files that the processors of `parallelism` instances will read or write, as far
    /// as known. A job that would overwrite its input is refused. None by default.
    fn files(&self, parallelism: u32) -> Vec<FileUse> {
        let _ = parallelism;
        Vec::new()
    }

    /// Returns the delivery guarantee of a sink, if known; see
    /// [`Sink::with_delivery`](crate::Sink::with_delivery).
    fn delivery(&self) -> Option<Delivery> {
        None
    }
}

impl<F> ProcessorSupplier for F
where
    F: Fn(Instance) -> Result<Box<dyn Processor>> + Send + Sync,
{
    fn supply(&self, instance: Instance) -> Result<Box<dyn Processor>> {
        self(instance)
    }
}

/// A function that creates processors: `Fn() -> P` or `Fn(Instance) -> P`.
///
/// `Signature` distinguishes the two for the compiler and is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not make processors",
    label = "neither `|| processor` nor `|instance: Instance| processor`",
    note = "give the argument its type: `move |instance: Instance| ..`"
)]
pub trait MakeProcessor<Signature>: Send + Sync + 'static {
    /// The type of the processors.
    type Made: Processor + 'static;

    /// Creates the processor of `instance`.
    fn make(&self, instance: Instance) -> Self::Made;
}

impl<P, F> MakeProcessor<fn() -> P> for F
where
    P: Processor + 'static,
    F: Fn() -> P + Send + Sync + 'static,
{
    type Made = P;

    fn make(&self, _: Instance) -> P {
        self()
    }
}

impl<P, F> MakeProcessor<fn(Instance) -> P> for F
where
    P: Processor + 'static,
    F: Fn(Instance) -> P + Send + Sync + 'static,
{
    type Made = P;

    fn make(&self, instance: Instance) -> P {
        self(instance)
    }
}

/// Returns a supplier that calls an infallible function with no argument, or with the instance.
///
/// ```
/// use ardea_core::{Instance, Processor, supplier};
///
/// struct Nothing;
/// struct Share(Instance);
/// impl Processor for Nothing {}
/// impl Processor for Share {}
///
/// let same_for_all = supplier(|| Nothing);
/// let one_for_each = supplier(|instance: Instance| Share(instance));
/// # (same_for_all.supply(Instance::ONLY)?, one_for_each.supply(Instance::ONLY)?);
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub fn supplier<Signature>(make: impl MakeProcessor<Signature>) -> Arc<dyn ProcessorSupplier> {
    Arc::new(move |instance: Instance| -> Result<Box<dyn Processor>> {
        Ok(Box::new(make.make(instance)))
    })
}
