//! Any iterator as a source.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use ardea_core::{
    Instance, InstanceContext, Ordinal, Outbox, Processor, Progress, Result, Timestamp,
};

/// Emits the items of an iterator, which each instance makes for itself: `make(instance)`.
///
/// Cooperative: a call draws no more than there is room for, nor more than [`per_call`](IterSourceP::per_call) allows; give
/// an iterator that computes for long between two items a small number there. Ends when the iterator ends or the job is
/// asked to drain. An iterator that blocks belongs on a thread of its own
/// ([`Isolation::Thread`](ardea_core::Isolation::Thread)).
///
/// ```
/// use std::sync::Arc;
/// use ardea_core::{Instance, InstanceContext, Ordinal, Outbox, Processor, Progress};
/// use ardea_operators::IterSourceP;
///
/// // Two instances would share the work: each takes the numbers that it owns.
/// let make = |instance: Instance| (0..3u64).filter(move |n| instance.owns(*n));
/// let mut source = IterSourceP::new(Arc::new(make));
/// let mut outbox = Outbox::new(1, 16);
/// source.init(&InstanceContext::detached("numbers"))?;
/// assert_eq!(source.complete(&mut outbox)?, Progress::DONE);
/// assert_eq!(outbox.lane::<u64>(Ordinal::FIRST)?.rows().values(), [0, 1, 2]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub struct IterSourceP<I: Iterator, M, W = fn(&<I as Iterator>::Item) -> Timestamp> {
    make: Arc<M>,
    time: Arc<W>,
    per_call: usize,
    items: Option<I>,
    context: InstanceContext,
}

impl<I, M> IterSourceP<I, M>
where
    I: Iterator,
    M: Fn(Instance) -> I,
{
    /// A source of records without event time.
    pub fn new(make: Arc<M>) -> Self {
        IterSourceP::timed(make, Arc::new(|_: &I::Item| Timestamp::MIN))
    }
}

impl<I, M, W> IterSourceP<I, M, W>
where
    I: Iterator,
    M: Fn(Instance) -> I,
    W: Fn(&I::Item) -> Timestamp,
{
    /// A source of records with the event time `time(record)`; watermarks are made by what follows it, such as
    /// [`NativeTimeP`](crate::NativeTimeP).
    pub fn timed(make: Arc<M>, time: Arc<W>) -> Self {
        IterSourceP {
            make,
            time,
            per_call: usize::MAX,
            items: None,
            context: InstanceContext::detached("detached"),
        }
    }

    /// Sets how many items a call draws at most.
    pub fn per_call(mut self, items: NonZeroUsize) -> Self {
        self.per_call = items.get();
        self
    }
}

impl<I, M, W> Processor for IterSourceP<I, M, W>
where
    I: Iterator<Item: Send + 'static> + Send,
    M: Fn(Instance) -> I + Send + Sync,
    W: Fn(&I::Item) -> Timestamp + Send + Sync,
{
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.context = context.clone();
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if self.context.signals.is_draining() {
            return Ok(Progress::DONE);
        }
        let IterSourceP {
            make,
            time,
            items,
            context,
            ..
        } = self;
        let items = items.get_or_insert_with(|| make(context.instance));
        let mut lane = outbox.lane::<I::Item>(Ordinal::FIRST)?;
        let count = lane.room().min(self.per_call);
        if count == 0 {
            return Ok(Progress::NONE);
        }
        let rows = lane.rows();
        let before = rows.len();
        rows.extend(items.take(count).map(|item| {
            let at = time(&item);
            (item, at)
        }));
        Ok(Progress::done_if(rows.len() - before < count))
    }

    fn close(&mut self) {
        self.items = None;
    }
}

impl<I: Iterator, M, W> fmt::Debug for IterSourceP<I, M, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IterSourceP")
            .field("per_call", &self.per_call)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{Drive, at};

    #[test]
    fn all_items_come_with_their_times_whatever_the_room() {
        Drive::every_schedule(|drive| {
            let mut source =
                IterSourceP::timed(Arc::new(|_: Instance| 0..40i64), Arc::new(|n: &i64| at(*n)));
            let seen = drive.run::<i64>(&mut source);
            assert_eq!(
                seen.records(),
                (0..40).map(|n| (n, at(n))).collect::<Vec<_>>()
            );
        });
    }

    #[test]
    fn a_call_draws_no_more_than_allowed() {
        let mut source = IterSourceP::new(Arc::new(|_: Instance| 0u64..))
            .per_call(NonZeroUsize::new(3).unwrap());
        let mut outbox = Outbox::new(1, 100);
        assert_eq!(source.complete(&mut outbox).unwrap(), Progress::MADE);
        assert_eq!(
            outbox.lane::<u64>(Ordinal::FIRST).unwrap().rows().values(),
            [0, 1, 2]
        );
    }

    #[test]
    fn a_job_that_drains_ends_an_endless_source() {
        let context = InstanceContext::detached("endless");
        let mut source = IterSourceP::new(Arc::new(|_: Instance| 0u64..));
        source.init(&context).unwrap();
        let mut outbox = Outbox::new(1, 4);
        assert_eq!(source.complete(&mut outbox).unwrap(), Progress::MADE);
        assert_eq!(
            source.complete(&mut outbox).unwrap(),
            Progress::NONE,
            "the output is full"
        );
        context.signals.drain();
        assert_eq!(source.complete(&mut outbox).unwrap(), Progress::DONE);
    }
}
