//! Sinks made of a user's functions.

#[cfg(test)]
mod tests;
mod transactions;
mod write;
mod writer;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    DEFAULT_CHUNK_RECORDS, Delivery, Epoch, Instance, Parallelism, Processor, Result, Sink,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::user_functions::{RETRY_LIMIT, UserResult, isolation_of};
use transactions::TwoPhaseCommit;
use write::BatchWriteP;
pub use writer::SinkWriter;

/// A builder of a sink from functions: `open` it, `write` batches, and, for exactly-once, `prepare`
/// and `commit` transactions.
///
/// * **Batches.** `write` is called with the records at hand, in the order in which they arrive at
///   the instance, and with at most [`batch_records`](Self::batch_records) at a time. Records are
///   written when `write` returns `Ok`; until then they stay in the input, and a slow sink slows
///   the job down.
/// * **Transient errors.** A call that fails with a transient error is repeated, with a delay that
///   grows from 100 ms to two seconds, and a batch with the same records: see
///   [`UserError`](crate::UserError) and [`retry_limit`](Self::retry_limit). A function that fails
///   must leave the sink as it was before the call. Another error fails the job.
/// * **Threads.** The functions run on a cooperative thread and must return within about 100 µs,
///   unless the sink is [`blocking`](Self::blocking).
///
/// # Delivery
///
/// | functions | guarantee |
/// |---|---|
/// | `open`, `write` | [`AtLeastOnce`](Delivery::AtLeastOnce): records since the last checkpoint are written again after a failure |
/// | the same, declared [`idempotent`](Self::idempotent) | [`Idempotent`](Delivery::Idempotent) |
/// | also `prepare`, `commit` | [`ExactlyOnce`](Delivery::ExactlyOnce) |
///
/// An exactly-once sink publishes in two phases, in a job with checkpoints. At the end of an epoch,
/// `prepare` makes all records since the last call durable without publishing them, and returns a
/// handle. The checkpoint contains the handle. When the epoch is committed, `commit` publishes the
/// records of the handle; it is called in the order of the epochs. After a failure:
///
/// * Handles of the restored checkpoint are committed, perhaps a second time: a `commit` of a
///   committed handle must have no effect. They are committed before the first `write`, also after
///   a change of the parallelism, by instance *i* modulo the number of instances.
/// * Records that were written or prepared later are written again. `commit` is never called with
///   their handles; [`abort`](Self::abort) can remove their remains.
/// * Epoch numbers are used again: a transaction of the same instance and epoch may be left from a
///   failed attempt, and must be replaced.
///
/// Without checkpoints, records are prepared and committed as they arrive.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use ardea_connectors::SinkBuilder;
/// use ardea_core::{Instance, Sink};
///
/// let total = Arc::new(Mutex::new(0));
/// let sink: Sink<u64> = SinkBuilder::new("total")
///     .open(move |_: Instance| Ok(Arc::clone(&total)))
///     .write(|total, batch: &[u64]| {
///         *total.lock().unwrap() += batch.iter().sum::<u64>();
///         Ok(())
///     })
///     .build();
/// ```
pub struct SinkBuilder<F = ()> {
    settings: SinkSettings,
    functions: F,
}

/// The settings of a sink.
#[derive(Clone, Debug)]
struct SinkSettings {
    name: String,
    batch_records: usize,
    is_idempotent: bool,
    is_blocking: bool,
    retry_limit: Duration,
    parallelism: Parallelism,
}

type OpenFn<S> = Arc<dyn Fn(Instance) -> UserResult<S> + Send + Sync>;
type WriteFn<T, S> = Arc<dyn Fn(&mut S, &[T]) -> UserResult<()> + Send + Sync>;
type PrepareFn<S, H> = Arc<dyn Fn(&mut S, Epoch) -> UserResult<H> + Send + Sync>;

/// The functions of a sink that has no `write` yet.
pub struct SinkOpen<S>(OpenFn<S>);

/// The functions of a complete sink without transactions.
pub struct SinkWrite<T, S> {
    open: OpenFn<S>,
    write: WriteFn<T, S>,
}

impl<T, S> Clone for SinkWrite<T, S> {
    fn clone(&self) -> Self {
        SinkWrite {
            open: Arc::clone(&self.open),
            write: Arc::clone(&self.write),
        }
    }
}

/// The functions of a sink with transactions that has no `commit` yet.
pub struct SinkPrepare<T, S, H> {
    write: SinkWrite<T, S>,
    prepare: PrepareFn<S, H>,
}

/// The functions of a complete sink with transactions.
pub struct SinkCommit<T, S, H> {
    write: SinkWrite<T, S>,
    transactions: TwoPhaseCommit<S, H>,
}

impl SinkBuilder {
    /// Creates the builder of a sink. `name` is the name of its vertex.
    pub fn new(name: impl Into<String>) -> Self {
        SinkBuilder {
            settings: SinkSettings {
                name: name.into(),
                batch_records: DEFAULT_CHUNK_RECORDS,
                is_idempotent: false,
                is_blocking: false,
                retry_limit: RETRY_LIMIT,
                parallelism: Parallelism::ONE,
            },
            functions: (),
        }
    }

    /// Sets the function that opens the sink of an instance. The result is passed to the other
    /// functions. It is called before the first other function.
    pub fn open<S: Send + 'static>(
        self,
        open: impl Fn(Instance) -> UserResult<S> + Send + Sync + 'static,
    ) -> SinkBuilder<SinkOpen<S>> {
        self.with(|()| SinkOpen(Arc::new(open)))
    }
}

impl<S> SinkBuilder<SinkOpen<S>> {
    /// Sets the function that writes a batch of records, in order.
    pub fn write<T: Send + 'static>(
        self,
        write: impl Fn(&mut S, &[T]) -> UserResult<()> + Send + Sync + 'static,
    ) -> SinkBuilder<SinkWrite<T, S>> {
        self.with(|SinkOpen(open)| SinkWrite {
            open,
            write: Arc::new(write),
        })
    }
}

impl<T, S> SinkBuilder<SinkWrite<T, S>> {
    /// Sets the function that makes all records since its last call durable, without publishing
    /// them, and returns the handle of this transaction. The number of the epoch is larger than in
    /// all earlier calls of this instance in this attempt. Not called for an epoch without records.
    /// Checkpoints contain the handle as JSON.
    pub fn prepare<H>(
        self,
        prepare: impl Fn(&mut S, Epoch) -> UserResult<H> + Send + Sync + 'static,
    ) -> SinkBuilder<SinkPrepare<T, S, H>>
    where
        H: Serialize + DeserializeOwned + Send + 'static,
    {
        self.with(|write| SinkPrepare {
            write,
            prepare: Arc::new(prepare),
        })
    }

    /// Declares that writing a record again has no further effect.
    pub fn idempotent(mut self) -> Self {
        self.settings.is_idempotent = true;
        self
    }

    /// Builds the sink for a pipeline.
    pub fn build(self) -> Sink<T>
    where
        T: Send + 'static,
        S: Send + 'static,
    {
        let delivery = match self.settings.is_idempotent {
            true => Delivery::Idempotent,
            false => Delivery::AtLeastOnce,
        };
        let SinkBuilder {
            settings,
            functions,
        } = self;
        sink::<T, S, ()>(settings, functions, None, delivery)
    }
}

impl<T, S, H> SinkBuilder<SinkPrepare<T, S, H>> {
    /// Sets the function that publishes the records of a handle. It must have no effect if they are
    /// published already.
    pub fn commit(
        self,
        commit: impl Fn(&mut S, &H) -> UserResult<()> + Send + Sync + 'static,
    ) -> SinkBuilder<SinkCommit<T, S, H>>
    where
        H: Serialize + DeserializeOwned,
    {
        self.with(|SinkPrepare { write, prepare }| SinkCommit {
            write,
            transactions: TwoPhaseCommit::new(prepare, Arc::new(commit)),
        })
    }
}

impl<T, S, H> SinkBuilder<SinkCommit<T, S, H>> {
    /// Sets a function that removes what failed attempts have written or prepared and never
    /// committed. It is called once by each instance, before its first `write`, and after the
    /// handles of the restored checkpoint have been committed. With another parallelism than
    /// before, each instance should remove the transactions of all instances *i* for which
    /// [`Instance::owns(i)`](Instance::owns) is true.
    pub fn abort(
        mut self,
        abort: impl Fn(&mut S) -> UserResult<()> + Send + Sync + 'static,
    ) -> Self {
        self.functions.transactions.abort = Some(Arc::new(abort));
        self
    }

    /// Builds the sink for a pipeline.
    pub fn build(self) -> Sink<T>
    where
        T: Send + 'static,
        S: Send + 'static,
        H: Send + 'static,
    {
        let SinkBuilder {
            settings,
            functions,
        } = self;
        let transactions = Some(functions.transactions);
        let write = functions.write;
        sink(settings, write, transactions, Delivery::ExactlyOnce)
    }
}

fn sink<T, S, H>(
    settings: SinkSettings,
    functions: SinkWrite<T, S>,
    transactions: Option<TwoPhaseCommit<S, H>>,
    delivery: Delivery,
) -> Sink<T>
where
    T: Send + 'static,
    S: Send + 'static,
    H: Send + 'static,
{
    let (name, parallelism) = (settings.name.clone(), settings.parallelism);
    let isolation = isolation_of(settings.is_blocking);
    let supply = move |_: Instance| -> Result<Box<dyn Processor>> {
        let (functions, transactions) = (functions.clone(), transactions.clone());
        let write = BatchWriteP::new(settings.clone(), functions, transactions);
        Ok(Box::new(write))
    };
    Sink::new(name, Arc::new(supply))
        .parallelism(parallelism)
        .isolation(isolation)
        .with_delivery(delivery)
}

impl<F> SinkBuilder<F> {
    fn with<G>(self, functions: impl FnOnce(F) -> G) -> SinkBuilder<G> {
        SinkBuilder {
            settings: self.settings,
            functions: functions(self.functions),
        }
    }

    /// Sets the maximum number of records per batch, 1,024 by default.
    pub fn batch_records(mut self, records: usize) -> Self {
        self.settings.batch_records = records.max(1);
        self
    }

    /// Allows the functions to block: each instance has a thread of its own. A call should return
    /// within a second, so that the job can stop.
    pub fn blocking(mut self) -> Self {
        self.settings.is_blocking = true;
        self
    }

    /// Sets the time after which a transient error fails the job, if all calls in between have
    /// failed: five minutes by default.
    pub fn retry_limit(mut self, limit: Duration) -> Self {
        self.settings.retry_limit = limit;
        self
    }

    /// Sets the number of instances, one by default.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.settings.parallelism = parallelism.into();
        self
    }
}

impl<F> fmt::Debug for SinkBuilder<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SinkBuilder({:?})", self.settings)
    }
}

impl<T, S> From<SinkBuilder<SinkWrite<T, S>>> for Sink<T>
where
    T: Send + 'static,
    S: Send + 'static,
{
    fn from(sink: SinkBuilder<SinkWrite<T, S>>) -> Self {
        sink.build()
    }
}

impl<T, S, H> From<SinkBuilder<SinkCommit<T, S, H>>> for Sink<T>
where
    T: Send + 'static,
    S: Send + 'static,
    H: Send + 'static,
{
    fn from(sink: SinkBuilder<SinkCommit<T, S, H>>) -> Self {
        sink.build()
    }
}
