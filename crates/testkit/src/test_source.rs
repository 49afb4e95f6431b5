//! A source that plays a list of items, including pauses, failures and ends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ardea_core::{
    Bounded, Error, ErrorCode, Instance, InstanceContext, Marker, Ordinal, Outbox, OutboxRuntime,
    Processor, Progress, Result, Source, SourceControl, Timestamp, Unbounded, Waker, Watermark,
};

/// One action of a [`TestSource`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TestItem<T> {
    /// Emits a record with its event time.
    Record(T, Timestamp),
    /// Emits a watermark: no earlier time follows.
    Watermark(Timestamp),
    /// Declares the source idle, so that it does not hold back the watermark of other inputs.
    Idle,
    /// Emits nothing for this duration on the instance's clock.
    Pause(Duration),
    /// Emits nothing until the test releases it: each [`Release::release`] releases one hold.
    Hold,
    /// Ends the source; later items are ignored.
    End,
    /// Makes the source fail with [`ErrorCode::ReadFailed`] and this message.
    Crash(String),
    /// Panics with this message.
    Panic(String),
}

/// A source for tests of whole jobs. It plays a list of [`TestItem`]s, from the first one at every
/// start of a job.
///
/// One instance plays; with a higher parallelism the other instances end at once. A drained source
/// ends at its current item.
///
/// ```
/// use ardea_testkit::{Emitted, SourceTest, TestItem, TestSource, Timestamp};
///
/// let at = Timestamp::from_secs(1);
/// let source = TestSource::new([TestItem::Record("a", at), TestItem::End, TestItem::Record("never", at)]).bounded();
/// let (_, supplier, ..) = source.into_parts();
/// assert_eq!(SourceTest::supplied(supplier).emitted::<&str>(), [Emitted::Record("a", at)]);
/// ```
#[derive(Debug)]
pub struct TestSource<T> {
    items: Arc<[TestItem<T>]>,
    holds: Arc<Holds>,
}

#[derive(Debug, Default)]
struct Holds {
    released: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
}

/// Releases the holds of a [`TestSource`], from any thread.
#[derive(Clone, Debug)]
pub struct Release(Arc<Holds>);

impl Release {
    /// Releases the next hold, now or when the source reaches it. A released hold stays open for
    /// later runs.
    pub fn release(&self) {
        self.0.released.fetch_add(1, Ordering::AcqRel);
        for waker in self
            .0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            waker.wake();
        }
    }
}

impl<T: Clone + Send + Sync + 'static> TestSource<T> {
    /// Creates a source that plays `items`.
    pub fn new(items: impl IntoIterator<Item = TestItem<T>>) -> Self {
        TestSource {
            items: items.into_iter().collect(),
            holds: Arc::default(),
        }
    }

    /// Returns the handle that releases the holds.
    pub fn release_handle(&self) -> Release {
        Release(Arc::clone(&self.holds))
    }

    /// Returns a source that ends after its last item.
    pub fn bounded(&self) -> Source<T, Bounded> {
        self.source(true)
    }

    /// Returns a source that is idle after its last item until it is drained; an `End` item ends it
    /// too.
    pub fn unbounded(&self) -> Source<T, Unbounded> {
        self.source(false)
    }

    fn source<B>(&self, ends: bool) -> Source<T, B> {
        let (items, holds) = (Arc::clone(&self.items), Arc::clone(&self.holds));
        let supply = move |instance: Instance| -> Result<Box<dyn Processor>> {
            Ok(Box::new(TestSourceP {
                items: Arc::clone(&items),
                holds: Arc::clone(&holds),
                next: if instance.index == 0 { 0 } else { items.len() },
                ends: ends || instance.index > 0,
                passed_holds: 0,
                pause_ends: None,
                context: InstanceContext::detached("test source"),
            }))
        };
        Source::new("test source", Arc::new(supply))
    }
}

struct TestSourceP<T> {
    items: Arc<[TestItem<T>]>,
    holds: Arc<Holds>,
    next: usize,
    ends: bool,
    passed_holds: u64,
    pause_ends: Option<Duration>,
    context: InstanceContext,
}

/// The way in which the list continues in this call.
enum NextItem {
    Next,
    Yield,
    Wait,
    End,
}

impl<T: Clone + Send + Sync + 'static> TestSourceP<T> {
    /// Plays one item. `wrote` is true if this call has already written: output before a failure is
    /// emitted first.
    fn play(&mut self, item: &TestItem<T>, outbox: &mut Outbox, wrote: bool) -> Result<NextItem> {
        match item {
            TestItem::Record(value, time) => {
                let mut lane = outbox.lane::<T>(Ordinal::FIRST)?;
                if lane.is_full() {
                    return Ok(NextItem::Yield);
                }
                lane.push(value.clone(), *time);
            }
            TestItem::Watermark(time) => outbox.watermark(Watermark(*time)),
            TestItem::Idle => outbox.marker(Marker::Idle),
            TestItem::Pause(length) => {
                let now = self.context.clock.now();
                let until = *self.pause_ends.get_or_insert(now + *length);
                if now < until {
                    outbox.wake_at(until);
                    return Ok(NextItem::Wait);
                }
                self.pause_ends = None;
            }
            TestItem::Hold => {
                if self.holds.released.load(Ordering::Acquire) <= self.passed_holds {
                    return Ok(NextItem::Wait);
                }
                self.passed_holds += 1;
            }
            TestItem::End => return Ok(NextItem::End),
            TestItem::Crash(_) | TestItem::Panic(_) if wrote || !outbox.is_empty() => {
                return Ok(NextItem::Yield);
            }
            TestItem::Crash(message) => {
                return Err(Error::new(ErrorCode::ReadFailed, message.clone()));
            }
            TestItem::Panic(message) => panic!("{message}"),
        }
        Ok(NextItem::Next)
    }
}

impl<T: Clone + Send + Sync + 'static> Processor for TestSourceP<T> {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.holds
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(context.waker.clone());
        self.context = context.clone();
        Ok(())
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        let items = Arc::clone(&self.items);
        let start = self.next;
        while let Some(item) = items.get(self.next) {
            match self.play(item, outbox, self.next > start)? {
                NextItem::Next => self.next += 1,
                NextItem::End => return Ok(Progress::DONE),
                NextItem::Yield | NextItem::Wait => {
                    return Ok(Progress {
                        made: self.next > start,
                        done: false,
                    });
                }
            }
        }
        Ok(Progress {
            made: self.next > start,
            done: self.ends,
        })
    }

    fn source_control(&mut self) -> Option<&mut dyn SourceControl> {
        Some(self)
    }
}

impl<T: Clone + Send + Sync + 'static> SourceControl for TestSourceP<T> {
    fn is_at_end(&self) -> bool {
        let next = self.items.get(self.next);
        next.map_or(self.ends, |item| matches!(item, TestItem::End))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Emitted, SourceTest};

    const AT: Timestamp = Timestamp::from_secs(1);

    fn test(source: &TestSource<u32>) -> SourceTest {
        SourceTest::supplied(source.unbounded().into_parts().1)
    }

    #[test]
    fn records_and_marks_come_in_the_order_of_the_list() {
        let source = TestSource::new([
            TestItem::Record(1, AT),
            TestItem::Watermark(AT),
            TestItem::Pause(Duration::from_secs(60)),
            TestItem::Record(2, AT),
            TestItem::Idle,
            TestItem::End,
        ]);
        let emitted = test(&source).emitted::<u32>();
        let mark = Emitted::Watermark(Watermark(AT));
        assert_eq!(
            emitted,
            [
                Emitted::Record(1, AT),
                mark,
                Emitted::Record(2, AT),
                Emitted::Idle
            ]
        );
    }

    #[test]
    fn a_hold_lasts_until_it_is_released() {
        let source = TestSource::new([TestItem::Record(1, AT), TestItem::Hold, TestItem::End]);
        let held = test(&source).output::<u32>([1]).try_run().unwrap_err();
        assert!(held.broken().contains("stuck"), "{held}");
        source.release_handle().release();
        test(&source).output::<u32>([1]).run();
    }

    #[test]
    fn a_crash_is_an_error_and_what_came_before_it_is_let_out() {
        let source = TestSource::new([
            TestItem::Record(1, AT),
            TestItem::Crash("broken pipe".into()),
        ]);
        test(&source)
            .configure(|test| test.expect_error(ErrorCode::ReadFailed))
            .output::<u32>([1])
            .run();
    }

    #[test]
    fn a_panic_is_reported_with_its_message() {
        let source = TestSource::new([TestItem::Panic("as asked".into())]);
        let failure = test(&source).output::<u32>([]).try_run().unwrap_err();
        assert!(
            failure.broken().contains("complete panicked: as asked"),
            "{failure}"
        );
    }

    #[test]
    fn an_endless_source_ends_when_it_is_drained() {
        let source = TestSource::new([TestItem::Record(1, AT)]);
        test(&source).drain_after(1).output::<u32>([1]).run();
    }

    #[test]
    fn it_has_come_to_its_end_when_no_item_is_left_that_it_would_play() {
        let is_at_end = |items: Vec<TestItem<u32>>| {
            let source = TestSource::new(items);
            [
                source.bounded().into_parts().1,
                source.unbounded().into_parts().1,
            ]
            .map(|supplier| {
                supplier
                    .supply(Instance::ONLY)
                    .unwrap()
                    .source()
                    .is_at_end()
            })
        };
        assert_eq!(is_at_end(vec![]), [true, false]);
        assert_eq!(is_at_end(vec![TestItem::End]), [true, true]);
        assert_eq!(is_at_end(vec![TestItem::Idle]), [false, false]);
    }
}
