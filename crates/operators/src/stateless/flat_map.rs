//! A map from each record to any number of records.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_core::{
    Epoch, Inbox, Lane, Ordinal, Outbox, Processor, Progress, Result, Timestamp, Watermark,
};

use crate::forward::{break_if, take_until};

/// Emits each item of `f(record)`, with the record's event time.
///
/// Items are drawn one by one and only while there is room. An iterator may therefore be long or
/// even infinite. An unfinished iterator is retained while the output is full, and no watermark
/// overtakes its items.
///
/// ```
/// use std::sync::Arc;
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, OutboxRuntime, Processor, Rows, Timestamp};
/// use ardea_operators::FlatMapP;
///
/// let mut inbox = Inbox::default();
/// inbox.fill(Chunk::new(Rows::from_iter([("to be or", Timestamp::MIN), ("not to be", Timestamp::MIN)])));
/// let mut outbox = Outbox::new(1, 4); // room for four records
///
/// let mut words = FlatMapP::new(Arc::new(|line: &'static str| line.split(' ')));
/// words.process(Ordinal::FIRST, &mut inbox, &mut outbox)?;
/// assert_eq!(outbox.lane::<&str>(Ordinal::FIRST)?.rows().values(), ["to", "be", "or", "not"]);
///
/// outbox.take_chunk(0, Chunk::default); // the engine moves the four on and calls again
/// words.on_wake(&mut outbox)?;
/// assert_eq!(outbox.lane::<&str>(Ordinal::FIRST)?.rows().values(), ["to", "be"]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub struct FlatMapP<T, I: IntoIterator, F> {
    f: Arc<F>,
    /// The iterator of a record whose items have not all been emitted.
    unfinished: Option<(I::IntoIter, Timestamp)>,
    records: PhantomData<fn(T)>,
}

impl<T, I, F> FlatMapP<T, I, F>
where
    I: IntoIterator,
    F: Fn(T) -> I,
{
    /// Creates an operator that applies `f`, which instances share.
    pub fn new(f: Arc<F>) -> Self {
        FlatMapP {
            f,
            unfinished: None,
            records: PhantomData,
        }
    }
}

impl<T, I, F> FlatMapP<T, I, F>
where
    I: IntoIterator<Item: Send + 'static>,
{
    /// Continues with the unfinished iterator. Returns `DONE` when no unfinished iterator is left.
    fn resume(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let Some((items, time)) = &mut self.unfinished else {
            return Ok(Progress::DONE);
        };
        let mut lane = outbox.lane::<I::Item>(Ordinal::FIRST)?;
        let made = !lane.is_full();
        if draw(items, *time, &mut lane) {
            self.unfinished = None;
            return Ok(Progress::DONE);
        }
        outbox.wake_at(Duration::ZERO);
        Ok(Progress { made, done: false })
    }
}

/// Draws items while there is room. Returns true if the iterator is exhausted.
#[inline]
fn draw<I: Iterator>(items: &mut I, time: Timestamp, lane: &mut Lane<'_, I::Item>) -> bool {
    while !lane.is_full() {
        match items.next() {
            Some(item) => lane.push(item, time),
            None => return true,
        }
    }
    items.size_hint().1 == Some(0)
}

impl<T, I, F> Processor for FlatMapP<T, I, F>
where
    T: Send + 'static,
    I: IntoIterator<Item: Send + 'static, IntoIter: Send> + 'static,
    F: Fn(T) -> I + Send + Sync + 'static,
{
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if !self.resume(outbox)?.done {
            return Ok(());
        }
        let FlatMapP { f, unfinished, .. } = self;
        let mut lane = outbox.lane::<I::Item>(Ordinal::FIRST)?;
        if lane.is_full() {
            return Ok(());
        }
        take_until(inbox.rows::<T>()?, |record, time| {
            let mut items = f(record).into_iter();
            if !draw(&mut items, time, &mut lane) {
                *unfinished = Some((items, time));
            }
            break_if(lane.is_full())
        });
        if unfinished.is_some() {
            outbox.wake_at(Duration::ZERO);
        }
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        let progress = self.resume(outbox)?;
        if progress.done {
            outbox.watermark(watermark);
        }
        Ok(progress)
    }

    fn on_epoch(&mut self, _: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        self.resume(outbox)
    }

    fn on_edge_done(&mut self, _: Ordinal, outbox: &mut Outbox) -> Result<Progress> {
        self.resume(outbox)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.resume(outbox)
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.resume(outbox).map(drop)
    }
}

impl<T, I: IntoIterator, F> fmt::Debug for FlatMapP<T, I, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlatMapP")
            .field("unfinished", &self.unfinished.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_driver::{Drive, LaneOutput, at};
    use ardea_core::OutboxRuntime;

    #[test]
    fn the_items_of_all_records_come_in_order() {
        Drive::every_schedule(|drive| {
            let mut repeat = FlatMapP::new(Arc::new(|n: i64| std::iter::repeat_n(n, n as usize)));
            let seen = drive
                .records((0..20).map(|n| (n, at(n))))
                .run::<i64>(&mut repeat);
            let expected: Vec<_> = (0..20)
                .flat_map(|n| std::iter::repeat_n((n, at(n)), n as usize))
                .collect();
            assert_eq!(seen.records(), expected);
        });
    }

    #[test]
    fn a_watermark_waits_for_the_items_before_it() {
        Drive::every_schedule(|drive| {
            let mut repeat = FlatMapP::new(Arc::new(|n: i64| vec![n; 50]));
            let seen = drive
                .records([(1i64, at(1))])
                .watermark(at(2))
                .run::<i64>(&mut repeat);
            assert_eq!(seen.events()[..50], vec![LaneOutput::Record(1, at(1)); 50]);
            assert_eq!(seen.events()[50], LaneOutput::Watermark(at(2)));
        });
    }

    #[test]
    fn an_endless_iterator_fills_the_output_and_no_more() {
        let mut inbox = Inbox::default();
        inbox.fill(ardea_core::Chunk::new(ardea_core::Rows::from_iter([
            (7u8, at(0)),
            (8, at(0)),
        ])));
        let mut outbox = Outbox::new(1, 5);
        let mut endless = FlatMapP::new(Arc::new(std::iter::repeat::<u8>));
        endless
            .process(Ordinal::FIRST, &mut inbox, &mut outbox)
            .unwrap();
        assert_eq!(
            outbox.lane::<u8>(Ordinal::FIRST).unwrap().rows().values(),
            [7; 5]
        );
        assert_eq!(inbox.len(), 1);
        assert_eq!(
            outbox.take_wake_at(),
            Some(Duration::ZERO),
            "there is more to come without input"
        );
    }
}
