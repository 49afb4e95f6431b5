//! The code of a vertex.

mod checkpointed;
mod marker_deferral;
mod source_control;

use std::any::Any;
use std::sync::Arc;

use crate::{
    Delivery, Epoch, FileUse, Inbox, Instance, InstanceContext, MicroBatch, Ordinal, Outbox,
    Progress, Result, Watermark,
};

pub use checkpointed::{Checkpointed, NoPartitions, NoState, PartitionRestore};
pub use marker_deferral::MarkerDeferral;
pub use source_control::{NoControl, SourceControl};

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
/// # State
///
/// A stateful processor returns itself, or the part of it that holds the state, from
/// [`checkpointed`](Self::checkpointed); see [`Checkpointed`] for snapshots and restore. A source
/// that can be drained before its end returns a [`SourceControl`].
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

    /// Handles the end of micro-batch `batch`, after its records and the watermark at its end. The
    /// runtime passes the end on afterwards. Called until it returns done, in a job whose
    /// [context](InstanceContext::micro_batches) has micro-batches.
    ///
    /// A step decides here what must not depend on the division of its input into chunks.
    fn on_batch_end(&mut self, batch: MicroBatch, outbox: &mut Outbox) -> Result<Progress> {
        let _ = (batch, outbox);
        Ok(Progress::IDLE)
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

    /// Processes records that were set aside during a [lazy restore](Checkpointed) and whose
    /// partitions are now restored, while the outbox has room. Called until done, before
    /// [`on_restored`](Checkpointed::on_restored).
    fn catch_up(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let _ = outbox;
        Ok(Progress::DONE)
    }

    /// Handles the deadline requested by [`Outbox::wake_at`], for processing-time timers. Never
    /// called for sources, whose [`complete`](Self::complete) is called instead.
    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        let _ = outbox;
        Ok(())
    }

    /// Returns the state of the instance that snapshots contain; `None` if there is none. The same
    /// answer at each call.
    fn checkpointed(&mut self) -> Option<&mut dyn Checkpointed> {
        None
    }

    /// Returns the control of a source that reads external input; `None` for other processors, and
    /// for a source that may stop at any call. The same answer at each call.
    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        None
    }

    /// Returns the interface of a processor that defers markers; `None` for others. The same answer
    /// at each call.
    fn marker_deferral(&mut self) -> Option<&mut dyn MarkerDeferral> {
        None
    }

    /// Returns a description of state that this processor cannot save in snapshots; `None` if there
    /// is none. A job whose guarantee keeps state is refused at its start if a processor returns
    /// one.
    fn unsaved_state(&self) -> Option<&'static str> {
        None
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
}

impl dyn Processor + '_ {
    /// For the runtime: returns the state of the instance, or [`NoState`].
    pub fn state(&mut self) -> &mut dyn Checkpointed {
        match self.checkpointed() {
            Some(state) => state,
            // A value without size: nothing is allocated.
            None => Box::leak(Box::new(NoState)),
        }
    }

    /// For the runtime: returns the control of a source, or [`NoControl`].
    pub fn source(&mut self) -> &mut dyn SourceControl {
        match self.source_control() {
            Some(source) => source,
            None => Box::leak(Box::new(NoControl)),
        }
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
