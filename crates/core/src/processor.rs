//! The code of a vertex.

use std::sync::Arc;

use crate::{
    Epoch, FileUse, Inbox, Instance, InstanceContext, Ordinal, Outbox, Progress, Result, Timestamp,
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
/// * Between two calls of one callback that returned not done, no other callback comes, except [`close`](Self::close).
/// * An error, or a panic, fails the whole job: vertex, instance and the record's position are named. `close` is still called.
///
/// Order of the calls: `init`; then `process`, `on_watermark` and `on_epoch` as the input brings them, `on_edge_done` once an
/// input; `complete` until done; `close`.
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

    /// Called once after all others, also after a failure, a cancellation or a panic, and even if `init` was never called. Must not
    /// panic.
    fn close(&mut self) {}
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
}

impl<F> ProcessorSupplier for F
where
    F: Fn(Instance) -> Result<Box<dyn Processor>> + Send + Sync,
{
    fn supply(&self, instance: Instance) -> Result<Box<dyn Processor>> {
        self(instance)
    }
}

/// A supplier from a function that can't fail and makes the same processor for every instance.
pub fn supplier<P, F>(make: F) -> Arc<dyn ProcessorSupplier>
where
    P: Processor + 'static,
    F: Fn() -> P + Send + Sync + 'static,
{
    Arc::new(move |_: Instance| -> Result<Box<dyn Processor>> { Ok(Box::new(make())) })
}
