//! The code of a vertex.

use std::any::Any;
use std::sync::Arc;

use crate::{
    Cut, CutWriter, Delivery, Epoch, Error, ErrorCode, FileUse, Inbox, Instance, InstanceContext,
    Ordinal, Outbox, PartitionId, Progress, RestoredState, Result, StateShape, Timestamp,
    Watermark,
};

/// The code of one instance of a vertex: reads an inbox, fills an outbox, never blocks.
///
/// # Contract
///
/// * One thread at a time calls an instance, but not always the same one.
/// * A processor of isolation [`Tasklet`](crate::Isolation::Tasklet) returns within about 100 µs and never blocks; one that
///   takes longer delays every other tasklet of its thread; the metrics show it (`longest_slice`). A processor that
///   has to block says so with [`Thread`](crate::Isolation::Thread) and returns at least once a second, so that cancelling
///   is prompt.
/// * "Not now" is never an error: a processor whose output is full leaves records in the inbox, or returns a
///   [`Progress`] that is not done, and is called again when there is room.
/// * Between two calls of one callback that returned not done, no other callback comes, except [`close`](Self::close) and those of a
///   cut, see below.
/// * An error, or a panic, fails the whole job: vertex, instance and the record's position are named. `close` is still called.
///
/// Order of the calls: `init`; of an instance that gets state back, `restore` and `on_restored` (but see "Beginning early"); then
/// `process`, `on_watermark` and `on_epoch` as the input brings them, `on_edge_done` once an input; `complete` until done; `close`.
///
/// # State that survives
///
/// A processor that remembers something beyond an epoch's end hands it over there, so that an instance that is made anew can go on from
/// it. It does so only in a job whose [`Guarantee`](crate::Guarantee) keeps state, as its context says; one that remembers nothing
/// leaves all of this as it is, and one that can't hand over what it remembers [says so](Self::forgets).
///
/// * **Taking a cut.** When `on_epoch` is done, [`take_cut`](Self::take_cut) follows at once: no other callback comes between, and all
///   that comes later belongs to the next epoch. It only notes what belongs to the cut, in about the time of a record.
/// * **Writing it.** Then [`write_cut`](Self::write_cut) is called until done, while records go on: between any two calls of other
///   callbacks, also those that returned not done. What it writes is the state as it was when the cut was taken: whatever is about to
///   change meanwhile is put aside first. A key is written once in a cut.
/// * **Full cuts and increments.** A full cut holds all state. An increment holds what has changed, and which keys have been removed,
///   since the cut of the last epoch that the processor was told is committed: also what was in cuts since that were given up, or
///   of which nothing was heard. More than that does no harm.
/// * **A cut that nobody wants any more** is not written to its end: the next `take_cut` makes it void, and so does
///   `on_epoch_given_up` of its epoch.
/// * **What comes of an epoch** is told by [`on_epoch_committed`](Self::on_epoch_committed) or
///   [`on_epoch_given_up`](Self::on_epoch_given_up), each until done: between any two calls of other callbacks but those of a cut. It
///   may come twice, it may come for an epoch of which this instance has taken no cut, and it may not come at all: then the commit of a
///   later epoch says that all before it are decided. One that is committed is never given up, nor the other way round.
/// * **The last cut.** When `complete` (or `on_drain`) is done there is one cut more, [`is_last`](Cut::is_last): what is restored from
///   it, and told again that all inputs have ended, emits nothing twice. It holds for all later epochs, so it is written to its end
///   also if its own epoch is given up. `close` comes when it has been written, and, if the processor
///   [waits for it](Self::awaits_commit), when its epoch or a later one is committed.
/// * **Restoring.** Before anything else the instance gets all entries of the partitions that it owns, and all that have none of its
///   vertex, from one committed epoch: [`restore`](Self::restore) until all have been taken, then [`on_restored`](Self::on_restored)
///   until done. The number of instances may be another one than when they were written. Entries without a partition
///   are written under keys that differ between the instances of the vertex. The watermark is not the processor's to keep: the one that
///   it had been told is told again by `on_watermark`. Nor is it that an input has ended: whatever wrote to it is restored as well, and
///   ends again, so `on_edge_done` comes once more; and no record comes of an input that waits for a more urgent one before that has.
/// * **Beginning early.** Where the state of an instance is large, records would wait long until all of it is back. One whose state
///   belongs to partitions, and that [says so](Self::begins_early), gets what has no partition first, and begins; then
///   [`restore`](Self::restore) brings partition after partition, between any two calls of other callbacks, each of its own followed
///   by [`on_partition_restored`](Self::on_partition_restored); and when all are back [`on_restored`](Self::on_restored) as ever.
///   Until then it leaves a record whose partition is not back in the inbox, with all that come behind it, or puts it aside, and
///   [says](Self::take_wanted) which partitions it waits for: these come next. What was put aside it [catches up](Self::catch_up) with
///   when its partition is back, before any later record of that. A watermark it is told as ever: it does what that means
///   for the keys that are back, does the same for those of each partition that comes back later before any other record of them, and
///   does not pass it on: it is told again when all are back. While records are aside it does not hear it, as if it came behind them. No
///   epoch ends, no input does, and no cut is taken before all is back.
/// * **What all instances have alike**, because it came to all, is written once: by the instance that owns the partition of its key, or by
///   the first, but under no partition, so that all get it back.
/// * **Going on from memory.** A job that is arranged anew ends behind the end of an epoch, and begins again from there. An instance to
///   which nothing has come since that cut remembers exactly what is in it. If it [hands that over](Self::hand_over), the one of the same
///   number that takes its place in the same process [takes it over](Self::take_over), and is not restored: no `restore`, no
///   `on_restored`. The watermark, ends of inputs and commits are told again as to one that was restored, and `on_wake` comes once.
///
/// An error of `take_cut` or `write_cut` does not fail the job: that cut is void and its epoch given up, with this as the reason.
pub trait Processor: Send {
    /// Called once before all others, on the thread that will run the instance. May not block.
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        let _ = context;
        Ok(())
    }

    /// Deals with records of the input `ordinal`: removes from `inbox` what it has dealt with.
    ///
    /// Called only with a non-empty inbox. What is left in it comes again before anything newer of this input.
    /// A vertex without inputs is never called here.
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

    /// Time has advanced on all inputs to `watermark`. Emits what became final, then passes the watermark on.
    ///
    /// Called again with the same watermark until it returns done. The default passes it on at once.
    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        outbox.watermark(watermark);
        Ok(Progress::DONE)
    }

    /// All records of `epoch` have come, on all inputs. The runtime passes the marker on by itself, after done.
    fn on_epoch(&mut self, epoch: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        let _ = (epoch, outbox);
        Ok(Progress::DONE)
    }

    /// All inputs are silent for the moment, and time is not to wait for them. The runtime passes the marker on by itself: only the
    /// sending ends of edges that lead to other processes have to know.
    fn on_idle(&mut self) {}

    /// A [`Marker::Latency`](crate::Marker::Latency) of this time has come; true if it goes on from here otherwise than by the
    /// outbox, and the runtime is not to pass it on. Only for what stands for an edge, or an instance, in another process. A mark may
    /// be lost.
    fn on_latency(&mut self, born: Timestamp) -> Result<bool> {
        let _ = born;
        Ok(false)
    }

    /// The input `ordinal` has ended. Called until it returns done.
    fn on_edge_done(&mut self, ordinal: Ordinal, outbox: &mut Outbox) -> Result<Progress> {
        let _ = (ordinal, outbox);
        Ok(Progress::DONE)
    }

    /// All inputs have ended (a source: from the start). Emits what is left; a source does all its work here.
    ///
    /// Called until it returns done. A source that has nothing to emit returns [`Progress::NONE`], and asks by
    /// [`Outbox::wake_at`] or by the [`Waker`](crate::Waker) of its context to be called when it has; else it is asked again
    /// after the configured idle poll (10 ms).
    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let _ = outbox;
        Ok(Progress::DONE)
    }

    /// Of a source: whether it is called while the job is paused, and itself reads nothing then, as
    /// [`is_paused`](crate::JobSignals::is_paused) says. The default says no: then the runtime does not call
    /// [`complete`](Self::complete) meanwhile.
    fn pauses_itself(&self) -> bool {
        false
    }

    /// The job is to end as if its input had ended: a source emits what it has read already, and nothing more.
    ///
    /// Called instead of [`complete`](Self::complete) until it returns done, and only for sources. It is the only way by which a
    /// source learns of draining: [`is_draining`](crate::JobSignals::is_draining) is false in every call of `complete`, so that one
    /// which returns done there has come to its end. A source that leads into an urgent input (see [`Priority`](crate::Priority))
    /// is not asked: it goes on to its end. The default ends at once, which is right for a source that holds nothing it has
    /// taken from elsewhere.
    fn on_drain(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let _ = outbox;
        Ok(Progress::DONE)
    }

    /// Of a source whose [`on_drain`](Self::on_drain) has returned done: whether it had come to the end of its input all the same, so
    /// that nothing was left out. A job none of whose sources left anything out has completed, drained or not.
    ///
    /// The default says no, which is right for a source that can't know.
    fn is_at_end(&self) -> bool {
        false
    }

    /// The deadline asked for by [`Outbox::wake_at`] has come while records are still expected. For processing-time
    /// timers; also called, as a source's turn to speak, never for a source itself (that is [`complete`](Self::complete)).
    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        let _ = outbox;
        Ok(())
    }

    /// The slice is over: what was gathered over several calls goes on its way. Only for the sending ends of edges that lead to other
    /// processes.
    fn on_slice_end(&mut self) -> Result<()> {
        Ok(())
    }

    /// What it remembers beyond the end of an epoch and does not hand over, in words; none if there is nothing. A job that promises to keep
    /// its state is refused because of it, before anything runs.
    fn forgets(&self) -> Option<&'static str> {
        None
    }

    /// The states that its cuts may have, and what they look like: written down beside them, so that another version of the program can
    /// tell
    /// before it starts whether it can go on from there. May be asked of an instance that never runs.
    ///
    /// The default tells nothing: then whatever is there is handed to [`restore`](Self::restore), which knows.
    fn states(&self) -> Vec<StateShape> {
        Vec::new()
    }

    /// Notes that the state as it is now belongs to this cut, which is then written by [`write_cut`](Self::write_cut). One that was not
    /// written to its end is void.
    ///
    /// Takes about as long as a record, whatever the size of the state: nothing is copied. The default is right for what remembers
    /// nothing.
    ///
    /// # Errors
    /// Whatever keeps the cut from being taken; its epoch is then given up.
    fn take_cut(&mut self, cut: Cut) -> Result<()> {
        let _ = cut;
        Ok(())
    }

    /// Writes the next entries of the cut that was taken last, as far as `writer` has room; done when all are written.
    ///
    /// Called until done. Not done without progress means that there is nothing to write at the moment.
    ///
    /// # Errors
    /// Whatever keeps the cut from being written; its epoch is then given up.
    fn write_cut(&mut self, writer: &mut CutWriter<'_>) -> Result<Progress> {
        let _ = writer;
        Ok(Progress::DONE)
    }

    /// Takes entries back. Called, with more each time, until all have been taken.
    ///
    /// # Errors
    /// What fails the job: an entry that can't be read, or is of no state of this processor. The default knows none.
    fn restore(&mut self, state: &mut RestoredState<'_>) -> Result<()> {
        match state.next() {
            None => Ok(()),
            Some(entry) => Err(unknown_state(entry.state)),
        }
    }

    /// All that was remembered at the end of `epoch` has come back, which may be nothing. Called until done, before any record.
    fn on_restored(&mut self, epoch: Epoch) -> Result<Progress> {
        let _ = epoch;
        Ok(Progress::DONE)
    }

    /// Asked once behind `init`, of a step whose state can be read partition by partition: whether it begins before all of that is back.
    /// From then on it has to do as is said [above](Self). About so many entries will come.
    fn begins_early(&mut self, entries: u64) -> bool {
        let _ = entries;
        false
    }

    /// Of one that [begins early](Self::begins_early): all that was remembered of this partition, which may be nothing, is back.
    fn on_partition_restored(&mut self, partition: PartitionId) -> Result<()> {
        let _ = partition;
        Ok(())
    }

    /// Of one that [begins early](Self::begins_early), after partitions have come back, until done: deals with records of theirs that it
    /// has put aside, as far as there is room for what comes of them. Done before [`on_restored`](Self::on_restored) comes.
    fn catch_up(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let _ = outbox;
        Ok(Progress::DONE)
    }

    /// Of one that [begins early](Self::begins_early), after each `process`: appends the partitions that records wait for and that it
    /// has not named before, the most urgent first.
    fn take_wanted(&mut self, wanted: &mut Vec<PartitionId>) {
        let _ = wanted;
    }

    /// The snapshot of `epoch` is durable: the job will never go back to before it. Called until done.
    ///
    /// Whoever makes output visible only when it can't be taken back does so here, for this epoch and all before it.
    fn on_epoch_committed(&mut self, epoch: Epoch) -> Result<Progress> {
        let _ = epoch;
        Ok(Progress::DONE)
    }

    /// There will be no snapshot of `epoch`; the job goes on. Called until done.
    ///
    /// Nothing of the epoch's records or outputs is lost: they belong to the next epoch that is committed.
    fn on_epoch_given_up(&mut self, epoch: Epoch) -> Result<Progress> {
        let _ = epoch;
        Ok(Progress::DONE)
    }

    /// Whether this instance, which has ended, has to live on until its last epoch is committed. For those that do something in
    /// [`on_epoch_committed`](Self::on_epoch_committed) that the outside sees.
    fn awaits_commit(&self) -> bool {
        false
    }

    /// Called once after all others, also after a failure, a cancellation or a panic, and even if `init` was never called. Must not
    /// panic.
    fn close(&mut self) {}

    /// Gives up all that it remembers, as it is, for the instance that takes its place: comes after `close`, if at all, and only behind
    /// the end of an epoch since which nothing has come; or at any moment, if that is of use to nobody, and only to be dropped where
    /// nobody waits for it. The default has nothing to give: then that one is restored from the snapshot.
    ///
    /// For what is in memory alone, and large enough that reading it again would be felt. Files, connections and what the outside sees stay
    /// with who opened them.
    fn hand_over(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        None
    }

    /// Takes over what another instance [gave up](Self::hand_over): comes before `init`, on any thread, instead of `restore` and
    /// `on_restored`. False if that is of no use to this one, which is then as if it had not been asked; the default.
    fn take_over(&mut self, memory: Box<dyn Any + Send>) -> bool {
        drop(memory);
        false
    }
}

/// The error for an entry of a state that a processor does not have: what was remembered is not dropped in silence.
pub(crate) fn unknown_state(state: &str) -> Error {
    let what = format!("there is nothing here to take back the state {state:?}");
    Error::new(ErrorCode::InvalidJob, what)
        .hint("start the job as it was when the snapshot was taken, or without the snapshot")
}

/// Makes the processor of each instance of a vertex.
pub trait ProcessorSupplier: Send + Sync {
    /// The processor of `instance`.
    ///
    /// # Errors
    /// Whatever keeps it from being made; the job then does not start.
    fn supply(&self, instance: Instance) -> Result<Box<dyn Processor>>;

    /// The files that the processors of `parallelism` instances will read or write, as far as that is known: a job that would
    /// overwrite what it reads is refused. None by default.
    fn files(&self, parallelism: u32) -> Vec<FileUse> {
        let _ = parallelism;
        Vec::new()
    }

    /// Of a sink: what it gives, if that is known; see [`Sink::delivering`](crate::Sink::delivering).
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

/// A function that makes processors: `Fn() -> P` or `Fn(Instance) -> P`.
///
/// `Signature` tells the two apart for the compiler, which finds it by itself.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not make processors",
    label = "neither `|| processor` nor `|instance: Instance| processor`",
    note = "give the argument its type: `move |instance: Instance| ..`"
)]
pub trait MakeProcessor<Signature>: Send + Sync + 'static {
    /// The type of the processors.
    type Made: Processor + 'static;

    /// Makes the processor of `instance`.
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

/// A supplier from a function that cannot fail. The function takes nothing, or the instance whose processor it makes.
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
