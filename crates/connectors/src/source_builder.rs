//! Sources made of a user's functions.

mod batch;
mod partition_reader;
mod positions;
mod reader;
#[cfg(test)]
mod tests;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Bounded, Instance, Parallelism, Source, Unbounded, WatermarkPolicy, supplier};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::user_functions::{RETRY_LIMIT, UserResult, isolation_of};
pub use batch::{PollStatus, SourceBatch};
use partition_reader::PartitionReader;
use positions::OffsetCodec;
use reader::ReaderP;
pub use reader::SourceReader;

/// A builder of a source from functions: `open` a partition, `poll` it for records, and return its
/// `offset`.
///
/// * **Partitions.** The instances share the partitions, whatever their number. Each partition is
///   opened when its instance first polls it. The partitions of an instance are polled in turn.
/// * **Records.** `poll` adds records to a [`SourceBatch`] while it has room. Further records are
///   buffered, and `poll` is not called again before they are emitted: a slow job slows the source
///   down. See [`PollStatus`] for the time of the next call.
/// * **Offsets.** A source with [`offset`](Self::offset) is replayable: a snapshot contains the
///   offset of each partition, after all records of its last `poll`. A restored source opens each
///   partition at its offset, also with another parallelism. A partition that has ended stays
///   ended. Fewer partitions than in the checkpoint are refused, unless the missing ones had ended;
///   added partitions start without an offset. A source without `offset` is refused in a job with
///   checkpoints.
/// * **Event time.** With [`event_time`](Self::event_time) each partition has a watermark, and the
///   source emits their minimum; use `with_source_time` on the stream. A partition becomes idle if
///   it has had no records for a while, and then does not hold the watermark back.
/// * **Threads.** The functions run on a cooperative thread and must return within about 100 µs,
///   unless the source is [`blocking`](Self::blocking).
/// * **Errors.** A transient error is retried, with a delay that grows from 100 ms to two seconds:
///   see [`UserError`](crate::UserError) and [`retry_limit`](Self::retry_limit). Records added
///   before the error are emitted and must be covered by the reader's offset. Another error fails
///   the job with the number of the partition.
///
/// ```
/// use ardea_connectors::{PollStatus, SourceBatch, SourceBuilder};
/// use ardea_core::{Bounded, Source};
///
/// // Two partitions with a hundred numbers each.
/// let numbers: Source<u64, Bounded> = SourceBuilder::batch("numbers")
///     .partitions(2)
///     .open(|partition, from: Option<u64>| Ok((partition, from.unwrap_or(0))))
///     .poll(|(partition, next), batch: &mut SourceBatch<'_, u64>| {
///         while *next < 100 && batch.has_room() {
///             batch.push(u64::from(*partition) * 1_000 + *next);
///             *next += 1;
///         }
///         Ok(if *next < 100 { PollStatus::Ready } else { PollStatus::End })
///     })
///     .offset(|(_, next)| *next)
///     .build();
/// ```
pub struct SourceBuilder<B, F = ()> {
    settings: SourceSettings,
    functions: F,
    kind: PhantomData<fn() -> B>,
}

/// The settings of a source.
#[derive(Clone, Debug)]
struct SourceSettings {
    name: String,
    partitions: u32,
    time: Option<WatermarkPolicy>,
    is_blocking: bool,
    retry_limit: Duration,
    parallelism: Parallelism,
}

type OpenFn<R, O> = Arc<dyn Fn(u32, Option<O>) -> UserResult<R> + Send + Sync>;
type PollFn<T, R> =
    Arc<dyn Fn(&mut R, &mut SourceBatch<'_, T>) -> UserResult<PollStatus> + Send + Sync>;

/// The functions of a source that has no `poll` yet.
pub struct SourceOpen<R, O>(OpenFn<R, O>);

/// The functions of a source that is complete, except perhaps for `offset`.
pub struct SourcePoll<T, R, O> {
    open: OpenFn<R, O>,
    poll: PollFn<T, R>,
    offset: Option<OffsetCodec<R, O>>,
}

impl<T, R, O> Clone for SourcePoll<T, R, O> {
    fn clone(&self) -> Self {
        SourcePoll {
            open: Arc::clone(&self.open),
            poll: Arc::clone(&self.poll),
            offset: self.offset.clone(),
        }
    }
}

impl SourceBuilder<Unbounded> {
    /// Creates the builder of a source that does not end by itself. `name` is the name of its
    /// vertex.
    pub fn stream(name: impl Into<String>) -> Self {
        SourceBuilder::new(name.into())
    }
}

impl SourceBuilder<Bounded> {
    /// Creates the builder of a source that ends when all its partitions have ended. `name` is the
    /// name of its vertex.
    pub fn batch(name: impl Into<String>) -> Self {
        SourceBuilder::new(name.into())
    }
}

impl<B> SourceBuilder<B> {
    fn new(name: String) -> Self {
        SourceBuilder {
            settings: SourceSettings {
                name,
                partitions: 1,
                time: None,
                is_blocking: false,
                retry_limit: RETRY_LIMIT,
                parallelism: Parallelism::ONE,
            },
            functions: (),
            kind: PhantomData,
        }
    }

    /// Sets the function that opens a partition: its number, from zero, and the offset of the next
    /// record. The offset is `None` if no checkpoint has one. The result is the reader that is
    /// passed to the other functions.
    pub fn open<R, O>(
        self,
        open: impl Fn(u32, Option<O>) -> UserResult<R> + Send + Sync + 'static,
    ) -> SourceBuilder<B, SourceOpen<R, O>>
    where
        R: Send + 'static,
    {
        self.with(|()| SourceOpen(Arc::new(open)))
    }
}

impl<B, R, O> SourceBuilder<B, SourceOpen<R, O>> {
    /// Sets the function that adds the next records of a partition to the batch, if there are any,
    /// and returns the time of its next call.
    pub fn poll<T>(
        self,
        poll: impl Fn(&mut R, &mut SourceBatch<'_, T>) -> UserResult<PollStatus> + Send + Sync + 'static,
    ) -> SourceBuilder<B, SourcePoll<T, R, O>>
    where
        T: Send + 'static,
    {
        self.with(|SourceOpen(open)| SourcePoll {
            open,
            poll: Arc::new(poll),
            offset: None,
        })
    }
}

impl<B, T, R, O> SourceBuilder<B, SourcePoll<T, R, O>> {
    /// Makes the source replayable. `offset` returns the position from which [`open`](Self::open)
    /// must continue: after all records of the last `poll`. It is called at the end of an epoch.
    /// Checkpoints contain the offset as JSON.
    pub fn offset(mut self, offset: impl Fn(&R) -> O + Send + Sync + 'static) -> Self
    where
        O: Serialize + DeserializeOwned,
    {
        self.functions.offset = Some(OffsetCodec::new(Arc::new(offset)));
        self
    }

    /// Builds the source for a pipeline.
    pub fn build(self) -> Source<T, B>
    where
        T: Send + 'static,
        R: Send + 'static,
        O: 'static,
    {
        let SourceBuilder {
            settings,
            functions,
            ..
        } = self;
        let (name, parallelism) = (settings.name.clone(), settings.parallelism);
        let isolation = isolation_of(settings.is_blocking);
        let make = move |instance: Instance| {
            let reader = PartitionReader::new(settings.clone(), functions.clone(), instance);
            ReaderP::new(reader)
        };
        Source::new(name, supplier(make))
            .parallelism(parallelism)
            .isolation(isolation)
    }
}

impl<B, F> SourceBuilder<B, F> {
    fn with<G>(self, functions: impl FnOnce(F) -> G) -> SourceBuilder<B, G> {
        SourceBuilder {
            settings: self.settings,
            functions: functions(self.functions),
            kind: PhantomData,
        }
    }

    /// Sets the number of partitions, one by default.
    pub fn partitions(mut self, partitions: u32) -> Self {
        self.settings.partitions = partitions;
        self
    }

    /// Creates watermarks from the event times of the records, separately for each partition. By
    /// default the source emits no watermarks. A record whose time is missing or too far ahead is
    /// emitted but does not advance the watermark.
    pub fn event_time(mut self, policy: WatermarkPolicy) -> Self {
        self.settings.time = Some(policy);
        self
    }

    /// Allows the functions to block: each instance has a thread of its own. A call must return
    /// within a second, so that the job can stop and the other partitions of the instance are
    /// polled.
    pub fn blocking(mut self) -> Self {
        self.settings.is_blocking = true;
        self
    }

    /// Sets the time after which a transient error of a partition fails the job, if all its calls
    /// in between have failed: five minutes by default.
    pub fn retry_limit(mut self, limit: Duration) -> Self {
        self.settings.retry_limit = limit;
        self
    }

    /// Sets the number of instances, one by default. Instances beyond the number of partitions have
    /// nothing to read.
    pub fn parallelism(mut self, parallelism: impl Into<Parallelism>) -> Self {
        self.settings.parallelism = parallelism.into();
        self
    }
}

impl<B, F> fmt::Debug for SourceBuilder<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SourceBuilder({:?})", self.settings)
    }
}

impl<B, T, R, O> From<SourceBuilder<B, SourcePoll<T, R, O>>> for Source<T, B>
where
    T: Send + 'static,
    R: Send + 'static,
    O: 'static,
{
    fn from(source: SourceBuilder<B, SourcePoll<T, R, O>>) -> Self {
        source.build()
    }
}
